"""A key that speaks elsewhere, and a node that lost its memory: who falls silent, who stops, and who is never accused.

``python -m tests.soak twins`` runs a thousand of the scenarios.
"""

from copy import deepcopy

import pytest

from fedchain.chain.genesis import Contributor, PhaseRule
from fedchain.chain.storage.store import MemoryStore
from fedchain.chain.vote import NIL
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import CertificateMessage, EvidenceMessage, FinalMessage, PostMessage, VoteMessage
from fedchain.node.core.effects import Contribute, Effect, Stop
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Listening, SilenceOver, TwinHeard
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import (
    AHEAD_MAX,
    HEIGHTS_AHEAD,
    LISTENING_MS,
    LISTENING_NOTICE_MS,
    SILENT_HEIGHTS,
    SILENT_TIMEOUTS,
)
from fedchain.node.shell.run import limits_of
from tests.support.campaigns import some
from tests.support.chain.builders import UPDATE, SumRules, double_vote, genesis, keys, payload, post
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, asked_to_mine, published, refused, votes
from tests.support.node.twin_scenarios import MEMORIES, copied, doubled, federation, is_accused, restarted, restored

ELSEWHERE = sha256(b"a block that the other node likes better")


def _says(effects: list[Effect]) -> bool:
    """Whether anything was said in the node's own name."""
    return bool(published(effects, PostMessage) or published(effects, VoteMessage) or asked_to_mine(effects))


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
    stage.wait(LISTENING_MS / 1_000)
    assert not stage.node.is_silent()


def test_a_liar_cannot_make_the_others_fall_silent() -> None:
    stage = Stage(genesis(4), is_heard=False)
    stage.receive(stage.status(height=2**40), stage.others[0])
    for other in stage.others[1:]:
        stage.receive(stage.status(), other)
    assert not stage.node.is_silent()


def test_who_has_heard_few_waits_and_says_for_whom() -> None:
    """The few may all be liars, that want it to speak at a height at which it has spoken already."""
    stage = Stage(genesis(10), is_heard=False)
    for other in stage.others[:3]:
        stage.receive(stage.status(), other)
    stage.receive(stage.status(height=7), stage.others[3])
    assert not _says(stage.wait(3 * LISTENING_NOTICE_MS / 1_000))
    told = [notice for notice in stage.victim.notices if isinstance(notice, Listening)]
    assert told == 3 * [Listening(3, 4, tuple(stage.others[4:]), (stage.others[3],))]
    assert _says(stage.receive(stage.status(), stage.others[4]))


@pytest.mark.parametrize("committee_size", [0, 1])
def test_claims_are_those_of_members_and_one_of_each(committee_size: int) -> None:
    """f is that of the federation, also where few vote at a height."""
    stage = Stage(genesis(4, committee_size=committee_size), is_heard=False)
    strangers = [key.public_key for key in keys(8)[4:]]
    for peer in [*strangers, stage.others[0], stage.others[0]]:
        stage.receive(stage.status(), peer)
    assert not _says(stage.wait(60))
    assert _says(stage.receive(stage.status(), stage.others[1]))


def test_a_claim_under_our_own_key_lets_nobody_speak() -> None:
    stage = Stage(genesis(4), is_heard=False)
    for peer in (stage.me, stage.others[0]):
        stage.receive(stage.status(), peer)
    assert stage.node.is_silent(), "one of the others may lie"


def test_a_convicted_member_s_claim_lets_nobody_speak() -> None:
    """The members that it is one of are fewer now, and so are those that may lie."""
    stage = Stage(genesis(7), contributes=False)
    culprit, *rest = stage.others
    block = stage.block(
        without=[stage.me],
        evidence=[double_vote(stage.chain.key(culprit), stage.genesis, 1)],
        miner=stage.chain.key(rest[0]),
    )
    stage.candidate(block)
    stage.final(block)
    assert stage.node.head.roster.culprits == {culprit}
    stage.restart(is_heard=False)
    for other in (culprit, rest[0]):
        stage.receive(stage.status(), other)
    stage.wait(2 * LISTENING_MS / 1_000)
    assert stage.node.is_silent(), "one of the two that count may lie"
    stage.receive(stage.status(), rest[1])
    stage.wait(2 * LISTENING_MS / 1_000)
    assert not stage.node.is_silent()


