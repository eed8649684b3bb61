"""Strangers that knock: each says one short thing and hears one, and nothing else of a node is open to it."""

from contextlib import suppress

import pytest
import trio
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.identity import security_of
from fedchain.network.libp2p.knocking import KNOCK_SIZE_MAX, LENGTH_SIZE, PACKETS_MAX, knock
from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.libp2p.sockets import BufferedTcp
from fedchain.network.limits import Limits
from tests.support.network.real import MEMBERS, on_trio, peer, until

STRANGER = PrivateKey(bytes(range(32)))
QUICK = Limits(handshake_timeout_s=2.0)


def place_of(network: Libp2pNetwork) -> str:
    return network.listen_addresses()[0].partition("/p2p/")[0]


@on_trio
async def test_a_stranger_is_heard_and_answered_by_name_and_stays_outside() -> None:
    heard: list[tuple[PublicKey, bytes]] = []

    def answer(key: PublicKey, said: bytes) -> bytes:
        heard.append((key, said))
        return b"no"

    async with peer(0) as one:
        one.welcome(answer)
        assert await knock(STRANGER, MEMBERS[0], place_of(one), b"may I?", QUICK) == b"no"
        assert heard == [(STRANGER.public_key, b"may I?")]
        assert one.peers() == []
        assert one.host.get_network().get_connections() == []


@on_trio
async def test_who_says_too_much_or_nothing_to_a_node_that_does_not_listen_hears_nothing() -> None:
    async with peer(0) as one:
        with pytest.raises(ConnectionError):
            await knock(STRANGER, MEMBERS[0], place_of(one), b"may I?", QUICK)
        one.welcome(lambda key, said: b"yes")
        with pytest.raises(ConnectionError):
            await knock(STRANGER, MEMBERS[0], place_of(one), bytes(KNOCK_SIZE_MAX + 1), QUICK)
        with pytest.raises(ConnectionError):
            await knock(STRANGER, MEMBERS[1], place_of(one), b"somebody else?", QUICK)


@pytest.mark.parametrize(("count", "is_heard"), [(PACKETS_MAX, True), (PACKETS_MAX + 1, False)])
@on_trio
async def test_what_is_said_comes_in_few_packets(count: int, is_heard: bool) -> None:
    heard, said = list[bytes](), bytes(count - LENGTH_SIZE)
    async with peer(0) as one:
        one.welcome(lambda key, what: heard.append(what) or b"no")  # type: ignore[func-returns-value]
        raw = await BufferedTcp(QUICK).dial(Multiaddr(place_of(one)))
        conn = await TransportUpgrader(security_of(STRANGER), {}).upgrade_security(raw, True, one.host.get_id())
        with suppress(IOException, RawConnError):  # as the node closes it
            for byte in len(said).to_bytes(LENGTH_SIZE, "big") + said:
                await conn.write(bytes([byte]))
            await conn.read(1)
        assert heard == [said] * is_heard


@on_trio
async def test_one_that_is_let_in_and_hears_nothing_does_not_wait_for_ever() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    place = f"/ip4/127.0.0.1/tcp/{listeners[0].socket.getsockname()[1]}"
    with trio.fail_after(20), pytest.raises(ConnectionError, match="no answer in time"):
        await knock(STRANGER, MEMBERS[0], place, b"may I?", Limits(handshake_timeout_s=0.2))
    await listeners[0].aclose()


@on_trio
async def test_a_member_that_was_spoken_to_is_dialled_at_once() -> None:
    """It may let us in from then on."""
    async with peer(0, members=MEMBERS[:1]) as one, peer(1, one) as two:
        one.welcome(lambda key, said: b"come in")
        await until(lambda: two.book._contacts[MEMBERS[0]].failures >= 2, "two attempts")
        await two.knock(MEMBERS[0], place_of(one), b"may I?")
        assert (two.book._contacts[MEMBERS[0]].failures, two.book._contacts[MEMBERS[0]].due_s) == (0, 0.0)


@on_trio
async def test_a_fault_in_the_answer_ends_that_connection_alone_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(key: PublicKey, said: bytes) -> bytes:
        raise ValueError("a fault of ours")

    async with peer(0) as one:
        one.welcome(fail)
        with pytest.raises(ConnectionError):
            await knock(STRANGER, MEMBERS[0], place_of(one), b"may I?", QUICK)
        async with peer(1, one):
            await until(one.peers)
    assert "could not be handled" in caplog.text
    assert "ValueError: a fault of ours" in caplog.text


@on_trio
async def test_one_that_knocks_where_it_is_let_in_already_is_told_so() -> None:
    """As one whose request was counted while it was down: nobody refuses it."""
    async with peer(0) as one:
        one.welcome(lambda key, said: b"no")
        one.track(1, [*MEMBERS, STRANGER.public_key])
        with pytest.raises(ConnectionError, match="it answers as a member does that lets this key in already"):
            await knock(STRANGER, MEMBERS[0], place_of(one), b"may I?", QUICK)


@on_trio
async def test_a_stranger_that_was_let_in_since_is_dialled_and_gossips() -> None:
    async with peer(0) as one, peer(1, one, members=MEMBERS[:2]) as other:
        await until(one.peers)
        one.track(1, [*MEMBERS, STRANGER.public_key])
        assert other.book.known()[MEMBERS[0]]
        await trio.sleep(0)
        assert STRANGER.public_key in one.gate.members
