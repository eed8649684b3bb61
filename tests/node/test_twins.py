"""A key that speaks elsewhere, and a node that lost its memory: who falls silent, who stops, and who is never accused.

``python -m tests.soak twins`` runs a thousand of the scenarios.
"""

import pytest

from fedchain.chain.genesis import PhaseRule
from fedchain.chain.vote import NIL
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import EvidenceMessage, FinalMessage, PostMessage, VoteMessage
from fedchain.node.core.effects import Contribute, Effect, Mine, Stop
from fedchain.node.core.journal import Journal
from fedchain.node.core.notices import SilenceOver, TwinHeard
from fedchain.node.core.twins import HEIGHTS_AHEAD, LISTENING_MS, SILENT_HEIGHTS, SILENT_TIMEOUTS
from tests.chain.builders import UPDATE, genesis, payload, post
from tests.node.stage import PRECOMMIT, PREVOTE, Stage, published, refused, votes
from tests.node.twin_scenarios import MEMORIES, doubled, federation, is_accused, restarted

ELSEWHERE = sha256(b"a block that the other node likes better")


def _says(effects: list[Effect]) -> bool:
    """Whether anything was said in the node's own name."""
    return bool(published(effects, PostMessage) or published(effects, VoteMessage) or _mines(effects))


def _mines(effects: list[Effect]) -> list[Mine]:
    return [effect for effect in effects if isinstance(effect, Mine)]


def _stops(effects: list[Effect]) -> list[Stop]:
    return [effect for effect in effects if isinstance(effect, Stop)]


def _notices(stage: Stage) -> list[type]:
    return [type(notice) for notice in stage.victim.notices if isinstance(notice, TwinHeard | SilenceOver)]


def _others_finalize(stage: Stage) -> list[Effect]:
    """A block by the others alone becomes final."""
    block = stage.block(without=[stage.me])
    return [*stage.candidate(block), *stage.final(block)]


# --- listening


def test_a_node_says_nothing_before_it_has_heard_the_others() -> None:
    stage = Stage(genesis(4), is_heard=False)
    effects = stage.victim.effects
    assert [effect for effect in effects if isinstance(effect, Contribute)], "it trains meanwhile"
    assert stage.node.is_silent()
    stage.receive(stage.status(), stage.others[0])
    assert not _says(stage.victim.effects), "it may be the one that lies"
    stage.receive(stage.status(), stage.others[1])
    assert _says(stage.victim.effects)


def test_a_node_that_is_behind_says_nothing() -> None:
    stage = Stage(genesis(4), is_heard=False)
    first = stage.block(without=[stage.me])
    for other in stage.others[:2]:
        stage.receive(stage.status(height=1, head_hash=first.hash), other)
    stage.receive(stage.status(), stage.others[2])
    assert not _says(stage.wait(60))
    stage.final(first)
    assert not stage.node.is_silent()


def test_a_liar_cannot_make_the_others_fall_silent() -> None:
    stage = Stage(genesis(4), is_heard=False)
    stage.receive(stage.status(height=2**40), stage.others[0])
    stage.receive(stage.status(), stage.others[1])
    assert not stage.node.is_silent()


def test_who_is_connected_to_few_speaks_after_a_while() -> None:
    stage = Stage(genesis(10), is_heard=False)
    stage.receive(stage.status(), stage.others[0])
    assert not _says(stage.wait(LISTENING_MS / 1_000 - 1))
    assert _says(stage.wait(2))


def test_where_a_chain_has_begun_a_restarted_node_listens_for_its_own_key() -> None:
    stage = Stage(genesis(4))
    stage.accept()
    stage.restart()
    assert stage.node.is_silent()
    stage.wait(LISTENING_MS / 1_000)
    assert not stage.node.is_silent()


def test_who_is_alone_hears_nobody_and_speaks() -> None:
    stage = Stage(genesis(1))
    assert not stage.node.is_silent()
    stage.accept()
    stage.restart()
    assert not stage.node.is_silent()


# --- hearing itself


def test_a_vote_that_we_did_not_cast_makes_us_silent_and_is_not_contradicted() -> None:
    stage = Stage(genesis(4))
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT, attempt=3)
    assert _notices(stage) == [TwinHeard]
    assert stage.node.journal.slot == (1, 3, int(PRECOMMIT))
    assert stage.node.journal.lock == (3, ELSEWHERE)
    assert votes(stage.candidate(stage.block())) == []
    assert not _says(stage.wait(100))


def test_a_post_that_we_did_not_make_is_ours_from_then_on() -> None:
    stage = Stage(genesis(4), contributes=False)
    other = post(stage.victim.key, stage.genesis, 1, payload(99))
    stage.receive(PostMessage(other, payload(99)))
    assert _notices(stage) == [TwinHeard]
    assert stage.node.journal.post(1, 0) == other
    assert stage.node._context.mempool.get((1, 0), stage.me) == other, "others count it"
    assert not _says(stage.wait(100))


def test_what_we_said_ourselves_makes_nobody_silent() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    for said in published(stage.victim.effects, PostMessage):
        assert refused(stage.receive(said)) == ["AlreadyKnown"]
    for vote in published(stage.victim.effects, VoteMessage):
        assert refused(stage.receive(vote)) == ["AlreadyKnown"]
    stage.accept(2)
    assert _notices(stage) == []


