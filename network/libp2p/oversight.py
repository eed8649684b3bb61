"""Oversight of the connected members: when each was heard, what it may cost, and what is held against it."""

from collections.abc import Callable, Container
from dataclasses import dataclass

import trio

from fedchain.crypto.keys import PublicKey
from fedchain.network.admission import Gate
from fedchain.network.limits import Limits

PAUSE_S = 1.0
"""Longest time that passes between two notes that a peer which is made to wait is not silent."""

Blame = Callable[[PublicKey, float, str], None]
"""Holds something against a peer; 0.0 only looks whether it is to be disconnected."""


class Hearing:
    """When each peer that may connect was heard last, on the loop's clock.

    Args:
        members: those that may connect now; guests are among them, of which a liar may send another one at each height.
    """

    def __init__(self, members: Container[PublicKey]) -> None:
        self._members = members
        self._last_s: dict[PublicKey, float] = {}

    def note(self, peer: PublicKey) -> None:
        """Something of the peer's has come."""
        if peer in self._members:
            self._last_s[peer] = trio.current_time()

    def forget(self, peer: PublicKey) -> None:
        """The peer may connect no more."""
        self._last_s.pop(peer, None)

    def last_s(self, peer: PublicKey) -> float | None:
        """When the peer was heard last; None: never."""
        return self._last_s.get(peer)


@dataclass(frozen=True, slots=True)
class Oversight:
    """Everything that reads what peers send shares one."""

    gate: Gate
    """Members and their budgets."""
    limits: Limits
    """Sizes, numbers and times."""
    hearing: Hearing
    blame: Blame

    def note(self, peer: PublicKey, size: int) -> None:
        """Bytes of a peer's have come, which it pays for even if it never finishes the frame."""
        self.hearing.note(peer)
        self.gate.charge(peer, bytes_in=size, now_s=trio.current_time())

    async def rest(self, peer: PublicKey) -> None:
        """Wait before a peer is read, for as long as its earlier costs demand, whichever stream they came by.

        It sleeps even for no time: frames that are there already would keep others waiting. Nobody counts as silent
        meanwhile, for it is we who do not listen.
        """
        pause_s = self.gate.pause_s(peer, trio.current_time())
        while pause_s > PAUSE_S:
            await trio.sleep(PAUSE_S)
            self.hearing.note(peer)
            pause_s -= PAUSE_S
        await trio.sleep(pause_s)
