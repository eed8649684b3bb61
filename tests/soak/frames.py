"""``python -m tests.soak frames``: a million damaged frames on the sockets of a node process.

First come members, to a node that forgives what they do, so that it reads every frame; then members, one after
another, to a node as it is, which turns each of them out; then strangers.
"""

import argparse
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.yamux.yamux import YAMUX_HEADER_FORMAT
from libp2p.utils import encode_varint_prefixed

from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.network.libp2p.addresses import encode_exchange
from fedchain.network.libp2p.network import open_network
from fedchain.network.messages import CandidateMessage, Chunk, Message, PostMessage, VoteMessage, encode_message
from fedchain.node.operating.status import ask_status
from tests.fuzz.mutation import mutate
from tests.fuzz.victim import messages as foreign_messages
from tests.soak.attacks import Asked
from tests.support.network.assaults import Offender, framed, muxed_of, questions_of
from tests.support.network.real import GOSSIP, Attacker, attacker
from tests.support.node.target import Target, target

MEMBERS = 100
"""Each of them is turned out once."""

FORGIVING = {"blame_max": 1e12, "messages_per_s": 1e9, "messages_burst": 1e9, "frame_timeout_s": 2.0}
"""A member may do anything, which a node never allows; so its frames are read and not cut off."""

BATCH = 64
"""Frames written at once."""

SOCKETS = 8
"""Strangers at a time."""

RSS_MB_MAX = 500.0
LOG_KB_MAX = 500.0

HELLO = b"\x13/multistream/1.0.0\n"


@dataclass(slots=True)
class Tally:
    """Frames sent to one node, and its reactions."""

    frames: Counter[str] = field(default_factory=Counter)
    """By what they were damaged forms of."""
    connections: int = 0
    disconnects: int = 0
    refused: int = 0
    rss_mb: float = 0.0
    log_kb: float = 0.0
    lost: int = 0
    """Questions of a good peer without an answer."""
    asked: int = 0
    is_alive: bool = True

    def total(self) -> int:
        return self.frames.total()

    def show(self, name: str, seconds: float) -> bool:
        """Print it; whether it is as it should be."""
        shares = ", ".join(f"{kind} {number:,}" for kind, number in sorted(self.frames.items()))
        print(f"{name}: {self.total():,} frames in {seconds:.0f} s ({shares})")
        print(f"  {self.connections:,} connections, {self.disconnects:,} cut off, {self.refused:,} turned away")
        print(f"  RSS at most {self.rss_mb:.0f} MB, log {self.log_kb:.1f} kB")
        print(f"  process {'alive' if self.is_alive else 'ENDED'}, good peer: {self.asked - self.lost} of {self.asked}")
        good = self.is_alive and 2 * self.lost <= self.asked
        return good and self.rss_mb <= RSS_MB_MAX and self.log_kb <= LOG_KB_MAX


