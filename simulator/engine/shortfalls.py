"""Shortfalls: contributions that peers could not make, and those that others could not use."""

from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.state import State, may_close_empty, posts_required
from fedchain.crypto.keys import PublicKey
from fedchain.learning.exceptions import DecryptionRefused, LearningError
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.core.effects import Contribute


class Shortfalls:
    """Collects the reasons, each once however often a peer restarts.

    Args:
        genesis: the federation's founding document.
    """

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._not_posted: dict[tuple[int, int], str] = {}  # by peer and round
        self._skipped: dict[tuple[int, int, int], str] = {}  # by peer, round and the other peer
        self._failed: dict[tuple[int, int], set[PublicKey]] = {}  # members that failed to post, by phase

    @property
    def not_posted(self) -> list[str]:
        """Why peers had nothing to post, in order."""
        return list(self._not_posted.values())

    @property
    def skipped(self) -> list[str]:
        """Why peers could use nothing of others, in order."""
        return list(self._skipped.values())

    def on_contribution(self, number: int, round_number: int, made: Contribution) -> None:
        """A peer has contributed; it may have left out what others had sent."""
        for other, reason in made.skipped:
            said = f"peer {number}, round {round_number}: nothing of peer {other} is used: {reason}"
            self._skipped.setdefault((number, round_number, other), said)

    def on_nothing(self, number: int, head: State, asked: Contribute | Post, reason: LearningError) -> bool:
        """A peer has nothing to post; return whether so few are left that its phase can never have its posts.

        Args:
            number: the peer's number.
            head: its head.
            asked: what it was to contribute to, or its own post that others would refuse.
            reason: why it has nothing.
        """
        self._not_posted[number, asked.round] = str(reason)
        if isinstance(reason, DecryptionRefused) or head.round != asked.round:
            return False  # a phase of shares may close without any
        if head.phase and not head.posts:
            return False  # the phase before closed empty, as where its aggregator was down; the next round may not
        failed = self._failed.setdefault((head.round, head.phase), set())
        failed.add(head.roster.members[number])
        able = len(head.roster.contributors - failed)
        return able < (1 if may_close_empty(self._genesis, head) else posts_required(self._genesis, head))
