"""Who comes late follows the chain on the votes that accepted it, and recomputes only what is recent.

Old payloads are dropped everywhere; a newcomer fetches the knowledge at the edge of the window by its hash.
"""

from collections.abc import Iterable

import pytest

from fedchain.chain.block import Block
from fedchain.chain.storage.store import Content
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import (
    BLOCKS_MAX,
    CHUNK_SIZE,
    BlockMessage,
    Chunk,
    GetBlocks,
    GetContent,
    PostMessage,
    Status,
)
from fedchain.network.sync import STALL_MS
from fedchain.node.core.effects import Contribute, Effect, Mine, Persist, Send
from fedchain.node.core.events import PeerConnected
from tests.chain.builders import genesis, keys
from tests.node.attacks import Scene, errors, own_votes, sent
from tests.node.driver import Federation, check_agreement, check_promises

WINDOW = 6
LATE = 3
"""The peer that comes late."""


def _grown(height: int, seed: int = 0, window: int = WINDOW) -> Federation:
    """Three of four peers that have mined ``height`` blocks, and dropped what they may drop."""
    founding = genesis(4, retention_blocks=window, target_mining_time_ms=100)
    federation = Federation(founding, seed, silent=[LATE])
    federation.run_to_height(height, limit_s=10 * height)
    federation.sent.clear()
    return federation


def _payloads(blocks: Iterable[Block]) -> set[Hash]:
    return {post.payload_hash for block in blocks for post in block.transactions}


def _join(federation: Federation, limit_s: int = 60) -> None:
    """Start the late peer and let it come to the others' head."""
    height = federation.peers[0].node.head.height
    federation.restart(LATE)
    federation.run(lambda: federation.peers[LATE].node.head.height >= height, limit_s)


@pytest.mark.parametrize("seed", range(3))
def test_a_newcomer_follows_certificates_and_recomputes_the_last_window(seed: int) -> None:
    federation = _grown(40, seed)
    blocks = federation.blocks()
    _join(federation)
    check_agreement(federation)
    late = federation.peers[LATE]
    asked = {
        item.content_hash for sender, _, item in federation.sent if sender == LATE and isinstance(item, GetContent)
    }
    assert not asked & _payloads(blocks[: -2 * WINDOW]), "payloads were asked for that nobody keeps"
    held = [block for block in federation.blocks()[-WINDOW:] if late.store.content(block.header.knowledge_root)]
    assert len(held) >= WINDOW - 1
    height = late.node.head.height
    federation.run(lambda: late.node.head.height >= height + 5, 120)
    assert late.posts(), "it takes part"
    for peer in federation.peers:
        check_promises(peer)


def test_peers_keep_the_window_and_no_more() -> None:
    federation = _grown(40)
    blocks, peer = federation.blocks(), federation.peers[0]
    height = peer.node.head.height
    for block in blocks:
        held = [peer.store.content(item) is not None for item in _payloads([block])]
        if block.header.height > height - WINDOW:
            assert all(held)
        if block.header.height < height - 2 * WINDOW:
            assert not any(held)
    assert [block.hash for block in peer.store.records() if isinstance(block, Block)][: len(blocks)]


def test_a_newcomer_that_is_killed_on_the_way_goes_on_where_it_was() -> None:
    federation = _grown(60)
    target = federation.peers[0].node.head.height
    federation.restart(LATE)
    federation.run(lambda: federation.peers[LATE].node.head.height >= 20, 60)
    federation.crash(LATE)
    federation.run_for(1)
    _join(federation)
    assert federation.peers[LATE].node.head.height >= target
    check_agreement(federation)
    check_promises(federation.peers[LATE])


def test_without_a_window_everything_is_recomputed() -> None:
    federation = _grown(20, window=0)
    blocks = federation.blocks()
    _join(federation)
    late = federation.peers[LATE]
    assert all(late.store.content(item) is not None for item in _payloads(blocks))


def _ahead(window: int = 2, height: int = 6) -> tuple[Scene, list[Block]]:
    """A newcomer, and a chain that is ``height`` blocks long."""
    scene = Scene(genesis(4, retention_blocks=window), LATE)
    blocks = scene.chain.extend_many(height)
    scene.now_ms = blocks[-1].header.timestamp_ms
    scene.victim.handle(PeerConnected(scene.sender), scene.now_ms)
    return scene, blocks


