"""The contents of each page: the explorer's answers, and charts and lists calculated from them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import quantiles
from typing import Any

from fedchain.chain.exceptions import ChainError, NotFound
from fedchain.chain.explorer.columns import Columns, Line
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.names import PREFIX_SIZE_MIN, find_member, range_of, read_number
from fedchain.chain.explorer.plain import plain
from fedchain.chain.explorer.units import duration
from fedchain.chain.explorer.views import (
    BlockView,
    ChainStatus,
    PeerView,
    Recomputation,
    RoundPart,
    TransactionProof,
    TransactionView,
    is_proven,
)
from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PublicKey
from fedchain.learning.exceptions import LearningError
from fedchain.web.chains import Chain, Reading
from fedchain.web.charts import Area, Chart, line_chart
from fedchain.web.course.scenario import placed, rows_of
from fedchain.web.course.voting import turnout, voting
from fedchain.web.formats import Names
from fedchain.web.knowledge import KnowledgeReader
from fedchain.web.measured import Measured, newest
from fedchain.web.observed.participation import MEANINGS, SIGNS, Accuracies, grid
from fedchain.web.observed.participation import participation as parts_in
from fedchain.web.observed.rivals import rivals, seen_blocks, with_rivals
from fedchain.web.open_round import open_round
from fedchain.web.timeline import Timed, timed

BLOCKS_A_PAGE = 40
"""Blocks on one page of the list."""

ROUNDS_A_PAGE, ROUNDS_IN_TABLE = 40, 100
"""Rounds on one page of the list, and in the table of members and rounds."""

HEIGHTS_SHOWN = 500
"""Blocks up to the head in the charts of a member."""

MEMBERS_MAX = 200
"""Members in the list of a page; the interface has all."""

Context = dict[str, Any]
"""Values that a template shows, by name."""

Question = Mapping[str, str]
"""Names and values behind the question mark of an address."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member in a list."""

    number: int
    """Place in the genesis document, from 0."""
    view: PeerView
    """The explorer's view of it."""
    accuracy: float | None
    """Accuracy of its model after its last training, a fraction; None if it is not known."""


def front(chains: Iterable[Chain]) -> Context:
    """All chains, one after the other."""
    rows = list[tuple[Chain, ChainStatus | None, str]]()
    for chain in chains:
        try:
            with chain.reading() as reading:
                rows.append((chain, reading.explorer.status(), ""))
        except ChainError as error:
            rows.append((chain, None, str(error)))
    return {"rows": [(*row, *task_of(row[0].genesis), newest(measured_of(row[0]), "taa")) for row in rows]}


def home(chain: Chain, reading: Reading, question: Question) -> Context:
    """The chain at a glance: its current activity, the last blocks, and whether all is well."""
    status = reading.explorer.status()
    heads = {holder.height for holder in chain.holders if holder.height is not None}
    return {
        "status": status,
        "task": task_of(chain.genesis),
        "newest_accuracy": newest(measured_of(chain), "taa"),
        "open": open_round(chain, reading),
        "blocks": timed_blocks(chain, reading, status.height - 9, status.height)[::-1],
        "accuracy": accuracy_chart(chain, reading),
        "troubles": troubles_of(chain, reading),
        "heads": sorted(heads),
        "behind": chain.behind,
    }


def blocks(chain: Chain, reading: Reading, question: Question) -> Context:
    """The blocks, newest first, each with a breakdown of its time."""
    held = reading.explorer.held
    last = min(held.stop - 1, number_in(question, "to", held.stop - 1))
    first = max(held.start, last - BLOCKS_A_PAGE + 1)
    return {
        "blocks": timed_blocks(chain, reading, first, last)[::-1],
        "first": first,
        "last": last,
        "held": held,
        "step": BLOCKS_A_PAGE,
    }


