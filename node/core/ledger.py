"""The ledger: the chain as one peer holds it. It has a final head, and candidates for the next height.

Final blocks live in the store. Memory holds the last few, with the states before them, since peers may ask for those.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from fedchain.chain.applying import apply_block
from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.exceptions import LimitReached, MethodFailed, Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, decode_state, genesis_state
from fedchain.chain.storage.store import Storage
from fedchain.crypto.hashing import Hash

WINDOW = 8
"""Final blocks below the head that are kept in memory, with their contents and the states before them."""

CANDIDATES_OF_MINER_MAX = 4
"""Blocks of one miner that are kept for the open height; when there are more, the worst is dropped."""


@dataclass(slots=True)
class Entry:
    """A block for the open height."""

    block: Block
    after: State
    """The state after it, if it becomes final."""
    arrived_ms: int
    """Time of its arrival, by the monotonic clock; the posts that it should have counted are judged by this time."""
    is_valid: bool = False
    """Whether its knowledge was recomputed and is correct."""
    lacks_parts: bool = False
    """Whether the block is valid but lacks parts that this peer reads, which delays this peer's vote."""
    refuted: Refused | None = None
    """Why its knowledge differs from the recomputed one; None if it agrees, or was not recomputed."""
    recomputed: Hash = b""
    """32 bytes: root of the knowledge that was recomputed instead; empty if that failed."""
    is_computing: bool = False
    """Whether its knowledge is being recomputed."""

    @property
    def is_refuted(self) -> bool:
        """Whether recomputing its knowledge gave another result, or failed."""
        return self.refuted is not None

    @property
    def is_contradicted(self) -> bool:
        """Whether recomputing gave another result. If the method's own code failed, nothing is known of the block."""
        return self.is_refuted and not isinstance(self.refuted, MethodFailed)

    @property
    def hash(self) -> Hash:
        """32 bytes: the block's hash."""
        return self.block.hash

    @property
    def posts(self) -> int:
        """Number of posts that it counts."""
        return len(self.block.transactions)


@dataclass(frozen=True, slots=True)
class Settled:
    """A final block of the window."""

    block: Block
    certificate: Certificate
    before: State
    """The state that it stands on."""
    state: bytes = field(repr=False)
    """The same, encoded."""


class Ledger:
    """The head, its proof, and the candidates for the next height.

    Args:
        genesis: the founding document.
        storage: the store of final blocks. Its head was validated when it was opened.
    """

    def __init__(self, genesis: Genesis, storage: Storage) -> None:
        self.genesis = genesis
        self.head: State = genesis_state(genesis)
        self.certificate: Certificate | None = None
        self.entries: dict[Hash, Entry] = {}
        self._window: list[Settled] = []
        self._storage = storage
        if (stored := storage.head()) is not None:
            self.advance(stored.block, stored.certificate, *_states_around(genesis, stored.state, stored.block))

    @property
    def settled(self) -> Settled | None:
        """The head's block; None at the start."""
        return self._window[-1] if self._window else None

    def advance(self, block: Block, certificate: Certificate, before: State, after: State) -> None:
        """Make ``block`` the head, and drop the candidates for its height."""
        if before.block_hash != self.head.block_hash:  # joined from elsewhere
            self._window.clear()
        self._window = [*self._window, Settled(block, certificate, before, before.encode())][-WINDOW:]
        self.head, self.certificate = after, certificate
        self.entries.clear()

    def window(self) -> Iterator[Block]:
        """The final blocks in memory, oldest first."""
        return (settled.block for settled in self._window)

    def state(self, root: Hash) -> bytes | None:
        """An encoded state before a block of the window, by its hash."""
        return next((settled.state for settled in self._window if settled.before.root == root), None)

    def base_knowledge(self) -> Hash:
        """Root of the knowledge before the first block of the window."""
        return self._window[0].before.knowledge_root if self._window else self.head.knowledge_root

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        """The final block at a height, from memory or the store."""
        for settled in reversed(self._window):
            if settled.block.header.height == height:
                return settled.block, settled.certificate
        return self._storage.final(height) if 0 < height <= self.head.height else None

    def proven(self, height: int) -> Iterator[tuple[Block, Certificate]]:
        """Final blocks from a height on, each with a certificate that proves it to others; ends where one is missing.

        The certificates of the window were validated. Below the window, the proof is the certificate that the block
        above carries, since its header names it: nobody validates the certificate that a store keeps beside a block
        once there is a block above.
        """
        judged = {settled.block.hash: settled.certificate for settled in self._window}
        found = self.final(height)
        while found is not None:
            block, above = found[0], self.final(height + 1)
            proof = judged.get(block.hash) or (None if above is None else _parent_proof(above[0]))
            if proof is None:
                return
            yield block, proof
            height, found = height + 1, above

    def to_replace(self, block: Block, wanted: Collection[Hash]) -> Hash | None:
        """The block to drop in favour of ``block``: its miner's worst, if that has the maximum; None if there is room.

        However many blocks a miner makes, all peers that receive the same ones keep the same ones: the preferred.

        Args:
            block: a block for the open height, possibly unchecked.
            wanted: blocks that a quorum of votes names; they do not count, and they stay.

        Raises:
            LimitReached: its miner has enough blocks that are preferred to this one.
        """
        if block.hash in wanted:
            return None
        miner = block.header.miner
        others = [known for known in self.entries.values() if known.block.header.miner == miner]
        rivals = [known for known in others if known.hash not in wanted]
        if len(rivals) < CANDIDATES_OF_MINER_MAX:
            return None
        worst = max(rivals, key=lambda known: preference(known.block))
        if preference(block) >= preference(worst.block):
            raise LimitReached("candidates", f"{len(rivals)} blocks of its miner are preferred to {block.hash.hex()}")
        return worst.hash

    def add(self, entry: Entry, replaced: Hash | None = None) -> None:
        """Keep a block for the open height, in place of ``replaced`` if given; all but its knowledge was checked."""
        if replaced is not None:
            del self.entries[replaced]
        self.entries[entry.hash] = entry

    def valid(self) -> list[Entry]:
        """Blocks that may become final, best first."""
        found = [entry for entry in self.entries.values() if entry.is_valid]
        return sorted(found, key=lambda entry: preference(entry.block)) if len(found) > 1 else found


@lru_cache(maxsize=4)
def _states_around(genesis: Genesis, data: bytes, block: Block) -> tuple[State, State]:
    """The states before a block, which is stored, and after it. In a simulation many peers wake at one block."""
    before = decode_state(genesis, data)
    return before, apply_block(genesis, before, block)


def _parent_proof(block: Block) -> Certificate | None:
    """The certificate that a block carries, if it is the one that the header names."""
    return block.certificate if certificate_root(block.certificate) == block.header.certificate_root else None


def preference(block: Block) -> tuple[int, Hash]:
    """Sort key of candidates, the best first: most posts, then the lowest hash. It depends on the block alone."""
    return -len(block.transactions), block.hash
