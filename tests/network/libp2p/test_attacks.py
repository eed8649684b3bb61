"""A connected member sends what it likes: the process lives, memory is bounded, and the member is blamed.

Each of these ends the process, or costs it a limit for ever, where the guard that is named in decision 10 is missing.
"""

import logging
import re
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from libp2p.custom_types import TProtocol
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.yamux.yamux import FLAG_SYN, TYPE_WINDOW_UPDATE, YAMUX_HEADER_FORMAT
from libp2p.utils import encode_uvarint, encode_varint_prefixed
from multiaddr import Multiaddr

from fedchain.chain.encoding import encode
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.bounds import JUDGEMENTS_MAX, RPC_SIZE_MAX, BoundedQueue, message_id
from fedchain.network.libp2p.gossip import MESSAGES_MAX
from fedchain.network.libp2p.identity import peer_id
from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.libp2p.streams import FrameReader
from fedchain.network.limits import BLAME_MALFORMED, Limits
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    GetContent,
    Message,
    PostMessage,
    Status,
    VoteMessage,
    encode_message,
)
from fedchain.network.verdict import Verdict
from fedchain.testing.networks import gossip
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.network.real import (
    ADDRESSES,
    GOSSIP,
    KEYS,
    LIMITS,
    MEMBERS,
    MESSAGES,
    TOPIC,
    Attacker,
    Inbox,
    attacker,
    meshed,
    on_trio,
    peer,
    until,
    works,
)

ATTACKER = KEYS[9]
ONE_ANSWER = Limits(redial_min_s=0.1, peers_wanted=0, answer_bytes_per_s=0.001, answer_bytes_burst=1.0)
"""Each neighbour can pay for one answer."""
HASTY = Limits(redial_min_s=0.1, redial_max_s=0.5, peers_wanted=0, frame_timeout_s=0.3, idle_timeout_s=0.5)


def blame_of(network: Libp2pNetwork, member: PublicKey = ATTACKER.public_key) -> float:
    conduct = network.gate._conduct.get(member)
    return conduct.blame if conduct is not None else 0.0


def swarm(network: Libp2pNetwork) -> Any:
    """The library's connections."""
    return network.host.get_network()


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def said(data: bytes, **fields: Any) -> rpc_pb2.Message:
    """A gossip message, with ``fields`` that may have no place in it."""
    return rpc_pb2.Message(**{"data": data, "topicIDs": [TOPIC], **fields})


def post(number: int) -> bytes:
    """One of many different posts."""
    return encode_message(PostMessage(gossip().post, number.to_bytes(8, "big")))


def rpc(*messages: rpc_pb2.Message) -> bytes:
    return encode_varint_prefixed(rpc_pb2.RPC(publish=messages).SerializeToString())


POST = encode_message(gossip())
SUBSCRIPTIONS = [rpc_pb2.RPC.SubOpts(subscribe=True, topicid=f"topic {number}") for number in range(50_000)]

HELLO = Status(0, bytes(32), b"", (), (), None)

MALFORMED: dict[str, tuple[TProtocol, bytes]] = {
    "no protobuf": (GOSSIP, encode_varint_prefixed(b"\xff" * 40)),
    "a gossip frame without end": (GOSSIP, b"\xff" * 40),
    "a gossip frame that is too large": (GOSSIP, encode_uvarint(RPC_SIZE_MAX + 1)),
    "more messages than a frame may have": (GOSSIP, rpc(*[rpc_pb2.Message()] * (MESSAGES_MAX + 1))),
    "an author": (GOSSIP, rpc(said(POST, from_id=peer_id(MEMBERS[9]).to_bytes()))),
    "an author without a name": (GOSSIP, rpc(said(POST, from_id=b""))),
    "a garbage author": (GOSSIP, rpc(said(POST, from_id=b"\x00\x24" + bytes(900_000)))),
    "a sequence number": (GOSSIP, rpc(said(POST, seqno=bytes(8)))),
    "a key": (GOSSIP, rpc(said(POST, key=b"garbage"))),
    "a signature": (GOSSIP, rpc(said(POST, signature=bytes(64)))),
    "gossip that is no message": (GOSSIP, rpc(said(b"garbage"))),
    "gossip of a kind that is not gossip": (GOSSIP, rpc(said(encode_message(HELLO)))),
    "gossip that is too large": (GOSSIP, rpc(said(bytes(LIMITS.gossip_size_max + 1)))),
    "no message": (MESSAGES, framed(b"garbage")),
    "a message that is not canonical": (
        MESSAGES,
        framed(b"\xdc\x00\x02" + encode_message(GetContent(bytes(32), 0))[1:]),
    ),
    "a frame that is too large": (MESSAGES, (MESSAGE_SIZE_MAX + 1).to_bytes(4, "big")),
    "the largest length": (MESSAGES, b"\xff" * 4),
    "no addresses": (ADDRESSES, framed(b"garbage")),
    "too many addresses": (ADDRESSES, framed(encode(["1.0", [[bytes(32), []]] * 17]))),
    "a version that steers a terminal": (ADDRESSES, framed(encode(["\x1b[2J", []]))),
    "a question that is too large": (ADDRESSES, b"\xff" * 4),
}