def test_what_is_closed_or_far_away_makes_nobody_silent() -> None:
    """Whoever kept an old statement of ours could silence us with it as often as it likes."""
    stage = Stage(genesis(4), contributes=False)
    for _ in range(3):
        _others_finalize(stage)
    stage.victim.journal = Journal()
    for height in (1, 3, 4 + HEIGHTS_AHEAD):
        stage.vote(ELSEWHERE, [stage.me], height=height)
    for round_number in (1, 3):
        old = post(stage.victim.key, stage.genesis, round_number, payload(99))
        stage.receive(PostMessage(old, payload(99)))
    assert _notices(stage) == []


def test_a_forged_statement_makes_nobody_silent() -> None:
    stage = Stage(genesis(4))
    foreign = Stage(genesis(4, name="another federation"))
    vote = foreign.a_vote(stage.me, ELSEWHERE, PREVOTE)
    assert refused(stage.receive(VoteMessage(vote))) == ["InvalidSignature"]
    assert _notices(stage) == []


@pytest.mark.parametrize("phases", [(UPDATE,), (UPDATE, UPDATE)])
def test_a_final_block_with_a_statement_of_ours_that_we_do_not_know_makes_us_silent(
    phases: tuple[PhaseRule, ...],
) -> None:
    stage = Stage(genesis(4, phases=phases), contributes=False)
    stage.final(stage.block())
    assert _notices(stage) == [TwinHeard]


# --- being silent


def test_it_was_our_earlier_self_if_nothing_more_is_heard_and_we_speak_again() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT)
    heights = 0
    while stage.node.is_silent():
        assert not _says(stage.wait(3))
        assert not _stops(_others_finalize(stage))
        heights += 1
    assert heights == 2 * SILENT_HEIGHTS, "it had not spoken for long"
    assert _notices(stage) == [TwinHeard, SilenceOver]
    assert not stage.node.journal.allows((heights + 1, 5, 1)), "nor at the height that is open"
    _others_finalize(stage)
    stage.hear()
    assert (PREVOTE, 0) in [item[:2] for item in votes([*stage.candidate(stage.block()), *stage.wait(70)])]


def test_our_earlier_self_in_a_final_block_is_no_second_node() -> None:
    """A block closes with what we said before the crash: that is no sign of life."""
    stage = Stage(genesis(4), contributes=False)
    block = stage.block()
    ours = next(item for item in block.transactions if item.sender == stage.me)
    stage.receive(PostMessage(ours, stage.chain.contents[ours.payload_hash]))
    certificate = stage.chain.certificate(block, [stage.me, *stage.others[:2]])
    effects = stage.receive(FinalMessage(block, certificate))
    effects += stage.vote(ELSEWHERE, [stage.me], PRECOMMIT, height=2)
    assert not _stops(effects)
    assert _notices(stage) == [TwinHeard]


def test_who_goes_on_meanwhile_is_another_node_and_we_stop() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT)
    for _ in range(HEIGHTS_AHEAD - 1):
        assert not _stops(_others_finalize(stage))
        assert not _stops(stage.vote(NIL, [stage.me]))
    assert not _stops(_others_finalize(stage))
    (stop,) = _stops(stage.vote(NIL, [stage.me]))
    assert "a prevote at height 3, attempt 0 was signed by another node" in stop.reason


def test_a_federation_that_waits_for_us_gets_our_vote_after_a_while() -> None:
    """It stays at its height: what we said there was heard, and we go on behind it."""
    stage = Stage(genesis(2, phase_timeout_ms=2_000), contributes=False)
    block = stage.block(without=[])
    stage.vote(block, [stage.me], PREVOTE)
    stage.candidate(block)
    stage.vote(block, stage.others, PREVOTE)
    assert not _says(stage.wait(2 * SILENT_TIMEOUTS - 1))
    effects = stage.wait(2)
    assert votes(effects) == [(PRECOMMIT, 0, block.hash)], "the prevote is not cast again"
    assert _notices(stage) == [TwinHeard, SilenceOver]


def test_a_silent_node_still_follows_and_trains_but_says_nothing() -> None:
    stage = Stage(genesis(4))
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT)
    effects = _others_finalize(stage)
    assert stage.node.head.height == 1
    assert not _says([*effects, *stage.wait(100)])


# --- whole federations


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("members", [2, 4])
def test_a_node_that_lost_a_part_of_its_memory_is_never_accused(members: int, kind: str) -> None:
    outcome = restarted(members, 1, kind)
    assert not outcome.accused
    assert outcome.stopped == (False,), "it is the only one"
    assert outcome.height >= 8, "the federation goes on"


@pytest.mark.parametrize("kind", MEMORIES)
def test_of_two_nodes_with_one_key_the_second_falls_silent_and_stops(kind: str) -> None:
    outcome = doubled(4, 2, kind)
    assert not outcome.accused
    assert not outcome.stopped[0], "the first one was there before"
    assert outcome.height >= 12


def test_a_federation_whose_nodes_all_restart_goes_on() -> None:
    running = federation(4, 5)
    running.run_to_height(3)
    for number in range(4):
        running.crash(number)
    for number in range(4):
        running.restart(number)
    running.run_to_height(max(peer.node.head.height for peer in running.peers) + 3)
    for peer in running.peers:
        assert not peer.stopped
        assert not any(is_accused(other, peer.key.public_key) for other in running.peers)
        assert [type(notice) for notice in peer.notices if isinstance(notice, TwinHeard)] == []


def test_evidence_against_ourselves_is_believed() -> None:
    """It is true, whoever did it; our operator hears of it when it stands in a block."""
    stage = Stage(genesis(4))
    other = Stage(genesis(4), 1)
    for block in (NIL, ELSEWHERE):
        other.vote(block, [stage.me])
    (message,) = published(other.victim.effects, EvidenceMessage)
    assert refused(stage.receive(message)) == []
