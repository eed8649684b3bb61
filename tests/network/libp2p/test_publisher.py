"""Gossip of our own: paced, bounded, whole."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from fedchain.network.libp2p.bounds import QUEUE_FRAMES_MAX
from fedchain.network.libp2p.messenger import Counters
from fedchain.network.libp2p.publisher import PACE_BURST_S, PACE_TIMEOUT_S, QUEUE_ROOM, Publisher
from fedchain.network.messages import PostMessage
from fedchain.testing.networks import gossip
from tests.support.network.real import LIMITS, Inbox, meshed, on_trio, peer, until


def post(number: int, size: int = 64) -> PostMessage:
    """One of many different gossip messages."""
    return PostMessage(gossip().post, number.to_bytes(8, "big") + bytes(size))


@pytest.mark.long
@on_trio
async def test_a_burst_of_two_hundred_arrives_whole_also_behind_another_peer() -> None:
    async with peer(0) as one, peer(1, one) as two, peer(2, two) as three:
        await meshed(one, two)
        await meshed(two, three)
        Inbox(two)
        inbox = Inbox(three)
        for number in range(200):
            one.publish(post(number, 20_000))
        await until(lambda: len(inbox.messages) == 200, "200 messages")
        assert set(inbox.messages) == {post(number, 20_000) for number in range(200)}


@on_trio
async def test_a_burst_longer_than_a_queue_is_paced() -> None:
    async with peer(0) as one, peer(1, one) as two:
        await meshed(one, two)
        inbox = Inbox(two)
        for number in range(QUEUE_FRAMES_MAX + 200):
            one.publish(post(number))
        await until(lambda: len(inbox.messages) == QUEUE_FRAMES_MAX + 200, "all messages")


@on_trio
async def test_gossip_that_is_too_large_is_not_sent() -> None:
    async with peer(0) as one, peer(1, one) as two:
        await meshed(one, two)
        inbox = Inbox(two)
        one.publish(post(1, LIMITS.gossip_size_max))
        one.publish(post(2))
        await until(lambda: inbox.messages)
        assert inbox.messages == [post(2)]
        assert one.counters.dropped == 1


@on_trio
async def test_what_waits_to_be_published_is_bounded() -> None:
    nobody: Any = SimpleNamespace()
    publisher = Publisher(nobody, nobody, "topic", replace(LIMITS, publish_queue_max=2), Counters())
    assert [publisher.put(b"vote") for _ in range(3)] == [True, True, False]


def test_a_neighbour_that_hardly_reads_holds_nobody_up_for_long() -> None:
    sent_s = list[float]()

    async def main() -> None:
        begun_s = trio.current_time()

        async def publish(topic: str, data: bytes) -> None:
            sent_s.append(trio.current_time() - begun_s)

        pubsub: Any = SimpleNamespace(publish=publish)
        router: Any = SimpleNamespace(waiting_max=lambda: QUEUE_ROOM + 1)
        publisher = Publisher(pubsub, router, "topic", LIMITS, Counters())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publisher.run)
            for _ in range(100):
                publisher.put(b"vote")
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(1_000)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(sent_s) == 100
    assert PACE_BURST_S <= sent_s[-1] <= PACE_BURST_S + 2 * PACE_TIMEOUT_S
