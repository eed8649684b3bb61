"""The explorer's answers about members: their part in the chain, their places, and changes of both members and rules.

Members are named by their address. The fields of an answer are its JSON and the lines of its table.
"""

from dataclasses import dataclass
from typing import Any

from fedchain.crypto.signatures import PublicKey


@dataclass(frozen=True, slots=True)
class Conviction:
    """A member that proved its own crime, and since then takes no part in the federation's votes, posts and blocks."""

    member: str
    """Address of the member."""
    crime: str
    """The two statements that it signed, in words."""
    height: int | None
    """Height of the block that holds the evidence; None if that block is not held."""


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A change of the membership that a block counts."""

    kind: str
    """The way in which the membership changes: join, leave, remove, back, and so on."""
    member: str
    """Address of the member that it is about, or of the key that joins; empty if it is about parameters."""
    text: str
    """A name or a reason, for people."""
    key: str
    """Address of the key that the member has from the next height on; empty if it keeps its own."""
    round: int | None
    """Round from which on it holds; None for another key, which holds at the next height."""
    until: int
    """Last height whose block could count it."""
    values: tuple[tuple[str, int | str], ...]
    """Names and values of parameters; none if it is about a member."""
    approvals: tuple[str, ...]
    """Addresses of the members that approved of it."""


@dataclass(frozen=True, slots=True)
class ParameterView:
    """A parameter that an amendment changed."""

    name: str
    """Its name in the founding document, or in the learning method."""
    founded: Any
    """The founding document's value; None if it does not say one."""
    value: Any
    """The value in force."""


@dataclass(frozen=True, slots=True)
class AmendmentView:
    """An amendment that the chain counts, and that does not hold yet."""

    round: int
    """The round from which on it holds."""
    values: tuple[tuple[str, int | str], ...]
    """Names and values."""


@dataclass(frozen=True, slots=True)
class RulesView:
    """The amended values at one height, in place of the founding document's, and those on their way."""

    height: int
    """The height that is decided by them."""
    round: int
    """Its round."""
    amended: tuple[ParameterView, ...]
    """Parameters with an amended value, by name."""
    coming: tuple[AmendmentView, ...]
    """Amendments on their way, the next one first."""


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A place of the federation at one height."""

    number: int
    """The place, from 0; it is given once."""
    address: str
    """Address of the member that has it."""
    standing: str
    """Whether the member counts there: active, coming, away, left, removed or convicted."""
    following: str
    """Its standing once the change that is on its way holds; empty if none is."""
    round: int
    """Round since which it has its standing, or from which on it has the following one."""
    idle: int
    """Blocks in a row to which it owed a post, and which have no sign of life of it."""


@dataclass(frozen=True, slots=True)
class Attending:
    """The places that count at one height."""

    active: frozenset[int]
    """Those that may vote, post and mine."""
    idle: frozenset[int]
    """Those that contribute nothing: the dedicated aggregator's, and that of the member that has no data."""
    is_drawn: bool
    """Whether those that contribute are drawn."""


@dataclass(frozen=True, slots=True)
class MemberSummary:
    """A member in a list."""

    number: int
    """Its place, from 0: founders in the order of the genesis document, then newcomers. Simulations and test networks
    name it by this number."""
    address: str
    """Its libp2p peer id."""
    posts: int
    """Posts of it that were counted, in the blocks that are held."""
    blocks_mined: int
    """Final blocks that it mined."""
    votes: int
    """Certificates that hold a precommit of it."""
    elector: bool
    """Whether its vote counts for the next block."""
    expected: bool
    """Whether open phases wait for its posts."""
    last_round: int | None
    """Round of its last counted post; None if it never posted."""
    clock_offset_ms: int | None
    """By how much its clock was ahead of the medians, as the median of its precommits; None if it has none."""
    crime: str
    """The crime that it was convicted of; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one member over the whole chain; the fields are those of ``PeerView``."""

    posts: int
    """Posts of it that were counted."""
    payload_bytes: int
    """Bytes of their payloads."""
    last_round: int | None
    """Round of its last counted post; None if it never posted."""
    blocks_mined: int
    """Final blocks that it mined."""
    votes: int
    """Certificates that hold a precommit of it."""
    clock_offset_ms: int | None
    """By how much its clock was ahead of the medians, as the median of its precommits; None if it has none."""


@dataclass(frozen=True, slots=True)
class RoundPart:
    """A member's part in a round that is closed."""

    round: int
    """The round."""
    state: str
    """``posted``, ``late``, ``lost`` (its post is in no block), ``absent``, ``outside`` (it did not count),
    ``nothing`` (it had nothing to post), ``refused`` or ``aggregator``."""
    height: int
    """Block that counts its post, or lacks it."""
    reason: str
    """The state in words."""
    accuracy: float | None = None
    """Accuracy of its model on its own test set after the round's training; None if it is not known."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """A member, and its part in the blocks that are held."""

    number: int
    """Its place, from 0: founders in the order of the genesis document, then newcomers."""
    address: str
    """Its libp2p peer id."""
    public_key: PublicKey
    """32 bytes."""
    elector: bool
    """Whether its vote counts for the next block."""
    aggregator: bool
    """Whether it is the designated aggregator of the round that is open, or was last."""
    expected: bool
    """Whether open phases wait for its posts. They do not, at first, for one that was late."""
    posts: int
    """Posts of it that were counted."""
    payload_bytes: int
    """Bytes of their payloads."""
    last_round: int | None
    """Round of its last counted post; None if it never posted."""
    blocks_mined: int
    """Final blocks that it mined."""
    hashes_per_block: int | None
    """Expected number of hashes behind a next one; None if it may not mine."""
    votes: int
    """Certificates that hold a precommit of it; a quorum is enough for one, so an honest member may lack some."""
    clock_offset_ms: int | None
    """By how much its clock was ahead of the medians, as the median of its precommits; None if it has none."""
    conviction: Conviction | None
    """Its crime, if it was convicted."""
    rounds: tuple[RoundPart, ...] = ()
    """Its part in the newest closed rounds, oldest first."""
