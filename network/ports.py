"""Places to listen at: how they are written, and whether they are free. Light, for it is asked before a node starts."""

import errno
import ipaddress
import re
import socket

PORT_MAX = 65_535

_LISTEN = re.compile(r"/(ip4|ip6)/([0-9a-fA-F.:]{2,45})/tcp/([0-9]{1,5})")


class ListenError(Exception):
    """The address to listen on cannot be used; the message says why."""


class NotFree(ListenError):
    """It is somebody else's now; a later attempt may succeed, as when a network has come up, or a process has ended."""


REASONS = {errno.EADDRINUSE: "the port is in use", errno.EADDRNOTAVAIL: "this machine does not have that address"}
"""Reasons that may pass."""


def check_free(listen: str) -> None:
    """Find out whether we can listen: libp2p listens beside another process on one port without a word.

    Raises:
        ListenError: no address, or not ours to use.
        NotFree: it is not this machine's, or in use, now.
    """
    place = parse_listen(listen)
    if place is None:
        raise ListenError(f"listen is {listen!r}, which is not of the form /ip4/…/tcp/…")
    if reason := why_not_free(*place, is_dual=True):
        kind = NotFree if reason in REASONS.values() else ListenError
        raise kind(f"cannot listen on {listen}: {reason}")


def parse_listen(text: str) -> tuple[int, str, int] | None:
    """Family, host and port of ``/ip4/…/tcp/…``; None if it is not of this form."""
    parts = _LISTEN.fullmatch(text)
    if parts is None or int(parts[3]) > PORT_MAX:
        return None
    try:
        if parts[1] == "ip4":
            return socket.AF_INET, str(ipaddress.IPv4Address(parts[2])), int(parts[3])
        return socket.AF_INET6, str(ipaddress.IPv6Address(parts[2])), int(parts[3])
    except ValueError:
        return None


def why_not_free(family: int, host: str, port: int, *, is_dual: bool) -> str | None:
    """Why we cannot listen there, if so. The port is free again when this returns.

    Args:
        family: of the address.
        host: a numeric one.
        port: 0 for any.
        is_dual: whether one that listens on all IPv6 addresses has those of IPv4 as well, as the system likes it.
    """
    with socket.socket(family) as probe:
        try:
            # Connections of a node that has just ended may linger; a process that still listens is noticed.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and not is_dual:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
        except OSError as error:
            reserved = f"port {port} is reserved for the administrator; choose one above 1023"
            return (REASONS | {errno.EACCES: reserved}).get(error.errno or 0, error.strerror)
    return None
