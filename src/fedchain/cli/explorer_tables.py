"""Answers of the explorer as tables for people."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from email.utils import formatdate
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedchain.chain.block import Header
from fedchain.chain.explorer.audit import BlockCheck, ChainAudit
from fedchain.chain.explorer.member_views import PeerView
from fedchain.chain.explorer.plain import numbers_of
from fedchain.chain.explorer.units import DATE_MS_MAX, LONG_MS, duration, signed, size
from fedchain.chain.explorer.views import NAMED_READERS, BlockView, KnowledgeView, Prototype
from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address
from fedchain.terminal import Facts, Fitted
from fedchain.wording import counted, printable

MATRIX_SIZE_MAX = 12
"""Classes whose cosines fit beside each other on a screen."""

_TOLD = ("contents", "could_vote", "path_certificates", "records")
"""Fields that a sentence reports, or that the voters and the genesis document tell."""

_INLINE = ("summary", "post")
"""Fields that are replaced by their own fields."""

_ONLY_TABLES = ("prototypes", "parts", "lost", "failed", "rounds")
"""Fields that are not shown if they are empty."""

_MEMBERS = ("aggregator", "member", "miner", "reader", "sender")
"""Fields that hold an address; the member's number is shown with it."""

_COLUMNS = {
    "blocks_mined": "mined",
    "number": "peer",
    "clock_offset_ms": "clock ahead",
    "mining_time_ms": "mined",
    "payload_hash": "payload",
    "payload_size": "size",
    "payload_kept": "kept",
}
_LABELS = {
    "clock_ms": "median clock",
    "clock_offset_ms": "clock ahead",
    "hashes_per_block": "hashes a block",
    "is_final": "final",
    "is_valid": "valid",
    "failed": "attempts that failed",
    "liars_max": "liars at most",
    "lost": "blocks that lost",
    "payload_bytes": "payloads",
}
_STYLES = {"invalid": "red"}


def render(
    answer: Any, genesis: Genesis, *, is_virtual: bool = False, numbers: Mapping[str, int] | None = None
) -> Iterator[RenderableType]:
    """An answer as a line for each field, then a table for each field that holds several; or a tuple of answers.

    ``genesis`` is the founding document of their chain, whose times are no dates if it ``is_virtual``. Print the parts
    with ``crop=False``. ``numbers`` are the members' by address, the founders' unless given.
    """
    show = _Format(genesis.created_ms, numbers_of(genesis) if numbers is None else numbers, is_virtual)
    if isinstance(answer, tuple):
        yield _table(answer, show) if answer else "none"
        return
    shown = _rows(answer, show)
    yield Facts(shown)
    for item in fields(answer):
        value = getattr(answer, item.name)
        if isinstance(answer, KnowledgeView) and item.name == "prototypes":
            yield from _prototypes(answer.prototypes)
        elif isinstance(answer, ChainAudit) and item.name == "blocks":
            yield from _verdicts(answer.blocks, show)
            yield _what_was_read(answer)
            if answer.path_certificates:
                yield _what_proves_it(answer)
        elif is_dataclass(value) and item.name not in _INLINE:
            yield _title(_label(item.name))
            rows = _rows(value, show)
            # A block's header repeats fields of its summary.
            yield Facts({k: v for k, v in rows.items() if k not in shown} if isinstance(answer, BlockView) else rows)
        elif _is_table(value):
            older = isinstance(answer, PeerView) and item.name == "rounds" and answer.rounds[0].round > 1
            yield _title(f"{_label(item.name)}, those before {value[0].round} left out" if older else _label(item.name))
            yield _table(value, show)


