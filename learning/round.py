"""The public side of a round: everything that anybody can read from the chain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import PartRef, join_lists

Tensors = Mapping[str, NDArray[Any]]
"""Named arrays of the types that a payload may have: a payload, or the knowledge a phase leaves behind."""


NO_CHAIN = bytes(32)
"""Chain id of a round that is played without a chain."""


class Late(Protocol):
    """A post of an earlier round that is aggregated, as the chain tells it."""

    @property
    def sender(self) -> bytes:
        """Public key of the contributor."""

    @property
    def payload(self) -> bytes:
        """The encoded post."""

    @property
    def round(self) -> int:
        """Round that it was made for."""

    @property
    def knowledge(self) -> bytes:
        """Encoded knowledge that it was made from."""


class Occasion(Protocol):
    """The occasion of a post or an aggregate, as the chain tells it: no rule may know the members from elsewhere."""

    @property
    def phase(self) -> str:
        """Name of the phase that is open."""

    @property
    def round(self) -> int:
        """Round number, from 1; 0 during the setup."""

    @property
    def members(self) -> Sequence[bytes]:
        """Public keys by place, of all that ever were members."""

    @property
    def clients(self) -> int:
        """Number of members with data, K; 0: as many as at the founding."""

    @property
    def late(self) -> Sequence[Late]:
        """Late posts that are aggregated beside those of the round, in ascending order of sender and round."""


@dataclass(frozen=True, slots=True)
class OffChain:
    """An occasion that no chain tells."""

    phase: str
    """Name of the phase that is open."""

    round: int
    """Round number, from 1; 0 during the setup."""

    members: Sequence[bytes] = ()
    """Public keys by place, of all that ever were members; none where the method asks for none."""

    clients: int = 0
    """Number of members with data, K; 0: as many as at the founding."""

    late: Sequence[Late] = ()
    """Late posts that are aggregated beside those of the round."""


class Bulk(Protocol):
    """The parts that a contributor works on: those that others posted by reference, and its own."""

    def write(self, kind: str, tensors: Tensors, reader: int) -> PartRef:
        """Keep a part of a kind of the open phase, for one reader, and return its entry for a post's list.

        Raises `ConfigurationError`, which says so, if the disk refuses: the phase continues without this contributor.
        """

    def read(self, ref: PartRef) -> Tensors:
        """Return the tensors of a part, read-only. Raises `PartMissing` if its bytes are not here, or of no use.

        The phase continues without a contributor whose method does not catch that.
        """

    def parts(self, phase: str) -> tuple[PartRef, ...]:
        """Return the parts that a phase left behind, as far as they are known now, with their senders and readers."""

    def manifest(self, refs: Sequence[PartRef] | None = None) -> Tensors:
        """Return the tensors with which a post lists parts: those given, or else all that were written."""


@dataclass(frozen=True, slots=True)
class ReadPost:
    """One contributor's post in a phase."""

    sender: bytes
    """Public key of the contributor."""

    payload: Tensors
    """The decoded and checked tensors, read-only. They may lie unaligned in memory: torch wants a copy."""

    info: ModelInfo | None = None
    """The shapes of the contributor's own model; None in a test that needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePost:
    """A post of the same phase of an earlier round, which counts now."""

    post: ReadPost
    """The post."""

    age: int
    """Rounds by which it is late, from 1."""

    weight: float
    """The method's `late` of that age."""

    base: Tensors
    """The knowledge that it was made from."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round while one of its phases is open."""

    number: int
    """Round number, from 1; 0 during the setup."""

    knowledge: Tensors | None
    """The federation's knowledge; None before the first aggregate. A phase that closes empty leaves it as it was."""

    posts: tuple[ReadPost, ...] = ()
    """The posts of the phase in ascending order of sender; only `aggregate` sees them."""

    clients: int = 0
    """Number of clients that are members now, K, whether they take part in this round or not."""

    knowledge_phase: str = ""
    """Name of the phase that left the knowledge; empty if there is none."""

    beside: Mapping[str, Tensors] = field(default_factory=dict)
    """By phase: tensors that earlier phases of the round or the setup left beside the knowledge (`Phase.lifetime`)."""

    members: tuple[bytes, ...] = ()
    """Public keys by place: the founders', a dedicated aggregator's last of them, then those of later members. Members
    that left keep their places, so there may be more than K."""

    me: bytes | None = None
    """Public key of the member that computes; None where a post is checked or aggregated, which is the same for all."""

    material: Mapping[str, bytes] = field(default_factory=dict)
    """Public material of the method in the genesis document, such as keys that shares are verified with."""

    chain_id: bytes = NO_CHAIN
    """Identifier of the federation, to which proofs are bound."""

    info: ModelInfo | None = None
    """The shapes that payloads follow, of several models the first one's; None in a test that needs none."""

    bulk: Bulk | None = None
    """Parts that the phase's contributor reads and writes; None where a post is checked or aggregated."""

    spools: Spools = field(default_factory=lambda: InMemory, repr=False)
    """Begins what a phase's work or an aggregate computes once and looks at again."""

    late: tuple[LatePost, ...] = ()
    """Late posts that count, in ascending order of sender and round; only `aggregate` sees them. A method that gives
    late posts no weight never finds any."""

    def place_of(self, sender: bytes) -> int:
        """Return the place of a member among the members, from 0; `LookupError` if it is none."""
        try:
            return self.members.index(sender)
        except ValueError:
            raise LookupError(f"{sender.hex()} is none of {len(self.members)} members") from None


def bulk_of(round: Round) -> Bulk:
    """Return the access to parts that a contributor has."""
    assert round.bulk is not None, "contributors are given one"
    return round.bulk


def left_behind(round: Round) -> Tensors:
    """Return the aggregate of a phase: the lists of parts of all its posts, with the places of their senders."""
    return join_lists([(round.place_of(post.sender), post.payload) for post in round.posts])
