"""Jobs: computations that may take long, and which a node therefore leaves to its shell."""

from dataclasses import dataclass, field

from fedchain.chain.exceptions import Refused
from fedchain.chain.post import Post
from fedchain.chain.signatures import Signed
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash


@dataclass(frozen=True, slots=True)
class CheckPost:
    """Check a post of the open phase beside its payload."""

    state: State = field(repr=False)
    """The head."""
    knowledge: bytes = field(repr=False)
    """What the federation knows there."""
    post: Post
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepPart:
    """Check a part that this peer reads by a post's list, and keep it: when that is done, its bytes are durable."""

    state: State = field(repr=False)
    """The head."""
    post: Post | None
    """The post that lists it; None: the knowledge does, so a quorum let it pass."""
    payload: bytes = field(repr=False)
    """That post's list."""
    part_hash: Hash
    """32 bytes: what ``data`` hashes to."""
    data: bytes | None = field(repr=False)
    """The part; None: it is here already, and only the post that lists it is new."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """Aggregate posts to the knowledge that a block over them leaves behind."""

    state: State = field(repr=False)
    """The head."""
    transactions: tuple[Post, ...]
    """The posts, in sender order."""
    contents: dict[Hash, bytes] = field(repr=False, compare=False)
    """Their payloads and the knowledge at the head, by hash."""

    @property
    def key(self) -> "JobKey":
        """What the result depends on."""
        return self.state.block_hash, tuple(post.hash for post in self.transactions)


@dataclass(frozen=True, slots=True)
class VerifySignatures:
    """Verify signatures of a block whose turn has not come. Those that are not verified by then are verified in it."""

    block_hash: Hash
    """32 bytes: the block that is handed out as final."""
    signed: tuple[Signed, ...] = field(repr=False)
    """Signatures that were not verified before, in the order of :func:`fedchain.chain.signatures.signatures_of`."""


JobKey = tuple[Hash, tuple[Hash, ...]]
"""(head, posts)."""

Job = CheckPost | KeepPart | Recompute | VerifySignatures


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What was recomputed. It may be large, so it is hashed where it was computed."""

    root: Hash
    """32 bytes: SHA-256 of ``data``."""
    data: bytes = field(repr=False)
    """The bytes themselves."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of looking at signatures."""

    count: int
    """The first so many are valid; nothing is said of the others."""


Result = Knowledge | Verified | Refused | None
"""What comes of a job: recomputed knowledge, verified signatures, nothing for a post or part that is good, or what is
wrong."""
