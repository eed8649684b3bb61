"""A second statement, one that was sent before it was written down, and one that was forgotten, are found."""

from dataclasses import replace

import pytest

from fedchain.chain.post import sign_post
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.network.messages import CandidateMessage, Message, PostMessage, VoteMessage
from fedchain.node.core.effects import Effect, Publish, Send, WriteJournal
from fedchain.node.core.events import Tick
from fedchain.node.core.voting.journal import Journal
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.founding import simulation_keys
from tests.support.simulator.checked import SCENARIO, violations
from tests.support.simulator.checked import simulation as simulation


def said(message: Message, way: str) -> Effect:
    """The effect by which a message leaves a peer: a statement is one, whoever gets it."""
    assert isinstance(message, VoteMessage | PostMessage | CandidateMessage)
    return Publish(message) if way == "to all" else Send(bytes(32), message)


def found_after(simulation: Simulation, *effects: Effect) -> list[str]:
    """The violations that are found once peer 0 has these effects, without their moments."""
    simulation.checker.on_event(simulation.peers[0], Tick(), effects)
    return [found.rpartition(" (at ")[0] for found in simulation.checker.violations]


def vote_of(simulation: Simulation, height: int, attempt: int = 0) -> Vote:
    """A vote of peer 0 that it did not cast."""
    slot = height, attempt, VoteKind.PREVOTE
    return sign_vote(simulation.peers[0].key, simulation._genesis.chain_id, slot, b"another block".ljust(32))


def test_a_second_post_for_one_phase_is_found(simulation: Simulation) -> None:
    key, chain_id = simulation_keys(SCENARIO)[0], simulation._genesis.chain_id
    post = sign_post(key, chain_id, 1, 0, b"another")
    said = Publish(PostMessage(post, b"another"))
    simulation.checker.on_event(simulation.peers[0], Tick(), [said])
    first = simulation.checker.violations[0]
    assert first.startswith("double signature: peer 0 posted twice in (1, 0)")


@pytest.mark.parametrize("phase", [(9, 0), (1, 1)])
def test_a_post_that_was_sent_before_it_was_written_down_is_found(
    phase: tuple[int, int], simulation: Simulation
) -> None:
    """A journal that has newer ones vouches for the second, which is not enough."""
    key, chain_id = simulation_keys(SCENARIO)[0], simulation._genesis.chain_id
    early = Publish(PostMessage(sign_post(key, chain_id, *phase, b"early"), b"early"))
    assert found_after(simulation, early) == [f"lost: peer 0 sent its post of {phase} before it wrote it down"]


@pytest.mark.parametrize("way", ["to all", "to one"])
def test_a_second_vote_and_one_that_was_sent_before_it_was_written_down_are_found(
    way: str, simulation: Simulation
) -> None:
    second, early, old = (said(VoteMessage(vote_of(simulation, *slot)), way) for slot in ((1, 0), (9, 0), (1, 1)))
    first = found_after(simulation, second)[0]
    assert first.startswith("double signature: peer 0 voted twice in (1, 0, ")
    *_, first, last = found_after(simulation, early, old)
    assert first.startswith("lost: peer 0 sent its vote in (9, 0, ")
    assert last.startswith("lost: peer 0 sent its vote in (1, 1, "), "its journal has newer ones, and vouches for it"


def test_a_block_that_was_sent_before_it_was_written_down_is_found(simulation: Simulation) -> None:
    head = simulation.peers[1].storage.head()
    assert head is not None
    header = replace(head.block.header, miner=simulation.peers[0].public_key, nonce=7)
    message = CandidateMessage(replace(head.block, header=header))
    assert found_after(simulation, Publish(message)) == ["lost: peer 0 sent its block of height 4 unwritten"]


def test_a_journal_that_goes_back_is_found(simulation: Simulation) -> None:
    journal = simulation.peers[0].journal
    assert found_after(simulation, WriteJournal(journal)) == []
    behind, forgetful = replace(journal, slot=(1, 0, 0)), replace(journal, posts=())
    assert found_after(simulation, WriteJournal(behind), WriteJournal(journal), WriteJournal(forgetful)) == [
        f"journal: peer 0 went back from {journal.slot} to (1, 0, 0)",
        f"journal: peer 0 went back from {journal.slot} to {journal.slot}",
    ]


def test_a_lock_that_gives_way_to_none_or_to_an_older_one_is_found(simulation: Simulation) -> None:
    """A later height has none of its own yet, and a newer one of the same height may name another block."""
    journal, other = simulation.peers[0].journal, b"another block".ljust(32)
    assert journal.lock is not None
    height, attempt, _ = journal.slot
    locked = replace(journal, slot=(height, attempt + 3, 2), lock=(attempt + 3, other))
    later = replace(locked, slot=(height + 1, 0, 1), lock=None)
    same, older, none = journal.lock, (attempt, other), None
    assert found_after(simulation, *map(WriteJournal, (journal, journal, locked, later))) == []
    for lock in (same, older, none):
        simulation.checker.on_loss(0, journal=True)
        simulation.checker.violations.clear()
        found = found_after(simulation, WriteJournal(locked), WriteJournal(replace(locked, lock=lock)))
        assert found == [f"journal: peer 0 lost its lock of height {height}"]


def test_a_vote_that_storage_or_journal_has_no_more_is_found(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = simulation.peers
    first.journal = Journal()
    monkeypatch.setattr(second.storage, "votes", lambda height: ())
    found = violations(simulation)
    assert any(violation.startswith("lost: peer 0's journal does not know its vote in (4, ") for violation in found)
    assert any(violation.startswith("lost: peer 1 lost its own vote in (4, ") for violation in found)


@pytest.mark.parametrize("journal", [False, True])
def test_only_who_lost_its_journal_may_sign_something_else(journal: bool, simulation: Simulation) -> None:
    simulation.checker.on_loss(0, journal=journal)
    found = found_after(simulation, Publish(VoteMessage(vote_of(simulation, 1))))
    assert any(violation.startswith("double signature") for violation in found) != journal
    assert (simulation.peers[0].public_key in simulation.checker.finals._traitors) == journal