@on_trio
async def test_malformed_bytes_are_held_against_their_sender_and_hurt_nobody() -> None:
    async with peer(0) as network, attacker(network) as bad:
        inbox = Inbox(network)
        for name, (protocol, data) in MALFORMED.items():
            network.gate._conduct.clear()
            with suppress(Exception):  # it may be cut off while it writes
                await bad.send(protocol, data)
            await until(lambda: blame_of(network) > 0, f"blame for {name}")
            assert bad.is_connected(), name
        assert inbox.messages == []
        await works(network)


@pytest.mark.parametrize("protocol", [GOSSIP, MESSAGES])
@on_trio
async def test_whoever_goes_on_is_disconnected_and_banned(protocol: TProtocol) -> None:
    garbage = {GOSSIP: encode_varint_prefixed(b"\xff" * 40), MESSAGES: framed(b"garbage") * 100}[protocol]
    async with peer(0) as network, attacker(network) as bad:
        for _ in range(int(LIMITS.blame_max / BLAME_MALFORMED) + 1):
            try:
                await bad.send(protocol, garbage)
            except Exception:
                break
        await until(lambda: not network.peers())
        await until(lambda: not bad.is_connected())
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever libp2p makes of a closed connection
            async with attacker(network):
                pass
        await works(network)


HARMLESS: dict[str, tuple[TProtocol, bytes]] = {
    "an empty frame": (GOSSIP, b"\x00"),
    "another topic": (GOSSIP, rpc(said(POST, topicIDs=["other"]))),
    "two topics": (GOSSIP, rpc(said(POST, topicIDs=[TOPIC, TOPIC]))),
    "many subscriptions": (
        GOSSIP,
        encode_varint_prefixed(rpc_pb2.RPC(subscriptions=SUBSCRIPTIONS).SerializeToString()),
    ),
    "a garbage record": (GOSSIP, encode_varint_prefixed(rpc_pb2.RPC(senderRecord=b"garbage").SerializeToString())),
    "a keepalive": (MESSAGES, bytes(4)),
}


@on_trio
async def test_what_is_of_no_use_is_ignored() -> None:
    async with peer(0) as network, attacker(network) as bad:
        inbox = Inbox(network)
        for number, (name, (protocol, data)) in enumerate(HARMLESS.items()):
            stream = await bad.send(protocol, data)
            # A message that follows on the same stream shows that the frame was read.
            await stream.write(rpc(said(post(number))) if protocol == GOSSIP else framed(post(number)))
            await until(lambda number=number: len(inbox.messages) > number, f"a message behind {name}")  # type: ignore[misc]
        assert [sender for sender, _ in inbox.heard] == [ATTACKER.public_key] * len(HARMLESS)
        assert [encode_message(message) for message in inbox.messages] == [
            post(place) for place in range(len(HARMLESS))
        ]
        assert blame_of(network) == 0
        assert set(network.pubsub.peer_topics) <= {TOPIC}
        await works(network)


@on_trio
async def test_control_messages_about_other_topics_leave_nothing_behind() -> None:
    control = rpc_pb2.ControlMessage()
    for number in range(5_000):
        control.prune.add(topicID=f"topic {number}", backoff=2**60)
        control.graft.add(topicID=f"topic {number}")
        control.ihave.add(topicID=f"topic {number}", messageIDs=[b"id"])
    async with peer(0) as network, attacker(network) as bad:
        inbox = Inbox(network)
        stream = await bad.send(GOSSIP, encode_varint_prefixed(rpc_pb2.RPC(control=control).SerializeToString()))
        await stream.write(rpc(said(POST)))
        await until(lambda: inbox.messages)
        router = network.router
        assert len(router.back_off) <= 1
        for peers in (router.graft_flood_tracking, router.ihave_message_limits):
            assert all(len(topics) <= 1 for topics in peers.values())


@on_trio
async def test_what_is_hidden_in_a_message_is_not_passed_on() -> None:
    async with peer(0) as one, peer(1, one) as two, attacker(one) as bad:
        await meshed(one, two)
        Inbox(one)
        inbox, frames = Inbox(two), list[int]()
        original = two.pubsub._on_frame

        async def weigh(peer_id: Any, peer: PublicKey, frame: bytes) -> None:
            frames.append(len(frame))
            await original(peer_id, peer, frame)

        two.pubsub._on_frame = weigh  # type: ignore[method-assign]
        hidden = rpc_pb2.Message.FromString(
            said(POST).SerializeToString() + b"\xfa\x3f" + encode_varint_prefixed(bytes(100_000))
        )
        await bad.send(GOSSIP, rpc(hidden))
        await until(lambda: inbox.messages)
        assert max(frames) < 10_000


