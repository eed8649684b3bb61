"""Notices: messages for the operator of a node."""

from dataclasses import dataclass

from fedchain.chain.evidence import Evidence
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey


@dataclass(frozen=True, slots=True)
class NotBelieved:
    """The store or journal holds a thing that would be refused from the network: this node goes on without it."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotCounted:
    """A block became final without this peer's post."""

    height: int
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Convicted:
    """A final block proves a crime."""

    height: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class ClockOff:
    """A voter's clock is far from the others'."""

    member: PublicKey
    offset_ms: int
    """How far it is ahead of the median of all voters; negative if behind."""


@dataclass(frozen=True, slots=True)
class Listening:
    """This node signs nothing yet: too few members have announced their head."""

    level: int
    """Number of members whose announced head is no higher than ours."""
    required: int
    """Number of such members that is needed, so that one of them is honest."""
    unheard: tuple[PublicKey, ...]
    """Members that have announced no head, in member order."""
    ahead: tuple[PublicKey, ...]
    """Members whose announced head is higher than ours."""


@dataclass(frozen=True, slots=True)
class TwinHeard:
    """Our own key signed a statement that we do not know: it is in use elsewhere, or this node lost its memory."""

    statement: str
    silent_until: int
    """Height up to which this node signs nothing."""


@dataclass(frozen=True, slots=True)
class SessionHeard:
    """Another process with our key answered this one: both stop."""

    number: bytes
    """16 bytes: the session number of the other process."""


@dataclass(frozen=True, slots=True)
class SilenceOver:
    """No further statement of our key was received: this node signs again."""

    height: int


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A quorum finalized a block that this node computes differently: it votes and mines no more."""

    height: int
    ours: Hash
    """32 bytes: the knowledge root that was recomputed here."""
    theirs: Hash
    """32 bytes: the knowledge root in the block's header."""


@dataclass(frozen=True, slots=True)
class HeadUnconfirmed:
    """Too few members say that the chain is far ahead to be believed: it is followed block by block."""

    height: int
    """Height of the head that they announce."""
    members: int
    """Number of members that announce it."""
    required: int
    """Number of members that have to announce it: one more than may lie."""


@dataclass(frozen=True, slots=True)
class HeadConflicts:
    """Two blocks of a height are certified, so more members lie than the federation bears: this node joins nowhere."""

    height: int
    hashes: tuple[Hash, Hash]
    """32 bytes each: the two blocks."""
    signers: tuple[PublicKey, ...]
    """Members that signed both."""


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    """Training failed: this peer posts nothing in this phase."""

    round: int
    phase: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A member's contribution could not be used by our own work in a round."""

    round: int
    member: PublicKey
    reason: str


Notice = (
    NotBelieved
    | NotCounted
    | Convicted
    | ClockOff
    | Listening
    | TwinHeard
    | SessionHeard
    | SilenceOver
    | Contradicted
    | HeadUnconfirmed
    | HeadConflicts
    | TrainingFailed
    | Skipped
)
