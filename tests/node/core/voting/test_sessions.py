"""Sessions: a process that a running one names stops, old words stop nobody, and words passed on are bounded."""

from dataclasses import replace

import pytest

from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.vote import NIL
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import CandidateMessage, EvidenceMessage, SessionMessage, Status, VoteMessage
from fedchain.network.session import NOBODY, Session, sign_session
from fedchain.node.core.effects import Effect, Refuse, Send, Stop
from fedchain.node.core.events import PeersConnected, PeersDisconnected
from fedchain.node.core.following.announcing import GREETED_PEERS
from fedchain.node.core.notices import SessionHeard
from fedchain.node.core.voting.sessions import (
    FAREWELLS,
    FIRST_HEIGHTS,
    HANDED_MAX,
    HEIGHTS_APART,
    KEPT_MAX,
    SAID_MAX,
    Said,
    Sessions,
)
from fedchain.node.core.voting.twins import LISTENING_MS
from tests.support.chain.builders import double_post, genesis, keys
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import PREVOTE, Stage, published, refused, sent, votes

ELSEWHERE, OLD = b"another process!", b"an earlier self!"


def _session(
    stage: Stage, key: PrivateKey, number: bytes, heard: bytes = NOBODY, height: int | None = None, sequence: int = 0
) -> SessionMessage:
    at = stage.node.head.height if height is None else height
    return SessionMessage(sign_session(key, stage.genesis.chain_id, number, heard=heard, height=at, sequence=sequence))


def _said(effects: list[Effect]) -> list[Session]:
    return [message.session for message in published(effects, SessionMessage)]


def _own(stage: Stage) -> bytes:
    """The number of the process that runs."""
    return stage.node._parts.sessions._number


def _stops(effects: list[Effect]) -> list[Stop]:
    return [effect for effect in effects if isinstance(effect, Stop)]


def _begun() -> Stage:
    """A node that was started again where the chain has begun."""
    stage = Stage(genesis(4), contributes=False)
    stage.accept()
    stage.restart()
    return stage


# --- what a node says of itself


def test_a_node_says_that_it_is_there_while_it_listens_and_for_its_first_heights() -> None:
    stage = _begun()
    said = _said(stage.wait(LISTENING_MS / 1_000))
    assert len(said) >= LISTENING_MS // 1_000 - 1, "packets are lost"
    assert len({item.sequence for item in said}) == len(said), "each is news, or nobody would pass it on"
    assert {(item.member, item.number, item.heard, item.height) for item in said} == {
        (stage.me, _own(stage), NOBODY, 1)
    }
    assert _said(stage.wait(60)) == []
    for height in range(2, FIRST_HEIGHTS + 4):
        stage.accept()
        assert [item.height for item in _said(stage.wait(20))] == ([height] if height <= 1 + FIRST_HEIGHTS else [])


def test_a_node_that_listens_for_long_says_so_a_few_times() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.accept()
    stage.restart(is_heard=False)
    assert len(_said(stage.wait(600))) == SAID_MAX


def test_where_nothing_was_ever_said_once_is_enough() -> None:
    stage = Stage(genesis(4), is_heard=False, contributes=False)
    assert len(_said(stage.wait(60))) == 1


def test_a_key_that_is_no_members_has_no_session() -> None:
    stage = Stage(genesis(4), 5, contributes=False)
    assert _said(stage.wait(60)) == []
    assert sent(stage.victim.effects, SessionMessage) == []


def test_each_start_has_another_number() -> None:
    stage = Stage(genesis(4))
    first = _own(stage)
    stage.restart()
    assert _own(stage) != first


# --- another process with our key


def test_who_is_named_by_another_process_answers_and_stops() -> None:
    stage = _begun()
    stage.wait(LISTENING_MS / 1_000)
    assert not stage.node.is_silent()
    effects = stage.receive(_session(stage, stage.victim.key, ELSEWHERE, _own(stage)))
    assert [item.heard for item in _said(effects)] == [ELSEWHERE]
    assert stage.node.is_silent()
    assert [notice for notice in stage.victim.notices if isinstance(notice, SessionHeard)] == [SessionHeard(ELSEWHERE)]
    assert votes(stage.candidate(stage.block())) == [], "nothing more is signed"
    effects = []
    for _ in range(FAREWELLS):
        assert not _stops(effects), "the other one gets time to hear it"
        effects += stage.tick(1)
    assert [item.heard for item in _said(effects)] == [ELSEWHERE] * (FAREWELLS - 1)
    (stop,) = _stops(effects)
    assert f"the process {ELSEWHERE.hex()} has it, too" in stop.reason


