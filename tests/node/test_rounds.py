"""Whole rounds of small federations, in random order of delivery, until every peer knows the same."""

from collections import Counter

import pytest

from fedchain.chain.genesis import AggregatorRule, PhaseRule
from fedchain.chain.state import votes_required
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import BlockMessage, Chunk, PostMessage, VoteMessage
from fedchain.node.core.effects import Contribute
from tests.chain.builders import GLOBAL, UPDATE, genesis, keys
from tests.node.driver import BlobRules, Federation, check_agreement, check_promises

SHARE = PhaseRule("share", UPDATE.by)
SETUP = PhaseRule("setup", UPDATE.by)
MEMBERS = tuple(key.public_key for key in keys(12))


def _check(federation: Federation) -> None:
    check_agreement(federation)
    for peer in federation.peers:
        check_promises(peer)


@pytest.mark.parametrize("seed", range(4))
def test_four_peers_close_round_after_round(seed: int) -> None:
    federation = Federation(genesis(4), seed)
    federation.run_to_height(6)
    _check(federation)
    for block in federation.blocks():
        assert [post.sender for post in block.transactions] == sorted(MEMBERS[:4]), "a post is missing"
    for peer in federation.peers:
        steps = [(post.round, post.phase) for post in peer.posts()]
        assert steps == sorted(set(steps)), "a post was published twice"


def test_knowledge_is_what_everyone_posted() -> None:
    federation = Federation(genesis(4, rounds=3), 1)
    federation.run(lambda: all(peer.node.head.finished for peer in federation.peers))
    _check(federation)
    # SumRules adds (number + 1, round, phase) of four peers in each of three rounds.
    knowledge = federation.peers[2].node.knowledge() or b""
    totals = [int.from_bytes(knowledge[place : place + 8], "little") for place in (0, 8)]
    assert totals == [3 * (1 + 2 + 3 + 4), 4 * (1 + 2 + 3)]


def test_setup_phases_come_once_and_two_phases_every_round() -> None:
    federation = Federation(genesis(3, setup=(SETUP, SHARE), phases=(UPDATE, SHARE)), 2)
    federation.run_to_height(6)
    _check(federation)
    steps = [(block.header.round, block.header.phase) for block in federation.blocks()[:6]]
    assert steps == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    asked = [effect.phase_name for effect in federation.peers[0].effects if isinstance(effect, Contribute)]
    assert asked[:6] == ["setup", "share", "update", "share", "update", "share"]


@pytest.mark.parametrize("rule", [AggregatorRule.FIXED, AggregatorRule.ROTATING])
def test_in_an_aggregator_phase_the_aggregator_alone_posts(rule: AggregatorRule) -> None:
    federation = Federation(genesis(3, phases=(UPDATE, GLOBAL), aggregator=rule), 3)
    federation.run_to_height(6)
    _check(federation)
    for block in federation.blocks():
        senders = {post.sender for post in block.transactions}
        aggregator = federation.genesis.aggregator_of(block.header.round)
        assert senders == ({aggregator} if block.header.phase else set(MEMBERS[:3]))


@pytest.mark.parametrize("rule", [AggregatorRule.FIXED, AggregatorRule.ROTATING])
def test_in_a_centralized_federation_the_aggregator_mines(rule: AggregatorRule) -> None:
    federation = Federation(genesis(3, aggregator=rule, centralized=True), 4)
    federation.run_to_height(5)
    _check(federation)
    for block in federation.blocks():
        assert block.header.miner == federation.genesis.aggregator_of(block.header.round)
        assert len(block.transactions) == 3


def test_a_silent_aggregator_costs_an_empty_block_after_the_timeout() -> None:
    founding = genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED, phase_timeout_ms=5_000)
    federation = Federation(founding, 5, silent=[0])
    federation.run_to_height(4)
    _check(federation)
    blocks = federation.blocks()
    assert [len(block.transactions) for block in blocks[:4]] == [3, 0, 3, 0]
    for before, empty in ((blocks[0], blocks[1]), (blocks[2], blocks[3])):
        assert empty.header.timestamp_ms >= before.header.timestamp_ms + 5_000
        assert empty.header.knowledge_root == before.header.knowledge_root


def test_without_its_central_miner_a_federation_closes_phases_empty() -> None:
    founding = genesis(4, aggregator=AggregatorRule.ROTATING, centralized=True, phase_timeout_ms=5_000)
    federation = Federation(founding, 6, silent=[2])
    federation.run_to_height(5)
    _check(federation)
    for block in federation.blocks():
        by_silent = founding.aggregator_of(block.header.round) == MEMBERS[2]
        assert (len(block.transactions) == 0) == by_silent


def test_a_committee_votes_and_the_others_do_not() -> None:
    federation = Federation(genesis(7, committee_size=3), 7)
    federation.run_to_height(5)
    _check(federation)
    tree = federation.peers[0].node.tree
    for block in federation.blocks()[:5]:
        parent = tree.state(block.header.parent_hash)
        assert parent is not None
        assert len(parent.electors) == 3
        assert set(tree.votes(block.hash)) <= parent.electors
        assert len(tree.votes(block.hash)) >= votes_required(federation.genesis, parent) == 2
    for peer in federation.peers:
        for message in peer.published(VoteMessage):
            assert isinstance(message, VoteMessage)
            voted = tree.block(message.vote.block_hash)
            if voted is not None and (parent := tree.state(voted.header.parent_hash)) is not None:
                assert peer.key.public_key in parent.electors


