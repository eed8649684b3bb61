"""Sockets that hear nothing: packets for them vanish before the system's TCP sees them, acknowledgements included.

A filter that drops every packet is attached to a socket; that needs no privilege. The other end sees what it would see
of a dead link: nothing.
"""

import ctypes
import socket
import struct
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address
from typing import Any

ATTACH_FILTER, DETACH_FILTER = 26, 27
"""Linux's SO_ATTACH_FILTER and SO_DETACH_FILTER."""

LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
"""Instructions of classic BPF."""

SOURCE_ADDRESS = 0x100000000 - 0x100000 + 12
"""Offset of an IPv4 packet's source address, counted from its network header."""

EVERYTHING = [(RETURN, 0, 0, 0)]
"""A program that drops each packet."""

Program = Sequence[tuple[int, int, int, int]]


def deafen(sock: Any, hosts: Collection[str] | None = None) -> None:
    """Drop what comes for a socket: everything, or what comes from IPv4 ``hosts``."""
    program = EVERYTHING if hosts is None else dropping(hosts)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    given = struct.pack("HL", len(program), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, given)


def undeafen(sock: Any) -> None:
    """Let packets through again."""
    sock.setsockopt(socket.SOL_SOCKET, DETACH_FILTER, struct.pack("i", 0))


def dropping(hosts: Collection[str]) -> Program:
    """A program that drops packets from ``hosts`` and no others."""
    program = [(LOAD_WORD, 0, 0, SOURCE_ADDRESS)]
    ordered = sorted(hosts)
    for place, host in enumerate(ordered):
        program.append((JUMP_IF_EQUAL, len(ordered) - place, 0, int(IPv4Address(host))))
    return [*program, (RETURN, 0, 0, 0xFFFFFFFF), *EVERYTHING]
