"""A genesis document as text for people, in groups, words and units."""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from fedchain.chain.difficulty import work_from_bits
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.genesis import Contributor, Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.crypto.address import address
from fedchain.wording import printable

GROUPS: dict[str, tuple[str, ...]] = {
    "federation": ("rounds", "round_interval_ms", "fault_model", "aggregator", "centralized", "contributors_per_round"),
    "consensus": (
        "contribution_quorum",
        "phase_timeout_ms",
        "phase_floor_ms",
        "vote_timeout_ms",
        "omission_slack_ms",
        "committee_size",
        "target_mining_time_ms",
        "initial_bits",
        "proof_function",
    ),
    "network": ("payload_size_max", "inline_size_max", "retention_blocks"),
    "membership": ("admission", "sponsors", "away_after"),
    "late posts": ("late_rounds",),
}
"""Fields with one line each, by their heading."""

ZERO_TEXTS = {
    "rounds": "no last one",
    "round_interval_ms": "none",
    "contributors_per_round": "all",
    "contribution_quorum": "a quorum of the phase's contributors",
    "committee_size": "all members",
    "retention_blocks": "all",
    "sponsors": "none",
    "away_after": "never",
    "late_rounds": "do not count",
}
"""Texts for fields in which 0 is no number."""

NAMES = {
    "contributors_per_round": "contributors a round",
    "contribution_quorum": "fewest posts",
    "committee_size": "voters",
    "target_mining_time_ms": "mining time",
    "initial_bits": "first difficulty",
    "payload_size_max": "largest post",
    "inline_size_max": "largest post inside its message",
    "retention_blocks": "blocks whose payloads are kept",
    "away_after": "silent rounds until away",
    "late_rounds": "rounds in which they count",
}
"""Labels of fields whose names would say less."""

FIRST = ("method", "hyperparameters", "dataset", "model", "clients", "seed")
"""Fields of a task that come first; the others follow by name."""

WIDTH = 34


def genesis_lines(genesis: Genesis) -> Iterator[str]:
    """The document, line by line; long lists are counted, and characters that cannot be printed are replaced."""
    for line in _lines(genesis):
        yield printable(line)


def _lines(genesis: Genesis) -> Iterator[str]:
    yield _line("chain id", genesis.chain_id.hex())
    yield _line("name", genesis.name)
    yield _line("founded", _date(genesis.created_ms))
    yield _line("format", genesis.version)
    yield from ("", f"members ({len(genesis.members)})")
    for place, member in enumerate(genesis.members):
        yield f"{place:>4}  {address(member)}"
    yield from ("", "learning")
    task = plain_genesis(genesis)["learning"]
    for name in sorted(task, key=lambda name: (_rank(name), name)):
        yield from _learning_lines(name, task[name])
    for title, phases in (("setup", genesis.setup), ("phases of a round", genesis.phases)):
        for phase in phases:
            quorum = f", at least {phase.quorum} posts" if phase.quorum else ""
            who = "the aggregator" if phase.by is Contributor.AGGREGATOR else "all participants"
            yield _line(title, f"{phase.name}, by {who}{quorum}")
    for group, names in GROUPS.items():
        if group in ("membership", "late posts") and genesis.version < CHANGES_VERSION:
            continue
        yield from ("", group)
        for name in names:
            yield _line(NAMES.get(name, _words(name)), _shown(name, getattr(genesis, name)))


def _date(unix_ms: int) -> str:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return f"{unix_ms} ms after 1970"


def _rank(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def _learning_lines(name: str, value: Any) -> Iterator[str]:
    """A field of the task; hyper-parameters have one line each. The values are unchecked: a founder may write any."""
    if name == "hyperparameters" and _is_pairs(value):
        for key, setting in value:
            yield _line(f"  {_words(str(key))}", _yes_or_no(setting))
    elif name == "material" and _is_pairs(value):
        yield _line(name, ", ".join(f"{part} ({len(str(data)) // 2} bytes)" for part, data in value))
    elif name == "shapes" and isinstance(value, dict) and isinstance(value.get("parameters"), list):
        yield _line(name, f"{len(value['parameters'])} parameters; all of them with --json")
    elif isinstance(value, list | dict):
        yield _line(_words(name), f"{len(value)} entries; all of them with --json")
    else:
        yield _line(_words(name), _yes_or_no(value))


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, list) and len(item) == 2 for item in value)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(_yes_or_no(value))
    if value == 0 and name in ZERO_TEXTS:
        return ZERO_TEXTS[name]
    if name == "initial_bits":
        return f"{work_from_bits(value):,} hashes"
    if name.endswith("_ms"):
        return f"{value / 1000:g} s"
    if name.endswith("size_max"):
        return f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 2**10:g} KiB"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _yes_or_no(value: Any) -> Any:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _words(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _line(name: str, value: Any) -> str:
    return f"{name:{WIDTH}}{value}"
