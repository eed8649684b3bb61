"""The members of a chain at its heights: their places, lives and rights, and the rules that they amended."""

from collections.abc import Iterator

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.block_views import view_attending, view_places
from fedchain.chain.explorer.founding import view_rules
from fedchain.chain.explorer.held import HeldChain
from fedchain.chain.explorer.history import follow
from fedchain.chain.explorer.lives import Lives, LivesView
from fedchain.chain.explorer.member_views import Attending, PlaceView, RulesView
from fedchain.chain.state import State


class Membership:
    """Answers about the members at a height that a store holds."""

    def __init__(self, chain: HeldChain) -> None:
        self._chain = chain

    def places(self, height: int | None = None) -> tuple[PlaceView, ...]:
        """All places at a height, or at the open one; none where members are the same for ever. Raises NotFound."""
        return view_places(self._below(height))

    def lives(self, height: int | None = None, lives: Lives | None = None) -> LivesView:
        """The lives of all places up to a height, or to the open one. Raises NotFound.

        A caller that has followed the chain already passes that in.
        """
        below = self._below(height)
        if lives is None:
            lives = Lives(self._chain.genesis)
            lives.read(self._chain.store, self._chain.state.height)
        return lives.at(below.height + 1, below.round)

    def rules(self, height: int | None = None) -> RulesView:
        """The values of amendments in place of founded ones at a height, or at the open one. Raises NotFound."""
        return view_rules(self._chain.genesis, self._below(height))

    def attending(self, first: int, last: int) -> Iterator[tuple[int, Attending]]:
        """The places that count at each height from one to another, by height; none where members never change."""
        state = self._chain.store.state_before(first) if self._chain.state.records else None
        entries = self._chain.entries(first, last)
        while state is not None and (entry := next(entries, None)) is not None:
            yield entry.block.header.height, view_attending(state)
            state = follow(self._chain.genesis, state, entry.block)

    def _below(self, height: int | None) -> State:
        """The state that a height, or the open one, stands on. Raises NotFound."""
        if height is None or height == self._chain.state.height + 1:
            return self._chain.state
        before = self._chain.store.state_before(height) if height in self._chain.heights else None
        if before is None:
            raise NotFound(f"the members at height {height} are not known here")
        return before
