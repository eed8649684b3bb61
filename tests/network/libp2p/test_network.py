"""Peers on loopback: who may connect, what arrives, and what happens when one goes and comes back."""

import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from fedchain import __version__
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.downloads import Downloads
from fedchain.network.libp2p.addresses import InvalidBootstrap
from fedchain.network.libp2p.identity import peer_id
from fedchain.network.libp2p.network import Libp2pNetwork, ListenError
from fedchain.network.limits import BLAME_REJECTED, Limits
from fedchain.network.messages import (
    CHUNK_SIZE,
    Chunk,
    GetContent,
    LightMessage,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    encode_message,
)
from fedchain.network.network import Receiver
from fedchain.network.session import NOBODY, Session
from fedchain.network.verdict import Verdict
from fedchain.testing.networks import gossip
from tests.support.network.real import MEMBERS, Inbox, attacker, meshed, on_trio, peer, until

STRANGER = PrivateKey(bytes(32))


def post(number: int, size: int = 64) -> PostMessage:
    """One of many different gossip messages."""
    return PostMessage(gossip().post, number.to_bytes(8, "big") + bytes(size))


@on_trio
async def test_two_peers_meet_and_part() -> None:
    seen: list[tuple[str, PublicKey, bool]] = []
    async with peer(0) as one:
        one.watch(lambda who, here: seen.append(("one", who, here)))
        async with peer(1, one) as other:
            other.watch(lambda who, here: seen.append(("other", who, here)))
            await until(lambda: len(seen) == 2)
            later: list[tuple[PublicKey, bool]] = []
            one.watch(lambda who, here: later.append((who, here)))
            assert later == [(MEMBERS[1], True)]
            assert one.peers() == [MEMBERS[1]]
        await until(lambda: later == [(MEMBERS[1], True), (MEMBERS[1], False)])
        assert one.peers() == []
    assert sorted(seen) == [("one", MEMBERS[1], True), ("other", MEMBERS[0], True)]


@on_trio
async def test_strangers_are_turned_away() -> None:
    async with peer(0) as one:
        async with attacker(one) as member:
            await until(one.peers)
            assert member.is_connected()
        await until(lambda: not one.peers())
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever libp2p makes of a closed connection
            async with attacker(one, STRANGER):
                pass
        assert one.peers() == []
        assert one.host.get_network().get_connections() == []


@on_trio
async def test_a_stranger_is_not_dialled_into_the_network_either() -> None:
    async with peer(0, members=MEMBERS[:2]) as small, peer(2, small) as stranger:
        await until(lambda: stranger.book._contacts[MEMBERS[0]].failures >= 3, "three attempts")
        assert (small.peers(), stranger.peers()) == ([], [])


@on_trio
async def test_chains_do_not_hear_each_other_and_who_meets_another_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with peer(0) as one, peer(1, one, chain_id=bytes(32)) as other:
        inbox = Inbox(one)
        await until(one.peers)
        other.send(MEMBERS[0], GetContent(bytes(32), 0))
        other.publish(gossip())
        async with peer(2, one) as third:
            await meshed(one, third)
            third.publish(gossip(2))
            await until(lambda: inbox.messages)
        assert inbox.heard == [(MEMBERS[2], gossip(2))]
        told = "is not in this federation: it has another genesis document, or another protocol version"
        await until(lambda: f"{peer_id(MEMBERS[0])} {told}" in caplog.text)


@on_trio
async def test_a_message_is_delivered_once_and_forwarded() -> None:
    async with peer(0) as one, peer(1, one) as two, peer(2, one, two) as three:
        await meshed(one, two, three)
        inboxes = [Inbox(network) for network in (one, two, three)]
        for number in range(20):
            one.publish(post(number))
        two.publish(post(99))
        await until(lambda: [len(inbox.messages) for inbox in inboxes] == [1, 20, 21])
        assert [len(set(inbox.messages)) for inbox in inboxes] == [1, 20, 21]