@on_trio
async def test_what_another_says_in_our_name_is_heard() -> None:
    # The node knows its key's posts, and sees by others that somebody else uses the key too.
    post = ChainBuilder(genesis(1)).posts(payload_of=3)[0]
    own = PostMessage(post, b"a twin's")
    async with peer(0) as network, attacker(network) as bad:
        assert post.sender == MEMBERS[0]
        inbox = Inbox(network)
        await bad.send(GOSSIP, rpc(said(encode_message(own))))
        await until(lambda: inbox.messages)
        assert inbox.heard == [(ATTACKER.public_key, own)]


@on_trio
async def test_our_own_gossip_does_not_come_back() -> None:
    async with peer(0) as network, attacker(network) as bad:
        inbox = Inbox(network)
        network.publish(gossip())
        await until(lambda: network.counters.messages_out)
        await bad.send(GOSSIP, rpc(said(POST), said(post(1))))
        await until(lambda: inbox.messages)
        assert [encode_message(message) for message in inbox.messages] == [post(1)]


@pytest.mark.parametrize("verdict", [Verdict.ACCEPT, Verdict.REJECT])
@on_trio
async def test_what_was_judged_is_not_judged_again_whoever_says_it(verdict: Verdict) -> None:
    async with peer(0) as network, attacker(network) as bad, attacker(network, KEYS[8]) as other:
        inbox = Inbox(network, verdict)
        await bad.send(GOSSIP, rpc(said(POST), said(POST)))
        await until(lambda: inbox.messages)
        for number, sender in enumerate((bad, other, bad)):
            await sender.send(GOSSIP, rpc(said(POST), said(post(number))))
            await until(lambda number=number: len(inbox.messages) == number + 2)  # type: ignore[misc]
        assert [encode_message(message) for message in inbox.messages] == [POST, *map(post, range(3))]
        assert blame_of(network) == 0, "who passes something on did not write it"


@on_trio
async def test_what_was_ignored_is_judged_again_a_few_times_for_each_neighbour() -> None:
    async with peer(0) as network, attacker(network) as bad, attacker(network, KEYS[8]) as other:
        inbox = Inbox(network, Verdict.IGNORE)
        streams = [await sender.open(GOSSIP) for sender in (bad, other)]
        for number, stream in enumerate(streams):
            await stream.write(rpc(*[said(POST)] * 100, said(post(number))))
            await until(lambda number=number: len(inbox.messages) == (number + 1) * (JUDGEMENTS_MAX + 1))  # type: ignore[misc]
        assert inbox.messages.count(gossip()) == 2 * JUDGEMENTS_MAX
        assert blame_of(network) == 0


@on_trio
async def test_what_was_ignored_may_be_accepted_later_and_is_passed_on_then() -> None:
    async with peer(0) as one, peer(1, one) as two, attacker(one) as bad:
        await meshed(one, two)
        verdicts, judged, inbox = [Verdict.IGNORE, Verdict.ACCEPT], list[Message](), Inbox(two)

        def receive(sender: PublicKey, message: Message) -> Verdict:
            judged.append(message)
            return verdicts[len(judged) - 1]

        one.attach(receive)
        stream = await bad.send(GOSSIP, rpc(said(POST)))
        await until(lambda: judged)
        assert inbox.messages == []
        await stream.write(rpc(said(POST), said(POST)))
        await until(lambda: inbox.messages)
        assert (judged, inbox.messages) == ([gossip()] * 2, [gossip()])


@on_trio
async def test_a_neighbour_is_asked_for_what_it_offers_and_we_would_judge() -> None:
    async with peer(0) as network, attacker(network) as bad:
        inbox, asked = Inbox(network), list[bytes]()

        async def read(stream: Any) -> None:
            reader = FrameReader(stream, RPC_SIZE_MAX, LIMITS)
            while True:
                frame = rpc_pb2.RPC.FromString(await reader.varint_frame())
                asked.extend(name for iwant in frame.control.iwant for name in iwant.messageIDs)

        bad.host.set_stream_handler(GOSSIP, read)
        await until(lambda: network.pubsub.peer_queues, "a gossip stream")
        stream = await bad.send(GOSSIP, rpc(said(POST)))
        await until(lambda: inbox.messages)
        names, control = [message_id(POST), message_id(post(1)), b"short", bytes(21)], rpc_pb2.ControlMessage()
        control.ihave.add(topicID=TOPIC, messageIDs=names)
        await stream.write(encode_varint_prefixed(rpc_pb2.RPC(control=control).SerializeToString()))
        await until(lambda: asked)
        assert asked == [message_id(post(1))]


