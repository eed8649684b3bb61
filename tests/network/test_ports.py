"""Addresses to listen on: their form, and whether they are free."""

import socket

import pytest

from fedchain.network.ports import ListenError, NotFree, check_free, parse_listen, why_not_free


def test_an_address_is_a_family_a_host_and_a_port() -> None:
    assert parse_listen("/ip4/127.0.0.1/tcp/0") == (socket.AF_INET, "127.0.0.1", 0)
    assert parse_listen("/ip6/::1/tcp/65535") == (socket.AF_INET6, "::1", 65_535)


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:1", "/ip4/127.0.0.1/tcp/65536", "/ip4/::1/tcp/1", "/ip4/1.2.3/tcp/1", "/ip4/1.2.3.4/udp/1"]
)
def test_what_is_none_is_said_to_be_none(text: str) -> None:
    assert parse_listen(text) is None
    with pytest.raises(ListenError, match="not of the form"):
        check_free(text)


def test_a_port_that_somebody_listens_on_is_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        with pytest.raises(NotFree, match="the port is in use"):
            check_free(place)
    check_free(place)


def test_a_port_whose_last_connections_linger_is_free() -> None:
    """Those of a node that has just ended do, on the side that closed them."""
    with socket.socket() as ended:
        ended.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ended.bind(("127.0.0.1", 0))
        ended.listen()
        place = f"/ip4/127.0.0.1/tcp/{ended.getsockname()[1]}"
        with socket.create_connection(ended.getsockname()) as other:
            ended.accept()[0].close()
            assert other.recv(1) == b""
    check_free(place)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_port_of_ipv4_that_somebody_listens_on_is_in_use_where_we_listen_on_all_addresses() -> None:
    """A node at such an address has those of IPv4, too; metrics there have those of IPv6 alone."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(NotFree, match="the port is in use"):
            check_free(f"/ip6/::/tcp/{port}")
        assert why_not_free(socket.AF_INET6, "::", port, is_dual=False) is None


def test_another_machines_address_is_named() -> None:
    with pytest.raises(NotFree, match="does not have that address"):
        check_free("/ip4/192.0.2.1/tcp/0")