@on_trio
async def test_a_large_content_is_fetched_in_chunks() -> None:
    content = random.Random(1).randbytes(1_700_000)
    content_hash = sha256(content)
    async with peer(0) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        downloads, arrived = Downloads(2**20), list[bytes]()

        def provide(sender: PublicKey, message: Message) -> Verdict:
            assert isinstance(message, GetContent)
            one.send(sender, Chunk(content_hash, message.offset, content[message.offset : message.offset + CHUNK_SIZE]))
            return Verdict.ACCEPT

        def fetch(sender: PublicKey, message: Message) -> Verdict:
            assert isinstance(message, Chunk)
            whole, requests = downloads.on_chunk(sender, message, 0)
            arrived.extend([whole] if whole is not None else [])
            for provider, request in requests:
                two.send(provider, request)
            return Verdict.ACCEPT

        one.attach(provide)
        two.attach(fetch)
        for provider, request in downloads.want(content_hash, len(content), MEMBERS[0], 0):
            two.send(provider, request)
        await until(lambda: arrived)
        assert arrived == [content]


@on_trio
async def test_what_is_sent_while_the_stream_opens_arrives_and_only_the_newest_status_counts() -> None:
    statuses = [Status(height, bytes(32), b"", (), (), None) for height in range(3)]
    async with peer(0) as one, peer(1, one) as two:
        inbox = Inbox(two)

        def greet(who: PublicKey, is_connected: bool) -> None:
            for status in statuses:
                one.send(who, status)
            one.send(who, GetContent(bytes(32), 5))

        one.watch(greet)
        await until(lambda: len(inbox.messages) >= 2)
        assert inbox.messages == [statuses[-1], GetContent(bytes(32), 5)]


@on_trio
async def test_both_may_dial_at_once_and_keep_the_same_connection() -> None:
    async with peer(0) as one, peer(1) as two:

        async def dial(network: Libp2pNetwork, other: Libp2pNetwork) -> None:
            swarm: Any = network.host.get_network()
            await swarm.dial_addr(other.host.get_transport_addrs()[0], other.host.get_id())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(dial, one, two)
            nursery.start_soon(dial, two, one)
        for network in (one, two):
            await until(lambda network=network: len(network.host.get_network().get_connections()) == 1)  # type: ignore[misc]
        await meshed(one, two)
        inboxes = Inbox(one), Inbox(two)
        for network, other in ((one, MEMBERS[1]), (two, MEMBERS[0])):
            network.send(other, GetContent(bytes(32), 1))
            network.publish(gossip(MEMBERS.index(other)))
        await until(lambda: [len(inbox.messages) for inbox in inboxes] == [2, 2])


@on_trio
async def test_both_sides_learn_the_others_version_as_soon_as_they_meet() -> None:
    seldom = Limits(redial_min_s=0.1, peers_wanted=0, exchange_interval_s=1e6)
    async with (
        peer(0, limits=seldom, version="1.2") as one,
        peer(1, one, limits=seldom, version="x" * 99) as two,
        peer(2, one, limits=seldom) as three,
    ):
        assert one.version_of(MEMBERS[3]) is None
        await until(lambda: one.version_of(MEMBERS[1]) and one.version_of(MEMBERS[2]))
        await until(lambda: two.version_of(MEMBERS[0]) and three.version_of(MEMBERS[0]))
        assert [one.version_of(MEMBERS[number]) for number in (1, 2)] == ["x" * 32, __version__]
        flow = one.flow_of(MEMBERS[1])
        assert flow is not None
        assert 0 < flow.round_trip_ms < 60_000
        assert min(flow.bytes_in, flow.bytes_out) > 32  # the versions alone
        assert one.flow_of(MEMBERS[3]) is None
        assert two.version_of(MEMBERS[0]) == three.version_of(MEMBERS[0]) == "1.2"


@on_trio
async def test_who_passes_on_what_is_refused_is_not_blamed() -> None:
    async with peer(0) as one, peer(1, one) as relay:
        await meshed(one, relay)
        refused = Inbox(one, Verdict.REJECT)
        for number in range(30):
            relay.publish(post(number))
            relay.send(MEMBERS[0], post(number))
        await until(lambda: len(refused.messages) == 60)
        assert one.counters.rejected == 0
        assert one.peers() == [MEMBERS[1]]


