"""Members may be known by names: they are looked up as the system does it, and each address is tried."""

import socket
from typing import Any

import pytest
import trio
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from fedchain.network.libp2p import sockets
from fedchain.network.libp2p.sockets import ADDRESSES_TRIED, BufferedTcp, look_up, reach
from fedchain.network.limits import Limits
from tests.support.network.real import TIMEOUT_S

look_up_any = socket.getaddrinfo


def found(text: str) -> list[str]:
    async def ask() -> list[str]:
        return [str(place) for place in await look_up(Multiaddr(text), trio.CapacityLimiter(1))]

    return trio.run(ask)


def names(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Have the system know one name, which stands for these hosts."""

    def answer(host: str, port: str, *kinds: int) -> list[Any]:
        if host != "alice":  # trio asks about numbers
            return look_up_any(host, port, *kinds)
        assert kinds[1] == socket.SOCK_STREAM
        return [
            (socket.AF_INET6 if ":" in place else socket.AF_INET, kinds[1], 6, "", (place, int(port)))
            for place in hosts
        ]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def test_a_name_of_this_machine_s_own() -> None:
    assert found("/dns4/localhost/tcp/7") == ["/ip4/127.0.0.1/tcp/7"]


def test_what_has_no_name_is_left_as_it_is() -> None:
    assert found("/ip4/192.0.2.7/tcp/7") == ["/ip4/192.0.2.7/tcp/7"]
    assert found("/ip6/::1/tcp/7") == ["/ip6/::1/tcp/7"]


def test_a_name_with_several_addresses_some_of_them_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "192.0.2.1", "192.0.2.1", "2001:db8::1%eth0")
    assert found("/dns/alice/tcp/7") == ["/ip4/192.0.2.1/tcp/7", "/ip6/2001:db8::1/tcp/7"]
    names(monkeypatch, *(f"192.0.2.{number}" for number in range(1, 99)))
    assert len(found("/dns/alice/tcp/7")) == ADDRESSES_TRIED


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OpenConnectionError, match="alice is not known: Name or service not known"):
        found("/dns4/alice/tcp/7")


def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener, socket.socket() as deaf:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        deaf.bind(("127.0.0.2", listener.getsockname()[1]))  # nobody listens there
        names(monkeypatch, "127.0.0.2", "127.0.0.1")

        async def dial(name: str) -> tuple[str, int]:
            there = Multiaddr(f"/dns4/{name}/tcp/{listener.getsockname()[1]}")
            raw: Any = await reach(there, trio.CapacityLimiter(1), BufferedTcp(Limits()).dial)
            place: tuple[str, int] = raw.stream.get_remote_address()
            await raw.close()
            return place

        assert trio.run(dial, "alice") == listener.getsockname()
        names(monkeypatch, "127.0.0.2")
        with pytest.raises(OpenConnectionError):
            trio.run(dial, "alice")


def test_an_address_that_says_nothing_keeps_the_others_of_its_name_waiting_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.1")
    monkeypatch.setattr(sockets, "NEXT_ADDRESS_S", 0.01)
    dialled = list[str]()

    async def dial(place: Multiaddr) -> str:
        dialled.append(host := str(place.value_for_protocol("ip4")))
        if host == "127.0.0.3":
            raise OpenConnectionError("nobody listens")
        if host == "127.0.0.2":
            await trio.sleep_forever()
        return host

    async def ask() -> str:
        with trio.fail_after(TIMEOUT_S):
            found: str = await reach(Multiaddr("/dns4/alice/tcp/7"), trio.CapacityLimiter(1), dial)
            return found

    assert trio.run(ask) == "127.0.0.1"
    assert dialled == ["127.0.0.2", "127.0.0.3", "127.0.0.1"]
