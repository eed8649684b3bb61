"""A node warns of clocks that are wrong, its own too, and of none because blocks are old; it says why its post is not
counted."""

import pytest

from fedchain.chain.membership.change import ChangeKind, sign_rekey
from fedchain.network.messages import FinalMessage
from fedchain.node.core.following.catching_up import JOIN_GAP
from fedchain.node.core.notices import ClockOff, NotCounted
from fedchain.node.core.observations import CLOCK_OFF_MS, SILENT
from tests.support.chain.builders import double_vote, genesis, keys
from tests.support.chain.changes import UNTIL, living_genesis, own
from tests.support.node.driver import Federation, Peer
from tests.support.node.stage import Stage

AWAY = 3


def returned(height: int, clock_offset_ms: int = 0) -> Federation:
    """A federation of four whose last member comes when the others are at ``height``, and stays for some blocks."""
    federation = Federation(genesis(4), silent=[AWAY])
    federation.peers[AWAY].clock_offset_ms = clock_offset_ms
    federation.run_to_height(height, 90 + 60 * height)
    federation.restart(AWAY)
    federation.run_to_height(height + 8, 240)
    return federation


def warned_of(peer: Peer) -> set[int]:
    """Numbers of the members that a peer warned of."""
    return {peer.genesis.index[notice.member] for notice in peer.notices if isinstance(notice, ClockOff)}


@pytest.mark.parametrize("height", [5, JOIN_GAP - 1])
def test_who_was_away_does_not_take_old_blocks_for_a_wrong_clock(height: int) -> None:
    federation = returned(height)
    first = federation.peers[AWAY].node.ledger.final(1)
    assert first is not None, "it followed block by block"
    assert federation.now_ms - first[1].clock_ms > 2 * CLOCK_OFF_MS
    for peer in federation.peers:
        assert warned_of(peer) == set()
        assert all(abs(offset) < CLOCK_OFF_MS for offset in peer.node.observations.clock_offsets_ms.values())


@pytest.mark.parametrize("offset_ms", [-60_000, 3_600_000])
def test_a_clock_that_is_wrong_is_said_to_be_also_of_who_was_away(offset_ms: int) -> None:
    federation = returned(JOIN_GAP - 1, offset_ms)
    for peer in federation.peers:
        assert warned_of(peer) == {AWAY}
    said = [notice for notice in federation.peers[AWAY].notices if isinstance(notice, ClockOff)]
    assert len(said) == 1
    assert abs(said[0].offset_ms - offset_ms) < CLOCK_OFF_MS


def test_a_vote_that_came_late_is_no_wrong_clock() -> None:
    """The others' precommits may wait for hours for that of a member that was stopped between its two votes."""
    federation = Federation(genesis(4), silent=[AWAY])
    stopped = federation.peers[2]
    federation.run(lambda: any(vote.height == 3 for vote in stopped.store.votes(3)))
    federation.crash(stopped.number)
    federation.run_for(60)
    assert [peer.node.head.height for peer in federation.running] == [2, 2]
    federation.restart(stopped.number)
    federation.run_to_height(3)
    found = federation.peers[0].node.ledger.final(3)
    assert found is not None
    clocks_ms = [vote.clock_ms for vote in found[1].votes]
    assert max(clocks_ms) - min(clocks_ms) > 2 * CLOCK_OFF_MS
    federation.run_to_height(6)
    for peer in federation.running:
        assert warned_of(peer) == set()
        assert all(abs(offset) < CLOCK_OFF_MS for offset in peer.node.observations.clock_offsets_ms.values())


def test_who_was_away_is_told_once_that_blocks_were_mined_while_it_was_silent() -> None:
    """A warning for each block that it follows would hide all others."""
    federation = returned(JOIN_GAP - 1)
    peer = federation.peers[AWAY]
    said = [notice for notice in peer.notices if isinstance(notice, NotCounted)]
    assert said[0] == NotCounted(1, 1, SILENT)
    assert [notice.height for notice in said[1:] if notice.height < JOIN_GAP] == []
    assert sum(notice.reason == SILENT for notice in said) == 1


@pytest.mark.parametrize("is_convicted", [False, True])
def test_who_counts_no_more_owes_no_post_that_could_be_missing(is_convicted: bool) -> None:
    """An alert would say for ever that it votes and is not counted."""
    stage = Stage(living_genesis(6))
    mine = stage.genesis.index[stage.me]
    crimes = [double_vote(stage.chain.key(stage.me), stage.genesis, 1)] if is_convicted else []
    changes = [] if is_convicted else [own(stage.chain, mine, ChangeKind.AWAY)]
    stage.final(stage.block(without=[stage.me], evidence=crimes, changes=changes))
    assert stage.node.observations.not_counted is not None
    for _ in range(3):
        stage.final(stage.block(without=[stage.me]))
    assert not stage.node.head.roster.is_active(stage.me)
    assert stage.node.observations.not_counted is None


def test_who_has_no_vote_looks_at_its_clock_too() -> None:
    federation = Federation(genesis(4), count=5)
    follower = federation.peers[4]
    follower.clock_offset_ms = 60_000
    federation.run_to_height(3, 240)
    said = [notice for notice in follower.notices if isinstance(notice, ClockOff)]
    assert [notice.member for notice in said] == [follower.key.public_key]


def test_a_clock_is_forgotten_with_the_key_that_showed_it_and_with_its_member() -> None:
    """Otherwise it would be called wrong for ever, and a member that takes ever other keys would fill the memory."""
    stage = Stage(living_genesis(6))
    offsets = stage.node.observations.clock_offsets_ms
    block = stage.block()
    stage.receive(FinalMessage(block, stage.chain.certificate(block, sorted(stage.genesis.members))))
    first, leaver = keys(5)[4], keys(6)[5]
    assert {first.public_key, leaver.public_key} <= offsets.keys()
    following = keys(9)[8]
    change = sign_rekey(first, following, stage.genesis.chain_id, sequence=0, until=UNTIL)
    stage.final(stage.block(changes=sorted([change, own(stage.chain, 5)], key=lambda item: item.hash)))
    assert first.public_key not in offsets
    assert leaver.public_key in offsets
    for _ in range(4):
        stage.final(stage.block())
    assert leaver.public_key not in offsets
    assert offsets.keys() <= {*stage.node.head.roster.members}
