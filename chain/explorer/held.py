"""The records of a chain as one store holds them, up to the head; an error says what is not held."""

from collections.abc import Iterator
from functools import cached_property

from fedchain.chain.block import Block
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import NotFound, StoreCorrupt
from fedchain.chain.explorer.block_views import phase_name
from fedchain.chain.explorer.history import Entry, follow, walk
from fedchain.chain.knowledge import EMPTY_ROOT
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.roster import Roster, draw_roster, seed_of_contributors, seed_of_electors
from fedchain.chain.state import EMPTY_KNOWLEDGE, decode_state, genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import Hash


class HeldChain:
    """The chain in a store, up to the head that it had when this was made."""

    def __init__(self, store: Store) -> None:
        """Raises StoreCorrupt or InvalidEncoding if the head cannot be read."""
        self.store = store
        self.genesis = store.genesis
        self.head = store.head()
        """The newest final block; None if there is none."""
        base, state = store.base(), None
        if self.head is None:
            state = genesis_state(self.genesis)
        else:
            state = follow(self.genesis, decode_state(self.genesis, self.head.state), self.head.block)
        if state is None:
            raise StoreCorrupt(f"{store.folder}: the head does not stand on the state that is kept with it")
        self.state = state
        """The state behind the head."""
        self.heights = range(base, state.height + 1)
        """Heights of the final blocks, from the base to the head."""

    def candidates(self) -> tuple[Block, ...]:
        """Open candidates: blocks that may still become final."""
        return tuple(item for item in self.store.candidates() if item.header.parent_hash == self.state.block_hash)

    @cached_property
    def crimes(self) -> tuple[tuple[int | None, Evidence], ...]:
        """Proven crimes in the order of the chain, each after the height of its block; None if that is not held."""
        convicted = self.state.convicted
        heights = self.store.heights_of_crimes(self.heights.start, self.state.height)
        unknown = [None] * (len(convicted) - len(heights))  # a state lists crimes in the order of their blocks
        return tuple(zip([*unknown, *heights], convicted, strict=False))

    def roster(self, height: int, round_number: int, phase: int) -> Roster | None:
        """The members and their rights at the block that closed a phase; None if its round's first is not held.

        They follow from the hashes that drew them and the crimes that were proven before. A state has them, too, but
        takes up to ``STATE_INTERVAL`` blocks to compute.
        """
        head, seed = self.store.parent_hash(height), self.store.parent_hash(height - phase)
        if head is None or seed is None or phase >= len(self.genesis.phases_of(round_number)):
            return None
        if self.genesis.version >= CHANGES_VERSION:  # it depends on all blocks before
            before = self.store.state_before(height)
            return None if before is None else before.roster
        culprits = {crime.culprit for proven, crime in self.crimes if proven is None or proven < height}
        genesis = self.genesis
        seeds = seed_of_contributors(genesis, round_number, seed), seed_of_electors(genesis, height, head)
        return draw_roster(genesis, genesis.members, culprits, (round_number, phase), seeds)

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """The final blocks between two heights, oldest first, each in its place."""
        return walk(self.store, first, last)

    def entry(self, height: int) -> Entry:
        """A final block in its place. Raises NotFound."""
        entry = next(walk(self.store, height, height), None)
        if entry is None:
            raise _damaged(height)
        return entry

    def not_held(self, height: int | str) -> NotFound:
        """The error for a height that no final block here has."""
        held = self.heights
        has = f"the chain has heights {held.start} to {held.stop - 1}" if held else "no block is held here yet"
        return NotFound(f"no block at height {height}: {has}")

    def block(self, height: int) -> Block:
        """The block alone. Raises NotFound."""
        found = self.store.final(height)
        if found is None:
            raise _damaged(height)
        return found[0]

    def phase_block(self, round_number: int, phase: str) -> Block:
        """The final block that closed a phase. Raises NotFound."""
        for height in self.heights_of(round_number):
            block = self.block(height)
            if phase_name(self.genesis, round_number, block.header.phase) == phase:
                return block
        raise NotFound(f"no block closed {phase} of round {round_number}: {self.progress()}")

    def heights_of(self, round_number: int) -> tuple[int, ...]:
        """Heights of a round's blocks."""
        return tuple(height for height in self.store.heights_of_round(round_number) if height in self.heights)

    def content(self, content_hash: Hash) -> bytes | None:
        """A payload or knowledge; None if it is not kept."""
        # The knowledge before the first block is empty, and nobody has to keep it.
        return EMPTY_KNOWLEDGE if content_hash == EMPTY_ROOT else self.store.content(content_hash)

    def kept(self, content_hash: Hash, what: str) -> bytes:
        """A content; ``what`` names it in the message. Raises NotFound."""
        data = self.content(content_hash)
        if data is None:
            raise NotFound(f"{what} is not kept here")
        return data

    def progress(self) -> str:
        """How far the chain is, for messages."""
        base = self.heights.start
        held = f", and blocks are held from height {base} on" if base > 1 else ""
        if self.state.finished:
            return f"the chain ended with round {self.state.rules.rounds}{held}"
        return f"the chain is in round {self.state.round}{held}"


def _damaged(height: int) -> NotFound:
    return NotFound(f"the block at height {height} is damaged and not held any more")
