"""Bounded pools for what came too early: blocks without their parent or payloads, and votes without their block."""

from collections import OrderedDict
from collections.abc import Iterator

from fedchain.chain.block import Block
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

UNPLACED_MAX = 128
"""Sealed blocks kept; the oldest goes when there are more."""

UNPLACED_OF_MINER_MAX = 32
"""Of these, blocks of one miner, whose difficulty nobody can check yet; its oldest goes when there are more."""

EARLY_VOTES_MAX = 8
"""Votes kept of each member, so that no member can push out another's; the oldest goes when there are more."""


class UnplacedBlocks:
    """Sealed blocks whose parent or payloads are missing, with the peer that sent each."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[Hash, tuple[PublicKey, Block]] = OrderedDict()

    def __contains__(self, block_hash: Hash) -> bool:
        return block_hash in self._blocks

    def __iter__(self) -> Iterator[tuple[PublicKey, Block]]:
        return iter(list(self._blocks.values()))

    def __len__(self) -> int:
        return len(self._blocks)

    def children(self, block_hash: Hash) -> list[Block]:
        """Blocks on top of a block."""
        return [block for _, block in self._blocks.values() if block.header.parent_hash == block_hash]

    def add(self, peer: PublicKey, block: Block) -> bool:
        """Keep a block; whether another had to go for it."""
        self._blocks[block.hash] = peer, block
        of_miner = [kept.hash for _, kept in self._blocks.values() if kept.header.miner == block.header.miner]
        if len(of_miner) > UNPLACED_OF_MINER_MAX:
            del self._blocks[of_miner[0]]
            return True
        if len(self._blocks) > UNPLACED_MAX:
            self._blocks.popitem(last=False)
            return True
        return False

    def drop(self, block_hash: Hash) -> None:
        """Forget a block, if it is here."""
        self._blocks.pop(block_hash, None)

    def payload_hashes(self) -> set[Hash]:
        """Payloads that the blocks count."""
        return {post.payload_hash for _, block in self._blocks.values() for post in block.transactions}


class EarlyVotes:
    """Votes of members for blocks that are not known yet."""

    def __init__(self) -> None:
        self._votes: dict[PublicKey, OrderedDict[Hash, Vote]] = {}

    def __len__(self) -> int:
        return sum(len(votes) for votes in self._votes.values())

    def add(self, vote: Vote) -> None:
        """Keep a vote."""
        votes = self._votes.setdefault(vote.voter, OrderedDict())
        votes[vote.block_hash] = vote
        if len(votes) > EARLY_VOTES_MAX:
            votes.popitem(last=False)

    def take(self, block_hash: Hash) -> list[Vote]:
        """Votes for a block that is known now; they are no longer kept."""
        taken = [votes.pop(block_hash) for votes in self._votes.values() if block_hash in votes]
        self._votes = {voter: votes for voter, votes in self._votes.items() if votes}
        return taken
