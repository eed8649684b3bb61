"""Pages of rounds, of the parts of members in them, and of what they left behind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.member_views import PeerView, RoundPart
from fedchain.learning.exceptions import LearningError
from fedchain.web.chains import Chain, Reading
from fedchain.web.charts import line_chart
from fedchain.web.formats import Names
from fedchain.web.knowledge import KnowledgeReader
from fedchain.web.observed.participation import MEANINGS, SIGNS, Accuracies, grid
from fedchain.web.observed.participation import participation as parts_in
from fedchain.web.observed.rivals import seen_blocks
from fedchain.web.pages.accuracy import accuracies_of, accuracy_chart, measured_of
from fedchain.web.pages.asked import (
    MEMBERS_MAX,
    Context,
    Question,
    has_block,
    marks_by_round,
    newest_round,
    number_in,
    number_named,
)
from fedchain.web.pages.blocks import timed_blocks

ROUNDS_A_PAGE, ROUNDS_IN_TABLE = 40, 100
"""Rounds on one page of the list, and in the table of members and rounds."""


def rounds(chain: Chain, reading: Reading, question: Question) -> Context:
    """The rounds, newest first."""
    by_round = dict[int, list[Line]]()
    last = number_in(question, "to", 2**62)
    highest = newest_round(reading)
    last = min(last, highest)
    for line in reversed([*reading.columns.lines_of_rounds(last - ROUNDS_A_PAGE + 1, last)]):
        by_round.setdefault(line.round, []).append(line)
    return {
        "rounds": [(number, lines[::-1]) for number, lines in by_round.items()],
        "measured": measured_of(chain),
        "newest": highest,
        "step": ROUNDS_A_PAGE,
        "chart": accuracy_chart(chain, reading),
        "open_round": None if reading.explorer.state.finished else reading.explorer.state.round,
    }


def round_(chain: Chain, reading: Reading, name: str) -> Context:
    """One round. Raises NotFound."""
    number = number_named(name, "round")
    view = reading.explorer.round(number)
    heights = [item.height for item in view.blocks]
    places = reading.numbers
    phases = {item.phase: place for place, item in enumerate(view.blocks)}

    def order(phase: str, member: str) -> tuple[int, int]:
        # A stored post may name a phase that no block has.
        return phases.get(phase, len(phases)), places.get(member, -1)

    return {
        "round": view,
        "before": number - 1 if number > 1 and has_block(reading, number - 1) else None,
        "after": number + 1 if has_block(reading, number + 1) else None,
        "posts": sorted(view.transactions, key=lambda item: order(item.phase, item.sender)),
        "missing": sorted(view.missing, key=lambda item: order(item.phase, item.member)),
        "blocks": timed_blocks(chain, reading, min(heights), max(heights)),
        "measured": measured_of(chain).get(number),
    }


def knowledge(chain: Chain, reading: Reading, name: str, kept: KnowledgeReader) -> Context:
    """The knowledge that a round left behind, and how far it moved until then. Raises NotFound."""
    state = reading.explorer.state
    newest_round = max(1, state.round - 1) if not state.finished else state.rules.rounds
    number = number_named(name, "round") if name else newest_round
    try:
        rules = chain.rules()
        view = kept.view(reading, rules, number)
    except (LearningError, ImportError) as error:
        raise NotFound(f"the learning method cannot be asked here: {error}") from None
    drift = kept.drift(chain, reading, rules, view)
    by_class = [
        (_class_text(label, points[-1][0], drift.rounds[-1]), [(float(x), y) for x, y in points])
        for label, points in drift.by_class
    ]
    marks = marks_by_round(chain, reading)
    return {
        "knowledge": view,
        "newest": newest_round,
        "drift": drift,
        "by_class": line_chart(
            "distance to the round before, by class", by_class, x_name="round", low=0.0, marks=marks
        ),
        "of_model": line_chart(
            "distance to the round before",
            [("whole model" if drift.is_of_model else "all numbers", [(float(x), y) for x, y in drift.of_model])],
            x_name="round",
            low=0.0,
            marks=marks,
        ),
    }


def _class_text(label: int, last: int, newest: int) -> str:
    """A class in the legend of what moved: the last value of one that has none of the newest round is an older one."""
    return f"class {label}" if last == newest else f"class {label} until round {last:,}"


def participation(chain: Chain, reading: Reading, question: Question, names: Names | None = None) -> Context:
    """The parts of all members in the newest rounds up to one, as a table of cells."""
    highest, members = newest_round(reading), reading.explorer.state.roster.members
    last = min(highest, max(1, number_in(question, "to", highest)))
    shown = range(min(MEMBERS_MAX, len(members)))
    accuracies = {number: accuracies_of(chain, members[number]) for number in shown}
    found = parts_of(chain, reading, accuracies, last)
    shows_accuracy = question.get("show") == "accuracy"
    table = cells(
        found,
        names or Names(chain.genesis, chain.key, numbers=reading.numbers),
        accuracies if shows_accuracy else None,
    )
    return table | {
        "last": last,
        "newest": highest,
        "shows_accuracy": shows_accuracy,
        "left_out": len(members) - len(shown),
    }


def cells(
    parts: Mapping[int, Sequence[RoundPart]], names: Names, accuracies: Mapping[int, Accuracies] | None = None
) -> Context:
    """The parts of members in the same rounds as a table of cells; they show states, or ``accuracies`` if given."""
    newest_first = next(iter(parts.values()))[::-1]
    states = {part.state for line in parts.values() for part in line}
    unused = {"aggregator", "outside"} - states
    return {
        "rows": list(grid(parts, names, accuracies)) if newest_first else [],
        "rounds": [part.round for part in newest_first],
        "signs": {state: sign for state, sign in SIGNS.items() if state not in unused},
        "meanings": MEANINGS,
    }


def parts_of(
    chain: Chain, reading: Reading, accuracies: Mapping[int, Accuracies], last: int
) -> dict[int, list[RoundPart]]:
    """The parts of the members that ``accuracies`` names in the rounds up to the last one, by member."""
    lines = list(reading.columns.lines_of_rounds(last - ROUNDS_IN_TABLE + 1, last))
    seen = seen_blocks(chain, lines[0].height, lines[-1].height) if lines else {}
    explorer = reading.explorer
    crimes = {reading.numbers[item.member]: (item.height or 0, item.crime) for item in explorer.status().convictions}
    attending = dict(explorer.membership.attending(lines[0].height, lines[-1].height)) if lines else {}
    return parts_in(explorer.state.rules, lines, seen, crimes, accuracies, attending)


def with_rounds(chain: Chain, reading: Reading, view: PeerView) -> PeerView:
    """A member with its part in the newest rounds."""
    measured = accuracies_of(chain, view.public_key)
    found = parts_of(chain, reading, {view.number: measured}, newest_round(reading))[view.number]
    return replace(view, rounds=tuple(replace(part, accuracy=measured.get(part.round)) for part in found))
