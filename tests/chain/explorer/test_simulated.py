"""Answers about a chain that a federation with liars made, where stores hold other votes than the chain counts."""

from collections import Counter
from pathlib import Path
from statistics import median_low

import pytest

from fedchain.chain.explorer.columns import Columns
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.sqlite import Store
from fedchain.simulator.disturbances import Clock
from tests.support.simulator.attacks import attacked
from tests.support.simulator.trivial import trivial_genesis, trivial_simulation


@pytest.mark.parametrize("seed", range(1, 4))
def test_votes_and_clocks_of_members_are_those_that_their_blocks_show(tmp_path: Path, seed: int) -> None:
    """The next block carries the votes that count; a double voter's may be others than the store's own."""
    clocks = (Clock(peers=(1,), offset_s=0.2),)
    scenario = attacked("double-voter", (5, 6), peers=7, rounds=4, seed=seed, clocks=clocks)
    differing = 0
    with Store.create(tmp_path, trivial_genesis(scenario)) as store:
        trivial_simulation(scenario, store=store).run()
        explorer, columns = Explorer(store), Columns(store.genesis)
        for head in explorer.held:  # as pages of a growing chain read it
            columns.read(store, 1, head)
        blocks = [explorer.block(str(height)) for height in explorer.held]
        for height in explorer.held[:-1]:
            own, next_ = store.final(height), store.final(height + 1)
            assert own is not None
            assert next_ is not None
            differing += own[1] != next_[0].certificate
        answers = explorer.members(), explorer.members(columns)
    assert differing > 0
    votes = Counter(voter.member for block in blocks for voter in block.voters)
    for members in answers:
        assert {item.address: item.votes for item in members} == {item.address: votes[item.address] for item in members}
        assert sum(item.votes for item in members) == sum(block.summary.votes for block in blocks)
        for item in members:
            shown = [voter for block in blocks for voter in block.voters if voter.member == item.address]
            clock = median_low(voter.clock_offset_ms for voter in shown) if shown else None
            assert item.clock_offset_ms == clock