def block(chain: Chain, reading: Reading, name: str) -> Context:
    """One block in full. Raises NotFound."""
    view = block_view(chain, reading, name)
    height, held = view.summary.height, reading.explorer.held
    shown = timed_blocks(chain, reading, height, height) if view.is_final else ()
    places = {address(key): place for place, key in enumerate(chain.genesis.members)}
    return {
        "block": view,
        "posts": sorted(view.transactions, key=lambda item: places.get(item.sender, -1)),
        "voting": voting(chain, view) if view.is_final else None,
        "candidates": rivals(chain, height, height, seen_blocks(chain, height, height)).get(height, ()),
        "timed": shown[0] if shown else None,
        "below": height - 1 if height - 1 in held else None,
        "above": height + 1 if view.is_final and height + 1 in held else None,
    }


def block_view(chain: Chain, reading: Reading, name: str) -> BlockView:
    """One block, with what peers saw of those that lost to it. Raises NotFound."""
    return with_observations(chain, reading.explorer.block(name))


def with_observations(chain: Chain, view: BlockView) -> BlockView:
    """A block with what peers saw of those that lost to it."""
    height = view.summary.height
    seen = seen_blocks(chain, height, height)
    found = rivals(chain, height, height, seen).get(height, ())
    return with_rivals(view, found, seen.get(height, ()))


def members(chain: Chain, reading: Reading, question: Question) -> Context:
    """All members, each with a summary of its part in the chain."""
    shown = [
        Member(number, peer(reading, member), accuracy_of(chain, member))
        for number, member in enumerate(chain.genesis.members[:MEMBERS_MAX])
    ]
    return {"members": shown, "more": max(0, len(chain.genesis.members) - MEMBERS_MAX)}


def member(chain: Chain, reading: Reading, name: str) -> Context:
    """One member. Raises NotFound or InvalidAddress."""
    key = member_named(chain.genesis, name)
    place, measured = chain.genesis.index[key], _measured_by(chain, key)
    lines = list(reading.columns.lines(max(1, reading.columns.height - HEIGHTS_SHOWN + 1)))
    offsets = [
        (float(line.height), line.offsets_ms[line.voters.index(place)] / 1000) for line in lines if place in line.voters
    ]
    return {
        "member": Member(place, peer(reading, key), accuracy_of(chain, key)),
        "presence": presence(lines, place),
        "turnout": turnout(lines, place),
        "first": lines[0].height if lines else None,
        "last": lines[-1].height if lines else None,
        "troubles": troubles_of(chain, reading, place),
        "clock": line_chart(
            "clock ahead of the others'",
            [("clock", offsets)],
            x_name="height",
            unit="s",
            marks=[(float(line.height), text) for line, _, text in happened(chain, reading, place)],
        ),
        "accuracy": line_chart(
            "accuracy",
            [
                ("own test set", _points(measured, "taa")),
                ("whole test set", _points(measured, "test_accuracy")),
            ],
            x_name="round",
            unit="%",
            marks=marks_by_round(chain, reading, place),
        ),
    }


def participation(chain: Chain, reading: Reading, question: Question, names: Names | None = None) -> Context:
    """The parts of all members in the newest rounds up to one, as a table of cells."""
    highest = newest_round(reading)
    last = min(highest, number_in(question, "to", highest))
    shown = range(min(MEMBERS_MAX, len(chain.genesis.members)))
    accuracies = {number: accuracies_of(chain, chain.genesis.members[number]) for number in shown}
    found = parts_of(chain, reading, accuracies, last)
    shows_accuracy = question.get("show") == "accuracy"
    names = names or Names(chain.genesis, chain.key)
    return {
        "rows": list(grid(found, names, accuracies if shows_accuracy else None)),
        "rounds": [part.round for part in reversed(found[0])],
        "last": last,
        "newest": highest,
        "shows_accuracy": shows_accuracy,
        "signs": SIGNS,
        "meanings": MEANINGS,
        "left_out": len(chain.genesis.members) - len(shown),
    }