def main() -> None:
    """Send the frames, print what came of it, and exit with 1 if the node suffered."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage (%(default)s)")
    options = parser.parse_args()
    good, frames = True, options.frames
    with target(MEMBERS) as victim:
        for name, send, limits, number in (
            ("forgiven members", _members, FORGIVING, frames * 96 // 100),
            ("members", _members, {}, frames * 2 // 100),
            ("strangers", _strangers, {}, frames - frames * 96 // 100 - frames * 2 // 100),
        ):
            tally, begun_s, rng = Tally(), time.monotonic(), Random(f"{options.seed} {name}")
            while tally.total() < number and tally.is_alive:  # again where all members were turned out
                victim.start(**limits)
                try:
                    trio.run(_campaign, victim, tally, send, number, rng)
                finally:
                    victim.stop()
            good &= tally.show(name, time.monotonic() - begun_s) and tally.total() >= number
            sys.stdout.flush()
    sys.exit(0 if good else 1)


Send = Callable[[Target, Tally, int, Random], Awaitable[None]]


async def _campaign(victim: Target, tally: Tally, send: Send, number: int, rng: Random) -> None:
    """Send ``number`` frames while a good peer looks whether the node still answers."""
    log_size, key, peer = victim.log.stat().st_size, victim.keys[1], victim.keys[0].public_key
    places = [victim.node.address]
    async with open_network(key, victim.genesis.chain_id, victim.genesis.members, bootstrap=places) as network:
        asked = Asked(network, peer)
        with trio.fail_after(30):
            while await asked.once() == float("inf"):
                await trio.sleep(0.1)
        victim.forget_peak()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_look, victim, tally, asked)
            await send(victim, tally, number, rng)
            nursery.cancel_scope.cancel()
        with trio.move_on_after(30):  # what was sent may still be read
            while await asked.once() > 1.0:
                await trio.sleep(0.1)
        tally.asked += 1
        tally.lost += await asked.once() == float("inf")
    tally.is_alive = victim.is_alive()
    tally.rss_mb = max(tally.rss_mb, victim.peak_mb() if tally.is_alive else 0.0)
    tally.log_kb += (victim.log.stat().st_size - log_size) / 1_000


async def _look(victim: Target, tally: Tally, asked: Asked) -> None:
    while victim.is_alive():
        tally.lost += await asked.once() == float("inf")
        tally.asked += 1
        tally.rss_mb = max(tally.rss_mb, victim.peak_mb())
        shown = (
            f"{tally.total():>10,} frames, {tally.disconnects} cut off, RSS {tally.rss_mb:.0f} MB, lost {tally.lost}"
        )
        print(shown, file=sys.stderr, flush=True)
        await trio.sleep(5)


# --- members


async def _members(victim: Target, tally: Tally, number: int, rng: Random) -> None:
    """Members attack, one after another, each until it is turned out; those that were not banned come back."""
    for key in victim.keys[2:]:
        while tally.total() < number and victim.is_alive():
            try:
                async with attacker(victim.node.address, key) as bad:
                    tally.connections += 1
                    await _Member(victim, key, bad, tally, rng).send(number)
                    tally.disconnects += not bad.is_connected()
            except Exception:  # whatever libp2p makes of a connection that is refused, or cut off at once
                tally.refused += 1
                break


class _Member:
    """Sends damaged frames of every kind over one connection until it is cut off."""

    def __init__(self, victim: Target, key: PrivateKey, bad: Attacker, tally: Tally, rng: Random) -> None:
        self._bad, self._tally, self._rng = bad, tally, rng
        status = ask_status(victim.node.folder) or {}
        head, root = (bytes.fromhex(status.get(name, bytes(32).hex())) for name in ("head", "knowledge_root"))
        self._offender = Offender(victim.node.address, victim.genesis, key, head, int(status.get("height", 0)), root)
        self._valid = self._own_messages() + [encode_message(message) for message in foreign_messages()]
        texts = ["/ip4/127.0.0.1/tcp/4001", "/dns4/a.example/tcp/80"]
        self._entries = [encode_exchange("1.0", []), encode_exchange("1.0", [(key.public_key, texts)] * 3)]
        self._streams: dict[str, Any] = {}

    def _own_messages(self) -> list[bytes]:
        offender = self._offender
        post, block = offender.post(1), offender.block(1)
        vote = sign_vote(offender.key, offender.genesis.chain_id, (1, 0, VoteKind.PREVOTE), sha256(b""))
        said: list[Message] = [PostMessage(post, None), PostMessage(post, bytes(100)), CandidateMessage(block)]
        said += [VoteMessage(vote), Chunk(bytes(32), 0, b"x" * 100), *questions_of(offender)]
        return [encode_message(item) for item in said]

    async def send(self, number: int) -> None:
        """Batches of frames on the streams, and now and then below them."""
        kinds = ["messages"] * 14 + ["gossip"] * 3 + ["addresses", "multiplexer", "protocol"]
        while self._bad.is_connected() and self._tally.total() < number:
            kind = self._rng.choice(kinds)
            try:
                with trio.move_on_after(10):
                    self._tally.frames[kind] += await getattr(self, f"_send_{kind}")()
            except Exception:  # the stream or the connection was reset, as it should be
                self._streams.pop(kind, None)
                await trio.sleep(0)

    async def _stream(self, kind: str, protocol: Any) -> Any:
        if kind not in self._streams:
            self._streams[kind] = await self._bad.open(protocol)
        return self._streams[kind]

    def _damaged(self, valid: list[bytes]) -> bytes:
        rng = self._rng
        chosen = rng.random()
        if chosen < 0.05:
            return rng.choice(valid)
        if chosen < 0.1:
            return rng.randbytes(rng.randrange(200))
        return mutate(rng.choice(valid), rng.choice(valid), rng)

    async def _send_messages(self) -> int:
        """Whole frames; the last one may say that it is longer than it is, or longer than it may be."""
        stream = await self._stream("messages", self._offender.messages)
        data = b"".join(framed(self._damaged(self._valid)) for _ in range(BATCH - 1))
        length = self._rng.choice((0, 0, 0, 1, 2**16, 2**22, 2**22 + 1, 2**32 - 1))
        tail = length.to_bytes(4, "big") + self._rng.randbytes(self._rng.randrange(8)) * bool(length)
        await stream.write(data + tail)
        if length:
            await self._streams.pop("messages").reset()
        return BATCH

    async def _send_gossip(self) -> int:
        """Frames that are protobuf, or nearly."""
        stream, rng, frames = await self._stream("gossip", GOSSIP), self._rng, []
        for _ in range(8):
            message = self._offender.gossip(self._damaged(self._valid))
            rpc = rpc_pb2.RPC(publish=[message])
            rpc.control.iwant.add(messageIDs=[rng.randbytes(20)])
            rpc.control.ihave.add(topicID=self._offender.topic, messageIDs=[rng.randbytes(rng.choice((9, 20)))])
            rpc.subscriptions.add(subscribe=rng.random() < 0.5, topicid=self._offender.topic)
            data = rpc.SerializeToString()
            frames.append(encode_varint_prefixed(mutate(data, data, rng) if rng.random() < 0.3 else data))
        await stream.write(b"".join(frames))
        return len(frames)

    async def _send_addresses(self) -> int:
        stream = await self._bad.send(self._offender.addresses, framed(self._damaged(self._entries)))
        await stream.reset()
        return 1

    async def _send_protocol(self) -> int:
        """Names of protocols, and what multistream never saw."""
        rng = self._rng
        stream = await muxed_of(self._bad).open_stream()
        names = (HELLO, encode_varint_prefixed(self._offender.messages.encode() + b"\n"), b"\x04na\n", b"\x03ls\n")
        data = b"".join(mutate(rng.choice(names), HELLO, rng) for _ in range(4))
        await stream.write(data)
        await stream.reset()
        return 4

    async def _send_multiplexer(self) -> int:
        """Frames of yamux with fields that mean little together, on streams that are there and that are not."""
        rng, frames = self._rng, []
        for _ in range(4):
            if rng.random() < 0.02:
                frames.append(rng.randbytes(12))
                continue
            kind = rng.choice((0, 0, 1, 1, 2, 3 if rng.random() < 0.1 else 0))
            length = rng.choice((0, 0, 1, 12, 2**15, 2**31 if rng.random() < 0.1 else 0))
            number = rng.choice((0, 1, 2, 3, 5, rng.getrandbits(32)))
            header = struct.pack(YAMUX_HEADER_FORMAT, 0, kind, rng.choice((0, 1, 2, 4, 8, 9, 15)), number, length)
            frames.append(header + rng.randbytes(length if kind == 0 and length < 2**16 else 0))
        await muxed_of(self._bad)._write_frame(b"".join(frames))
        return len(frames)


# --- strangers


async def _strangers(victim: Target, tally: Tally, number: int, rng: Random) -> None:
    """Several at a time: garbage on sockets, half a handshake, and a whole one of somebody who is no member."""
    port = int(victim.node.address.split("/")[4])

    async def come() -> None:
        while tally.total() < number and victim.is_alive():
            if rng.random() < 0.05:
                await _shake_hands(victim, tally, rng)
            else:
                await _send_raw(port, tally, rng)

    async with trio.open_nursery() as nursery:
        for _ in range(SOCKETS):
            nursery.start_soon(come)


async def _send_raw(port: int, tally: Tally, rng: Random) -> None:
    """A few frames on a bare socket: what noise and multistream expect, damaged."""
    noise = encode_varint_prefixed(b"/noise\n")
    frames = [HELLO, noise, len(b"x" * 32).to_bytes(2, "big") + rng.randbytes(32), b"\xff\xff" + rng.randbytes(100)]
    frames = [frame if rng.random() < 0.5 else mutate(frame, noise, rng) for frame in frames[: rng.randrange(1, 5)]]
    frames += [rng.randbytes(rng.randrange(1_000))] if rng.random() < 0.3 else []
    with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(5):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        tally.connections += 1
        # Reset instead of closed: thousands of closed ones would use up the ports of this machine.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with stream:
            for frame in frames:
                await stream.send_all(frame)
                tally.frames["socket"] += 1
            with trio.move_on_after(0.05):
                while await stream.receive_some():
                    pass
                tally.disconnects += 1


async def _shake_hands(victim: Target, tally: Tally, rng: Random) -> None:
    """A good handshake with a key that is nobody's, and yamux where nobody is let in."""
    tally.frames["handshake"] += 1
    try:
        with trio.move_on_after(5):
            async with attacker(victim.node.address, PrivateKey(rng.randbytes(32))) as bad:
                tally.connections += 1
                for _ in range(10):
                    await muxed_of(bad)._write_frame(rng.randbytes(12))
                    tally.frames["multiplexer"] += 1
    except Exception:
        tally.refused += 1


if __name__ == "__main__":
    main()