def test_a_node_that_follows_while_it_listens_hears_as_many_as_its_new_head_calls_for() -> None:
    stage = Stage(genesis(7), is_heard=False, contributes=False)
    culprit, *rest = stage.others
    crimes = [double_vote(stage.chain.key(culprit), stage.genesis, 1)]
    stage.final(stage.block(without=[stage.me], evidence=crimes, miner=stage.chain.key(rest[0])))
    for other in rest[:2]:
        assert stage.node.is_silent()
        stage.receive(stage.status(), other)
    stage.wait(2 * LISTENING_MS / 1_000)
    assert not stage.node.is_silent(), "of six that are left one may lie"


def test_where_the_network_connects_to_few_they_are_enough() -> None:
    stage = Stage(genesis(10), is_heard=False, neighbours=4)
    assert not _says(stage.wait(60))
    assert _says(stage.receive(stage.status(), stage.others[0])), "three of the four may be down"


def test_a_node_of_a_large_federation_has_room_for_all_the_members_that_it_waits_for() -> None:
    document = genesis(800)
    room = limits_of(document, SumRules()).connections_max
    stage = Stage(document, is_heard=False)
    up = stage.others[document.fault_model.faulty(800) :]
    for other in up[:room]:
        stage.receive(stage.status(), other)
    assert not stage.node.is_silent()


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


def test_with_a_vote_that_we_did_not_cast_goes_what_settled_the_block_below() -> None:
    """Our key votes at that height no more, and the others may lack a vote."""
    stage = Stage(genesis(4))
    block = stage.accept()[0]
    stage.vote(ELSEWHERE, [stage.me], PREVOTE, attempt=3)
    proof = stage.victim.journal.proof
    assert proof is not None
    assert (stage.victim.journal.slot, proof.block_hash) == ((2, 3, int(PREVOTE)), block.hash)


def test_a_post_that_we_did_not_make_is_ours_from_then_on() -> None:
    stage = Stage(genesis(4), contributes=False)
    other = post(stage.victim.key, stage.genesis, 1, payload(99))
    stage.receive(PostMessage(other, payload(99)))
    assert _notices(stage) == [TwinHeard]
    assert stage.node.journal.post(1, 0) == other
    assert stage.node._context.mempool.get((1, 0), stage.me) == other, "others count it"
    assert not _says(stage.wait(100))


def test_a_post_that_we_did_not_make_is_heard_in_a_candidate_as_well() -> None:
    """Members that start anew show no posts of others, but the candidates that count them."""
    stage = Stage(genesis(4), contributes=False)
    block = stage.block()
    (ours,) = [item for item in block.transactions if item.sender == stage.me]
    stage.candidate(block)
    assert _notices(stage) == [TwinHeard]
    assert stage.node.journal.post(1, 0) == ours
    assert not published(stage.contribute(99), PostMessage)


def test_a_prevote_that_we_did_not_cast_is_heard_in_the_proof_of_a_lock_as_well() -> None:
    """Members that start anew show no votes of others, but what proves their lock."""
    stage = Stage(genesis(4))
    block = stage.block(without=[stage.me])
    polka = stage.chain.certificate(block, [stage.me, *stage.others[:2]], kind=PREVOTE, attempt=3)
    stage.receive(CertificateMessage(polka))
    assert _notices(stage) == [TwinHeard]
    assert stage.node.journal.slot == (1, 3, int(PREVOTE))


def test_a_post_that_we_did_not_make_makes_us_silent_behind_a_setup_as_well() -> None:
    stage = Stage(genesis(4, setup=(PhaseRule("keys", Contributor.PARTICIPANT),)), contributes=False)
    _others_finalize(stage)
    assert (stage.node.head.height, stage.node.head.round, stage.node.is_silent()) == (1, 1, False)
    stage.receive(PostMessage(post(stage.victim.key, stage.genesis, 1, payload(99)), payload(99)))
    assert stage.node.is_silent()


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
    """Otherwise a peer that kept an old statement of ours could silence us with it as often as it likes."""
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
    assert heights == 2 * SILENT_HEIGHTS + 1, "it had not spoken for long"
    assert _notices(stage) == [TwinHeard, SilenceOver]
    stage.hear()
    assert (PREVOTE, 0) in [item[:2] for item in votes([*stage.candidate(stage.block([stage.me])), *stage.wait(70)])]


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


def test_who_was_convicted_meanwhile_is_not_said_to_speak_again() -> None:
    stage = Stage(genesis(5), contributes=False)
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT)
    crimes = [double_vote(stage.chain.key(stage.me), stage.genesis, 1)]
    for _ in range(2 * SILENT_HEIGHTS + 1):
        block = stage.block(without=[stage.me], evidence=crimes)
        stage.receive(FinalMessage(block, stage.chain.certificate(block, stage.others[:4])))
        crimes = []
    assert not stage.node.is_silent()
    assert _notices(stage) == [TwinHeard]


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


