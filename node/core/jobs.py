"""Jobs: computations that may take long, so a node leaves them to its shell."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedchain.chain.exceptions import Refused
from fedchain.chain.knowledge import needed_contents
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.crypto.signatures import Signed


@dataclass(frozen=True, slots=True)
class CheckPost:
    """Have the method check a post's payload for the open phase.

    The whole check, which a block's posts get, also compares the payload with the post's hash and size. Here that is
    done: its own author hashed it, and a post of another member gets here with the bytes that were compared on arrival.
    """

    state: State = field(repr=False)
    """The head."""
    knowledge: bytes = field(repr=False)
    """The federation's knowledge at the head."""
    post: Post
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepPart:
    """Check a part that this peer reads against a post's list, and keep it; its bytes are durable afterwards."""

    state: State = field(repr=False)
    """The head."""
    post: Post | None
    """The post that lists it; None if the knowledge lists it, so that a quorum has accepted it."""
    payload: bytes = field(repr=False)
    """That post's list."""
    part_hash: Hash
    """32 bytes: the hash of ``data``."""
    data: bytes | None = field(repr=False)
    """The part; None if it is here already, and only the post that lists it is new."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """Aggregate posts into the knowledge that a block of them leaves behind."""

    state: State = field(repr=False)
    """The head."""
    transactions: tuple[Post, ...]
    """The posts, in sender order."""
    contents: Mapping[Hash, bytes] = field(repr=False, compare=False)
    """Their payloads and the knowledge at the head, by hash."""

    @property
    def key(self) -> "JobKey":
        """The inputs that determine the result."""
        return self.state.block_hash, tuple([post.hash for post in self.transactions])

    @property
    def is_possible(self) -> bool:
        """Whether all contents that it needs are here."""
        return all(map(self.contents.__contains__, needed_contents(self.state, self.transactions)))


@dataclass(frozen=True, slots=True)
class VerifySignatures:
    """Verify signatures of a block ahead of its turn; those that are left by then are verified together with it."""

    block_hash: Hash
    """32 bytes: hash of the block that a peer handed out as final."""
    signed: tuple[Signed, ...] = field(repr=False)
    """Signatures that were not verified before, in the order of :func:`fedchain.chain.signatures.signatures_of`."""


JobKey = tuple[Hash, tuple[Hash, ...]]
"""(head, posts)."""

Job = CheckPost | KeepPart | Recompute | VerifySignatures


@dataclass(frozen=True, slots=True)
class Knowledge:
    """A recomputed knowledge. It may be large, so it is hashed by the process that computed it."""

    root: Hash
    """32 bytes: SHA-256 of ``data``."""
    data: bytes = field(repr=False)
    """The bytes themselves."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of verifying signatures."""

    count: int
    """Number of leading signatures that are valid; the others were not judged."""


Result = Knowledge | Verified | Refused | None
"""The result of a job: recomputed knowledge, verified signatures, None for a good post or part, or the error."""