def test_who_is_named_shows_nobody_the_block_that_it_finds() -> None:
    stage = Stage(genesis(4))
    effects = stage.post(*stage.others_posts())
    stage.receive(_session(stage, stage.victim.key, ELSEWHERE, _own(stage)))
    assert published(stage.mine(effects), CandidateMessage) == []


def test_who_is_named_says_farewell_to_each_peer_that_its_twin_lost_to_it() -> None:
    """Gossip does not reach a peer that was connected a moment ago, and nobody a process that has no peer."""
    stage = _begun()
    peers = list(stage.node._context.peers)
    effects = stage.receive(_session(stage, stage.victim.key, ELSEWHERE, _own(stage)))
    assert _told(stage, effects) == peers
    assert {message.session.heard for message in sent(effects, SessionMessage)} == {ELSEWHERE}
    stage.handle(PeersDisconnected(tuple(peers)))
    assert not _stops(stage.tick(FAREWELLS + 1)), "nobody has heard it say so"
    stage.handle(PeersConnected((peers[0],)))
    effects = [effect for _ in range(FAREWELLS) for effect in stage.tick(1)]
    assert peers[0] in _told(stage, effects)
    assert len(_stops(effects)) == 1


def test_an_earlier_selfs_words_are_answered_and_stop_nobody() -> None:
    stage = _begun()
    older = [_session(stage, stage.victim.key, OLD, heard) for heard in (NOBODY, ELSEWHERE)]
    for message in older:
        assert [item.heard for item in _said(stage.receive(message))] == [OLD]
        assert refused(stage.receive(message)) == ["AlreadyKnown"], "once"
    effects = stage.wait(60)
    assert not _stops(effects)
    assert not stage.node.is_silent()
    assert published(stage.victim.effects, EvidenceMessage) == []


def test_our_own_words_are_no_other_process() -> None:
    """Others pass them on, and to us as well."""
    stage = _begun()
    for session in _said(stage.wait(2)):
        effects = stage.receive(SessionMessage(session))
        assert (refused(effects), _said(effects)) == (["AlreadyKnown"], [])
    assert not stage.node._parts.sessions.is_ending()


def test_no_vote_of_another_members_process_stops_us() -> None:
    stage = _begun()
    other = stage.chain.key(stage.others[0])
    assert refused(stage.receive(_session(stage, other, ELSEWHERE, _own(stage)))) == []
    forged = _session(stage, other, ELSEWHERE, _own(stage)).session
    assert refused(stage.receive(SessionMessage(replace(forged, member=stage.me)))) == ["InvalidSignature"]
    foreign = Stage(genesis(4, name="another federation"))
    said = _session(foreign, stage.victim.key, ELSEWHERE, _own(stage), height=stage.node.head.height)
    assert refused(stage.receive(said)) == ["InvalidSignature"]
    assert not _stops(stage.wait(60))
    assert not stage.node.is_silent()


def test_a_vote_signed_as_a_session_is_none() -> None:
    """Each has a signing domain of its own."""
    stage = _begun()
    vote = stage.a_vote(stage.me, NIL, PREVOTE)
    session = _session(stage, stage.victim.key, ELSEWHERE).session
    assert refused(stage.receive(SessionMessage(replace(session, signature=vote.signature)))) == ["InvalidSignature"]
    assert "InvalidSignature" in refused(stage.receive(VoteMessage(replace(vote, signature=session.signature))))


# --- for others


def test_a_process_that_says_who_it_is_hears_of_the_others_with_its_key() -> None:
    """A network keeps one connection to a key: two processes take turns, and nobody is connected to both."""
    stage = _begun()
    twin, key = stage.others[0], stage.chain.key(stage.others[0])
    first = [_session(stage, key, OLD, sequence=number) for number in range(HANDED_MAX + 2)]
    for message in first:
        assert sent(stage.receive(message, twin), SessionMessage) == [], "it is alone"
    effects = stage.receive(_session(stage, key, ELSEWHERE), twin)
    assert sent(effects, SessionMessage) == first[-HANDED_MAX:]
    assert all(effect.peer == twin for effect in effects if isinstance(effect, Send))
    assert sent(stage.receive(_session(stage, key, ELSEWHERE, sequence=1), stage.others[1]), SessionMessage) == []