@on_trio
async def test_who_is_blamed_too_much_is_banned_also_after_a_restart_until_it_is_pardoned(tmp_path: Path) -> None:
    limits = Limits(redial_min_s=0.1, redial_max_s=0.2, peers_wanted=0, blame_max=2.5 * BLAME_REJECTED)
    async with peer(0, folder=tmp_path, limits=limits) as one, peer(1, one) as bad, peer(2, one) as good:
        await until(lambda: len(one.peers()) == 2)
        for reason in ("this", "that", "its vote has another block's signature"):
            one.blame(MEMBERS[1], BLAME_REJECTED, reason)
        assert one.peers() == [MEMBERS[2]]
        await until(lambda: not bad.peers())
        assert good.peers() == [MEMBERS[0]]
        assert one.counters.rejected == 3
    async with peer(0, folder=tmp_path, limits=limits) as one, peer(1, one) as bad, peer(2, one):
        await until(lambda: one.peers() == [MEMBERS[2]])
        await until(lambda: bad.book._contacts[MEMBERS[0]].failures >= 3, "three attempts")
        assert one.peers() == [MEMBERS[2]]
        (ban,) = one.bans()
        assert (ban.peer, ban.reason) == (MEMBERS[1], "its vote has another block's signature")
        assert one.pardon(MEMBERS[1])
        assert not one.pardon(MEMBERS[1])
        assert one.bans() == ()
        await until(lambda: MEMBERS[1] in one.peers())


@on_trio
async def test_what_does_not_fit_into_an_outbox_is_dropped() -> None:
    async with peer(0, limits=Limits(outbox_messages_max=5)) as one, peer(1, one) as two:
        inbox = Inbox(two)
        await until(lambda: one.peers() and two.peers())
        for number in range(9):  # nothing is written before we wait
            one.send(MEMBERS[1], GetContent(bytes(32), number))
        one.send(MEMBERS[2], GetContent(bytes(32), 0))  # not connected
        await until(lambda: len(inbox.messages) == 5)
        assert one.counters.dropped == 5


@on_trio
async def test_gossip_counts_once_however_many_neighbours_it_goes_to_while_connections_carry_each_copy() -> None:
    """As metrics are explained; `node status` has what connections carry."""
    async with peer(0) as one, peer(1, one) as two, peer(2, one, two) as three:
        inboxes = [Inbox(two), Inbox(three)]
        await meshed(one, two, three)
        message = post(1, 50_000)
        size, before = len(encode_message(message)), (one.counters.bytes_out, two.counters.bytes_in)
        one.publish(message)
        await until(lambda: all(inbox.messages for inbox in inboxes))
        assert (one.counters.bytes_out - before[0], two.counters.bytes_in - before[1]) == (size, size)
        await until(lambda: sum(flow.bytes_out for flow in map(one.flow_of, MEMBERS[1:3]) if flow) >= 2 * size)


@on_trio
async def test_what_cannot_be_written_is_lost_and_ends_nothing() -> None:
    async with peer(0) as one, peer(1, one) as other:
        inbox = Inbox(one)
        await meshed(one, other)
        dropped = other.counters.dropped
        other.send(MEMBERS[0], GetContent(bytes(32), 2**64))
        other.publish(SessionMessage(Session(MEMBERS[1], bytes(16), NOBODY, 2**64, 0, bytes(64))))
        assert other.counters.dropped == dropped + 2
        other.publish(post(1))
        await until(lambda: inbox.messages)


@on_trio
async def test_a_port_in_use_is_noticed() -> None:
    async with peer(0) as one:
        place = one.listen_addresses()[0].partition("/p2p/")[0]
        with pytest.raises(ListenError, match="the port is in use"):
            async with peer(1, listen=place):
                pass


@on_trio
async def test_bytes_beyond_the_budget_come_later_and_none_is_lost() -> None:
    limits = Limits(peers_wanted=0, bytes_per_s=8 * 2.0**20, bytes_burst=2.0**18)
    async with peer(0, limits=limits) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        inbox, begun_s = Inbox(one), trio.current_time()
        for number in range(16):
            two.send(MEMBERS[0], Chunk(bytes(32), number, bytes(CHUNK_SIZE)))
        await until(lambda: len(inbox.messages) == 16)
        assert trio.current_time() - begun_s > 0.4  # 14 of them at 31 ms each
        assert one.bans() == ()
        assert one.counters.dropped == 0


def slow_receiver(heard: list[float], found: Verdict) -> Receiver:
    """Takes 40 ms of processor time for each message, and notes when it is done."""

    def receive(sender: PublicKey, message: Message) -> Verdict:
        end_s = time.perf_counter() + 0.04
        while time.perf_counter() < end_s:
            pass
        heard.append(trio.current_time())
        return found

    return receive


