"""Messages between two connected peers. Each side opens one stream, writes to it and never reads from it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.identity import peer_id, public_key_of
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.muxer import reset_quietly
from fedchain.network.libp2p.oversight import Oversight
from fedchain.network.libp2p.streams import FrameReader, FrameTooLarge, NewestStream, Outbox
from fedchain.network.libp2p.swarm import GuardedHost
from fedchain.network.limits import BLAME_MALFORMED
from fedchain.network.messages import (
    CHUNK_SIZE,
    MESSAGE_SIZE_MAX,
    CertificateMessage,
    Chunk,
    FinalMessage,
    GossipMessage,
    LightMessage,
    Message,
    Payloads,
    Question,
    decode_message,
)
from fedchain.network.verdict import Verdict

SMALL_SIZE_MAX = CHUNK_SIZE + 2**10
"""Most bytes of a message that is read on the loop: those of a chunk, which are read at once. Only blocks and
certificates of some thousand posts and votes are larger."""

OPEN_TIMEOUT_S = 10.0
"""How long opening a stream may take."""

LOOKS = 10
"""How often a peer is checked within ``idle_timeout_s``. A peer that was quiet at all checks in a row is gone; a loop
that was stuck itself missed some checks, and no peer suffers for it."""

Receive = Callable[[PublicKey, Message, int], Verdict]
"""Called with the sender, the message and its size in bytes."""


@dataclass(slots=True)
class Counters:
    """Traffic that went through, for metrics."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: int = 0
    """Messages that did not fit into a queue, or came over a peer's budget."""
    unanswered: int = 0
    """Questions that were dropped because the asking peer had cost too much already."""
    rejected: int = 0
    """Times that a peer was blamed."""


def is_question(message: Message) -> bool:
    """Whether a message wants an answer, which costs the answering peer more than the asking one."""
    return isinstance(message, Question)


def is_answer(message: Message) -> bool:
    """Whether a message goes to one peer because it asked."""
    return isinstance(message, GossipMessage | Chunk | FinalMessage | LightMessage | CertificateMessage | Payloads)


class Messenger:
    """Writes each peer's outbox to its stream and reads the streams that peers open.

    Args:
        host: opens and accepts the streams.
        protocol: name of the protocol; a peer of another chain has another one.
        oversight: of members.
        counters: the traffic that went through.
        receive: takes messages.
        disconnect: closes the connection to a peer.
    """

    def __init__(
        self,
        host: GuardedHost,
        protocol: TProtocol,
        oversight: Oversight,
        *,
        counters: Counters,
        receive: Receive,
        disconnect: Callable[[PublicKey], None],
    ) -> None:
        self._host, self._protocol, self._oversight = host, protocol, oversight
        self._counters, self._receive, self._disconnect = counters, receive, disconnect
        self._gate, self._limits, self._blame = oversight.gate, oversight.limits, oversight.blame
        self._newest = NewestStream()
        self._decoder = trio.CapacityLimiter(1)  # more threads would leave the loop less of its time
        host.set_stream_handler(protocol, self._read)

    async def serve(self, peer: PublicKey, outbox: Outbox) -> None:
        """Write the frames put into ``outbox`` until cancelled, and disconnect a peer that is silent for too long."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, peer, outbox)
            heard_s, quiet = self._oversight.hearing.last_s(peer), 0
            while quiet < LOOKS:
                await trio.sleep(self._limits.idle_timeout_s / LOOKS)
                last_s, heard_s = heard_s, self._oversight.hearing.last_s(peer)
                quiet = quiet + 1 if heard_s == last_s else 0
            log.info("%s was silent for %.0f s", peer_id(peer), self._limits.idle_timeout_s)
            self._disconnect(peer)

    async def _write(self, peer: PublicKey, outbox: Outbox) -> None:
        """Write to a stream; one that breaks is opened again."""
        while True:
            stream: Any = None
            try:
                with trio.fail_after(OPEN_TIMEOUT_S):
                    stream = await self._host.new_stream(peer_id(peer), [self._protocol])
                await self._drain(stream, outbox)
            except Exception as error:
                log.debug("writing to %s failed: %r", peer_id(peer), error)
            finally:
                if stream is not None:
                    await reset_quietly(stream)
            await trio.sleep(self._limits.redial_min_s)

    async def _drain(self, stream: Any, outbox: Outbox) -> None:
        while True:
            data, count = await outbox.take()
            with trio.fail_after(self._limits.frame_timeout_s):
                await stream.write(data)
            self._counters.messages_out += count
            self._counters.bytes_out += len(data)

    async def _read(self, stream: INetStream) -> None:
        """Take a peer's frames until its stream ends; nothing that it sends can raise."""
        peer = public_key_of(stream.muxed_conn.peer_id)
        assert peer is not None, "only members are admitted"
        try:
            with self._newest.of(peer):
                note = partial(self._oversight.note, peer)
                reader = FrameReader(stream, MESSAGE_SIZE_MAX, self._limits, note)
                await reader.open()
                await self._oversight.rest(peer)  # its last stream may have owed a wait
                while await self._take(peer, await reader.frame()):
                    await self._oversight.rest(peer)
        except FrameTooLarge as error:
            self._blame(peer, BLAME_MALFORMED, f"malformed frame: {error}")
        except trio.TooSlowError:
            log.info("%s did not finish a message in time", peer_id(peer))
            self._disconnect(peer)
        except Exception as error:
            log.debug("messages of %s ended: %r", peer_id(peer), error)
        finally:
            await reset_quietly(stream)

    async def _take(self, peer: PublicKey, data: bytes) -> bool:
        """Take a frame, and have its sender pay for the time that takes; False: it is not wanted any more."""
        now_s = trio.current_time()
        if not self._gate.pays(peer, now_s):
            self._counters.dropped += 1
            self._blame(peer, 0.0, "over its budget")
        elif data:
            await self._handle(peer, data)
        return self._gate.admits(peer, trio.current_time())

    async def _handle(self, peer: PublicKey, data: bytes) -> None:
        """Have a message dealt with. Its content is its author's business, no fault of the sending neighbour's."""
        message, cpu_s = await self._decode(data)
        now_s, begun_s, found = trio.current_time(), time.perf_counter(), Verdict.IGNORE
        if isinstance(message, InvalidEncoding):
            self._blame(peer, BLAME_MALFORMED, f"malformed message: {message}")
        elif is_question(message) and not self._gate.may_ask(peer, now_s):
            self._counters.unanswered += 1
        else:
            found = self._receive(peer, message, len(data))
        if found is not Verdict.PROGRESS:
            self._gate.charge(peer, cpu_s=cpu_s + time.perf_counter() - begun_s, now_s=now_s)

    async def _decode(self, data: bytes) -> tuple[Message | InvalidEncoding, float]:
        """Read a message, a large one beside the loop: it takes up to a second, in which nobody else would be heard.

        Returns the message, or its fault, and the seconds that this took.
        """
        if len(data) <= SMALL_SIZE_MAX:
            return _decode_timed(data)
        return await trio.to_thread.run_sync(_decode_timed, data, limiter=self._decoder)


def _decode_timed(data: bytes) -> tuple[Message | InvalidEncoding, float]:
    begun_s = time.perf_counter()
    message: Message | InvalidEncoding
    try:
        message = decode_message(data)
    except InvalidEncoding as error:
        message = error
    return message, time.perf_counter() - begun_s