def _status(blocks: list[Block]) -> Status:
    return Status(blocks[-1].hash, blocks[-1].header.height, b"", ())


def test_an_old_block_waits_for_the_block_that_certifies_it_and_is_never_voted_for() -> None:
    scene, blocks = _ahead()
    assert [type(item) for item in sent(scene.receive(_status(blocks)))] == [GetBlocks]
    effects = scene.receive(BlockMessage(blocks[0]))
    assert errors(effects) == ["MissingPayload"]
    assert sent(effects) == [], "nobody needs to have its payloads"
    assert blocks[0].hash not in scene.node.tree
    effects = scene.receive(BlockMessage(blocks[1]))
    assert blocks[0].hash in scene.node.tree
    assert scene.node.head.block_hash == blocks[0].hash
    stored = [effect.records for effect in effects if isinstance(effect, Persist)]
    assert {*blocks[1].votes, blocks[0]} <= {*stored[0]}, "without its votes it would be voted for after a restart"
    assert not own_votes(scene.victim.effects)
    assert not [effect for effect in effects if isinstance(effect, Contribute | Mine)], "it knows nothing yet"


def test_too_few_votes_certify_nothing() -> None:
    scene, blocks = _ahead()
    scene.receive(_status(blocks))
    scene.receive(BlockMessage(blocks[0]))
    forged = scene.chain.remake(blocks[1], votes=blocks[1].votes[:1])
    assert errors(scene.receive(BlockMessage(forged))) == ["UnknownParent"]
    assert blocks[0].hash not in scene.node.tree


def test_a_recent_block_is_not_taken_on_certificates() -> None:
    scene, blocks = _ahead(window=6)
    scene.receive(_status(blocks))
    effects = scene.receive(BlockMessage(blocks[0]))
    assert {item.content_hash for item in sent(effects) if isinstance(item, GetContent)} == _payloads(blocks[:1])
    scene.receive(BlockMessage(blocks[1]))
    assert blocks[0].hash not in scene.node.tree


def test_a_claimed_height_alone_makes_nothing_old() -> None:
    """Whoever sends a block that nobody asked for cannot have payloads skipped."""
    scene, blocks = _ahead(window=1)
    for block in blocks[:3]:
        scene.receive(BlockMessage(block))
    assert len(scene.node.tree) == 0


def test_the_knowledge_at_the_edge_is_fetched_by_hash_and_stored() -> None:
    scene, blocks = _ahead(window=2, height=6)
    scene.receive(_status(blocks))
    asked: list[GetContent] = []
    for block in blocks[:5]:
        asked += [item for item in sent(scene.receive(BlockMessage(block))) if isinstance(item, GetContent)]
    edge = blocks[3].header.knowledge_root
    assert {item.content_hash for item in asked} == {edge, *_payloads(blocks[4:5])}
    effects: list[Effect] = []
    for item in asked:
        effects += scene.receive(Chunk(item.content_hash, 0, scene.chain.contents[item.content_hash]))
    assert blocks[4].hash in scene.node.tree
    stored = [record for effect in effects if isinstance(effect, Persist) for record in effect.records]
    assert Content(edge, scene.chain.contents[edge]) in stored


def test_after_a_restart_a_head_without_knowledge_fetches_it_and_then_takes_part() -> None:
    scene, blocks = _ahead(window=1, height=4)
    scene.receive(_status(blocks))
    for block in blocks[:3]:
        scene.receive(BlockMessage(block))
    scene.victim.node = scene.victim.new_node()
    head = scene.node.head
    assert head.height == 2
    assert scene.node.knowledge() is None
    scene.victim.handle(PeerConnected(scene.sender), scene.now_ms)
    effects = scene.tick(1)
    assert GetContent(head.knowledge_root, 0) in sent(effects)
    assert not [effect for effect in effects if isinstance(effect, Contribute)]
    effects = scene.receive(Chunk(head.knowledge_root, 0, scene.chain.contents[head.knowledge_root]))
    assert [effect.round for effect in effects if isinstance(effect, Contribute)] == [head.round]


def test_one_peer_is_asked_for_blocks_at_a_time_and_replaced_when_it_stalls() -> None:
    scene, blocks = _ahead()
    other = keys(20)[18].public_key
    assert [type(item) for item in sent(scene.receive(_status(blocks)))] == [GetBlocks]
    assert sent(scene.receive(_status(blocks), other)) == []
    scene.tick(STALL_MS / 1_000)
    assert sent(scene.receive(_status(blocks))) == [], "it did not answer"
    assert [type(item) for item in sent(scene.receive(_status(blocks), other))] == [GetBlocks]