@on_trio
async def test_who_takes_too_much_of_our_time_is_read_later_and_not_blamed() -> None:
    limits = Limits(peers_wanted=0, cpu_share=0.5, cpu_burst_s=0.02)
    async with peer(0, limits=limits) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        heard = list[float]()
        one.attach(slow_receiver(heard, Verdict.ACCEPT))
        for number in range(5):
            two.publish(post(number))
            two.send(MEMBERS[0], post(number))
        await until(lambda: len(heard) == 10)
        assert heard[-1] - heard[0] > 0.5  # 9 of them at 80 ms each, less what was there at first and who waits twice
        assert (one.counters.rejected, one.bans()) == (0, ())


@on_trio
async def test_who_brings_us_forward_takes_as_much_of_our_time_as_that_needs() -> None:
    limits = Limits(peers_wanted=0, cpu_share=1e-3, cpu_burst_s=0.02)
    async with peer(0, limits=limits) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        heard = list[float]()
        one.attach(slow_receiver(heard, Verdict.PROGRESS))
        for number in range(5):
            two.send(MEMBERS[0], post(number))
        await until(lambda: len(heard) == 5)  # of a thousandth of our time a second one would wait for 20 s


@on_trio
async def test_questions_beyond_what_answers_may_cost_are_dropped_and_not_held_against_anybody() -> None:
    limits = Limits(peers_wanted=0, answer_bytes_per_s=1.0, answer_bytes_burst=2.5 * CHUNK_SIZE)
    async with peer(0, limits=limits) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        asked, inbox = list[Message](), Inbox(two)

        def answer(sender: PublicKey, message: Message) -> Verdict:
            asked.append(message)
            if isinstance(message, GetContent):
                one.send(sender, Chunk(bytes(32), message.offset, bytes(CHUNK_SIZE)))
            return Verdict.ACCEPT

        one.attach(answer)
        for number in range(10):
            two.send(MEMBERS[0], GetContent(bytes(32), number))
        two.send(MEMBERS[0], Chunk(bytes(32), 0, b"what is no question is taken"))
        await until(lambda: len(asked) >= 4 and len(inbox.messages) == 3)
        assert asked == [*(GetContent(bytes(32), number) for number in range(3)), asked[-1]]
        assert isinstance(asked[-1], Chunk)
        assert (one.counters.unanswered, one.counters.rejected) == (7, 0)


