"""Bits flip, messages come in any order and twice, chains fork far back, and strangers send without end."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.block import Block, sign_block
from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.exceptions import Invalid, InvalidEncoding, Refused
from fedchain.chain.proof_of_work import is_sealed, search_nonce
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import (
    BlockMessage,
    Chunk,
    GetBlocks,
    GetContent,
    Message,
    PostMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Refuse, Send
from fedchain.node.core.events import MessageReceived
from fedchain.node.core.pools import UNPLACED_OF_MINER_MAX
from tests.chain.builders import ChainBuilder, SumRules, genesis, keys
from tests.node.attacks import Scene, errors, sent
from tests.node.driver import Peer

FLIPS = 2_000


def _flip(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big")


def _open_phase() -> tuple[Scene, list[Message]]:
    """A node in the middle of a phase, and messages that it would take."""
    scene = Scene(genesis(5), 4)
    scene.accept(2)
    posts = scene.chain.posts()
    block = scene.chain.extend(posts=posts)
    scene.now_ms = block.header.timestamp_ms
    scene.post(posts[0])
    good: list[Message] = [PostMessage(post, scene.chain.contents[post.payload_hash]) for post in posts[1:]]
    good += [BlockMessage(block), *(VoteMessage(vote) for vote in scene.chain.votes(block.hash))]
    return scene, good


def test_a_flipped_bit_is_refused_by_name_and_changes_nothing() -> None:
    scene, good = _open_phase()
    encoded, rng = [encode_message(message) for message in good], Random(1)
    before, found = scene.digest(), Counter[str]()
    for number in range(FLIPS):
        data = rng.choice(encoded)
        try:
            message = decode_message(_flip(data, rng.randrange(8 * len(data))))
        except InvalidEncoding as error:
            found[error.rule] += 1
            continue
        effects = scene.receive(message)
        if isinstance(message, (PostMessage, BlockMessage, VoteMessage)):
            refused = [effect.error for effect in effects if isinstance(effect, Refuse)]
            assert len(refused) == 1, f"flip {number} of {type(message).__name__}"
            assert type(refused[0]) not in (Refused, Invalid)
            assert str(refused[0]).startswith(f"{refused[0].rule}: ")
            found[refused[0].rule] += 1
        assert scene.digest() == before
    assert {"msgpack", "signature", "proof of work", "payload hash", "voter"} <= set(found), found
    for message in good:
        assert "Invalid" not in "".join(errors(scene.receive(message)))
    assert scene.digest() != before


@cache
def _messages() -> tuple[ChainBuilder, tuple[Message, ...], Hash]:
    """A trunk with three branches of different support, as messages."""
    builder = ChainBuilder(genesis(4, initial_bits=bits_from_attempts(4)))
    trunk = builder.extend_many(2)
    long = builder.extend_many(3, trunk[-1].hash, payload_of=10)
    builder.extend_many(2, trunk[-1].hash, payload_of=20)
    unsupported = builder.extend_many(4, trunk[0].hash, payload_of=30)[-1]
    messages: list[Message] = []
    for block in builder.blocks.values():
        messages.append(BlockMessage(block))
        voters = builder.genesis.members[: 1 if block is unsupported else 3]
        messages += [VoteMessage(vote) for vote in builder.votes(block.hash, voters)]
    return builder, tuple(messages), long[-1].hash


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_order_of_delivery_with_duplicates_gives_the_same_head(random: Random) -> None:
    builder, messages, expected = _messages()
    # A stranger's view has no vote of its own in it; payloads are in the store.
    peer = Peer(9, keys(10)[9], builder.genesis, SumRules())
    peer.store._contents.update(builder.contents)
    now_ms = max(block.header.timestamp_ms for block in builder.blocks.values())
    order = [*messages, *random.sample(messages, 10)]
    random.shuffle(order)
    # Early votes are kept within bounds, and what was dropped is asked for again: votes come once more at the end.
    order += random.sample(messages, len(messages))
    for message in order:
        peer.receive(keys(2)[1].public_key, message, now_ms)
    assert peer.node.head.block_hash == expected


@cache
def _branches(count: int) -> tuple[ChainBuilder, tuple[Block, ...], tuple[Block, ...]]:
    builder = ChainBuilder(genesis(1, target_mining_time_ms=4_000))
    first = builder.extend_many(count)
    second = builder.extend_many(count + 1, builder.genesis.chain_id, payload_of=1_000)
    return builder, tuple(first), tuple(second)


def test_a_reorg_of_1088_blocks_rewinds_the_knowledge_and_replays() -> None:
    builder, first, second = _branches(1_088)
    now_ms = second[-1].header.timestamp_ms
    victim, source = (Peer(number, keys(10)[number], builder.genesis, SumRules()) for number in (8, 9))
    for peer, blocks in ((victim, first), (source, second)):
        peer.store._contents.update(builder.contents)
        for block in blocks:
            peer.receive(keys(1)[0].public_key, BlockMessage(block), now_ms)
        for vote in builder.votes(blocks[-1].hash):
            peer.receive(keys(1)[0].public_key, VoteMessage(vote), now_ms)
        assert peer.node.head.block_hash == blocks[-1].hash
    assert victim.node.knowledge() == builder.contents[first[-1].header.knowledge_root]
    del victim.log[:]
    batches = _talk(victim, source, now_ms)
    assert victim.node.head.block_hash == second[-1].hash
    assert victim.node.knowledge() == builder.contents[second[-1].header.knowledge_root]
    assert batches <= 1_089 // 16 + 4, f"{batches} requests for 1,089 blocks"
    assert victim.node.tree.canonical(1) == second[0].hash
    again = victim.new_node()
    assert again.head == victim.node.head


def _talk(victim: Peer, source: Peer, now_ms: int) -> int:
    """Let the victim hear the source's status and whatever follows; how often it asked for blocks."""
    asked, names = 0, {victim.key.public_key: victim, source.key.public_key: source}
    for _ in range(3):  # the last block's votes are asked for once the block is there
        head = source.node.head
        votes = source.node.tree.votes(head.block_hash)
        status = Status(head.block_hash, head.height, b"", ((head.block_hash, b"\x01" if votes else b""),))
        waiting: list[tuple[Peer, Peer, Message]] = [(source, victim, status)]
        while waiting:
            sender, receiver, message = waiting.pop(0)
            asked += isinstance(message, GetBlocks)
            effects = receiver.handle(MessageReceived(sender.key.public_key, message), now_ms)
            waiting += [(receiver, names[item.peer], item.message) for item in effects if isinstance(item, Send)]
    return asked


