"""Effects: everything that a node can ask of its shell. They are carried out in order.

No effect cancels another: a result that is no longer wanted is ignored when it arrives.
"""

from dataclasses import dataclass, field

from fedchain.chain.block import Header
from fedchain.chain.exceptions import Refused
from fedchain.chain.storage.store import Record
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import GossipMessage, Message
from fedchain.node.core.jobs import Job
from fedchain.node.core.notices import Notice
from fedchain.node.core.voting.journal import Journal


@dataclass(frozen=True, slots=True)
class Publish:
    """Spread a message to everyone."""

    message: GossipMessage


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to one peer."""

    peer: PublicKey
    message: Message


@dataclass(frozen=True, slots=True)
class Contribute:
    """Compute this peer's payload for a phase; the answer is ``Contributed`` or ``NotContributed``."""

    round: int
    phase: int
    phase_name: str
    knowledge: bytes = field(repr=False)
    """The federation's knowledge; empty before the first block."""


@dataclass(frozen=True, slots=True)
class Mine:
    """Search for a nonce for ``header``; the answer is a ``Mined`` event. It replaces any earlier ``Mine``."""

    header: Header


@dataclass(frozen=True, slots=True)
class Compute:
    """Do a job over whole payloads, off the loop if it takes long; the answer is a ``Computed`` event."""

    job: Job


@dataclass(frozen=True, slots=True)
class Persist:
    """Store ``records`` durably *before* the effects that follow: no promise is ever forgotten."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Write the signing journal durably *before* the effects that follow: no signed statement is ever contradicted."""

    journal: Journal


@dataclass(frozen=True, slots=True)
class Retain:
    """Drop every stored content that is not ``needed``: the retention window has moved on."""

    needed: frozenset[Hash] = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepParts:
    """Drop every part that is not ``needed``, since nothing lists it any more."""

    needed: frozenset[Hash] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Wake:
    """Send a ``Tick`` at this time of the monotonic clock, if none comes before. It replaces any earlier ``Wake``."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The message just received was refused; :func:`fedchain.network.verdict.verdict` says what follows from that."""

    peer: PublicKey
    """32 bytes: the neighbour that sent it."""
    error: Refused

    def __post_init__(self) -> None:
        _forget_frames(self.error)


@dataclass(frozen=True, slots=True)
class Blame:
    """A member signed something that breaks a rule. The peer that passed it on is not to blame."""

    member: PublicKey
    """32 bytes: the member that signed it."""
    error: Refused

    def __post_init__(self) -> None:
        _forget_frames(self.error)


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the operator something."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Stop:
    """End the node: going on would contradict statements made elsewhere in its name."""

    reason: str


def _forget_frames(error: Refused) -> None:
    """Drop an error's traceback and context: their frames hold the node, and with it all its payloads."""
    error.__traceback__ = error.__context__ = None


Effect = (
    Publish
    | Send
    | Contribute
    | Mine
    | Compute
    | Persist
    | WriteJournal
    | Retain
    | KeepParts
    | Wake
    | Refuse
    | Blame
    | Tell
    | Stop
)
