"""Two blocks at one height, and a block that breaks a rule, are found."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.knowledge import Occasion
from fedchain.chain.membership.in_force import rules_of
from fedchain.chain.roster import draw
from fedchain.crypto.keys import PublicKey
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.oracles.agreement import FinalBlocks
from tests.support.chain.changes import living
from tests.support.simulator.checked import SCENARIO, watch
from tests.support.simulator.checked import simulation as simulation
from tests.support.simulator.trivial import TrivialRules, trivial_scenario, trivial_simulation


def test_two_final_blocks_at_one_height_are_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=4, seed=1))
    other.run()
    final = other.peers[1].storage.head()
    assert final is not None
    assert not simulation.checker.finals.on_final(1, final)
    (found,) = simulation.checker.violations
    assert found.startswith("agreement: peer 1 finalized")


def test_a_block_that_does_not_re_verify_is_found_as_soon_as_it_is_final() -> None:
    class OtherRules(TrivialRules):
        def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
            return super().aggregate(occasion, knowledge, posts)[::-1]

    simulation = trivial_simulation(SCENARIO)
    simulation.checker = watch(simulation, OtherRules())
    simulation.run()
    assert simulation.checker.violations[0].startswith("validity: height 1 does not re-verify")


def test_a_state_by_other_rules_than_the_blocks_say_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, found = living(), list[str]()
    finals = FinalBlocks(chain.genesis, chain.rules, chain.contents.get, frozenset(), found.append)
    block = chain.extend()
    wrong = replace(chain.state, rules=rules_of(chain.genesis, (("vote_timeout_ms", 7),)))
    monkeypatch.setattr("fedchain.simulator.oracles.agreement.judge_final", lambda *given: wrong)
    assert finals.on_final(0, chain.final(block))
    assert found == ["set: after height 1 vote_timeout_ms is 7, 1000 is in force"]


def test_voters_that_a_block_draws_where_heights_do_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, found = living(8, committee_size=4), list[str]()
    finals = FinalBlocks(chain.genesis, chain.rules, chain.contents.get, frozenset(), found.append)
    for block in chain.extend_many(4):
        finals.on_final(0, chain.final(block))
    assert found == []
    block, members = chain.extend(), chain.genesis.members
    places = {member: place for place, member in enumerate(members)}
    drawn = draw(members, 4, block.hash + b"committee", places)
    wrong = replace(chain.state, roster=replace(chain.state.roster, electors=drawn))
    monkeypatch.setattr("fedchain.simulator.oracles.agreement.judge_final", lambda *given: wrong)
    finals.on_final(0, chain.final(block))
    assert found == ["capture: after height 5 4 vote, of 8 active members"]
