"""One walk over the whole chain holds one block at a time."""

from typing import Any

import pytest

from fedchain.chain.explorer import history
from tests.support.chain.builders import (
    ChainBuilder,
)
from tests.support.chain.explored import (
    GENESIS,
    Explore,
)
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer


def test_whole_chains_are_walked_and_not_held(explore: Explore, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend_many(30)
    explorer = explore(chain)
    alive, most = 0, 0

    class Counted(history.Entry):
        def __init__(self, *arguments: Any) -> None:
            nonlocal alive, most
            super().__init__(*arguments)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    monkeypatch.setattr(history, "Entry", Counted)
    assert sum(1 for _ in explorer.views()) == 30
    assert 0 < most <= 3
