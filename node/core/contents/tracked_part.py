"""One part that this peer follows: its state, the listings for which it is fetched, and the lists that it passed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from fedchain.chain.post import Post
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey


@dataclass(frozen=True, slots=True)
class Claim:
    """A listing of a part that this peer reads."""

    size: int
    """Bytes of the part, according to the listing."""
    author: PublicKey
    """The member that lists the part and should have it."""
    post: Post | None
    """The post of the open phase that lists it; None if the knowledge does, so that a quorum has accepted it."""
    payload: bytes
    """That post's list."""


class PartState(Enum):
    """Where a part is. A download that runs has one of the places in ``turns.py`` besides."""

    UNKNOWN = "unknown"
    """Perhaps on the disk, which was not asked since the head moved."""
    WANTED = "wanted"
    """Being fetched, or waiting for its turn."""
    KEEPING = "keeping"
    """It has come, and is being checked and written."""
    HERE = "here"
    """Found on the disk or written since the head moved."""


@dataclass(slots=True)
class TrackedPart:
    """A part and what became of it; each method is one transition."""

    state: PartState = PartState.UNKNOWN
    claims: list[Claim] = field(default_factory=list)
    """The listings for which it is wanted or kept; empty in the other states."""
    judged: dict[Hash, bool] = field(default_factory=dict)
    """Posts of the open phase by whose lists it was checked, by hash: True if it passed, False while the check runs."""
    is_awaited: bool = False
    """Whether the knowledge lists it for us, and our work waits for it."""
    is_given_up: bool = False
    """Whether it was awaited in vain; this holds as long as the knowledge lists it."""
    is_spared: bool = False
    """Whether the disk was told to keep it, or has written it since."""

    @property
    def is_under_way(self) -> bool:
        """Whether it is being fetched or written."""
        return self.state is PartState.WANTED or self.state is PartState.KEEPING

    def begin(self) -> None:
        """A first listing claims it."""
        self.state, self.claims = PartState.WANTED, []

    def arrive(self) -> Claim:
        """It has come; returns the listing by which it is checked, preferably the knowledge's."""
        self.state = PartState.KEEPING
        return next((claim for claim in self.claims if claim.post is None), self.claims[0])

    def keep(self) -> None:
        """It was written."""
        self.state, self.claims, self.is_spared, self.is_awaited = PartState.HERE, [], True, False

    def refuse(self) -> list[Claim]:
        """It was not written; returns the listings that claimed it."""
        self.state, claims, self.claims = PartState.UNKNOWN, self.claims, []
        return claims

    def find(self) -> None:
        """The disk has it."""
        self.state = PartState.HERE

    def doubt(self) -> None:
        """It may be on the disk no more: ask again."""
        if self.state is PartState.HERE:
            self.state = PartState.UNKNOWN

    def claim_anew(self, claims: Iterable[Claim]) -> None:
        """Another head: only these listings still claim it."""
        if self.state is PartState.WANTED:
            self.refuse()
        elif self.state is PartState.KEEPING:
            self.claims = [*claims]

    def give_up(self) -> None:
        """It was awaited for too long."""
        self.is_awaited, self.is_given_up = False, True

    def is_of_use(self) -> bool:
        """Whether anything would be forgotten with this object."""
        return self.state is not PartState.UNKNOWN or bool(self.judged) or self.is_given_up or self.is_spared
