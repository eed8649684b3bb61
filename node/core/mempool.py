"""The mempool: posts that are not in a block yet, one per member and phase, for the open round and the next."""

from collections.abc import Iterator

from fedchain.chain.exceptions import Equivocation
from fedchain.chain.transaction import Transaction
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

Step = tuple[int, int]
"""(round, phase)."""


class Mempool:
    """Posts by phase and sender. The first post of a sender counts; a second, different one is evidence.

    It is bounded by construction: a caller adds only posts of members and of phases inside the window, so it never
    holds more than members × phases of two rounds.
    """

    def __init__(self) -> None:
        self._posts: dict[Step, dict[PublicKey, Transaction]] = {}
        self._held_since_ms: dict[Step, dict[PublicKey, int]] = {}

    def add(self, transaction: Transaction, now_ms: int) -> bool:
        """Keep ``transaction``; False if it is already there.

        Raises:
            Equivocation: the sender signed another post for the same phase before.
        """
        step = transaction.round, transaction.phase
        posts = self._posts.setdefault(step, {})
        known = posts.get(transaction.sender)
        if known is None:
            posts[transaction.sender] = transaction
            self._held_since_ms.setdefault(step, {})[transaction.sender] = now_ms
            return True
        if known.hash != transaction.hash:
            raise Equivocation(
                "one post per phase",
                f"{transaction.sender.hex()[:16]}… signed {known.hash.hex()} and {transaction.hash.hex()}",
            )
        return False

    def get(self, step: Step, sender: PublicKey) -> Transaction | None:
        """The post of ``sender`` in a phase, if it is held."""
        return self._posts.get(step, {}).get(sender)

    def posts(self, step: Step) -> dict[PublicKey, Transaction]:
        """Posts of one phase by sender; do not change it."""
        return self._posts.get(step, {})

    def held_before(self, step: Step, time_ms: int) -> Iterator[Transaction]:
        """Posts of a phase that have been held since before ``time_ms``."""
        since = self._held_since_ms.get(step, {})
        return (post for sender, post in self.posts(step).items() if since[sender] < time_ms)

    def payload_hashes(self) -> Iterator[Hash]:
        """Payloads of all posts that are held."""
        return (post.payload_hash for posts in self._posts.values() for post in posts.values())

    def drop_before(self, step: Step) -> None:
        """Forget the posts of phases before ``step``: they are closed."""
        for closed in [known for known in self._posts if known < step]:
            del self._posts[closed]
            del self._held_since_ms[closed]

    def __len__(self) -> int:
        return sum(len(posts) for posts in self._posts.values())