def parts_of(
    chain: Chain, reading: Reading, accuracies: Mapping[int, Accuracies], last: int
) -> dict[int, list[RoundPart]]:
    """The parts of the members that ``accuracies`` names in the rounds up to the last one, by member."""
    lines = list(reading.columns.lines_of_rounds(last - ROUNDS_IN_TABLE + 1, last))
    seen = seen_blocks(chain, lines[0].height, lines[-1].height) if lines else {}
    return parts_in(chain.genesis, lines, seen, reading.explorer.status().convictions, accuracies)


def accuracies_of(chain: Chain, member: PublicKey) -> Accuracies:
    """A member's accuracies on its own test set, by round."""
    return {item.round: item.values["taa"] for item in _measured_by(chain, member).values() if "taa" in item.values}


def with_rounds(chain: Chain, reading: Reading, view: PeerView) -> PeerView:
    """A member with its part in the newest rounds."""
    measured = accuracies_of(chain, view.public_key)
    found = parts_of(chain, reading, {view.number: measured}, newest_round(reading))[view.number]
    return replace(view, rounds=tuple(replace(part, accuracy=measured.get(part.round)) for part in found))


def newest_round(reading: Reading) -> int:
    """The round of the highest block that was read; 0 if there is none."""
    return max((line.round for line in reading.columns.lines(reading.columns.height)), default=0)


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
    places = {address(key): place for place, key in enumerate(chain.genesis.members)}
    phases = {item.phase: place for place, item in enumerate(view.blocks)}
    return {
        "round": view,
        "before": number - 1 if number > 1 and has_block(reading, number - 1) else None,
        "after": number + 1 if has_block(reading, number + 1) else None,
        "posts": sorted(view.transactions, key=lambda item: (phases[item.phase], places.get(item.sender, -1))),
        "missing": sorted(view.missing, key=lambda item: (phases[item.phase], places.get(item.member, -1))),
        "blocks": timed_blocks(chain, reading, min(heights), max(heights)),
        "measured": measured_of(chain).get(number),
    }


def knowledge(chain: Chain, reading: Reading, name: str, kept: KnowledgeReader) -> Context:
    """The knowledge that a round left behind, and how far it moved until then. Raises NotFound."""
    state = reading.explorer.state
    newest_round = max(1, state.round - 1) if not state.finished else chain.genesis.rounds
    number = number_named(name, "round") if name else newest_round
    try:
        rules = chain.rules()
        view = kept.view(reading, rules, number)
    except (LearningError, ImportError) as error:
        raise NotFound(f"the learning method cannot be asked here: {error}") from None
    drift = kept.drift(chain, reading, rules, view)
    by_class = [(f"class {label}", [(float(x), y) for x, y in points]) for label, points in drift.by_class]
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


def transaction(chain: Chain, reading: Reading, name: str) -> Context:
    """One post. Raises NotFound."""
    return {"tx": find_transaction(reading, name)}


def proof(chain: Chain, reading: Reading, name: str) -> Context:
    """The proof that a block counts a post. Raises NotFound."""
    found = find_proof(reading, name)
    tx = reading.explorer.transaction(found.merkle.leaf.hex(), _whole(reading))
    return {"proof": found, "holds": is_proven(found), "tx": tx}


def genesis(chain: Chain, reading: Reading, question: Question) -> Context:
    """Everything that the federation agreed on before it began."""
    document = chain.genesis
    skipped = ("members", "learning", "setup", "phases")
    return {
        "fields": [
            (item.name, plain(getattr(document, item.name)))
            for item in fields(document)
            if item.init and item.name not in skipped
        ],
        "learning": learning_of(document),
        "addresses": [(number, address(key)) for number, key in enumerate(document.members[:MEMBERS_MAX])],
    }


def search(chain: Chain, reading: Reading, question: Question) -> Context:
    """Heights, rounds, hashes, addresses and peer numbers that a text may mean, as (kind, name, address) each."""
    text = question.get("q", "").strip()[:200]
    return {"query": text, "hits": find(chain, reading, text) if text else []}


