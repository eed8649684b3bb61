"""Knocking: a stranger says one thing, and hears one, between the handshake that names it and its connection's end.

So a peer that is no member yet can ask for a place. It costs the node what any stranger's handshake costs, within the
same bounds of number and time, and a message of a few kilobytes. A peer without a request sends something else here,
and is turned away at once.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio
from libp2p.abc import ISecureConn
from libp2p.peer.id import ID
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.identity import peer_id, public_key_of, security_of
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.sockets import BufferedTcp, reach
from fedchain.network.limits import Limits

KNOCK_SIZE_MAX = 2**12
"""Bytes of what a stranger says, and of the answer."""

LENGTH_SIZE = 4

PACKETS_MAX = 16
"""Packets of noise in which it comes. Ours comes in one; four thousand of a byte each would take a part of a second, in
which the node does nothing else."""

Answer = Callable[[PublicKey, bytes], bytes]
"""Called with a stranger's key and what it said; returns the answer."""


async def answer_knock(conn: ISecureConn, peer: ID, answer: Answer) -> None:
    """Read what a stranger says, if it is short enough, and answer it. The connection ends, whatever fails."""
    if (key := public_key_of(peer)) is None:
        return
    with suppress(Exception):
        if (said := await _read(conn)) is not None:
            await _write(conn, _answer_of(answer, key, said))


def _answer_of(answer: Answer, peer: PublicKey, said: bytes) -> bytes:
    try:
        return answer(peer, said)
    except Exception:  # a fault of ours, which a stranger must not turn into the end of the process
        log.exception("what %s said at the door could not be handled", peer_id(peer))
        raise


async def knock(key: PrivateKey, member: PublicKey, place: str, said: bytes, limits: Limits) -> bytes:
    """Say something to a member at an address; returns its answer.

    Raises:
        ConnectionError: nobody is there, it is somebody else, or it gives no answer in time; in one line.
    """
    upgrader = TransportUpgrader(security_of(key), {})
    raw: Any = None
    try:
        with trio.fail_after(limits.handshake_timeout_s):
            raw = await reach(Multiaddr(place), trio.CapacityLimiter(1), BufferedTcp(limits).dial)
            conn = await upgrader.upgrade_security(raw, True, peer_id(member))
            await _write(conn, said)
            answer = await _read(conn)
    except Exception as error:
        raise ConnectionError(" ".join(str(error).split()) or "no answer in time") from None
    finally:
        if raw is not None:
            with suppress(Exception), trio.CancelScope(shield=True):
                await raw.close()
    if answer is None:
        raise ConnectionError("it answers as a member does that lets this key in already")
    return answer


async def _read(conn: ISecureConn) -> bytes | None:
    """A message behind its length; None if it is announced as too long, or comes in too many packets."""
    data = b""
    for _ in range(PACKETS_MAX):
        data += await conn.read(None)
        end = LENGTH_SIZE + int.from_bytes(data[:LENGTH_SIZE], "big")
        if len(data) >= LENGTH_SIZE and end > LENGTH_SIZE + KNOCK_SIZE_MAX:
            return None
        if len(data) >= max(LENGTH_SIZE, end):
            return data[LENGTH_SIZE:end]
    return None


async def _write(conn: ISecureConn, data: bytes) -> None:
    await conn.write(len(data).to_bytes(LENGTH_SIZE, "big") + data)
