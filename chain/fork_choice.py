"""Fork choice: of the blocks that enough members accepted, the head is the one with most work behind it.

Ties go to the lower hash, so peers that hold the same blocks and votes have the same head, whatever the order in
which both arrived.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.exceptions import LimitReached
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, apply_block, genesis_state, votes_required
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

CANDIDATES_MAX = 1_024
"""Valid blocks that are kept while they lack votes; the lowest and oldest goes when there are more."""

SIBLINGS_MAX = 32
"""Candidates of one miner on one parent; the one with the oldest timestamp goes when there are more.

A miner whose blocks are not accepted mines again from time to time. Its newest block counts the most posts, and it
can push out nobody's blocks but its own.
"""


@dataclass(frozen=True, slots=True)
class Reorg:
    """How the head moved."""

    rewound: tuple[Hash, ...]
    """Blocks that were left, newest first; empty when the chain only grew."""
    applied: tuple[Hash, ...]
    """Blocks that were entered, oldest first."""


class BlockTree:
    """Valid blocks, their states and their votes. What is added must have been validated.

    Args:
        genesis: the founding document.
        apply: a cache in front of :func:`apply_block`.
    """

    def __init__(self, genesis: Genesis, apply: Callable[[Genesis, State, Block], State] = apply_block) -> None:
        self.genesis = genesis
        self._apply = apply
        self.head: State = genesis_state(genesis)
        self.root: Hash = self.head.block_hash
        self._states: dict[Hash, State] = {self.root: self.head}
        self._blocks: dict[Hash, Block] = {}
        self._votes: dict[Hash, dict[PublicKey, Vote]] = {}
        self._accepted: set[Hash] = {self.root}
        self._candidates: dict[Hash, None] = {}  # in order of arrival
        self._children: dict[Hash, list[Hash]] = {}
        self._canonical: list[Hash] = [self.root]

    def __contains__(self, block_hash: Hash) -> bool:
        return block_hash in self._states

    def __len__(self) -> int:
        return len(self._blocks)

    def block(self, block_hash: Hash) -> Block | None:
        """A block by its hash."""
        return self._blocks.get(block_hash)

    def state(self, block_hash: Hash) -> State | None:
        """The state after a block; the chain id names the genesis state."""
        return self._states.get(block_hash)

    def parent_state(self, state: State) -> State | None:
        """The state before ``state``'s block; None for the genesis state."""
        return None if state.height == 0 else self._states[state.parent_hash]

    def canonical(self, height: int) -> Hash | None:
        """Hash of the block at ``height`` on the head's chain."""
        return self._canonical[height] if 0 <= height < len(self._canonical) else None

    def is_canonical(self, state: State) -> bool:
        """Whether the state's block is on the head's chain."""
        return self.canonical(state.height) == state.block_hash

    def is_accepted(self, block_hash: Hash) -> bool:
        """Whether the block has its quorum of votes."""
        return block_hash in self._accepted

    def votes(self, block_hash: Hash) -> dict[PublicKey, Vote]:
        """Votes for a block by voter; do not change it."""
        return self._votes.get(block_hash, {})

    def children(self, block_hash: Hash) -> tuple[Hash, ...]:
        """Known blocks on top of a block, in order of arrival."""
        return tuple(self._children.get(block_hash, ()))

    def descendants(self, block_hash: Hash) -> list[Hash]:
        """Known blocks above a block, on any branch, parents before their children."""
        found = [*self.children(block_hash)]
        for above in found:  # it grows while it is walked
            found += self.children(above)
        return found

    def fork_depth(self, state: State) -> int:
        """How far below the head the chain of ``state`` leaves the head's chain, in blocks."""
        while not self.is_canonical(state):
            state = self._states[state.parent_hash]
        return self.head.height - state.height

    def add_block(self, block: Block) -> Reorg | None:
        """Add a valid block whose parent is known, with the votes for the parent that it carries. Again is not twice.

        Returns:
            How the head moved, or None if it did not.

        Raises:
            LimitReached: its miner has enough newer blocks without votes on the same parent.
        """
        if block.hash in self._states:
            return None
        parent_hash = block.header.parent_hash
        self._make_room(block)
        self._blocks[block.hash] = block
        self._states[block.hash] = self._apply(self.genesis, self._states[parent_hash], block)
        self._children.setdefault(parent_hash, []).append(block.hash)
        self._candidates[block.hash] = None
        old = self.head
        for vote in block.votes:
            self._record(vote)
        self._accept(parent_hash)
        self._drop_candidates()
        return self._reorg(old)

    def add_vote(self, vote: Vote) -> Reorg | None:
        """Count a valid vote for a known block; how the head moved, or None if it did not."""
        old = self.head
        self._record(vote)
        self._accept(vote.block_hash)
        return self._reorg(old)

    def _record(self, vote: Vote) -> None:
        self._votes.setdefault(vote.block_hash, {}).setdefault(vote.voter, vote)

    def _accept(self, block_hash: Hash) -> None:
        """Accept a block whose quorum is reached. Its parent is accepted: its own votes were in it."""
        if block_hash in self._accepted or block_hash not in self._states:
            return
        state = self._states[block_hash]
        required = votes_required(self.genesis, self._states[state.parent_hash])
        if len(self._votes.get(block_hash, ())) < required or state.parent_hash not in self._accepted:
            return
        self._accepted.add(block_hash)
        del self._candidates[block_hash]
        if (state.work, -int.from_bytes(block_hash, "big")) > (
            self.head.work,
            -int.from_bytes(self.head.block_hash, "big"),
        ):
            self.head = state

    def _make_room(self, block: Block) -> None:
        """Drop the oldest candidate of the block's miner beside it, if there are too many; refuse it if it is that."""
        header = block.header
        beside = (self._blocks[child].header for child in self._children.get(header.parent_hash, ()))
        siblings = [other for other in beside if other.miner == header.miner and other.hash in self._candidates]
        if len(siblings) < SIBLINGS_MAX:
            return
        oldest = min(siblings, key=lambda other: other.timestamp_ms)
        if header.timestamp_ms <= oldest.timestamp_ms:
            raise LimitReached(
                "siblings",
                f"{len(siblings)} newer unaccepted blocks of its miner on its parent, at most {SIBLINGS_MAX}",
            )
        self._drop(oldest.hash)

    def _drop_candidates(self) -> None:
        """Forget the lowest unaccepted blocks beyond the limit: old difficulty is cheap, and their time is over.

        None of them has children, because a child brings its parent's votes.
        """
        while len(self._candidates) > CANDIDATES_MAX:
            self._drop(min(self._candidates, key=lambda known: self._states[known].height))

    def _drop(self, candidate: Hash) -> None:
        del self._candidates[candidate]
        del self._states[candidate]
        self._votes.pop(candidate, None)
        block = self._blocks.pop(candidate)
        self._children[block.header.parent_hash].remove(candidate)

    def _reorg(self, old: State) -> Reorg | None:
        """Follow the head from ``old`` and keep the list of the canonical chain."""
        if self.head is old:
            return None
        applied, state = [], self.head
        while not self.is_canonical(state):
            applied.append(state.block_hash)
            state = self._states[state.parent_hash]
        rewound = tuple(reversed(self._canonical[state.height + 1 :]))
        self._canonical[state.height + 1 :] = reversed(applied)
        return Reorg(rewound, tuple(reversed(applied)))