def _verdicts(checks: Sequence[BlockCheck], show: "_Format") -> Iterator[RenderableType]:
    counts = Counter("recomputed" if check.verdict == "ok" else check.verdict for check in checks)
    blocks = counted(len(checks), "block")
    if len(counts) > 1:
        blocks += f": {', '.join(f'{count} {verdict}' for verdict, count in sorted(counts.items()))}"
    yield _title(f"{blocks}, all {next(iter(counts))}" if len(counts) == 1 else blocks if checks else "no blocks")
    # Thousands of good blocks would hide a bad one, and so would blocks whose payloads nobody keeps.
    unchecked = [check for check in checks if check.verdict == "unchecked"]
    if lacking := [check.height for check in unchecked if check.missing]:
        yield f"unchecked: at {_ranges(lacking)} contents are missing; every rule but the aggregate holds"
    if failed := [check for check in unchecked if check.error]:
        heights, reason = _ranges([check.height for check in failed]), failed[0].error
        yield f"unchecked: at {heights} the method's own code fails; every rule but the aggregate holds: {reason}"
    if unknown := [check.height for check in unchecked if not check.missing and not check.error]:
        yield f"unchecked: at {_ranges(unknown)} the state that says who may vote is not held"
    if invalid := [check for check in checks if check.verdict == "invalid"]:
        yield _table(invalid, show)


def _what_was_read(audit: ChainAudit) -> str:
    read = f"{audit.records:,} stored records and {audit.contents:,} contents"
    return f"{read}: {'all as they were written' if not audit.damaged else f'{len(audit.damaged)} damaged'}"


def _what_proves_it(audit: ChainAudit) -> str:
    """How the head follows from the founding document, where the members that certified it may be others by now."""
    proof = f"the head is proven by {counted(audit.path_certificates, 'certificate')} from the founding document on"
    if audit.base == 1:
        return proof
    return f"{proof}; blocks below height {audit.base} are not held, and that block's hash stands in the ones above"


def _rows(answer: Any, show: "_Format") -> dict[str, str]:
    rows: dict[str, str] = {}
    for item in fields(answer):
        if isinstance(answer, Header) and not answer.writes(item.name):
            continue
        if isinstance(answer, BlockView) and item.name == "changes" and not answer.header.writes("changes_root"):
            continue
        value = getattr(answer, item.name)
        if item.name in _INLINE:
            rows |= _rows(value, show)
        elif not is_dataclass(value) and not _is_table(value) and item.name not in (*_ONLY_TABLES, *_TOLD):
            rows[_label(item.name)] = show(item.name, value)
    return rows


def _table(rows: Sequence[Any], show: "_Format") -> Fitted:
    table = Table(header_style="dim")
    names = [item.name for item in fields(rows[0])]
    for name in names:
        is_number = isinstance(getattr(rows[0], name), int | float)
        table.add_column(_COLUMNS.get(name, _label(name)), justify="right" if is_number else "left")
    for row in _by_number(rows, show.numbers):
        style = _STYLES.get(getattr(row, "verdict", ""), "")
        table.add_row(*(show(name, getattr(row, name), short=True) for name in names), style=style)
    return Fitted(table)


def _by_number(rows: Sequence[Any], numbers: Mapping[str, int]) -> Iterator[Any]:
    """Posts, votes and absences of one phase in the order of their members' numbers; other rows as they are."""
    owner = next((name for name in ("sender", "member") if hasattr(rows[0], name)), "")
    for _, phase in groupby(rows, lambda row: (getattr(row, "round", None), getattr(row, "phase", None))):
        yield from sorted(phase, key=lambda row: numbers.get(getattr(row, owner, ""), -1))