def test_the_end_of_a_silence_gives_up_no_height() -> None:
    """Its last height can be foreseen: a member that falls silent there is one of f, and the others need this one."""
    stage = Stage(genesis(4, phase_timeout_ms=2_000), contributes=False)
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT)
    while stage.node.head.height < 2 * SILENT_HEIGHTS:
        _others_finalize(stage)
    block = stage.block(without=[stage.me])
    stage.candidate(block)
    assert not _says(stage.wait(2 * SILENT_TIMEOUTS - 1)), "our key may have spoken at the height that is open"
    effects = stage.wait(2) + stage.vote(block, stage.others[:2]) + stage.wait(1)
    assert votes(effects) == [(PREVOTE, 0, block.hash), (PRECOMMIT, 0, block.hash)]
    stage.restart()
    stage.wait(LISTENING_MS / 1_000)
    stage.vote(block, stage.others[:2], PRECOMMIT)
    assert stage.node.head.block_hash == block.hash


# --- how far the journal goes


def test_a_statement_of_our_own_from_ahead_is_written_down_when_its_height_opens() -> None:
    """It proves that our key made it, not that there ever was such a height."""
    stage = Stage(genesis(4), contributes=False)
    far = stage.a_vote(stage.me, ELSEWHERE, PRECOMMIT, 3, 2)
    for _ in range(3):
        stage.receive(VoteMessage(far))
        assert stage.node.is_silent()
        assert stage.node.journal == Journal()
    _others_finalize(stage)
    assert stage.node.journal.slot == far.slot
    assert stage.node.journal.lock == (3, ELSEWHERE)
    assert stage.node.voting.agreement.lock == (3, ELSEWHERE)


def test_a_statement_from_ahead_that_is_shown_again_and_again_keeps_nobody_silent() -> None:
    """Anybody can show it."""
    stage = Stage(genesis(4, phase_timeout_ms=2_000), contributes=False)
    ahead = stage.a_vote(stage.me, ELSEWHERE, PRECOMMIT, 3, 2)
    for _ in range(2 * SILENT_TIMEOUTS):
        stage.receive(VoteMessage(ahead))
        assert stage.node.is_silent()
        stage.tick(1)
    assert not stage.node.is_silent()


def test_statements_of_our_own_from_ahead_are_kept_up_to_a_number() -> None:
    """Two processes with one key would otherwise fill a memory with what each attempt brings."""
    stage = Stage(genesis(4), contributes=False)
    for attempt in range(AHEAD_MAX + 1):
        stage.receive(VoteMessage(stage.a_vote(stage.me, NIL, PREVOTE, attempt, 2)))
    _others_finalize(stage)
    assert stage.node.journal.slot == (2, AHEAD_MAX - 1, PREVOTE)


@pytest.mark.parametrize("height", [1 + HEIGHTS_AHEAD, 10**6])
def test_no_statement_makes_the_journal_leave_the_chain(height: int) -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.vote(ELSEWHERE, [stage.me], PRECOMMIT, height=height)
    far = post(stage.victim.key, stage.genesis, height, payload(99))
    stage.receive(PostMessage(far, payload(99)))
    assert not stage.node.is_silent()
    assert stage.node.journal == Journal()
    block = stage.block(without=[stage.me])
    assert votes([*stage.candidate(block), *stage.wait(70)])[0] == (PREVOTE, 0, block.hash)


# --- posts of forgotten rounds


@pytest.mark.parametrize("keeps", [0, 1, 3])
def test_no_second_post_is_made_in_a_round_that_the_journal_forgot(keeps: int) -> None:
    """The data folder is lost, or put back from a backup; the journal is whole, and the low claims are lies."""
    stage = Stage(genesis(4))
    old = []
    for height in range(6):
        if height == keeps:
            old = [deepcopy(stage.victim.store)]
        block = stage.block(without=[stage.me])
        own = published(stage.victim.effects, PostMessage)[-1].post
        assert own.round == height + 1
        stage.candidate(block)
        stage.final(block)
        stage.hear()
    (stage.victim.store,) = old
    begun = len(stage.victim.effects)
    stage.restart(is_heard=False)
    for liar in stage.others:
        stage.receive(stage.status(), liar)
    effects = stage.wait(60)
    assert stage.node.head.height == keeps
    assert not stage.node.is_silent(), "it believes them"
    assert published([*stage.victim.effects[begun:], *effects], PostMessage) == []
    assert [item for item in stage.victim.effects[begun:] if isinstance(item, Contribute)] == []