def test_a_source_whose_payloads_nobody_has_any_more_is_replaced() -> None:
    """It is behind itself: what it calls recent is old to everybody else, who answer with empty chunks."""
    scene, blocks = _ahead(window=2, height=8)
    scene.receive(_status(blocks[:2]))
    requests = sent(scene.receive(BlockMessage(blocks[0])))
    for _ in range(4):
        for item in requests:
            assert isinstance(item, GetContent)
            scene.receive(Chunk(item.content_hash, 0, b""))
        requests = [item for item in sent(scene.tick(1)) if isinstance(item, GetContent)]
    other = keys(20)[18].public_key
    assert [type(item) for item in sent(scene.receive(_status(blocks), other))] == [GetBlocks]
    for block in blocks[:3]:
        scene.receive(BlockMessage(block), other)
    assert blocks[1].hash in scene.node.tree


def test_a_peer_that_drips_blocks_is_replaced_too() -> None:
    scene, blocks = _ahead(window=2, height=12)
    scene.receive(_status(blocks))
    for block in blocks[:8]:
        scene.receive(BlockMessage(block))
        scene.tick(1.5)
    assert sent(scene.receive(_status(blocks))) == [], "it is passed over"
    other = keys(20)[18].public_key
    assert [type(item) for item in sent(scene.receive(_status(blocks), other))] == [GetBlocks]


def test_the_next_batch_is_asked_for_when_the_last_one_is_placed() -> None:
    scene, blocks = _ahead(window=2, height=2 * BLOCKS_MAX)
    scene.receive(_status(blocks))
    for block in blocks[: BLOCKS_MAX - 1]:
        assert not [item for item in sent(scene.receive(BlockMessage(block))) if isinstance(item, GetBlocks)]
    (request,) = sent(scene.receive(BlockMessage(blocks[BLOCKS_MAX - 1])))
    assert isinstance(request, GetBlocks)
    assert request.locator[0] == blocks[BLOCKS_MAX - 2].hash, "the last one waits for its certificate"
    assert request.stop == blocks[-1].hash


# --- contents


def test_who_asks_for_a_content_that_is_on_its_way_gets_it_when_it_is_here() -> None:
    scene = Scene(genesis(4, inline_size_max=0))
    post = scene.chain.posts()[1]
    data = scene.chain.contents[post.payload_hash]
    asker = keys(20)[18].public_key
    scene.now_ms = post.timestamp_ms
    scene.receive(PostMessage(post, None))
    assert scene.receive(GetContent(post.payload_hash, 0), asker) == []
    effects = scene.receive(Chunk(post.payload_hash, 0, data))
    assert Chunk(post.payload_hash, 0, data) in sent(effects)
    assert sent(scene.receive(GetContent(sha256(b"other"), 5), asker)) == [Chunk(sha256(b"other"), 5, b"")]


def test_a_content_that_its_provider_lost_is_asked_of_others() -> None:
    scene = Scene(genesis(4, inline_size_max=0))
    post = scene.chain.posts()[1]
    scene.now_ms = post.timestamp_ms
    others = [key.public_key for key in keys(20)[10:13]]
    for peer in others:
        scene.victim.handle(PeerConnected(peer), scene.now_ms)
    scene.receive(PostMessage(post, None))
    scene.receive(Chunk(post.payload_hash, 0, b""))
    asked = set[bytes]()
    for _ in range(2 * len(others)):
        sends = [effect for effect in scene.tick(STALL_MS / 1_000) if isinstance(effect, Send)]
        asked |= {effect.peer for effect in sends if effect.message == GetContent(post.payload_hash, 0)}
    assert {*others} <= asked


def test_a_large_content_is_read_from_the_store_in_parts() -> None:
    scene = Scene(genesis(4))
    data = bytes(3 * CHUNK_SIZE)
    scene.victim.store.append([Content(sha256(data), data)])
    scene.victim.store.content = lambda _: pytest.fail("the whole content was read")  # type: ignore[assignment, method-assign]
    scene.victim.node = scene.victim.new_node()
    effects = scene.receive(GetContent(sha256(data), CHUNK_SIZE))
    assert sent(effects) == [Chunk(sha256(data), CHUNK_SIZE, bytes(CHUNK_SIZE))]
