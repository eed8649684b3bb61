"""Incoming connections whose peers have not said yet who they are.

Anybody may open one and say nothing. There is room for some; when it is full, the origin that holds most of it makes
way, so that strangers wear out their own connections and not those of members.
"""

from collections import Counter
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Generic, TypeVar

C = TypeVar("C")


class Handshakes(Generic[C]):
    """Connections in the handshake, oldest first, and where they come from."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._origins: dict[C, str] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def add(self, connection: C, host: str) -> C | None:
        """Take in a connection from ``host``; the one that has to be closed for it, if there is no room left."""
        evicted = self._evict() if len(self._origins) >= self._count_max else None
        self._origins[connection] = origin(host)
        return evicted

    def remove(self, connection: C) -> None:
        """A handshake has ended, well or not."""
        self._origins.pop(connection, None)

    def _evict(self) -> C:
        """The oldest connection of the origin that has most."""
        counts = Counter(self._origins.values())
        most = max(counts.values())
        evicted = next(known for known, place in self._origins.items() if counts[place] == most)
        del self._origins[evicted]
        return evicted


def origin(host: str) -> str:
    """Return the origin of a connection: an IPv4 address, or an IPv6 network of the size that one customer gets."""
    try:
        ip = ip_address(host)
    except ValueError:
        return ""
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))
    return str(ip)
