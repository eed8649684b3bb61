"""Oversight of the connected members: when each was heard, what it may cost, and what is held against it."""

from collections.abc import Callable
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
    """When each peer was heard last, on the loop's clock. Only members are connected, so there are few."""

    def __init__(self) -> None:
        self._last_s: dict[PublicKey, float] = {}

    def note(self, peer: PublicKey) -> None:
        """Something of the peer's has come."""
        self._last_s[peer] = trio.current_time()

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

    async def rest(self, peer: PublicKey, size: int) -> None:
        """Wait before a peer is read again, for as long as ``size`` bytes and its earlier costs demand.

        It sleeps even for no time: frames that are there already would keep others waiting. Nobody counts as silent
        meanwhile, for it is we who do not listen.
        """
        pause_s = self.gate.pause_s(peer, size, trio.current_time())
        while pause_s > PAUSE_S:
            await trio.sleep(PAUSE_S)
            self.hearing.note(peer)
            pause_s -= PAUSE_S
        await trio.sleep(pause_s)
