"""A peer that says nothing is gone, and our own delay is not its silence; large messages delay nobody else's."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p import messenger as messenger_module
from fedchain.network.libp2p.identity import peer_id
from fedchain.network.libp2p.messenger import LOOKS, SMALL_SIZE_MAX, Counters, Messenger
from fedchain.network.libp2p.oversight import Oversight
from fedchain.network.libp2p.streams import LENGTH_SIZE, Outbox
from fedchain.network.limits import Limits
from fedchain.network.messages import (
    CHUNK_SIZE,
    Chunk,
    GetContent,
    Message,
    Payloads,
    decode_message,
    encode_message,
)
from fedchain.network.verdict import Verdict
from tests.support.network.real import KEYS
from tests.support.network.streamed import FakeStream


class StuckHost:
    """A host whose streams take nothing."""

    def __init__(self) -> None:
        self.opened_s = list[float]()

    def set_stream_handler(self, protocol: str, handler: Callable[..., Any]) -> None:
        pass

    async def new_stream(self, peer: object, protocols: object) -> object:
        async def write(data: bytes) -> None:
            await trio.sleep_forever()

        self.opened_s.append(trio.current_time())
        return SimpleNamespace(write=write, reset=trio.lowlevel.checkpoint)


def test_a_stream_that_takes_nothing_is_opened_anew_in_time() -> None:
    host, limits = StuckHost(), Limits()

    async def main() -> None:
        oversight: Any = SimpleNamespace(gate=None, limits=limits, blame=None, hearing=None)
        outbox, given = Outbox(limits), {"counters": Counters(), "receive": None, "disconnect": None}
        messenger = Messenger(host, "protocol", oversight, **given)  # type: ignore[arg-type]
        for number in range(3):
            outbox.put(GetContent(bytes(32), number))
        with trio.move_on_after(10 * limits.frame_timeout_s):
            await messenger._write(KEYS[0].public_key, outbox)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    first_s, second_s, *_ = host.opened_s
    assert second_s - first_s == pytest.approx(limits.frame_timeout_s + limits.redial_min_s)


class NoHost:
    """A host that opens no stream."""

    def set_stream_handler(self, protocol: str, handler: Callable[..., Any]) -> None:
        pass

    async def new_stream(self, peer: object, protocols: object) -> None:
        await trio.sleep_forever()


def silences(heard_s: Callable[[], float | None], jumps: dict[int, float] | None = None) -> float:
    """How long somebody who is heard at times is served before it is disconnected; the loop is stuck in between."""
    clock, ended = trio.testing.MockClock(autojump_threshold=0), list[float]()

    async def main() -> None:
        begun_s = trio.current_time()

        def disconnect(who: PublicKey) -> None:
            ended.append(trio.current_time() - begun_s)

        messenger = Messenger(
            NoHost(),  # type: ignore[arg-type]
            "protocol",  # type: ignore[arg-type]
            Oversight(
                gate=None,  # type: ignore[arg-type]
                limits=Limits(),
                blame=lambda *given: None,
                hearing=SimpleNamespace(last_s=lambda who: heard_s()),  # type: ignore[arg-type]
            ),
            counters=Counters(),
            receive=lambda *given: None,  # type: ignore[arg-type]
            disconnect=disconnect,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(messenger.serve, KEYS[0].public_key, Outbox(Limits()))
            for at_s, jump_s in (jumps or {}).items():
                await trio.sleep_until(begun_s + at_s)
                clock.jump(jump_s)
            while not ended:
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
    return ended[0]


def test_who_says_nothing_is_gone_after_the_time_out() -> None:
    timeout_s = Limits().idle_timeout_s
    assert silences(lambda: 1.0) == pytest.approx(timeout_s)
    assert silences(lambda: None) == pytest.approx(timeout_s)
    heard = [float(number) for number in range(20)]
    assert silences(lambda: heard.pop() if len(heard) > 1 else 0.0) == pytest.approx(timeout_s * (1 + 19 / LOOKS))


def test_who_is_slow_and_not_silent_is_not_gone() -> None:
    """It is heard between every second look and the next."""
    heard = [float(number // 2) for number in range(40)]
    served_s = silences(lambda: heard.pop() if len(heard) > 1 else 0.0)
    assert served_s == pytest.approx(Limits().idle_timeout_s * (1 + 38 / LOOKS))


def test_nobody_is_gone_because_our_own_loop_was_stuck() -> None:
    timeout_s = Limits().idle_timeout_s
    served_s = silences(lambda: 1.0, {1: 10 * timeout_s})
    assert served_s >= 10 * timeout_s + timeout_s * (LOOKS - 2) / LOOKS


def test_a_peer_that_is_let_in_no_more_is_heard_no_further() -> None:
    """Frames that it sent before it was banned, or was a member no more, are at hand."""
    heard = list[Message]()

    def receive(peer: PublicKey, message: Message, size: int) -> Verdict:
        heard.append(message)
        return Verdict.PROGRESS

    async def rest(peer: PublicKey) -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        gate = SimpleNamespace(pays=lambda *given: True, admits=lambda *given: len(heard) < 2)
        note = lambda who, size: None  # noqa: E731 - as short as the others
        oversight: Any = SimpleNamespace(gate=gate, limits=Limits(), blame=None, note=note, rest=rest)
        given: dict[str, Any] = {"counters": Counters(), "receive": receive, "disconnect": None}
        messenger = Messenger(NoHost(), "protocol", oversight, **given)  # type: ignore[arg-type]
        data = encode_message(Chunk(bytes(32), 0, b""))
        stream: Any = FakeStream(*[len(data).to_bytes(LENGTH_SIZE, "big") + data] * 3)
        stream.muxed_conn = SimpleNamespace(peer_id=peer_id(KEYS[0].public_key))
        stream.reset = trio.lowlevel.checkpoint
        with trio.move_on_after(1):
            await messenger._read(stream)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(heard) == 2


def test_only_large_messages_are_read_beside_the_loop_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's certificate of all votes that fit takes most of a second, in which nobody else would be heard."""
    loop, threads, at_once, heard = threading.get_ident(), list[bool](), list[int](), list[Message]()
    under_way = 0

    def read(data: bytes) -> Message:
        nonlocal under_way
        is_beside = threading.get_ident() != loop
        threads.append(is_beside)
        under_way += is_beside
        at_once.append(under_way)
        time.sleep(0.01 * is_beside)
        under_way -= is_beside
        return decode_message(data)

    def receive(peer: PublicKey, message: Message, size: int) -> Verdict:
        assert threading.get_ident() == loop
        heard.append(message)
        return Verdict.ACCEPT

    async def main() -> list[float]:
        charged = list[float]()
        gate = SimpleNamespace(
            pays=lambda *given: True,
            admits=lambda *given: True,
            charge=lambda peer, *, cpu_s, now_s: charged.append(cpu_s),
        )

        async def rest(peer: PublicKey) -> None:
            await trio.lowlevel.checkpoint()

        def note(peer: PublicKey, size: int) -> None:
            pass

        oversight: Any = SimpleNamespace(gate=gate, limits=Limits(), blame=None, note=note, rest=rest)
        given: dict[str, Any] = {"counters": Counters(), "receive": receive, "disconnect": None}
        messenger = Messenger(NoHost(), "protocol", oversight, **given)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            for key in KEYS[:3]:
                frames = [len(data).to_bytes(LENGTH_SIZE, "big") + data for data in map(encode_message, said)]
                stream: Any = FakeStream(*frames)
                stream.muxed_conn = SimpleNamespace(peer_id=peer_id(key.public_key))
                stream.reset = trio.lowlevel.checkpoint
                nursery.start_soon(messenger._read, stream)
            with trio.fail_after(60):
                while len(charged) < 6:
                    await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        return charged

    monkeypatch.setattr(messenger_module, "decode_message", read)
    said: list[Message] = [Payloads(1, (bytes(SMALL_SIZE_MAX),)), Chunk(bytes(32), 0, bytes(CHUNK_SIZE))]
    charged = trio.run(main)
    assert [sum(threads), len(threads), max(at_once)] == [3, 6, 1]
    assert sum(seconds >= 0.01 for seconds in charged) >= 3, "it is paid for all the same"
    assert [type(message) for message in heard].count(Chunk) == 3