def _prototypes(prototypes: tuple[Prototype, ...] | None) -> Iterator[RenderableType]:
    if prototypes is None:
        yield "\nno class prototypes in this knowledge"
        return
    has_matrix = len(prototypes) <= MATRIX_SIZE_MAX
    table = Table(header_style="dim")
    for heading in ("class", "holders", "norm", *(f"{item.label}" for item in prototypes if has_matrix)):
        table.add_column(heading, justify="right")
    for item in prototypes:
        cosines = (f"{cosine:.2f}" for cosine in item.cosines if has_matrix)
        table.add_row(str(item.label), str(item.holders), f"{item.norm:.3f}", *cosines)
    yield _title("prototypes" + (", and the cosine of each with each" if has_matrix else "; --json has their cosines"))
    yield Fitted(table)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _is_table(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and is_dataclass(value[0])


def _label(name: str) -> str:
    return _LABELS.get(name, name.removesuffix("_ms").removesuffix("_bytes").replace("_", " "))


def _ranges(heights: Sequence[int]) -> str:
    """Text for ascending heights; consecutive ones are named by their first and last."""
    known = {*heights}
    starts = [height for height in heights if height - 1 not in known]
    ends = [height for height in heights if height + 1 not in known]
    names = [f"{first}" if first == last else f"{first}–{last}" for first, last in zip(starts, ends, strict=True)]
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return f"height {shown}" if len(heights) == 1 else f"heights {shown}"


@dataclass(frozen=True, slots=True)
class _Format:
    """Formats a field for people; its name tells the unit."""

    created_ms: int
    """Founding of the chain, in milliseconds since the Unix epoch."""
    numbers: Mapping[str, int]
    """Number of each member, by its address."""
    is_virtual: bool
    """Whether a simulation made the chain: then its times count from the founding and are no dates."""

    def __call__(self, name: str, value: Any, *, short: bool = False) -> str:
        """The text for ``value`` of the field ``name``; ``short`` if it is for a table."""
        _, _, suffix = name.rpartition("_")
        form = _BY_KIND.get(type(value)) or _BY_NAME.get(name) or _BY_SUFFIX.get(suffix) or _Format.text
        return form(self, name, value, short)

    def text(self, name: str, value: Any, short: bool) -> str:
        """Anything that has no form of its own."""
        return printable(str(value))

    def octets(self, name: str, value: bytes, short: bool) -> str:
        """Bytes: the miner's key as a member, all others in hexadecimal digits."""
        if name == "miner":
            return self.member(name, address(value), short)
        return f"{value.hex()[:8]}…" if short else value.hex()

    def member(self, name: str, value: str, short: bool) -> str:
        """The number of a member, and its address or the end of it, which differs from all others."""
        if value in NAMED_READERS or not value:  # a change of parameters is about no member
            return printable(value)
        number = str(self.numbers.get(value, "?"))
        if not short:
            return f"{value} (peer {number})"
        return f"{number:>{len(str(len(self.numbers) - 1))}} …{value[-8:]}"

    def several(self, name: str, values: tuple[Any, ...], short: bool) -> str:
        """The first of the values, and how many more there are."""
        if not values:
            return "" if short else "–"
        if name == "values":  # names and values of parameters
            return ", ".join(printable(f"{parameter} {value}") for parameter, value in values)
        kind = "member" if name == "missing" and isinstance(values[0], str) else name
        if kind == "member":
            values = tuple(sorted(values, key=lambda value: self.numbers.get(value, -1)))
        shown = values[: 1 if short else 64]
        text = (", " if kind == "member" else "\n").join(
            self(kind, value, short=short or kind == "member") for value in shown
        )
        return text + (f" and {len(values) - len(shown)} more" if len(values) > len(shown) else "")

    def time(self, name: str, time_ms: int, short: bool) -> str:
        """The time since the founding, and the date if the clock was a real one."""
        since = signed(time_ms - self.created_ms)
        if short or self.is_virtual or time_ms > DATE_MS_MAX:
            return since
        return f"{formatdate(time_ms / 1000, usegmt=True)} ({since})"

    def clock_offset(self, name: str, ms: int, short: bool) -> str:
        """How far a clock is ahead, with its sign."""
        return f"{ms / 1000:+.3f} s" if abs(ms) < LONG_MS else signed(ms)


_Form = Callable[[_Format, str, Any, bool], str]
"""form(format, name of the field, value, short) -> text."""

_BY_KIND: Mapping[type, _Form] = {
    type(None): lambda show, name, value, short: "–",
    bool: lambda show, name, value, short: "yes" if value else "no",
    bytes: _Format.octets,
    tuple: _Format.several,
}

_BY_NAME: Mapping[str, _Form] = {
    "address": lambda show, name, value, short: str(value),  # its number stands beside it
    "size": lambda show, name, value, short: str(value),  # leaves of a Merkle tree
    "accuracy": lambda show, name, value, short: f"{100 * value:.1f} %",
    "bits": lambda show, name, value, short: f"{value:#010x}",
    **dict.fromkeys(_MEMBERS, _Format.member),
    **dict.fromkeys(("time_ms", "clock_ms", "created_ms"), _Format.time),
    "clock_offset_ms": _Format.clock_offset,
}

_BY_SUFFIX: Mapping[str, _Form] = {
    "ms": lambda show, name, value, short: duration(value),
    **dict.fromkeys(("bytes", "size"), lambda show, name, value, short: size(value)),
}