@on_trio
async def test_who_missed_a_message_gets_it_by_asking() -> None:
    async with peer(0) as network, attacker(network) as bad:
        given = list[rpc_pb2.Message]()

        async def read(stream: Any) -> None:
            reader = FrameReader(stream, RPC_SIZE_MAX, LIMITS)
            while True:
                given.extend(rpc_pb2.RPC.FromString(await reader.varint_frame()).publish)

        network.publish(gossip())
        await until(lambda: network.counters.messages_out)
        bad.host.set_stream_handler(GOSSIP, read)
        await until(lambda: network.pubsub.peer_queues, "a gossip stream")
        control = rpc_pb2.ControlMessage()
        control.iwant.add(messageIDs=[message_id(POST)])
        await bad.send(GOSSIP, encode_varint_prefixed(rpc_pb2.RPC(control=control).SerializeToString()))
        await until(lambda: given)
        assert given == [rpc_pb2.Message(data=POST, topicIDs=[TOPIC])], "without author, counter, signature or key"


@pytest.mark.parametrize("way", ["gossip", "message"])
@on_trio
async def test_a_receiver_that_fails_ends_nothing_not_even_the_stream(way: str) -> None:
    async with peer(0) as network, attacker(network) as bad:
        failures = list[Message]()

        def fail(sender: PublicKey, message: Message) -> Verdict:
            failures.append(message)
            raise RuntimeError("a fault of ours")

        network.attach(fail)
        stream = await bad.open(GOSSIP if way == "gossip" else MESSAGES)
        for number in range(3):
            await stream.write(rpc(said(post(number))) if way == "gossip" else framed(POST))
        await until(lambda: len(failures) == 3)
        assert blame_of(network) == 0
        await works(network)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """All log lines, whatever earlier tests have used up."""
    monkeypatch.setattr("fedchain.network.libp2p.log.LINES_PER_MINUTE", 1_000_000)
    return caplog


def test_a_watcher_that_fails_ends_nothing(lines: pytest.LogCaptureFixture) -> None:
    def fail(who: PublicKey, is_connected: bool) -> None:
        raise RuntimeError("a fault of ours")

    @on_trio
    async def watch() -> None:
        async with peer(0) as network, peer(1, network):
            await until(network.peers)
            network.watch(fail)
            await works(network)

    watch()
    assert len([line for line in lines.messages if "could not be handled" in line]) >= 3


def _unreached(lines: pytest.LogCaptureFixture) -> list[str]:
    """Lines about members that cannot be reached; a busy machine may say more."""
    return [line for line in lines.messages if "cannot be reached" in line]


def test_who_cannot_be_reached_is_named_with_the_reason_ever_more_seldom(lines: pytest.LogCaptureFixture) -> None:
    place = "/ip4/127.0.0.1/tcp/9"

    @on_trio
    async def dial() -> None:
        async with peer(0, f"{place}/p2p/{address(MEMBERS[1])}"):
            await until(lambda: len(_unreached(lines)) >= 3, "three lines")

    dial()
    pattern = rf"{address(MEMBERS[1])} cannot be reached at {place} \(attempt (\d+), the next in \d+ s\): .*[Rr]efused"
    found = [re.fullmatch(pattern, line) for line in _unreached(lines)]
    assert [match and int(match[1]) for match in found] == [1, 2, 4]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "something answers there, but no node, or one that takes no more connections"),
        (b"", "something answers there, but no node, or one that takes no more connections"),
        (None, "another key answers there"),
    ],
    ids=["another program", "one that ends it", "another member"],
)
def test_who_answers_in_a_member_s_place_is_told(
    says: bytes | None, told: str, lines: pytest.LogCaptureFixture
) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.send_all(says or b"")
        await stream.send_eof()
        async for _ in stream:  # what is unread at the end would reset the connection, which is another reason
            pass

    @on_trio
    async def dial() -> None:
        async with trio.open_nursery() as nursery, peer(2) as other:
            place = other.listen_addresses()[0].partition("/p2p/")[0]
            if says is not None:
                listeners = await nursery.start(trio.serve_tcp, answer, 0)
                place = f"/ip4/127.0.0.1/tcp/{listeners[0].socket.getsockname()[1]}"
            async with peer(0, f"{place}/p2p/{address(MEMBERS[1])}"):
                await until(lambda: _unreached(lines), "a line")
            nursery.cancel_scope.cancel()

    dial()
    assert {line.partition("): ")[2] for line in _unreached(lines)} == {told}


def test_a_peer_that_nobody_lets_in_is_told_so(lines: pytest.LogCaptureFixture) -> None:
    @on_trio
    async def dial() -> None:
        async with peer(0, members=MEMBERS[:1]) as hub, peer(1, hub):
            await until(lambda: _unreached(lines), "a line")

    dial()
    (line,) = {line.partition("): ")[2] for line in _unreached(lines)}
    assert line == "it is there, and ends the connection: it may not let this key in"


def test_a_peer_that_comes_and_goes_is_worth_no_warning(lines: pytest.LogCaptureFixture) -> None:
    @on_trio
    async def come_and_go() -> None:
        async with peer(0) as one:
            async with peer(1, one) as two:
                await meshed(one, two)
                inbox = Inbox(two)
                one.publish(gossip())
                one.send(MEMBERS[1], gossip(2))
                await until(lambda: len(inbox.messages) == 2)
            await until(lambda: not one.peers())

    come_and_go()
    assert [record.message for record in lines.records if record.levelno >= logging.WARNING] == []