def test_only_sampled_members_contribute() -> None:
    federation = Federation(genesis(6, contributors_per_round=2), 8)
    federation.run_to_height(6)
    _check(federation)
    tree, drawn = federation.peers[0].node.tree, set[bytes]()
    for block in federation.blocks():
        parent = tree.state(block.header.parent_hash)
        assert parent is not None
        assert {post.sender for post in block.transactions} == parent.contributors
        assert len(parent.contributors) == 2
        drawn |= parent.contributors
    assert len(drawn) > 2
    # Two blocks of one height draw different members, so a few more than two may be asked, never all.
    asked = Counter(
        number
        for number, _ in {
            (effect.round, peer.number)
            for peer in federation.peers
            for effect in peer.effects
            if isinstance(effect, Contribute)
        }
    )
    assert all(2 <= asked[number] < 6 for number in range(1, 7)), asked


def test_large_payloads_travel_in_chunks() -> None:
    size = 600_000
    federation = Federation(
        genesis(3, inline_size_max=1_024, rounds=2),
        9,
        rules=BlobRules(),
        payloads=lambda number, effect: bytes([number + 1, effect.round]) * (size // 2),
    )
    federation.run(lambda: all(peer.node.head.finished for peer in federation.peers))
    _check(federation)
    assert all(len(block.transactions) == 3 for block in federation.blocks())
    posts = [message for _, _, message in federation.sent if isinstance(message, PostMessage)]
    assert posts
    assert all(message.payload is None for message in posts)
    chunks = [message for _, _, message in federation.sent if isinstance(message, Chunk)]
    # 3 peers fetch 2 payloads of 3 chunks in each of 2 rounds, and little more.
    assert 3 * 2 * 3 * 2 <= len(chunks) <= 2 * 3 * 2 * 3 * 2
    for peer in federation.peers:
        for block in federation.blocks():
            for post in block.transactions:
                data = peer.node.content(post.payload_hash)
                assert data is not None
                assert sha256(data) == post.payload_hash


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_are_repaired_by_status(seed: int) -> None:
    federation = Federation(genesis(4), seed, loss=0.3)
    federation.run_to_height(5, limit_s=300)
    federation.loss = 0.0
    federation.run_to_height(6, limit_s=300)
    _check(federation)
    assert all(len(block.transactions) == 4 for block in federation.blocks()[:5])


def test_gossip_alone_is_not_needed_for_votes_posts_or_blocks() -> None:
    # Everything that is published is lost for peer 3; statuses and answers still reach it.
    federation = Federation(genesis(4), 10)
    gossiped: set[int] = set()

    def drop(sender: int, receiver: int, message: object) -> bool:
        if receiver != 3 or not isinstance(message, (PostMessage, BlockMessage, VoteMessage)):
            return False
        first = id(message) not in gossiped and any(
            message in peer.published(type(message)) for peer in federation.peers[sender : sender + 1]
        )
        gossiped.add(id(message))
        kept.append(message)
        return first

    kept: list[object] = []  # ids stay unique while the messages live
    federation.drop = drop
    federation.run_to_height(3, limit_s=300)
    _check(federation)


def test_a_dead_peer_costs_one_timeout() -> None:
    federation = Federation(genesis(4, phase_timeout_ms=20_000), 11)
    federation.run_to_height(2)
    federation.crash(3)
    height = federation.running[0].node.head.height
    federation.run_to_height(height + 1)
    start_ms = federation.now_ms
    federation.run_to_height(height + 6, limit_s=40)
    assert federation.now_ms - start_ms < 40_000, "later phases waited for the dead peer again"
    _check(federation)
    last = federation.blocks()[-1]
    assert MEMBERS[3] not in {post.sender for post in last.transactions}


def test_a_peer_that_comes_back_is_expected_again() -> None:
    federation = Federation(genesis(4, phase_timeout_ms=5_000), 12, silent=[3])
    federation.run_to_height(3)
    federation.restart(3)
    federation.run(
        lambda: MEMBERS[3] in {post.sender for block in federation.blocks()[-1:] for post in block.transactions}
    )
    height = federation.running[0].node.head.height
    federation.run_to_height(height + 2)
    _check(federation)
    assert len(federation.blocks()[height].transactions) == 4


def test_who_is_not_a_member_follows_and_says_nothing() -> None:
    federation = Federation(genesis(3), 13, count=4)
    federation.run_to_height(4)
    _check(federation)
    stranger = federation.peers[3]
    assert not [effect for effect in stranger.effects if type(effect).__name__ in ("Publish", "Mine", "Contribute")]
    assert stranger.node.head.height >= 4


def test_a_finished_federation_owes_nothing() -> None:
    federation = Federation(genesis(3, rounds=2, phase_timeout_ms=2_000), 14)
    federation.run(lambda: all(peer.node.head.finished for peer in federation.peers))
    federation.run_for(2)
    said = [len(peer.effects) for peer in federation.peers]
    federation.run_for(20)
    for peer, before in zip(federation.peers, said, strict=True):
        late = {type(effect).__name__ for effect in peer.effects[before:]}
        assert late <= {"Send"}
        assert peer.node.waiting_for() == frozenset()
        assert peer.node.head.height == 2
