"""A returning peer follows a few blocks, joins far ones by their state, replays all if it must; no liar stops it."""

from dataclasses import replace

import pytest

from fedchain.chain.storage.store import Contents
from fedchain.network.downloads import DOWNLOADS_MAX
from fedchain.network.messages import FINALS_MAX, FinalMessage, GetFinal, Message, Status
from fedchain.network.source import STALL_MS
from fedchain.node.core import answers
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Contribute, Persist
from fedchain.node.core.events import PeersConnected
from fedchain.node.core.following import backfill, catching_up
from fedchain.node.core.following.catching_up import JOIN_GAP
from fedchain.node.core.node import Node
from fedchain.node.core.parts import Conduct
from tests.support.campaigns import some
from tests.support.chain.builders import SumRules, genesis
from tests.support.node.driver import Federation, check_agreement, check_promises

LATE = 3
SECONDS_MAX = 10
"""Within which somebody has caught up: a few questions and answers."""


def away(height: int, seed: int = 0, **options: object) -> Federation:
    """A federation of four whose last member comes when the others are at ``height``."""
    federation = Federation(genesis(4, **options), seed, silent=[LATE])
    federation.run_to_height(height, 90 + 60 * height)
    return federation


def is_back(federation: Federation) -> bool:
    late = federation.peers[LATE].node
    return (
        late.head.height >= max(peer.node.head.height for peer in federation.running) and late.knowledge() is not None
    )


@pytest.mark.long
@pytest.mark.parametrize("height", some([1, JOIN_GAP - 3, JOIN_GAP + 3, 40], first=3))
def test_who_comes_late_is_at_the_head_in_seconds_and_takes_part(height: int) -> None:
    federation = away(height)
    federation.restart(LATE)
    federation.run(lambda: is_back(federation), SECONDS_MAX)
    base = federation.peers[LATE].store.base()
    assert (base == 1) == (height <= JOIN_GAP), "only what is near is followed block by block"
    federation.run(lambda: any(post.round > height for post in federation.peers[LATE].posts()), 60)
    federation.run_to_height(height + 4, 120)
    assert federation.blocks()[-1].transactions
    assert any(federation.genesis.index[p.sender] == LATE for block in federation.blocks() for p in block.transactions)
    check_agreement(federation)
    for peer in federation.peers:
        check_promises(peer)


def test_who_joins_needs_no_older_block_and_no_payload() -> None:
    federation = away(20)
    federation.restart(LATE)
    federation.run(lambda: is_back(federation), SECONDS_MAX)
    late = federation.peers[LATE]
    asked = [m for sender, _, m in federation.sent if sender == LATE and isinstance(m, GetFinal)]
    assert asked
    assert all(message.count == 1 for message in asked[:2]), "only the heads are asked for"
    assert late.node.head.height - late.store.base() < JOIN_GAP


def test_two_that_claim_heights_which_they_do_not_have_cost_seconds() -> None:
    federation = away(20)
    hogs = {0, 1}
    told: list[Message] = []

    def drop(sender: int, receiver: int, message: Message) -> bool:
        told.append(message)
        return receiver == LATE and sender in hogs and isinstance(message, FinalMessage | Status)

    federation.drop = drop
    federation.restart(LATE)
    for number in hogs:
        hog = federation.peers[number].key.public_key
        federation.peers[LATE].receive(hog, Status(10**9, bytes([number]) * 32, b"", (), (), None), federation.now_ms)
    federation.run(lambda: federation.peers[LATE].node.head.height >= 20, 2 * SECONDS_MAX)


def test_a_member_that_floods_the_others_with_invented_heads_stops_nobody() -> None:
    """Where payloads do not travel with their posts, nothing was fetched any more: four stayed where they were."""
    federation = Federation(genesis(4, inline_size_max=0), seed=3)
    federation.run_to_height(2, 120)
    liar = federation.peers[LATE]
    found = liar.node.ledger.final(1)
    assert found is not None
    block, certificate = found
    federation.crash(LATE)
    for peer in federation.running:
        me, now_ms = liar.key.public_key, federation.now_ms
        peer.receive(me, Status(10**12, bytes(32), b"", (), (), None), now_ms)
        for number in range(DOWNLOADS_MAX + 64):
            header = replace(block.header, height=10**6 + number, state_root=number.to_bytes(32, "big"))
            peer.receive(me, FinalMessage(replace(block, header=header), certificate), now_ms)
    federation.run_to_height(5, 120)


