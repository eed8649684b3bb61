"""Participation: what each member did in each round, and why its post is missing, as far as folders tell."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from markupsafe import Markup, escape

from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.member_views import Attending, RoundPart
from fedchain.chain.explorer.units import duration
from fedchain.chain.genesis import Contributor, Genesis
from fedchain.node.shell.timeline import SeenBlock, SeenPost
from fedchain.web.formats import Names
from fedchain.wording import printable

SIGNS = {
    "posted": "•",
    "outside": "·",
    "late": "◔",
    "lost": "○",
    "aggregator": "◆",
    "absent": "–",
    "nothing": "∅",
    "refused": "✕",
}
"""The sign of each state, the worst last."""

MEANINGS = {
    "posted": "a block counts its post",
    "late": "its post, or its training, came after the block",
    "lost": "its post came before the block, which does not count it",
    "aggregator": "the dedicated aggregator, which trains nothing",
    "absent": "no post of it was seen",
    "nothing": "it had nothing to post, or its training failed",
    "outside": "it was no member that counts then",
    "refused": "its post was refused as its own fault, or it is convicted",
}

UNSEEN = "it trained, and no post of it was seen in time"
"""Why a member's post may be missing although its accuracy is known."""

_RANKS = {state: rank for rank, state in enumerate(SIGNS)}

Accuracies = Mapping[int, float]
"""Accuracies of a member's model by round, fractions."""

NO_CHANGES: Mapping[int, Attending] = MappingProxyType({})
"""The members of a chain where they are the same for ever."""


@dataclass(frozen=True, slots=True)
class _Closed:
    """A phase that was closed, and the fate of posts in it."""

    line: Line
    senders: set[int]
    why: Mapping[int, tuple[str, str]]
    """As of :func:`why_missing`."""


def participation(
    rules: Genesis,
    lines: Iterable[Line],
    seen: Mapping[int, Sequence[SeenBlock]],
    crimes: Mapping[int, tuple[int, str]],
    accuracies: Mapping[int, Accuracies],
    attending: Mapping[int, Attending] = NO_CHANGES,
) -> dict[int, list[RoundPart]]:
    """The parts of members in rounds, by member, oldest round first.

    Args:
        rules: those in force.
        lines: final blocks, oldest first.
        seen: observations of them, by height.
        crimes: height and crime of each convicted member, by number.
        accuracies: accuracies of the members that are asked for, by member and round, as far as they were measured.
        attending: the members that count at each height, by height; none where they never change.
    """
    found: dict[int, list[RoundPart]] = {number: [] for number in accuracies}
    founded = range(len(rules.participants), len(rules.members))
    of_participants = {place for place, phase in enumerate(rules.phases) if phase.by is not Contributor.AGGREGATOR}
    own = (line for line in lines if line.round and line.phase in of_participants)
    for round_number, of_round in groupby(own, key=lambda line: line.round):
        phases = [
            _Closed(line, set(line.senders), why_missing(line.hash.hex(), seen.get(line.height, ())))
            for line in of_round
        ]
        last = phases[-1].line.height
        everywhere = set.intersection(*(phase.senders for phase in phases))
        in_block = RoundPart(round_number, "posted", last, f"block {last} counts its post")
        there = attending.get(phases[0].line.height)
        is_drawn = rules.contributors_per_round > 0 if there is None else there.is_drawn
        absent = MEANINGS["absent"] + ("; it may not have been drawn" if is_drawn else "")
        for number, parts in found.items():
            if number in everywhere:
                parts.append(in_block)
                continue
            otherwise = ("late", UNSEEN) if round_number in accuracies[number] else ("absent", absent)
            if there is not None and number not in there.active:
                otherwise = "outside", MEANINGS["outside"]
            elif number in (founded if there is None else there.idle):
                otherwise = "aggregator", MEANINGS["aggregator"]
            missed = [
                (*_missing(number, phase, crimes, otherwise), phase.line.height)
                for phase in phases
                if number not in phase.senders
            ]
            state, reason, height = max(missed, key=lambda item: _RANKS[item[0]])
            parts.append(RoundPart(round_number, state, height, reason))
    return found


def why_missing(name: str, seen: Sequence[SeenBlock]) -> dict[int, tuple[str, str]]:
    """Why a block lacks posts: state and reason by member, of those that had none and those whose post a peer saw.

    Args:
        name: the block's hash in hexadecimal.
        seen: observations at its height.
    """
    same = [block for block in seen if block.hash == name]
    nothing = (item for block in same for item in block.nothing)
    found = {item.member: ("nothing", f"it had nothing to post: {item.reason}") for item in nothing}
    for block in same:
        came_ms = min((item.after_ms for item in block.candidates if item.hash == name), default=block.final_ms)
        for post in block.posts:
            state = _judge(post, came_ms)
            if state[0] == "refused" or found.get(post.member, ("nothing",))[0] == "nothing":
                found[post.member] = state
    return found


def _judge(post: SeenPost, came_ms: int) -> tuple[str, str]:
    if post.reason:
        return "refused", f"its post was refused: {post.reason}"
    apart = duration(abs(post.after_ms - came_ms))
    if post.after_ms > came_ms:
        return "late", f"its post came {apart} after the block"
    return "lost", f"its post came {apart} before the block, which does not count it"


def _missing(
    number: int, phase: _Closed, crimes: Mapping[int, tuple[int, str]], otherwise: tuple[str, str]
) -> tuple[str, str]:
    """State and reason of a member whose post a phase does not count."""
    height, crime = crimes.get(number, (0, ""))
    if crime and phase.line.height > height:
        return "refused", f"convicted: {crime}"
    return phase.why.get(number, otherwise)


def grid(
    parts: Mapping[int, Sequence[RoundPart]], names: Names, accuracies: Mapping[int, Accuracies] | None = None
) -> Iterator[tuple[int, Markup]]:
    """Each member's cells, the newest round first, as one string, since there are thousands.

    They show states, or ``accuracies`` if given.
    """
    made = dict[tuple[str, int, str], str]()  # most cells are those of other members, too
    for number, row in parts.items():
        cells = list[str]()
        for part in reversed(row):
            key = part.state, part.height, part.reason
            if (cell := made.get(key)) is None:
                cell = made[key] = _cell(part, names, shows_accuracy=accuracies is not None)
            if accuracies is not None:
                measured = accuracies[number].get(part.round)
                shade = 0 if measured is None else round(10 * min(1.0, max(0.0, measured)))
                text = ' aria-label="not known">–' if measured is None else f">{100 * measured:.0f}"
                cell = f'<td class="c{shade}{cell}{text}</a></td>'
            cells.append(cell)
        yield number, Markup("".join(cells))


def _cell(part: RoundPart, names: Names, *, shows_accuracy: bool) -> str:
    """A cell that shows a state; of one that shows an accuracy, the text between its shade and its value."""
    link, reason = names.link(f"block/{part.height}"), escape(printable(part.reason))
    if shows_accuracy:
        return f'"><a href="{link}" title="{part.state}: {reason}"'
    title = f'aria-label="{part.state}" title="{reason}"'
    return f'<td class="{part.state}"><a href="{link}" {title}>{SIGNS[part.state]}</a></td>'
