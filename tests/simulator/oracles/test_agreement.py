"""Two blocks at one height, a block that breaks a rule, and an honest member that is convicted, are found."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.knowledge import Occasion
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.membership.in_force import rules_of
from fedchain.chain.roster import draw
from fedchain.crypto.keys import SIGNATURE_SIZE, PublicKey
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.oracles.agreement import FinalBlocks
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import UNTIL, living
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


def test_a_block_above_one_that_nobody_finalized_is_found() -> None:
    chain, found = living(), list[str]()
    finals = FinalBlocks(chain.genesis, chain.rules, chain.contents.get, frozenset(), found.append)
    _, second = chain.extend_many(2)
    assert not finals.on_final(3, chain.final(second))
    assert found == ["agreement: peer 3 finalized height 2, nobody height 1"]


def test_a_block_whose_certificate_has_a_forged_vote_is_found() -> None:
    chain, found = living(), list[str]()
    finals = FinalBlocks(chain.genesis, chain.rules, chain.contents.get, frozenset(), found.append)
    block = chain.extend()
    certificate = chain.certificate(block)
    first, *others = certificate.votes
    forged = replace(certificate, votes=(replace(first, signature=bytes(SIGNATURE_SIZE)), *others))
    finals.on_final(0, chain.final(block, forged))
    (violation,) = found
    assert violation.startswith("validity: height 1 does not re-verify")


@pytest.mark.parametrize("has_new_key", [False, True])
@pytest.mark.parametrize(("culprit", "is_broken"), [(4, False), (3, True)])
def test_that_a_member_is_convicted_is_found_if_it_is_honest(culprit: int, is_broken: bool, has_new_key: bool) -> None:
    """A traitor that takes another key is one still, and nobody else becomes one by that."""
    chain, found, (*_, traitor) = living(), list[str](), keys(5)
    finals = FinalBlocks(chain.genesis, chain.rules, chain.contents.get, frozenset({traitor.public_key}), found.append)
    had, following = keys(5)[culprit], keys(10)[9]
    taken = [sign_rekey(had, following, chain.genesis.chain_id, sequence=0, until=UNTIL)] if has_new_key else []
    finals.on_final(0, chain.final(chain.extend(changes=taken)))
    finals.on_final(0, chain.final(chain.extend()))
    crime = double_vote(following if has_new_key else had, chain.genesis, 2, attempt=3)
    finals.on_final(0, chain.final(chain.extend(evidence=[crime])))
    who = (following if has_new_key else had).public_key.hex()[:16]
    assert found == ([f"capture: height 3 convicts {who}, which is honest"] if is_broken else [])


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


def test_other_voters_than_a_block_draws_are_found_where_members_are_the_same_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain, found = ChainBuilder(genesis(8, version=2, committee_size=4)), list[str]()
    finals = FinalBlocks(chain.genesis, chain.rules, chain.contents.get, frozenset(), found.append)
    finals.on_final(0, chain.final(chain.extend()))
    assert found == []
    block = chain.extend()
    wrong = replace(chain.state, roster=replace(chain.state.roster, electors=frozenset(chain.genesis.members)))
    monkeypatch.setattr("fedchain.simulator.oracles.agreement.judge_final", lambda *given: wrong)
    finals.on_final(0, chain.final(block))
    assert found == ["capture: after height 2 8 vote, of 8 active members"]