def test_a_final_block_that_proves_nothing_is_refused_and_changes_nothing() -> None:
    federation = away(12)
    federation.restart(LATE)
    late, blocks = federation.peers[LATE], federation.blocks()
    before = late.node.head
    found = federation.peers[0].node.ledger.final(1)
    assert found is not None
    other = federation.peers[0].node.ledger.final(2)
    assert other is not None
    late.receive(federation.peers[0].key.public_key, FinalMessage(found[0], other[1]), federation.now_ms)
    assert late.node.head == before
    assert [type(error).__name__ for error in late.refusals()] == ["InvalidCertificate"]
    assert blocks


def test_an_operator_may_have_every_aggregate_recomputed() -> None:
    federation = away(15)
    late = federation.peers[LATE]
    federation.restart(LATE)
    late.node = Node(
        federation.genesis,
        late.key,
        Checks(federation.genesis, SumRules()),
        late.store,
        conduct=Conduct(replays=True),
        session=bytes(16),
    )
    for peer in federation.peers[:LATE]:
        federation.feed(late, PeersConnected((peer.key.public_key,)))
    federation.run(lambda: is_back(federation), 6 * SECONDS_MAX)
    assert late.store.base() == 1
    first = late.store.final(1)
    assert first is not None
    kept = {
        item
        for e in late.effects
        if isinstance(e, Persist)
        for record in e.records
        if isinstance(record, Contents)
        for item in record.by_hash
    }
    assert {post.payload_hash for post in first[0].transactions} <= kept, "its payloads were fetched"


def test_older_blocks_follow_in_the_background_where_they_are_wanted() -> None:
    federation = away(40)
    late = federation.peers[LATE]
    federation.restart(LATE)
    late.node = Node(
        federation.genesis,
        late.key,
        Checks(federation.genesis, SumRules()),
        late.store,
        conduct=Conduct(backfills=True),
        session=bytes(16),
    )
    for peer in federation.peers[:LATE]:
        federation.feed(late, PeersConnected((peer.key.public_key,)))
    federation.run(lambda: late.store.final(1) is not None, 6 * SECONDS_MAX)
    for height in range(1, 41):
        ours, theirs = late.store.final(height), federation.peers[0].store.final(height)
        assert ours is not None
        assert theirs is not None
        assert ours[0] == theirs[0]


@pytest.mark.parametrize("replays", [True, False], ids=["replay", "backfill"])
@pytest.mark.parametrize("knows_the_limit", [True, False])
def test_large_blocks_of_which_few_fit_an_answer_are_fetched_without_a_pause(
    replays: bool, knows_the_limit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    height, fit = 16, 3
    federation = away(height)
    late = federation.peers[LATE]
    monkeypatch.setattr(answers, "FINALS_SIZE_MAX", fit * answers.RECORD_SIZE * (4 + 2 * 4))
    if not knows_the_limit:  # as if the answering peer had a lower one
        for module in (catching_up, backfill):
            monkeypatch.setattr(module, "finals_that_fit", lambda head: FINALS_MAX)
    federation.restart(LATE)
    checks = Checks(federation.genesis, SumRules())
    late.node = Node(
        federation.genesis,
        late.key,
        checks,
        late.store,
        conduct=Conduct(replays=replays, backfills=not replays),
        session=bytes(16),
    )
    for peer in federation.peers[:LATE]:
        federation.feed(late, PeersConnected((peer.key.public_key,)))
    begun_ms = federation.now_ms
    federation.run(lambda: is_back(federation) and late.store.base() == 1, 100 * SECONDS_MAX)
    answered = height // fit + 2
    # Older blocks are asked for at ticks. A peer that does not know how many fit waits for each answer in vain once.
    allowed_ms = 1_500 * answered if knows_the_limit else (STALL_MS + 1_500) * answered
    assert federation.now_ms - begun_ms <= allowed_ms
    check_promises(late)


def test_where_voters_are_drawn_several_peers_must_have_the_head() -> None:
    federation = away(20, committee_size=3)
    federation.restart(LATE)
    federation.run(lambda: is_back(federation), 2 * SECONDS_MAX)
    check_agreement(federation)


def test_the_whole_federation_may_crash_and_come_back() -> None:
    federation = Federation(genesis(4), 5)
    federation.run_to_height(3)
    for number in range(4):
        federation.crash(number)
    for number in range(4):
        federation.restart(number)
    federation.run_to_height(8)
    check_agreement(federation)
    for peer in federation.peers:
        check_promises(peer)
        rounds = [effect.round for effect in peer.effects if isinstance(effect, Contribute)]
        assert rounds == sorted(rounds)