def compare(chains: Sequence[Chain]) -> Context:
    """Runs side by side."""
    rows, measured = [], dict[str, dict[int, Measured]]()
    for chain in chains:
        values = measured_of(chain)
        measured[chain.title] = values
        try:
            with chain.reading() as reading:
                status = reading.explorer.status()
                mining = [line.mining_ms for line in reading.columns.lines()]
        except ChainError as error:
            rows.append({"chain": chain, "trouble": str(error)})
            continue
        taa = [item.values["taa"] for item in values.values() if "taa" in item.values]
        learning = dict(learning_of(chain.genesis))
        rows.append(
            {
                "chain": chain,
                "trouble": "",
                "status": status,
                "method": learning.get("method", "–"),
                "dataset": learning.get("dataset", "–"),
                "seed": learning.get("seed", "–"),
                "last": taa[-1] if taa else None,
                "best": max(taa, default=None),
                "mining_ms": sorted(mining)[len(mining) // 2] if mining else None,
            }
        )
    charts = [
        line_chart(
            title, [(name, _points(found, field)) for name, found in measured.items()], x_name="round", unit=unit
        )
        for title, field, unit in (
            ("mean accuracy on the members' own test sets", "taa", "%"),
            ("accuracy on the whole test set", "test_accuracy", "%"),
            ("mean loss on the members' own test sets", "tal", ""),
            ("bytes that a member sent", "bytes_sent_per_peer", "B"),
        )
    ]
    return {"rows": rows, "charts": [chart for chart in charts if chart is not None]}


def timed_blocks(chain: Chain, reading: Reading, first: int, last: int) -> tuple[Timed, ...]:
    """Blocks from one height to another, each with a breakdown of its time, oldest first."""
    first = max(first, reading.explorer.held.start)
    lines = list(reading.columns.lines(first - 1, last))
    before = lines.pop(0).time_ms if lines and lines[0].height == first - 1 else None
    if before is None and first == 1:
        before = chain.genesis.created_ms
    summaries = [reading.columns.summary(line) for line in lines]
    measured = measured_of(chain) if len(chain.holders) == 1 else {}
    seen = seen_blocks(chain, first, last)
    items = timed(
        lines, summaries, before, measured, rivals(chain, first, last, seen), seen, chain.genesis.round_interval_ms
    )
    began_ms = dict(zip((line.height for line in lines), (before, *(line.time_ms for line in lines)), strict=False))
    meanwhile = dict[int, list[tuple[int, str]]]()
    for line, at_ms, text in happened(chain, reading):
        if (since_ms := began_ms.get(line.height)) is not None:
            meanwhile.setdefault(line.height, []).append((chain.genesis.created_ms + at_ms - since_ms, text))
    return tuple(item.with_moments(meanwhile.get(item.summary.height, ())) for item in items)


def peer(reading: Reading, key: PublicKey) -> PeerView:
    """One member, as ``explorer peer`` shows it, counted from lines that are in memory."""
    return reading.explorer.peer(address(key), reading.columns)


def find_transaction(reading: Reading, name: str) -> TransactionView:
    """A post by its hash or the beginning of it. Raises NotFound."""
    return reading.explorer.transaction(name, _whole(reading))


def find_proof(reading: Reading, name: str) -> TransactionProof:
    """The proof of a post by its hash or the beginning of it. Raises NotFound."""
    return reading.explorer.proof(name, _whole(reading))


def recompute(chain: Chain, height: int) -> Recomputation:
    """Recompute a block's knowledge, in a separate store. Raises NotFound."""
    rules = chain.rules()
    with chain.apart() as store:
        return Explorer(store).recompute(rules, height)


def find(chain: Chain, reading: Reading, text: str) -> list[tuple[str, str, str]]:
    """The things that ``text`` may mean: kind, name and the address of the page, below the chain's."""
    hits = list[tuple[str, str, str]]()
    held, members_ = reading.explorer.held, chain.genesis.members
    number = read_number(text)
    if number is not None:
        if number == 0:
            hits.append(("block", "height 0, the genesis document", "genesis"))
        if number in held:
            hits.append(("block", f"height {number}", f"block/{number}"))
        if has_block(reading, number):
            hits.append(("round", f"round {number}", f"round/{number}"))
        if number < len(members_):
            hits.append(("member", f"peer {number}", f"member/{number}"))
    try:
        key = find_member(text, members_) if not text.isdecimal() else None
    except (NotFound, InvalidAddress):
        key = None
    if key is not None:
        hits.append(("member", f"peer {chain.genesis.index[key]}, {address(key)}", f"member/{address(key)}"))
    prefix = text.lower().rstrip("….")
    between = range_of(prefix)
    if between is not None and len(prefix) >= PREFIX_SIZE_MIN:
        found = list(reading.store.hashes(held.start, held.stop - 1, between))
        hits += [("block", f"height {height}, {item.hex()}", f"block/{item.hex()}") for item, height in found[:20]]
        if chain.genesis.chain_id.hex().startswith(prefix):
            hits.append(("block", "height 0, the genesis document", "genesis"))
        try:
            post = find_transaction(reading, prefix).post
            hits.append(("post", post.hash.hex(), f"tx/{post.hash.hex()}"))
        except NotFound as error:
            if str(error)[0].isdecimal():  # several
                hits.append(("post", str(error), ""))
    return hits


def has_block(reading: Reading, round_number: int) -> bool:
    """Whether a block of the round is held; then the round has a page."""
    return any(height in reading.explorer.held for height in reading.store.heights_of_round(round_number))


def member_named(document: Genesis, name: str) -> PublicKey:
    """A member by its number, its address or the end of it. Raises NotFound or InvalidAddress."""
    if name.isascii() and name.isdecimal() and len(name) < 7:
        if int(name) < len(document.members):
            return document.members[int(name)]
        raise NotFound(f"no peer {name}: the peers are 0 to {len(document.members) - 1}")
    return find_member(name, document.members)


def task_of(document: Genesis) -> tuple[str, str]:
    """The learning method and the data."""
    learning = dict(learning_of(document))
    return learning.get("method", "–"), learning.get("dataset", "–")


def learning_of(document: Genesis) -> list[tuple[str, str]]:
    """The learning task for people: names and values; a long value is replaced by its size."""
    shown = []
    for name, text in document.learning:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if name == "hyperparameters" and isinstance(value, list):
            shown += [
                (f"{name}: {item[0]}", str(item[1])) for item in value if isinstance(item, list) and len(item) == 2
            ]
        elif len(text) > 160:
            shown.append((name, f"{len(text):,} characters"))
        else:
            shown.append((name, value if isinstance(value, str) else text))
    return shown


def measured_of(chain: Chain) -> dict[int, Measured]:
    """Measurements of the whole run by round; for several nodes the mean of each value."""
    holders = [holder.measured.rounds for holder in chain.holders if holder.measured.rounds]
    if len(holders) < 2:
        return holders[0] if holders else {}
    numbers = sorted({number for found in holders for number in found})
    return {number: _mean(number, [found[number] for found in holders if number in found]) for number in numbers}


def happened(chain: Chain, reading: Reading, peer: int | None = None) -> list[tuple[Line, int, str]]:
    """Faults of a simulation and their ends, of all peers or one; empty for any other chain.

    Each is the block that was made meanwhile, the time in virtual milliseconds, and a text.
    """
    if chain.scenario is None:
        return []
    found = chain.scenario.troubles if peer is None else chain.scenario.of_peer(peer)
    return [
        (line, moment.at_ms, f"{moment.text} ({duration(moment.at_ms)})")
        for line, moment in placed(found, [*reading.columns.lines()], chain.genesis.created_ms)
    ]


def marks_by_round(chain: Chain, reading: Reading, peer: int | None = None) -> list[tuple[float, str]]:
    """The same as marks of a chart by round."""
    return [(float(line.round), text) for line, _, text in happened(chain, reading, peer)]


def troubles_of(chain: Chain, reading: Reading, peer: int | None = None) -> list[Any]:
    """The troubles of all peers of a simulation or of one, in words; see :func:`rows_of`."""
    if chain.scenario is None:
        return []
    found = chain.scenario.troubles if peer is None else chain.scenario.of_peer(peer)
    return [*rows_of(found, [*reading.columns.lines()], chain.genesis.created_ms)]


def accuracy_chart(chain: Chain, reading: Reading) -> Chart | None:
    """Chart of accuracies by round, with a line for each of several nodes."""
    if len(chain.holders) > 1:
        series = [(holder.place.label, _points(holder.measured.rounds, "taa")) for holder in chain.holders]
        return line_chart("accuracy on each node's own test set", series, x_name="round", unit="%")
    found = measured_of(chain)
    series = [
        ("members' own test sets, mean", _points(found, "taa")),
        ("whole test set", _points(found, "test_accuracy")),
    ]
    areas, marks = _spread(chain.holders[0].measured.members), marks_by_round(chain, reading)
    return line_chart("accuracy", series, x_name="round", unit="%", areas=areas, marks=marks)


def _spread(members: Mapping[int, Mapping[int, Measured]]) -> list[Area]:
    """The accuracies of the members on their own test sets: from the worst to the best, and between the quartiles."""
    by_round = dict[int, list[float]]()
    for rounds in members.values():
        for number, item in rounds.items():
            by_round.setdefault(number, []).append(item.values["taa"])
    whole, middle = list[tuple[float, float, float]](), list[tuple[float, float, float]]()
    for number, values in sorted(by_round.items()):
        first, _, third = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        whole.append((float(number), min(values), max(values)))
        middle.append((float(number), first, third))
    return [("worst to best member", whole), ("middle half of the members", middle)] if len(whole) > 1 else []


def accuracy_of(chain: Chain, member: PublicKey) -> float | None:
    """The newest accuracy that a member's node reported or noted, or that a finished simulation measured."""
    for holder in chain.holders:
        if holder.status is not None and holder.status.get("address") == address(member):
            found = holder.status.get("accuracy")
            if isinstance(found, float):
                return found
    return newest(_measured_by(chain, member), "taa")


def presence(lines: Sequence[Line], place: int) -> list[str]:
    """Whether each block counts a post of the member, as names for a strip of small fields."""
    return ["posted" if place in line.senders else "absent" for line in lines]


def number_in(question: Question, name: str, default: int) -> int:
    """A number behind the question mark; any other text counts as not given."""
    number = read_number(question.get(name, ""))
    return default if number is None else number


def _whole(reading: Reading) -> Columns | None:
    """The lines of all blocks; None if not all were read yet."""
    return reading.columns if reading.is_complete else None


def _measured_by(chain: Chain, member: PublicKey) -> dict[int, Measured]:
    """Measurements of a member's own node, or of the member in a simulation, by round."""
    for holder in chain.holders:
        if chain.is_simulated:
            return holder.measured.members.get(chain.genesis.index[member], {})
        if holder.address == address(member):
            return holder.measured.rounds
    return {}


def _points(found: Mapping[int, Measured], name: str) -> list[tuple[float, float]]:
    return [(float(number), item.values[name]) for number, item in sorted(found.items()) if name in item.values]


def _mean(number: int, found: Sequence[Measured]) -> Measured:
    names = {name for item in found for name in item.values}
    values = {name: [item.values[name] for item in found if name in item.values] for name in names}
    return Measured(number, {name: sum(each) / len(each) for name, each in values.items()})


def number_named(text: str, what: str) -> int:
    """The number of a height or a round in a page's address. Raises NotFound."""
    number = read_number(text)
    if number is None and text.isascii() and text.isdecimal():
        raise NotFound(f"no {what} has a number of {len(text)} digits")
    if number is None:
        raise NotFound(f"{what} {text!r} is not a number")
    return number