@pytest.mark.parametrize("answer", [Payloads(1, (b"payload",)), LightMessage(1, None), Chunk(bytes(32), 0, b"part")])
@on_trio
async def test_every_answer_costs_who_asked(answer: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer(0) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        charged = list[tuple[PublicKey, bool]]()
        monkeypatch.setattr(one.gate, "charge", lambda who, bytes_out, now_s: charged.append((who, bytes_out > 0)))
        one.send(MEMBERS[1], answer)
        monkeypatch.undo()
        assert charged == [(MEMBERS[1], True)]


@on_trio
async def test_what_is_told_without_a_question_costs_the_listener_nothing() -> None:
    limits = Limits(peers_wanted=0, answer_bytes_per_s=1.0, answer_bytes_burst=100.0)
    async with peer(0, limits=limits) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        inbox = Inbox(one)
        for number in range(20):
            one.send(MEMBERS[1], Status(number, bytes(32), b"", (), (), None))
            one.send(MEMBERS[1], GetContent(bytes(32), number))
        two.send(MEMBERS[0], GetContent(bytes(32), 0))
        await until(lambda: inbox.messages)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@on_trio
async def test_who_listens_everywhere_is_known_by_the_version_of_ip_that_it_listens_by() -> None:
    async with (
        peer(0, listen="/ip6/::/tcp/0") as hub,
        peer(1, listen="/ip4/0.0.0.0/tcp/0") as one,
        peer(2, listen="/ip4/0.0.0.0/tcp/0") as two,
    ):
        port = hub.listen_addresses()[0].split("/")[4]
        one.book.add_fixed(MEMBERS[0], f"/ip4/127.0.0.1/tcp/{port}")
        two.book.add_fixed(MEMBERS[0], f"/ip6/::1/tcp/{port}")
        await until(lambda: len(hub.peers()) == 2 and hub.version_of(MEMBERS[2]) is not None)
        await until(lambda: MEMBERS[1] in hub.book.known())
        place = one.listen_addresses()[0].partition("/p2p/")[0]
        assert hub.book.known()[MEMBERS[1]] == [place.replace("0.0.0.0", "127.0.0.1")]
        assert MEMBERS[2] not in hub.book.known()


@on_trio
async def test_who_listens_everywhere_is_found_by_others() -> None:
    limits = Limits(redial_min_s=0.1, exchange_interval_s=0.6)
    async with (
        peer(0, limits=limits) as hub,
        peer(1, hub, limits=limits, listen="/ip4/0.0.0.0/tcp/0") as everywhere,
        peer(2, hub, limits=limits) as other,
    ):
        await until(lambda: MEMBERS[2] in everywhere.peers() and MEMBERS[1] in other.peers(), "the third side")
        told = hub.book.sample(MEMBERS[0])
        assert [place.startswith("/ip4/127.0.0.1/") for _, places in told for place in places] == [True, True]


@on_trio
async def test_what_cannot_be_announced_is_named() -> None:
    with pytest.raises(ListenError, match="nonsense"):
        async with peer(0, announce=["/ip4/1.2.3.4/tcp/1", "nonsense"]):
            pass


@pytest.mark.parametrize("listen", ["/ip4/192.0.2.1/tcp/0", "/ip4/127.0.0.1/udp/0", "127.0.0.1:4001", ""])
def test_an_address_that_cannot_be_listened_on_is_named(listen: str) -> None:
    @on_trio
    async def start() -> None:
        async with peer(0, listen=listen):
            pass

    with pytest.raises(ListenError, match=listen.replace("/", ".") or "''"):
        start()


@pytest.mark.parametrize("place", ["/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWx", "127.0.0.1"])
def test_a_bootstrap_address_that_cannot_be_used_is_named(place: str) -> None:
    @on_trio
    async def start() -> None:
        async with peer(0, place):
            pass

    with pytest.raises(InvalidBootstrap, match=place.replace("/", ".")):
        start()


@on_trio
async def test_it_can_be_ended_while_much_is_waiting() -> None:
    async with peer(0) as one:
        async with peer(1, one) as two:
            await meshed(one, two)
            for number in range(200):
                two.publish(post(number, 50_000))
                two.send(MEMBERS[0], Chunk(bytes(32), number, bytes(50_000)))
            with trio.move_on_after(0.02):
                await trio.sleep_forever()
        await until(lambda: not one.peers())


@on_trio
async def test_a_banned_member_is_disconnected_also_with_another_key() -> None:
    async with peer(0) as one, peer(1, one):
        await until(lambda: one.peers() == [MEMBERS[1]], "a connection")
        one.gate.ban(MEMBERS[2], "it lied", trio.current_time())
        one.track(1, MEMBERS, {MEMBERS[2]: MEMBERS[1]}, MEMBERS[2:3])
        assert one.peers() == []
        assert {*one.gate.members.guests} == {MEMBERS[2]}
        assert {ban.peer for ban in one.bans()} == {*MEMBERS[1:3]}


@on_trio
async def test_a_member_connects_from_the_height_at_which_it_is_tracked_and_leaves_with_its_membership() -> None:
    early, late = MEMBERS[:1], MEMBERS[:2]
    async with peer(0, members=early) as one, peer(1, one) as two:
        await until(lambda: two.book._contacts[MEMBERS[0]].failures >= 2, "two attempts")
        assert one.peers() == []
        one.track(3, late)
        await until(lambda: one.peers() == [MEMBERS[1]], "a connection")
        one.track(4, late)
        assert one.peers() == [MEMBERS[1]]
        await until(lambda: one.version_of(MEMBERS[1]) and MEMBERS[1] in one.book._contacts)
        one.track(5, early)
        assert one.peers() == []
        assert (one.version_of(MEMBERS[1]), one.silence_s(MEMBERS[1])) == (None, None), "guests come under any keys"
        assert MEMBERS[1] not in one.book._contacts
        await until(lambda: two.book._contacts[MEMBERS[0]].failures >= 2, "two more attempts")
        assert one.peers() == []