def test_an_unknown_parent_is_asked_for_and_then_adopted() -> None:
    scene = Scene(genesis(4))
    first, second = scene.chain.extend_many(2)
    scene.victim.store._contents.update(scene.chain.contents)
    scene.now_ms = second.header.timestamp_ms
    effects = scene.receive(BlockMessage(second))
    assert errors(effects) == ["UnknownParent"]
    assert [message.stop for message in sent(effects) if isinstance(message, GetBlocks)] == [first.hash]
    scene.receive(BlockMessage(first))
    assert second.hash in scene.node.tree
    scene.votes(second)
    assert scene.node.head.block_hash == second.hash


def test_payloads_of_a_block_are_fetched_from_who_sent_it() -> None:
    scene = Scene(genesis(4))
    block = scene.chain.extend()
    effects = scene.block(block, payloads=False)
    assert errors(effects) == ["MissingPayload"]
    wanted = [message.content_hash for message in sent(effects) if isinstance(message, GetContent)]
    assert wanted == [post.payload_hash for post in block.transactions]
    for item in wanted:
        assert block.hash not in scene.node.tree
        scene.receive(Chunk(item, 0, scene.chain.contents[item]))
    assert block.hash in scene.node.tree


def test_a_block_is_placed_when_the_posts_that_it_counts_arrive() -> None:
    scene = Scene(genesis(4))
    block = scene.chain.extend()
    scene.block(block, payloads=False)
    for post in block.transactions:
        assert block.hash not in scene.node.tree
        scene.post(post)
    assert block.hash in scene.node.tree, "whoever was asked for the payloads may never answer"


def _orphans(scene: Scene, count: int) -> list[Block]:
    """Well-sealed blocks of a member that follow nothing."""
    key, block = keys(1)[0], scene.chain.extend()
    orphans = []
    for number in range(count):
        header = replace(block.header, parent_hash=sha256(number.to_bytes(8, "big")), votes_root=bytes(32))
        header = replace(header, miner=key.public_key, transactions_root=bytes(32))
        empty = scene.chain.remake(block, transactions=(), votes=())
        header = replace(header, transactions_root=empty.header.transactions_root, votes_root=empty.header.votes_root)
        sealed = search_nonce("sha256d", header, 0, 1_000)
        assert sealed is not None
        orphans.append(sign_block(key, scene.genesis.chain_id, sealed, (), ()))
    return orphans


def test_a_hundred_thousand_headers_without_work_leave_no_trace() -> None:
    scene = Scene(genesis(4))
    block = scene.chain.extend()
    nonces = (replace(block.header, nonce=nonce) for nonce in range(100))
    bad = replace(block, header=next(header for header in nonces if not is_sealed("sha256d", header)))
    message, before = BlockMessage(bad), scene.digest()
    assert errors(scene.receive(message)) == ["InvalidBlock"]
    node, event, now_ms = scene.node, MessageReceived(scene.sender, message), scene.now_ms
    tracemalloc.start()
    for _ in range(2_000):
        node.handle(event, now_ms)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 200_000, f"{grown} bytes more after 2,000 headers"
    for _ in range(MANY):
        node.handle(event, now_ms)
    assert scene.digest() == before
    assert len(node._unplaced) == len(node._contents._downloads) == len(node._verification._blocks) == 0


MANY = 100_000


def test_blocks_that_follow_nothing_fill_bounded_pools() -> None:
    scene = Scene(genesis(4))
    before = scene.digest()
    for block in _orphans(scene, 3_000):
        assert errors(scene.receive(BlockMessage(block))) == ["UnknownParent"]
        scene.victim.effects.clear()
        scene.victim.log.clear()
    assert scene.digest() == before
    node = scene.node
    assert len(node._unplaced) == UNPLACED_OF_MINER_MAX, "one miner fills its own share and no more"
    assert node._catch_up.is_source(scene.sender)
    assert len(node._verification._blocks) <= 256
    assert len(node._early_votes) == 0


def test_votes_for_unknown_blocks_fill_a_bounded_pool() -> None:
    scene = Scene(genesis(4))
    block = scene.chain.extend()
    for number in range(200):
        twin = scene.chain.remake(block, timestamp_ms=block.header.timestamp_ms + number)
        scene.chain.keep(twin)
        for vote in scene.chain.votes(twin.hash):
            assert errors(scene.receive(VoteMessage(vote))) == ["UnknownBlock"]
    assert len(scene.node._early_votes) <= 8 * 4


@pytest.mark.parametrize("count", [300])
def test_what_was_checked_is_remembered_within_bounds(count: int) -> None:
    builder = ChainBuilder(genesis(1))
    verification = Verification(builder.genesis, SumRules())
    for block in builder.extend_many(count):
        verification.sealed(block)
    assert len(verification._blocks) == 256