@on_trio
async def test_a_stream_handler_that_fails_ends_nothing() -> None:
    async with peer(0) as network, attacker(network) as bad:
        called = list[object]()

        async def fail(stream: object) -> None:
            called.append(stream)
            raise RuntimeError("a fault of ours")

        network.host.set_stream_handler(TProtocol("/test"), fail)
        with suppress(Exception):  # reset before it is agreed upon
            await bad.open(TProtocol("/test"))
        await until(lambda: called)
        await works(network)


@on_trio
async def test_a_mesh_that_fails_to_be_kept_ends_nothing() -> None:
    async with peer(0) as network:
        original, failed = network.router.mesh_heartbeat, list[bool]()

        def fail() -> Any:
            network.router.mesh_heartbeat = original  # type: ignore[method-assign]
            failed.append(True)
            raise RuntimeError("a fault of the library's")

        network.router.mesh_heartbeat = fail  # type: ignore[method-assign]
        await until(lambda: failed)
        await works(network)


@on_trio
async def test_a_neighbour_that_cannot_be_forgotten_ends_nothing() -> None:
    async with peer(0) as network:
        failed = list[bool]()

        def fail(peer_id: Any) -> None:
            failed.append(True)
            raise RuntimeError("a fault of the library's")

        network.router.remove_peer = fail  # type: ignore[method-assign]
        async with peer(1, network) as other:
            await meshed(network, other)
        await until(lambda: failed)
        await works(network)


@on_trio
async def test_gossip_is_offered_again_to_who_did_not_want_it() -> None:
    async with peer(0) as network, attacker(network) as late:
        wanted = list[object]()

        async def read(stream: object) -> None:
            wanted.append(stream)

        await until(lambda: network.pubsub.manager.is_running and network.peers())
        await trio.testing.wait_all_tasks_blocked(0.01)
        late.host.set_stream_handler(GOSSIP, read)
        await until(lambda: wanted, "a gossip stream")


@pytest.mark.long
@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x10\x00", framed(POST)[:-1]], ids=["1", "4", "most"])
@on_trio
async def test_half_a_frame_is_not_waited_for_long(data: bytes) -> None:
    async with peer(0, limits=HASTY) as network, attacker(network) as bad:
        await until(network.peers)
        await bad.send(MESSAGES, data)
        await until(lambda: not network.peers(), "a disconnection")
        await works(network)


@on_trio
async def test_half_a_gossip_frame_ends_the_stream() -> None:
    async with peer(0, limits=HASTY) as network, attacker(network) as bad:
        stream = await bad.send(GOSSIP, encode_uvarint(1_000) + bytes(10))
        with trio.fail_after(10):
            with pytest.raises(Exception):  # noqa: B017, PT011 - reset, in whatever way it is told
                await stream.read(1)
        await works(network)


@pytest.mark.parametrize("opens_a_stream", [False, True])
@on_trio
async def test_a_peer_that_says_nothing_is_gone(opens_a_stream: bool) -> None:
    async with peer(0, limits=HASTY) as network, attacker(network) as bad:
        await until(network.peers)
        if opens_a_stream:
            await bad.open(MESSAGES)
        await until(lambda: not network.peers(), "a disconnection")


@pytest.mark.long
@on_trio
async def test_a_peer_that_is_there_but_has_nothing_to_say_is_kept() -> None:
    quiet = Limits(redial_min_s=0.1, peers_wanted=0, idle_timeout_s=1.5, keepalive_s=0.05)
    async with peer(0, limits=quiet) as one, peer(1, one, limits=quiet) as two:
        gone = list[bool]()
        await until(lambda: one.peers() and two.peers())
        one.watch(lambda who, is_connected: None if is_connected else gone.append(True))
        sent = one.counters.bytes_out
        await until(lambda: one.counters.bytes_out >= sent + 40 * 4, "keepalives for longer than the time-out")
        assert not gone


@on_trio
async def test_a_flood_is_slowed_down_to_its_budget() -> None:
    rate, burst = 100.0, 50.0
    limits = Limits(redial_min_s=0.1, peers_wanted=0, messages_per_s=rate, messages_burst=burst)
    async with peer(0, limits=limits) as network, attacker(network) as bad, trio.open_nursery() as nursery:
        inbox, begun_s = Inbox(network), trio.current_time()
        nursery.start_soon(bad.send, MESSAGES, 20_000 * framed(encode_message(GetContent(bytes(32), 0))))
        await until(lambda: len(inbox.messages) >= burst + 100)
        most = burst + rate * (trio.current_time() - begun_s)
        assert len(inbox.messages) <= most
        assert network.counters.dropped <= most, "what is not read is not dropped"
        await works(network)
        assert (bad.is_connected(), blame_of(network)) == (True, 0.0)
        nursery.cancel_scope.cancel()


