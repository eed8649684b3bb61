"""Keeps a peer connected: dials members that are due, and exchanges versions and addresses with neighbours."""

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.security.noise.exceptions import PeerIDMismatchesPubkey
from libp2p.transport.exceptions import MuxerUpgradeFailure, SecurityUpgradeFailure
from multiaddr import Multiaddr

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.addresses import (
    ADDRESSES_PER_PEER,
    EXCHANGE_SIZE_MAX,
    VERSION_SIZE_MAX,
    AddressBook,
    decode_exchange,
    encode_exchange,
    seen_from,
)
from fedchain.network.libp2p.identity import peer_id, public_key_of
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.messenger import OPEN_TIMEOUT_S
from fedchain.network.libp2p.muxer import reset_quietly
from fedchain.network.libp2p.oversight import Oversight
from fedchain.network.libp2p.sockets import NEXT_ADDRESS_S, reach
from fedchain.network.libp2p.streams import LENGTH_SIZE, FrameReader, FrameTooLarge
from fedchain.network.libp2p.swarm import GuardedHost
from fedchain.network.limits import BLAME_MALFORMED

DIALS_MAX = 32
"""Peers dialled at a time. Those behind a dead link hang until their time is up, and must not keep others waiting."""

LOOK_UPS_MAX = ADDRESSES_PER_PEER
"""Names of one member, or of all guests together, that are looked up at a time. A liar chooses its names, and how long
their servers take: the threads of a node's disk are not for them, nor are those of others' names."""

ASKED_AT_ONCE = 2
"""Neighbours asked for addresses while more are wanted."""

_MEANINGS = {
    SecurityUpgradeFailure: "something answers there, but no node, or one that takes no more connections",
    PeerIDMismatchesPubkey: "another key answers there",
    MuxerUpgradeFailure: "it is there, and ends the connection: it may not let this key in",
}
"""The meaning of a failed dial for an operator, by the failure; one may be the cause of another."""