def test_a_process_that_has_listened_until_now_names_itself_to_peers_that_come_back_alone() -> None:
    stage = Stage(genesis(20), contributes=False)
    context, peer = stage.node._context, stage.others[0]
    sessions, context.effects = Sessions(context, ELSEWHERE, has_listened=True), []
    sessions.on_connected(peer, is_greeted=True)
    assert context.effects == []
    sessions.on_disconnected(peer)
    sessions.on_connected(peer, is_greeted=False)
    assert [effect.peer for effect in context.effects if isinstance(effect, Send)] == [peer]


def test_a_peer_that_comes_back_hears_who_we_are() -> None:
    stage = Stage(genesis(20), contributes=False)
    peer = stage.others[-1]
    assert peer not in _told(stage, stage.victim.effects), "enough others were"
    stage.handle(PeersDisconnected((peer,)))
    assert _told(stage, stage.handle(PeersConnected((peer,)))) == [peer]


def test_guests_that_come_and_go_under_ever_other_keys_take_no_room() -> None:
    stage = Stage(living_genesis(), contributes=False)
    for guest in keys(60)[20:]:
        stage.handle(PeersConnected((guest.public_key,)))
        stage.handle(PeersDisconnected((guest.public_key,)))
    assert stage.node._parts.sessions._gone == set()


def test_a_key_that_was_replaced_is_forgotten_among_those_that_went() -> None:
    stage = Stage(living_genesis(), contributes=False)
    gone, chain_id = stage.node._parts.sessions._gone, stage.genesis.chain_id
    old, sequence = keys(5)[4], 0
    for new in keys(12)[5:]:
        stage.handle(PeersDisconnected((old.public_key,)))
        change = sign_rekey(old, new, chain_id, sequence=sequence, until=stage.node.head.height + 2)
        stage.final(stage.block(changes=[change]))
        for _ in range(2):
            stage.final(stage.block())
        old, sequence = new, sequence + 1
    assert len(gone) <= len(stage.genesis.members) + 1


def test_peers_that_are_connected_at_once_hear_what_they_would_hear_one_by_one() -> None:
    at_once, one_by_one = (Stage(genesis(12), contributes=False) for _ in range(2))
    for stage in (at_once, one_by_one):
        stage.handle(PeersDisconnected(tuple(stage.others)))
    found = at_once.handle(PeersConnected(tuple(at_once.others)))
    expected = [effect for other in one_by_one.others for effect in one_by_one.handle(PeersConnected((other,)))]
    assert found == expected
    greeted = [effect.peer for effect in found if isinstance(effect, Send) and isinstance(effect.message, Status)]
    assert greeted == at_once.others[:GREETED_PEERS]
    assert list(at_once.node._context.peers) == at_once.others


def _told(stage: Stage, effects: list[Effect]) -> list[PublicKey]:
    """Peers that were sent this process's number."""
    sends = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, SessionMessage)]
    return [
        effect.peer
        for effect in sends
        if isinstance(effect.message, SessionMessage) and effect.message.session.number == _own(stage)
    ]


# --- without a whole turn


def test_a_members_first_statement_is_noted_as_a_whole_turn_keeps_it() -> None:
    noting, turning = _begun(), _begun()
    other = noting.chain.key(noting.others[0])
    message = _session(noting, other, ELSEWHERE)
    assert noting.node.notes(Said(message.session))
    assert turning.receive(message) == []
    assert noting.digest() == turning.digest()
    for stage in (noting, turning):
        assert stage.node._parts.sessions.kept() == 1
        assert refused(stage.receive(message)) == ["AlreadyKnown"]