@on_trio
async def test_questions_for_addresses_are_paid_for() -> None:
    limits = Limits(redial_min_s=0.1, peers_wanted=0, messages_per_s=0.001, messages_burst=3.0, exchange_interval_s=1e6)
    async with peer(0, limits=limits) as network, attacker(network) as bad:
        answers = 0
        for _ in range(6):
            with suppress(Exception):  # reset without an answer
                stream = await bad.send(ADDRESSES, framed(encode(["1.0", []])))
                answers += bool(await stream.read(100))
        assert answers == 3


@on_trio
async def test_addresses_are_an_answer_and_cost_what_answers_cost() -> None:
    async with peer(0, limits=ONE_ANSWER) as network, attacker(network) as bad:
        answers = 0
        for _ in range(4):
            with suppress(Exception):  # reset without an answer
                stream = await bad.send(ADDRESSES, framed(encode(["1.0", []])))
                answers += bool(await stream.read(100))
        assert answers == 1
        assert blame_of(network) == 0


@on_trio
async def test_many_messages_in_one_gossip_frame_are_paid_for_each() -> None:
    limits = Limits(redial_min_s=0.1, peers_wanted=0, messages_per_s=0.001, messages_burst=20.0, blame_max=1e9)
    async with peer(0, limits=limits) as network, attacker(network) as bad:
        inbox = Inbox(network)
        messages = [said(post(number)) for number in range(300)]
        await bad.send(GOSSIP, rpc(*messages))
        await until(lambda: blame_of(network) > 20)
        assert len(inbox.messages) == 19  # the stream cost one


@on_trio
async def test_a_frame_of_whoever_is_banned_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(redial_min_s=0.1, peers_wanted=0, messages_per_s=0.001, messages_burst=20.0, blame_max=5.0)
    async with peer(0, limits=limits) as network, attacker(network) as bad:
        original, asked = network.gate.pays, list[float]()

        def pays(member: PublicKey, now_s: float) -> bool:
            asked.append(now_s)
            return original(member, now_s)

        monkeypatch.setattr(network.gate, "pays", pays)
        with suppress(Exception):  # it may be cut off while it writes
            await bad.send(GOSSIP, rpc(*[rpc_pb2.Message()] * MESSAGES_MAX))
        await until(lambda: not network.peers(), "a disconnection")
        assert len(asked) < 200


async def read_nothing(stream: Any) -> None:
    """Hold a stream open."""
    await trio.sleep_forever()


@asynccontextmanager
async def gossiped_to(limits: Limits) -> AsyncIterator[tuple[Attacker, Inbox]]:
    """An attacker that a peer sends its gossip, and what the peer takes."""
    async with peer(0, limits=limits) as network, attacker(network) as bad:
        inbox = Inbox(network)
        bad.host.set_stream_handler(GOSSIP, read_nothing)
        await until(lambda: network.pubsub.peer_queues, "a gossip stream")
        yield bad, inbox


