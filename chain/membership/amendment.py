"""Amendments: other values of the founding document's parameters, from a round on. The document stays what it was.

Members, phases, the chain id and the encodings are no parameters: they decide the meaning of older blocks. The chain
carries a method's hyper-parameters, and never reads them: which of them may change, and to what, each member's program
says before its operator approves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedchain.chain.encoding import expect_record
from fedchain.chain.exceptions import InvalidEncoding

VERSION = "version"
"""Name of the protocol's version among the values: nodes that do not know one stop before it."""

ADMISSION = "admission"
"""Name of the rule of admission among the values; its value is a text, as in the founding document."""

AGGREGATOR = "aggregator"
"""Name of the place with the role of a fixed or dedicated aggregator among the values. Where its member fails or goes,
the next one's place is in force by rule."""

LEARNING = "hyperparameters."
"""Names of values that the learning method reads begin so; its own name for one follows. They are JSON texts."""

AMENDABLE = (
    ADMISSION,
    AGGREGATOR,
    "away_after",
    "committee_size",
    "contribution_quorum",
    "contributors_per_round",
    "inline_size_max",
    "omission_slack_ms",
    "phase_floor_ms",
    "phase_timeout_ms",
    "retention_blocks",
    "round_interval_ms",
    "rounds",
    "sponsors",
    "target_mining_time_ms",
    VERSION,
    "vote_timeout_ms",
)
"""Parameters of the chain that may change, in the order of their names."""

TEXT_SIZE_MAX = 64
"""Bytes of a hyper-parameter's name, and of its value, at most."""

VALUES_MAX = 32
"""Values of one amendment, at most."""

Values = tuple[tuple[str, int | str], ...]
"""(name, value) pairs, sorted by name: an integer for a parameter of the chain, but a text for the rule of admission;
JSON text for a hyper-parameter."""


@dataclass(frozen=True, slots=True)
class Amendment:
    """Other values of some parameters."""

    round: int
    """First round in which they hold; in a proposal 0: the second round after that of the block that counts it."""
    values: Values
    """At least one."""

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [self.round, *_to_record(self.values)]

    @classmethod
    def from_record(cls, value: Any) -> "Amendment":
        """Read the canonical fields; raises InvalidEncoding."""
        if type(value) is not list or len(value) < 3:
            raise InvalidEncoding("amendment", "no list of a round and at least one value found")
        (round_number,) = expect_record(value[:1], "amendment round", (int,))
        if len(value) > 1 + 2 * VALUES_MAX:
            raise InvalidEncoding("amendment", f"{len(value) // 2} values found, at most {VALUES_MAX} are allowed")
        return cls(round_number, _from_record(value[1:]))


@dataclass(frozen=True, slots=True)
class Amendments:
    """The amendments that a chain counts so far."""

    in_force: Values = ()
    """Values in place of the founding document's."""
    coming: tuple[Amendment, ...] = ()
    """Those that have not begun, in the order in which they begin."""
    count: int = 0
    """Number of all: an old proposal cannot be used again."""

    @property
    def hyperparameters(self) -> tuple[tuple[str, str], ...]:
        """Values in force that the learning method reads, under its own names, as JSON texts."""
        return tuple(
            (name.removeprefix(LEARNING), str(text)) for name, text in self.in_force if name.startswith(LEARNING)
        )

    @property
    def aggregator(self) -> int | None:
        """Place with the role of a fixed or dedicated aggregator; None if the founding document's has it."""
        place = dict(self.in_force).get(AGGREGATOR)
        return place if isinstance(place, int) else None

    def followed_by(self, place: int) -> "Amendments":
        """These, once a place has the role of a fixed or dedicated aggregator."""
        return replace(self, in_force=tuple(sorted({**dict(self.in_force), AGGREGATOR: place}.items())))

    def with_one(self, amendment: Amendment) -> "Amendments":
        """These and one more, whose round is known."""
        coming = sorted((*self.coming, amendment), key=lambda item: item.round)
        return replace(self, coming=tuple(coming), count=self.count + 1)

    def at(self, round_number: int) -> "Amendments":
        """These as a round begins."""
        due = [item for item in self.coming if item.round <= round_number]
        if not due:
            return self
        values = dict(self.in_force)
        for item in due:
            values |= dict(item.values)
        return replace(self, in_force=tuple(sorted(values.items())), coming=self.coming[len(due) :])

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [_to_record(self.in_force), [item.to_record() for item in self.coming], self.count]

    @classmethod
    def from_record(cls, value: Any) -> "Amendments":
        """Read the canonical fields; raises InvalidEncoding."""
        in_force, coming, count = expect_record(value, "amendments", (list, list, int))
        return cls(_from_record(in_force), tuple(Amendment.from_record(item) for item in coming), count)


NO_AMENDMENTS = Amendments()
"""A federation whose rules are as they were founded."""


def amendment_of(values: Mapping[str, int | str], round_number: int = 0) -> Amendment:
    """An amendment by its values; see :class:`Amendment`."""
    return Amendment(round_number, tuple(sorted(values.items())))


def is_amendable(name: str, value: object) -> bool:
    """Whether an amendment may have this value, as far as its form goes."""
    is_short = isinstance(value, str) and len(value.encode()) <= TEXT_SIZE_MAX
    if name.startswith(LEARNING):
        own = name.removeprefix(LEARNING)
        return is_short and len(own) <= TEXT_SIZE_MAX and own.isascii() and own.isidentifier()
    return name in AMENDABLE and (is_short if name == ADMISSION else type(value) is int)


def _to_record(values: Iterable[tuple[str, int | str]]) -> list[Any]:
    """Name and value by turns: a list for each would be too deep in a block."""
    return [part for pair in values for part in pair]


def _from_record(record: list[Any]) -> Values:
    kinds = [int if type(value) is int else str for value in record[1::2]]
    parts = expect_record(record, "amendment values", [kind for value in kinds for kind in (str, value)])
    names, values = parts[::2], parts[1::2]
    if names != sorted(set(names)) or not all(map(is_amendable, names, values)):
        expected = f"some of {', '.join(AMENDABLE)} or {LEARNING}…, with values of their kinds, in order expected"
        raise InvalidEncoding("amendment", f"{', '.join(names)} found, {expected}")
    return tuple(zip(names, values, strict=True))
