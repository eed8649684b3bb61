"""Peers that are asked for older blocks: those that delivered, and those that did not when all others have failed."""

from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import FinalMessage
from fedchain.node.core.events import PeersConnected, PeersDisconnected
from tests.support.chain.builders import keys
from tests.support.node.older_blocks import answer, asked, joined, next_asked


def test_a_peer_that_hands_out_an_invention_is_asked_again_when_all_others_have_failed() -> None:
    stage, blocks = joined(80)
    liar, turns = stage.others[0], list[PublicKey]()
    peer = next_asked(stage, 79)
    while (base := stage.victim.store.base()) > 1:
        turns.append(peer)
        if peer == liar:
            fake = stage.chain.remake(blocks[base - 2], knowledge_root=b"!" * 32)
            peers = asked(stage.receive(FinalMessage(fake, stage.certificate(blocks[base - 2])), peer), base - 1)
        else:
            peers = asked(answer(stage, blocks, peer), stage.victim.store.base() - 1)
        if stage.victim.store.base() > 1:
            peer = peers[-1] if peers else next_asked(stage, stage.victim.store.base() - 1)
    assert turns.count(liar) == 1


def test_a_peer_that_delivers_is_as_good_as_if_it_had_never_failed() -> None:
    stage, blocks = joined(80)
    for _ in stage.others:  # none of them answers
        next_asked(stage, 79)
    peer = next_asked(stage, 79)
    answer(stage, blocks, peer)
    assert stage.victim.store.base() < 80
    assert next_asked(stage, stage.victim.store.base() - 1) == peer, "the others have failed"


def test_peers_under_ever_other_keys_take_no_room() -> None:
    stage, _ = joined(80)
    for guest in keys(30)[20:]:
        stage.handle(PeersConnected((guest.public_key,)))
        assert next_asked(stage, 79) is not None
        stage.handle(PeersDisconnected((guest.public_key,)))
    next_asked(stage, 79)
    assert stage.node._parts.catching_up._backfill._turns.keys() <= stage.node.head.roster.seats.keys()