class Finder:
    """Dials and asks.

    Args:
        host: dials, and opens and accepts the streams.
        protocol: name of the exchange of addresses.
        oversight: says which members not to dial, and takes what they are blamed for.
        book: where members are.
        peers: those that are connected.
        version: our program's version, as it is sent to others.
    """

    def __init__(
        self,
        host: GuardedHost,
        protocol: TProtocol,
        oversight: Oversight,
        *,
        book: AddressBook,
        peers: Callable[[], Collection[PublicKey]],
        version: str,
    ) -> None:
        self.announced: list[str] = []
        self.versions: dict[PublicKey, str] = {}
        """The last version that each member sent."""
        self._host, self._protocol, self._book, self._peers = host, protocol, book, peers
        self._gate, self._limits, self._blame = oversight.gate, oversight.limits, oversight.blame
        self._version = version[:VERSION_SIZE_MAX]
        self._dialling: set[PublicKey] = set()
        self._asked: list[PublicKey] = []  # the one that was asked longest ago first
        self._asking: set[PublicKey] = set()
        self._look_ups: dict[PublicKey | None, trio.CapacityLimiter] = {}  # of members; None: of guests
        host.set_stream_handler(protocol, self._answer)

    async def run(self) -> None:
        """Dial and ask until cancelled."""
        limits = self._limits
        next_exchange_s = trio.current_time() + limits.redial_min_s
        async with trio.open_nursery() as nursery:
            while True:
                now_s, peers = trio.current_time(), self._peers()
                for peer, places in self._book.due(peers, now_s):
                    if peer not in self._dialling and len(self._dialling) < DIALS_MAX:
                        self._dialling.add(peer)
                        nursery.start_soon(self._dial, peer, places)
                count = len(set(peers).difference(self._asked, self._asking))  # newcomers are asked at once
                if now_s >= next_exchange_s:
                    is_lonely = self._book.lacking(peers) > 0
                    next_exchange_s = now_s + limits.exchange_interval_s / (6.0 if is_lonely else 1.0)
                    count = max(count, ASKED_AT_ONCE if is_lonely else 1)
                for peer in self._next_asked(peers, count):
                    self._asking.add(peer)
                    nursery.start_soon(self._ask, peer)
                await trio.sleep(0.25 * limits.redial_min_s)

    def forget(self, peer: PublicKey) -> None:
        """Drop what a peer said that may connect no more."""
        self.versions.pop(peer, None)
        self._look_ups.pop(peer, None)

    def _note(self, peer: PublicKey, version: str) -> None:
        if peer in self._gate.members:
            self.versions[peer] = version

    async def _dial(self, peer: PublicKey, places: list[str]) -> None:
        """Try to reach a peer at any of ``places``; an attempt takes no longer than a handshake may."""
        begun_s, failures = trio.current_time(), list[str]()
        is_admitted = self._gate.admits(peer, begun_s)
        if is_admitted:
            with trio.move_on_after(self._limits.handshake_timeout_s):
                async with trio.open_nursery() as nursery:
                    for number, place in enumerate(places):
                        nursery.start_soon(self._try, peer, place, number * NEXT_ADDRESS_S, nursery, failures)
        self._dialling.discard(peer)
        if peer in self._peers():
            return
        wait_s = self._book.on_failure(peer, begun_s) - trio.current_time()
        count = self._book.failures(peer)
        if is_admitted and count & (count - 1) == 0:  # a member that is away for days is named at attempts 1, 2, 4, …
            why = "; ".join(failures) or f"no answer within {self._limits.handshake_timeout_s:.0f} s"
            text = "%s cannot be reached at %s (attempt %d, the next in %.0f s): %s"
            log.warning(text, peer_id(peer), ", ".join(places), count, max(0.0, wait_s), why)

    async def _try(
        self, peer: PublicKey, place: str, delay_s: float, others: trio.Nursery, failures: list[str]
    ) -> None:
        """Dial one address, and leave the others be where that succeeds."""
        await trio.sleep(delay_s)
        swarm: Any = self._host.get_network()
        owner = None if peer in self._gate.members.guests else peer
        threads = self._look_ups.setdefault(owner, trio.CapacityLimiter(LOOK_UPS_MAX))
        try:
            await reach(Multiaddr(place), threads, partial(swarm.dial_addr, peer_id=peer_id(peer)))
        except Exception as error:
            failures.append(_cause(error))
        else:
            others.cancel_scope.cancel()

    def _next_asked(self, peers: Collection[PublicKey], count: int) -> list[PublicKey]:
        """Those that were asked longest ago, or never. One that is slow to answer is not asked again meanwhile."""
        self._asked = [peer for peer in self._asked if peer in peers]
        order = [peer for peer in peers if peer not in self._asked] + self._asked
        chosen = [peer for peer in order if peer not in self._asking][:count]
        self._asked = [peer for peer in self._asked if peer not in chosen] + chosen
        return chosen

    async def _ask(self, peer: PublicKey) -> None:
        """Tell a peer our version and addresses, and learn its version and where others are."""
        stream: Any = None
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                stream = await self._host.new_stream(peer_id(peer), [self._protocol])
                await _write(stream, encode_exchange(self._version, [(b"", self.announced)]))
                reader = FrameReader(stream, EXCHANGE_SIZE_MAX, self._limits)
                version, entries = decode_exchange(await reader.frame())
                self._note(peer, version)
                for other, addresses in entries:
                    self._book.add_told(other, addresses, by_itself=other == peer)
        except (InvalidEncoding, FrameTooLarge) as error:
            self._blame(peer, BLAME_MALFORMED, f"malformed addresses: {error}")
        except Exception as error:
            if "not supported" in str(error.__cause__):  # libp2p: the peer knows no protocol of our chain's name
                text = "%s is not in this federation: it has another genesis document, or another protocol version"
                log.warning(text, peer_id(peer))
            log.debug("asking %s for addresses failed: %r", peer_id(peer), error)
        finally:
            self._asking.discard(peer)
            if stream is not None:
                await reset_quietly(stream)

    async def _answer(self, stream: INetStream) -> None:
        peer = public_key_of(stream.muxed_conn.peer_id)
        assert peer is not None, "only members are admitted"
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                reader = FrameReader(stream, EXCHANGE_SIZE_MAX, self._limits)
                question = await reader.frame()
                if not self._gate.may_ask(peer, trio.current_time()):
                    return
                host, _ = stream.get_remote_address() or ("", 0)
                answer = self._reply(peer, host, question)
                self._gate.charge(peer, bytes_out=len(answer), now_s=trio.current_time())
                await _write(stream, answer)
                await stream.close()
                await reader.end()  # a reset would overtake the answer
        except (InvalidEncoding, FrameTooLarge) as error:
            self._blame(peer, BLAME_MALFORMED, f"malformed addresses: {error}")
        except Exception as error:
            log.debug("telling %s addresses failed: %r", peer_id(peer), error)
        finally:
            await reset_quietly(stream)

    def _reply(self, peer: PublicKey, host: str, question: bytes) -> bytes:
        """Build the answer to a peer that said who and where it is; raises InvalidEncoding."""
        begun_s = time.perf_counter()
        version, entries = decode_exchange(question)
        self._note(peer, version)
        for _, addresses in entries[:1]:  # it can only speak for itself
            self._book.add_told(peer, [seen_from(place, host) for place in addresses], by_itself=True)
        answer = encode_exchange(self._version, self._book.sample(peer))
        self._gate.charge(peer, cpu_s=time.perf_counter() - begun_s, now_s=trio.current_time())
        return answer


def _cause(error: BaseException) -> str:
    """Return the system's reason for a failed attempt, or else what it means, or the library's."""
    cause: BaseException | None = error
    text, meaning = "no answer in time", ""
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        meaning = next((words for kind, words in _MEANINGS.items() if isinstance(cause, kind)), meaning)
        text = str(cause) or text
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__
    return meaning or text


async def _write(stream: Any, data: bytes) -> None:
    await stream.write(len(data).to_bytes(LENGTH_SIZE, "big") + data)
