"""The blocks of a chain as light clients get them."""

from collections.abc import Iterator
from dataclasses import replace

from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.held import HeldChain
from fedchain.chain.explorer.history import Entry
from fedchain.chain.light.bisection import Gap
from fedchain.chain.light.held import held_light_block, light_block_between
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import CHANGES_VERSION


class LightBlocks:
    """Final blocks without their posts."""

    def __init__(self, chain: HeldChain) -> None:
        self._chain, self._store, self._genesis = chain, chain.store, chain.genesis
        self._changes = chain.genesis.version >= CHANGES_VERSION

    def light_block(self, height: int, *, with_proof: bool = True, gap: Gap | None = None) -> LightBlock:
        """A final block, with what proves its electors if that is asked for.

        Where members change, the chain of a node that joined begins at its head, and below it has the blocks that led
        there: one of them is given in place of a height that is not held, if it lies in ``gap``. Raises NotFound.
        """
        if self._changes:
            near = (height - 1, height + 1) if gap is None else gap
            found = light_block_between(self._genesis, height, near, self._store.final, self._store)
            if found is not None:
                return found if with_proof or found.header.height != height else found.alone()
        if height not in self._chain.heights:
            raise self._chain.not_held(height)
        return self._light(self._chain.entry(height), with_proof=with_proof)

    def certificate_below(self, height: int) -> Certificate | None:
        """The certificate of the block below, as the block of a height holds it; None for the first block.

        Raises NotFound.
        """
        if height not in self._chain.heights:
            raise self._chain.not_held(height)
        return self._chain.block(height).certificate

    def between(self, first: int, last: int) -> Iterator[LightBlock]:
        """The final blocks from one height to another, as a light client walks over them. Raises NotFound."""
        held = self._chain.heights
        return map(self._light, self._chain.entries(max(first, held.start), min(last, held.stop - 1)))

    def _light(self, entry: Entry, *, with_proof: bool = False) -> LightBlock:
        block, height = entry.block, entry.block.header.height
        light = LightBlock(self._genesis.chain_id, block.header, entry.certificate)
        held = held_light_block(self._genesis, height, self._store.final, self._store) if self._changes else None
        if held is not None:
            return held if with_proof else held.alone()
        state = self._store.state_before(height) if self._changes or with_proof else None
        if state is None and (self._changes or with_proof):
            raise NotFound(f"the state below height {height} is not held")
        if state is None or not self._changes:
            return replace(light, evidence=block.evidence, state=b"" if state is None else state.encode())
        below = self._chain.block(height - 1).header if with_proof and height > 1 else None
        return replace(light, members=state.member_set, below=below)
