"""Notices: what the operator of a node should hear of."""

from dataclasses import dataclass

from fedchain.chain.evidence import Evidence
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey


@dataclass(frozen=True, slots=True)
class NotBelieved:
    """Store or journal hold what would be refused if it came from the network: this node goes on without it."""

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
    """A crime stands in a final block."""

    height: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class ClockOff:
    """A voter's clock is far from the others'."""

    member: PublicKey
    offset_ms: int
    """How far ahead of the median of all voters it is; negative: behind."""


@dataclass(frozen=True, slots=True)
class Listening:
    """This node says nothing yet: too few members have said where the chain is."""

    level: int
    """Members that say they are no further than this node."""
    required: int
    """How many have to, so that one of them is honest."""
    unheard: tuple[PublicKey, ...]
    """Members that have not said where they are, in member order."""
    ahead: tuple[PublicKey, ...]
    """Members that say they are further."""


@dataclass(frozen=True, slots=True)
class TwinHeard:
    """Our own key says what we did not say: it is in use elsewhere, or this node lost its memory."""

    statement: str
    silent_until: int
    """Height up to which this node says nothing."""


@dataclass(frozen=True, slots=True)
class SessionHeard:
    """Another process that has our key answered this one: both stop."""

    number: bytes
    """16 bytes: that of the other process."""


@dataclass(frozen=True, slots=True)
class SilenceOver:
    """Nothing more was heard in our name: this node speaks again."""

    height: int


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A quorum made final what this node computes differently. It votes no more until it is started again."""

    height: int
    ours: Hash
    """32 bytes: what was recomputed here."""
    theirs: Hash
    """32 bytes: what the block says."""


@dataclass(frozen=True, slots=True)
class HeadUnconfirmed:
    """Members say that the chain is far ahead, too few of them to believe it: it is followed block by block."""

    height: int
    """Height that they say it has."""
    members: int
    """How many say so."""
    required: int
    """How many have to: one more than may lie."""


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    """Nothing is posted in this phase."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a member contributed was of no use to our own work in a round."""

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
    | TrainingFailed
    | Skipped
)