def pushed_from_now_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages in each frame of gossip that will wait for a neighbour."""
    pushed, original = list[int](), BoundedQueue.push

    def push(queue: BoundedQueue, frame: rpc_pb2.RPC, priority: bool = False) -> bool:
        pushed.append(len(frame.publish))
        return original(queue, frame, priority)

    monkeypatch.setattr(BoundedQueue, "push", push)
    return pushed


@on_trio
async def test_recent_gossip_is_given_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gossiped_to(LIMITS) as (bad, inbox):
        pushed = pushed_from_now_on(monkeypatch)
        wanted, control = said(POST), rpc_pb2.ControlMessage()
        control.iwant.add(messageIDs=[message_id(POST)] * 100)
        control.iwant.add(messageIDs=control.iwant[0].messageIDs)
        stream = await bad.send(GOSSIP, rpc(wanted))
        for number in range(3):
            await stream.write(encode_varint_prefixed(rpc_pb2.RPC(control=control).SerializeToString()))
            await stream.write(rpc(said(post(number))))
            await until(lambda number=number: len(inbox.messages) == number + 2)  # type: ignore[misc]
        assert sum(pushed) == 1


@on_trio
async def test_recent_gossip_costs_a_neighbour_that_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gossiped_to(ONE_ANSWER) as (bad, inbox):
        stream = await bad.send(GOSSIP, rpc(*[said(post(number)) for number in range(5)]))
        await until(lambda: len(inbox.messages) == 5)
        pushed, control = pushed_from_now_on(monkeypatch), rpc_pb2.ControlMessage()
        control.iwant.add(messageIDs=[message_id(post(number)) for number in range(5)])
        await stream.write(encode_varint_prefixed(rpc_pb2.RPC(control=control).SerializeToString()))
        await stream.write(rpc(said(POST)))
        await until(lambda: len(inbox.messages) == 6)
        assert sum(pushed) == 1


@on_trio
async def test_a_neighbour_is_asked_into_the_mesh_again_though_it_names_a_pause_without_end() -> None:
    async with peer(0) as network, attacker(network) as bad:
        inbox, router, control = Inbox(network), network.router, rpc_pb2.ControlMessage()
        control.prune.add(topicID=TOPIC, backoff=2**60)
        stream = await bad.send(GOSSIP, encode_varint_prefixed(rpc_pb2.RPC(control=control).SerializeToString()))
        await stream.write(rpc(said(POST)))
        await until(lambda: inbox.messages)
        assert router.back_off[TOPIC][bad.host.get_id()] <= trio.current_time() + router.prune_back_off


@on_trio
async def test_recent_gossip_costs_a_neighbour_that_subscribes_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gossiped_to(ONE_ANSWER) as (bad, inbox):
        stream = await bad.send(GOSSIP, rpc(said(POST)))
        await until(lambda: inbox.messages)
        pushed = pushed_from_now_on(monkeypatch)
        again = rpc_pb2.RPC()
        again.subscriptions.add(subscribe=False, topicid=TOPIC)
        again.subscriptions.add(subscribe=True, topicid=TOPIC)
        for number in range(5):
            await stream.write(encode_varint_prefixed(again.SerializeToString()))
            await stream.write(rpc(said(post(number))))
            await until(lambda number=number: len(inbox.messages) == number + 2)  # type: ignore[misc]
            await trio.testing.wait_all_tasks_blocked()
        assert sum(pushed) == 1


@pytest.mark.parametrize("protocol", [GOSSIP, MESSAGES])
@on_trio
async def test_a_peer_is_read_on_one_stream_of_a_kind(protocol: TProtocol) -> None:
    # Else the largest frame could wait on each of many streams, all but its last byte.
    whole = rpc(said(POST)) if protocol == GOSSIP else framed(POST)
    async with peer(0) as network, attacker(network) as bad:
        inbox = Inbox(network)
        old = await bad.send(protocol, whole[:-1])
        new = await bad.send(protocol, whole)
        await until(lambda: inbox.messages)
        with trio.fail_after(10):
            with pytest.raises(Exception):  # noqa: B017, PT011 - reset, in whatever way it is told
                await old.read(1)
        await new.write(framed(POST) if protocol == MESSAGES else rpc(said(post(1))))
        await until(lambda: len(inbox.messages) == 2)


@pytest.mark.parametrize("protocol", [GOSSIP, MESSAGES])
@on_trio
async def test_another_stream_does_not_end_the_wait_for_what_a_peer_owes(protocol: TProtocol) -> None:
    # Else a member that opens a stream for each message would have all of our time.
    async with peer(0) as network, attacker(network) as bad:
        inbox = Inbox(network)
        old = await bad.send(protocol, rpc(said(post(0))) if protocol == GOSSIP else framed(post(0)))
        await until(lambda: inbox.messages)
        network.gate.charge(ATTACKER.public_key, cpu_s=100.0, now_s=trio.current_time())  # as if that had taken so long
        await bad.send(protocol, rpc(said(post(1))) if protocol == GOSSIP else framed(post(1)))
        with trio.fail_after(10), suppress(Exception):  # it is reset once the new one is there
            await old.read(1)
        async with peer(8, network) as good:
            good.watch(lambda who, is_connected: good.send(who, HELLO) if is_connected else None)
            await until(lambda: inbox.heard[-1] == (MEMBERS[8], HELLO), "a message from a good peer")
        assert [sender for sender, _ in inbox.heard].count(ATTACKER.public_key) == 1
        assert bad.is_connected()


@pytest.mark.parametrize("protocol", [GOSSIP, MESSAGES])
@on_trio
async def test_bytes_of_a_frame_that_never_ends_are_paid_for(protocol: TProtocol) -> None:
    # Else a member that begins the largest frame on one stream after the other would send as much as it likes.
    limits = Limits(redial_min_s=0.1, peers_wanted=0, bytes_per_s=1.0, bytes_burst=1_000.0)
    half = (encode_uvarint(10_000) if protocol == GOSSIP else (10_000).to_bytes(4, "big")) + bytes(9_000)
    async with peer(0, limits=limits) as network, attacker(network) as bad:
        await bad.send(protocol, half)
        await until(lambda: network.gate.pause_s(ATTACKER.public_key, trio.current_time()) > 7_000.0)
        assert network.gate.pause_s(ATTACKER.public_key, trio.current_time()) < 9_100.0


@on_trio
async def test_time_for_new_gossip_alone_is_no_part_of_what_liars_could_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer(0) as network, attacker(network) as bad:
        inbox, charged, original = Inbox(network), list[bool](), network.gate.charge

        def charge(peer: PublicKey, *, is_new: bool = False, **given: Any) -> None:
            charged.append(is_new)
            original(peer, is_new=is_new, **given)

        monkeypatch.setattr(network.gate, "charge", charge)
        stream = await bad.send(GOSSIP, rpc(said(POST)))
        await until(lambda: inbox.messages)
        await stream.write(rpc(said(POST), said(post(1))))
        await until(lambda: len(inbox.messages) == 2)
        await until(lambda: sum(charged) == 2)
        assert charged.count(False) > 2, "bytes, and what was said before"


@on_trio
async def test_only_a_peers_own_addresses_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer(0) as network, attacker(network) as bad:
        told = list[object]()
        monkeypatch.setattr(network.book, "add_told", lambda *given, **_: told.append(given))
        stream = await bad.send(ADDRESSES, framed(encode(["1.0", [[bytes(32), ["/ip4/127.0.0.1/tcp/1"]]] * 16])))
        assert await stream.read(1)
        assert len(told) == 1


@on_trio
async def test_streams_are_counted() -> None:
    async with peer(0) as network, attacker(network) as bad:
        await until(network.peers)
        (connection,) = network.host.get_network().get_connections()
        opened: list[Any] = []

        async def open_one() -> None:
            with suppress(Exception):  # refused, which is what is looked for
                opened.append(await bad.open(MESSAGES))

        async with trio.open_nursery() as nursery:
            for _ in range(3 * LIMITS.streams_per_peer_max):
                nursery.start_soon(open_one)
        assert len(connection.get_streams()) <= LIMITS.streams_per_peer_max + 1
        assert len(opened) <= LIMITS.streams_per_peer_max
        await works(network)


@on_trio
async def test_streams_are_paid_for() -> None:
    limits = Limits(redial_min_s=0.1, peers_wanted=0, messages_per_s=0.001, messages_burst=20.0, blame_max=2.0)
    async with peer(0, limits=limits) as network, attacker(network) as bad:
        await until(network.peers)
        connection: Any = bad.host.get_network().get_connections()[0]
        with suppress(Exception):  # it is cut off
            for number in range(500):
                header = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_WINDOW_UPDATE, FLAG_SYN, 2 * number + 1_001, 0)
                await connection.muxed_conn._write_frame(header)
        await until(lambda: not network.peers(), "a disconnection")


@on_trio
async def test_a_socket_that_never_shakes_hands_is_closed() -> None:
    async with peer(0, limits=Limits(handshake_timeout_s=0.2)) as network:
        address = Multiaddr(network.listen_addresses()[0])
        stream = await trio.open_tcp_stream("127.0.0.1", int(str(address.value_for_protocol("tcp"))))
        with trio.fail_after(10):
            while await stream.receive_some():
                pass
        limiter = swarm(network)._inbound_limiter
        await until(lambda: limiter.borrowed_tokens == 0, "a free place")


@on_trio
async def test_garbage_on_a_socket_ends_nothing() -> None:
    async with peer(0, limits=Limits(handshake_timeout_s=0.5)) as network:
        address = Multiaddr(network.listen_addresses()[0])
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x13/multistream/1.0.0\n\x07/noise\n" + b"\xff" * 200, bytes(5000)):
            stream = await trio.open_tcp_stream("127.0.0.1", int(str(address.value_for_protocol("tcp"))))
            await stream.send_all(data)
            await stream.aclose()
        await works(network)


def test_votes_are_gossip_too() -> None:
    builder = ChainBuilder(genesis(2))
    vote = VoteMessage(builder.certificate(builder.extend().hash).votes[0])
    heard: list[Message] = []

    @on_trio
    async def travel() -> None:
        async with peer(0) as one, peer(1, one) as two:
            await meshed(one, two)
            inbox = Inbox(two)
            one.publish(vote)
            await until(lambda: inbox.messages)
            heard.extend(inbox.messages)

    travel()
    assert heard == [vote]


@on_trio
async def test_nothing_is_kept_of_guests_that_may_connect_no_more() -> None:
    """A liar may bring another one at each height, which speaks gossip and hears none."""
    async with peer(0, members=MEMBERS[:2]) as victim:
        router, name = victim.router, peer_id(MEMBERS[9])
        frame = rpc_pb2.RPC()
        frame.control.graft.add(topicID=TOPIC)
        frame.control.prune.add(topicID=TOPIC, backoff=60)
        victim.track(1, [*MEMBERS[:2], MEMBERS[9]], guests=MEMBERS[9:])
        async with attacker(victim) as bad:
            await bad.send(GOSSIP, encode_varint_prefixed(frame.SerializeToString()))
            await until(lambda: name in router.back_off.get(TOPIC, ()), "it is kept")
            await trio.sleep(1.5 * router.heartbeat_interval)  # which looks at its score
            victim.track(2, MEMBERS[:2])
            assert victim.peers() == []
            await router.handle_rpc(frame, name)  # was under way
        parts = {**vars(router), **vars(router.scorer), **router.back_off, **router.mesh}
        assert [part for part, held in parts.items() if isinstance(held, dict | set) and name in held] == []