def test_a_statement_of_which_more_follows_is_not_noted() -> None:
    stage = _begun()
    sessions, at, other = stage.node._parts.sessions, stage.node.head.height, stage.chain.key(stage.others[0])
    plain = _session(stage, other, ELSEWHERE).session
    further = [
        replace(plain, signature=bytes(64)),
        replace(plain, member=stage.others[1]),
        _session(stage, stage.victim.key, ELSEWHERE).session,
        _session(stage, keys(9)[8], ELSEWHERE).session,
        _session(stage, other, _own(stage)).session,
        *(_session(stage, other, ELSEWHERE, height=at + apart).session for apart in (-1, 1)),
    ]
    assert [stage.node.notes(Said(session)) for session in further] == [False] * len(further)
    assert sessions.kept() == 0
    assert stage.node.notes(Said(plain))
    assert not stage.node.notes(Said(plain))
    assert not stage.node.notes(Said(_session(stage, other, OLD).session)), "its process is to hear of the first one"
    assert sessions.kept() == 1


def test_a_convicted_members_statement_is_not_noted() -> None:
    stage = _begun()
    culprit = stage.others[0]
    stage.final(stage.block(evidence=[double_post(stage.chain.key(culprit), stage.genesis, 1)]))
    assert not stage.node.head.roster.is_active(culprit)
    assert not stage.node.notes(Said(_session(stage, stage.chain.key(culprit), ELSEWHERE).session))


def test_what_one_node_found_of_a_statement_holds_for_another_at_the_same_state_with_the_same_checks() -> None:
    def found(stage: Stage, said: Said, *, elsewhere: bool = False) -> bool:
        context = stage.node._context
        said.head = stage.node.head if not elsewhere else replace(stage.node.head)
        said.checks, said.seat = context.checks, stage.node.head.roster.seats[said.session.member]
        return stage.node.notes(said)

    stage, apart = _begun(), _begun()
    unsigned = replace(_session(stage, stage.chain.key(stage.others[0]), ELSEWHERE).session, signature=bytes(64))
    assert not found(stage, Said(unsigned), elsewhere=True)
    said = Said(unsigned)
    assert found(stage, said), "it is not verified again"
    assert not found(stage, said), "it is kept"
    assert not apart.node.notes(said), "this node has checks of its own"
    ours = Said(_session(stage, stage.victim.key, ELSEWHERE).session)
    assert not found(stage, ours), "a node looks at what is its own"
    assert not found(stage, Said(replace(unsigned, member=stage.others[1], number=_own(stage))))


def test_a_node_that_has_not_begun_notes_nothing() -> None:
    stage = _begun()
    stage.node._has_begun = False
    assert not stage.node.notes(Said(_session(stage, stage.chain.key(stage.others[0]), ELSEWHERE).session))


# --- bounds


def test_what_is_kept_and_passed_on_of_a_member_is_bounded() -> None:
    stage = _begun()
    member, key = stage.others[0], stage.chain.key(stage.others[0])
    low, high = 0, stage.node.head.height + HEIGHTS_APART
    for height in range(low, high + 1):
        for number in range(KEPT_MAX + 5):
            session = _session(stage, key, number.to_bytes(16, "big"), height=height)
            assert refused(stage.receive(session)) == ([] if number < KEPT_MAX else ["LimitReached"])
    assert stage.node._parts.sessions.kept() == KEPT_MAX * (high + 1)
    stage.accept(HEIGHTS_APART)
    assert stage.node._parts.sessions.kept() == KEPT_MAX * (high - stage.node.head.height + HEIGHTS_APART + 1)
    assert member not in stage.node._parts.crimes.open


@pytest.mark.parametrize("height", [0, 4 + HEIGHTS_APART, 10**6, 2**63])
def test_what_was_said_far_from_our_head_is_not_passed_on(height: int) -> None:
    """A liar that keeps what a member said could fill its place with it, for ever."""
    stage = Stage(genesis(4), contributes=False)
    stage.accept(3)
    key = stage.chain.key(stage.others[0])
    before = stage.digest()
    assert refused(stage.receive(_session(stage, key, OLD, height=height))) == ["OutOfWindow"]
    assert stage.digest() == before


def test_a_stranger_has_no_session() -> None:
    stage = Stage(genesis(4), contributes=False)
    before = stage.digest()
    (effect,) = [item for item in stage.receive(_session(stage, keys(9)[8], ELSEWHERE)) if isinstance(item, Refuse)]
    assert type(effect.error).__name__ == "InvalidSignature", "it is not passed on, whoever brings it"
    assert stage.digest() == before
