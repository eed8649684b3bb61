"""Memory of messages is bounded."""

import hashlib

from libp2p.pubsub.pb import rpc_pb2

from fedchain.network.libp2p.bounds import (
    CACHE_BYTES_MAX,
    ID_SIZE,
    IGNORED_MAX,
    JUDGEMENTS_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_FRAMES_MAX,
    SETTLED_MAX,
    BoundedQueue,
    Judged,
    RecentMessages,
    message_id,
)
from fedchain.network.libp2p.identity import peer_id
from tests.support.chain.builders import keys
from tests.support.network.real import on_trio

KEY = keys(1)[0]


@on_trio
async def test_gossip_that_waits_is_bounded_in_number_and_bytes() -> None:
    queue, small, large = BoundedQueue(), rpc_pb2.RPC(), rpc_pb2.RPC()
    small.publish.add(data=b"x")
    large.publish.add(data=bytes(2**20 - 100))
    assert [queue.push(small) for _ in range(QUEUE_FRAMES_MAX + 1)].count(True) == QUEUE_FRAMES_MAX
    for _ in range(QUEUE_FRAMES_MAX):
        await queue.pop()
    held = [queue.push(large) for _ in range(20)].count(True)
    assert held == QUEUE_BYTES_MAX // large.ByteSize()
    await queue.pop()
    assert queue.push(large)
    queue.close()


def kept(number: int, size: int = 8) -> rpc_pb2.Message:
    return rpc_pb2.Message(data=number.to_bytes(size, "big"), topicIDs=["t"])


def test_messages_kept_for_others_are_bounded_in_bytes() -> None:
    cache, size = RecentMessages(3, 5), 2**20
    for number in range(2 * CACHE_BYTES_MAX // size):
        cache.put(kept(number, size))
        cache.put(kept(0, size))
    assert len(cache.msgs) == CACHE_BYTES_MAX // size
    for _ in range(5):
        cache.shift()
    assert not cache.msgs
    cache.put(kept(0, size))
    assert len(cache.msgs) == 1


def test_a_message_is_named_by_what_it_says() -> None:
    name = message_id(b"hello")
    assert name.hex() == hashlib.sha256(b"fedchain/gossip/2hello").hexdigest()[: 2 * ID_SIZE]
    cache = RecentMessages(3, 5)
    cache.put(rpc_pb2.Message(data=b"hello", topicIDs=["t"]))
    cache.put(rpc_pb2.Message(data=b"hello", topicIDs=["t"]))
    assert cache.window("t") == [name]
    assert cache.get(name) == rpc_pb2.Message(data=b"hello", topicIDs=["t"])


def test_what_was_settled_is_remembered_up_to_a_bound() -> None:
    judged, one, two = Judged(), peer_id(bytes(32)), peer_id(KEY.public_key)
    judged.settle(b"first")
    judged.settle(b"second")
    assert not judged.may_judge(b"first", one)
    for number in range(SETTLED_MAX - 2):
        judged.settle(number.to_bytes(8, "big"))
    judged.settle(b"first")  # heard of again
    judged.settle(b"third")
    assert not judged.may_judge(b"first", two)
    assert judged.may_judge(b"second", two)
    assert not judged.may_judge(bytes(8), two)


def test_what_was_ignored_is_judged_again_until_a_neighbour_has_used_up_its_turns() -> None:
    judged, one, two = Judged(), peer_id(bytes(32)), peer_id(KEY.public_key)
    for _ in range(JUDGEMENTS_MAX):
        assert judged.may_judge(b"message", one)
        judged.ignore(b"message", one)
    assert not judged.may_judge(b"message", one)
    assert judged.may_judge(b"message", two)
    for number in range(IGNORED_MAX - 1):
        judged.ignore(number.to_bytes(8, "big"), two)
    assert not judged.may_judge(b"message", one)
    judged.ignore(b"another", two)
    assert judged.may_judge(b"message", one), "forgotten, as the oldest"
    judged.ignore(b"another", two)
    judged.settle(b"another")
    assert not judged.may_judge(b"another", one)


def test_what_was_settled_takes_no_place_among_what_was_ignored() -> None:
    """Good messages, which are ignored until they can be judged, would give a liar its turns again."""
    judged, one, two = Judged(), peer_id(bytes(32)), peer_id(KEY.public_key)
    for _ in range(JUDGEMENTS_MAX):
        judged.ignore(b"message", one)
    for number in range(IGNORED_MAX):
        judged.ignore(number.to_bytes(8, "big"), two)
        judged.settle(number.to_bytes(8, "big"))
    assert not judged.may_judge(b"message", one)


def test_turns_of_a_neighbour_that_will_not_come_back_are_forgotten() -> None:
    judged, one, two = Judged(), peer_id(bytes(32)), peer_id(KEY.public_key)
    for _ in range(JUDGEMENTS_MAX):
        judged.ignore(b"name", one)
        judged.ignore(b"name", two)
    judged.forget(one)
    assert (judged.may_judge(b"name", one), judged.may_judge(b"name", two)) == (True, False)


def test_who_was_given_a_message_is_remembered_as_long_as_the_message() -> None:
    cache = RecentMessages(1, 2)
    cache.put(kept(0))
    cache.given[message_id(kept(0).data)].add(peer_id(KEY.public_key))
    cache.shift()
    assert cache.given
    cache.shift()
    assert not cache.given