def test_a_low_claim_alone_lets_nobody_speak() -> None:
    stage = Stage(genesis(4))
    stage.accept(3)
    stage.victim.store, stage.victim.journal = MemoryStore(), Journal()
    stage.restart(is_heard=False)
    begun = len(stage.victim.effects)
    stage.receive(stage.status(), stage.others[0])
    stage.wait(60)
    stage.receive(stage.status(height=3), stage.others[1])  # an honest one, whose blocks come late
    stage.wait(60)
    assert not _says(stage.victim.effects[begun:])


def test_old_posts_of_our_own_are_no_second_node_after_a_low_claim() -> None:
    """Claims rise, and with them the height up to which our earlier self may have spoken."""
    stage = Stage(genesis(4), contributes=False)
    blocks, certificates = [], []
    other = Stage(genesis(4), 1, contributes=False)
    for _ in range(8):
        block = other.block()
        certificates.append(other.certificate(block))
        other.final(block)
        blocks.append(block)
    assert not stage.node.is_silent(), "it listened while all said that they were at the start"
    effects: list[Effect] = []
    for block, certificate in zip(blocks, certificates, strict=True):
        assert any(item.sender == stage.me for item in block.transactions)
        effects += stage.receive(FinalMessage(block, certificate))
        for other_member in stage.others:
            stage.receive(stage.status(height=8, head_hash=blocks[-1].hash), other_member)
    assert stage.node.head.height == 8
    assert not _stops(effects)
    assert _notices(stage) == [TwinHeard]


# --- whole federations


@pytest.mark.long
@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("members", [2, 4])
def test_a_node_that_lost_a_part_of_its_memory_is_never_accused(members: int, kind: str) -> None:
    outcome = restarted(members, 1, kind)
    assert not outcome.accused
    assert outcome.stopped == (False,), "it is the only one"
    assert outcome.height >= 8, "the federation goes on"


@pytest.mark.parametrize("kind", MEMORIES)
def test_of_two_nodes_with_one_key_both_stop(kind: str) -> None:
    outcome = doubled(4, 2, kind)
    assert not outcome.accused
    assert outcome.stopped == (True, True)
    assert outcome.stopped_after <= 2
    assert outcome.height >= 12, "the others go on"


SEEDS = some(range(10), first=2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("members", [4, pytest.param(7, marks=pytest.mark.slow)])
def test_a_machine_that_was_copied_while_its_node_was_stopped_convicts_nobody(members: int, seed: int) -> None:
    """Both are started within seconds, each with all that the other one remembers; every second network loses much."""
    outcome = copied(members, seed, loss=0.2 * (seed % 2))
    assert not outcome.accused
    assert outcome.stopped == (True, True)
    assert outcome.stopped_after <= 2


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_comes_back_alone_is_not_stopped_by_what_it_said_before(seed: int) -> None:
    outcome = restored(4, seed)
    assert not outcome.accused
    assert outcome.stopped == (False,)
    assert outcome.heard_after == -1
    assert outcome.height >= 8


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_member_that_falls_silent_at_the_end_of_anothers_silence_stops_nobody(before: int) -> None:
    """Everybody can foresee the height at which a member that lost its memory speaks again."""
    running = federation(4, 7)
    running.run_to_height(3)
    owner, liar = running.peers[0], running.peers[3]
    running.crash(0)
    owner.store, owner.journal = MemoryStore(), Journal()
    running.restart(0)
    running.run(lambda: any(isinstance(notice, TwinHeard) for notice in owner.notices))
    heard = [notice for notice in owner.notices if isinstance(notice, TwinHeard)][-1]
    height = heard.silent_until - before
    running.run_to_height(height)
    running.crash(liar.number)
    running.run_to_height(height + 3, 3 * SILENT_TIMEOUTS * 4 + 30)


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
    """It is true, no matter which node did it; our operator hears of it when it stands in a block."""
    stage = Stage(genesis(4))
    other = Stage(genesis(4), 1)
    for block in (NIL, ELSEWHERE):
        other.vote(block, [stage.me])
    (message,) = published(other.victim.effects, EvidenceMessage)
    assert refused(stage.receive(message)) == []


def test_a_head_that_is_not_enough_yet_is_no_work_for_a_silent_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, turns = Stage(genesis(7), is_heard=False), list[bool]()
    advance = Node._advance

    def counted(node: Node) -> None:
        advance(node)
        turns.append(node.is_silent())

    monkeypatch.setattr(Node, "_advance", counted)
    for other in stage.others:
        stage.receive(stage.status(), other)
    assert turns == [False], "it was silent until f + 1 had spoken, and then there is nothing to be heard"
