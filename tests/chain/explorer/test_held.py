"""A stored chain is told without computing a state of it."""

from typing import Any

import pytest

from fedchain.chain.certificate import certify
from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.membership.turnout import Turnout, mark_seats
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.address import address
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, double_post, double_vote, genesis, keys
from tests.support.chain.changes import living_genesis
from tests.support.chain.explored import Explore, finals
from tests.support.chain.explored import explore as explore

TWO_PHASES = (UPDATE, GLOBAL)

FOUNDED: dict[str, dict[str, Any]] = {
    "plain": {},
    "drawn": {"contributors_per_round": 4, "committee_size": 4},
    "two phases": {"phases": TWO_PHASES, "aggregator": AggregatorRule.ROTATING, "contributors_per_round": 4},
    "setup": {"setup": (UPDATE,), "phases": TWO_PHASES, "aggregator": AggregatorRule.DEDICATED, "committee_size": 5},
}


def convicting(**rules: Any) -> ChainBuilder:
    """Eight blocks, of which the third proves two crimes and the sixth one."""
    chain = ChainBuilder(genesis(7, **rules))
    first, second, third = (chain.key(member) for member in chain.genesis.members[3:6])
    chain.extend_many(2)
    chain.extend(evidence=[double_vote(first, chain.genesis, 1), double_vote(second, chain.genesis, 1)])
    chain.extend_many(2)
    chain.extend(evidence=[double_post(third, chain.genesis, 1)])
    chain.extend_many(2)
    return chain


@pytest.mark.parametrize("rules", FOUNDED.values(), ids=[*FOUNDED])
def test_who_could_post_and_vote_is_what_the_state_before_a_block_says(explore: Explore, rules: dict[str, Any]) -> None:
    chain = convicting(**rules)
    explorer = explore(chain)
    for record in finals(chain):
        header = record.block.header
        before = chain.states[header.parent_hash]
        assert explorer.roster(header.height, header.round, header.phase) == before.roster
        assert explorer.block(str(header.height)).could_vote == tuple(sorted(map(address, before.roster.electors)))


def test_rights_times_and_convictions_are_told_without_a_state_or_a_walk(
    explore: Explore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = convicting()
    explorer = explore(chain)
    read, final = list[int](), explorer._store.final

    def counted(height: int) -> Any:
        read.append(height)
        return final(height)

    monkeypatch.setattr(explorer._store, "state_before", None)
    monkeypatch.setattr(explorer._store, "final", counted)
    assert [crime.height for crime in explorer.status().convictions] == [3, 3, 6]
    assert read == []
    view = explorer.block("7")
    assert view.certificate is not None
    assert (len(view.could_vote or ()), view.certificate.quorum, view.missing) == (4, 3, ())
    assert explorer.round(7).missing == ()
    assert {*read} == {7, 8}


def test_crimes_that_were_proven_before_the_first_held_block_have_no_height(explore: Explore) -> None:
    chain = convicting()
    explorer = explore(chain, base=5)
    assert [crime.height for crime in explorer.status().convictions] == [None, None, 6]
    for record in finals(chain)[4:]:
        header = record.block.header
        found = explorer.roster(header.height, header.round, header.phase)
        assert found == chain.states[header.parent_hash].roster


def test_rights_are_not_known_in_a_round_whose_first_block_is_not_held(explore: Explore) -> None:
    chain = convicting(phases=TWO_PHASES, aggregator=AggregatorRule.FIXED)
    explorer = explore(chain, base=4)
    view = explorer.block("4")
    assert view.certificate is not None
    assert (view.missing, view.could_vote, view.certificate.quorum) == (None, None, None)
    assert explorer.block("5").could_vote is not None
    assert explorer.roster(5, 3, 7) is None, "no phase has this number"
    with pytest.raises(NotFound):
        explorer.block("3")


def test_times_are_those_of_the_states(explore: Explore) -> None:
    chain = ChainBuilder(genesis(4))
    block = chain.extend()
    for clock_s in (5, 90, 20, 21, 400, 0):
        block = chain.extend(certificate=chain.certificate(block, clock_ms=chain.genesis.created_ms + 1000 * clock_s))
    store = explore(chain)._store
    settled = [chain.states[record.block.hash].settled_time_ms for record in finals(chain)]
    assert [store.time_before(height) for height in range(1, 8)] == settled
    assert store.time_before(8) is None
    assert [block.time_ms for block in Explorer(store).blocks(7)][:0:-1] == settled[1:]


def test_times_are_those_of_the_states_where_votes_say_who_was_in_time(explore: Explore) -> None:
    """Votes of version 3 have one more value."""
    chain, seen = ChainBuilder(living_genesis(4)), Turnout(1, 2, mark_seats([0, 1]), b"")
    block = chain.extend()
    for clock_s in (5, 90, 20, 21, 400, 0):
        clock_ms = chain.genesis.created_ms + 1000 * clock_s
        slot = block.header.height, 0, int(VoteKind.PRECOMMIT)
        votes = (
            sign_vote(key, chain.genesis.chain_id, slot, block.hash, clock_ms=clock_ms, turnout=seen) for key in keys(3)
        )
        block = chain.extend(certificate=certify(votes))
    store = explore(chain)._store
    settled = [chain.states[record.block.hash].settled_time_ms for record in finals(chain)]
    assert [store.time_before(height) for height in range(1, 8)] == settled
