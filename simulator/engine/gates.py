"""Every simulated peer's gate: the accounts of its neighbours, as on a real network, by virtual time.

A neighbour pays for each message, and is blamed for those far beyond its budget. Authors are blamed for bad messages
that they signed. A peer that was blamed too much is cut off for the length of a ban.
"""

from collections.abc import Callable, Sequence

from fedchain.chain.exceptions import Refused
from fedchain.crypto.keys import PublicKey
from fedchain.network.admission import Gate
from fedchain.network.limits import BLAME_REJECTED, Limits
from fedchain.network.membership import Membership
from fedchain.network.verdict import Verdict, verdict

OnBan = Callable[[int, int], None]
"""Called with (peer number, neighbour that it has banned)."""


class Gates:
    """Keeps accounts for all peers.

    Args:
        members: public keys by peer number.
        now_s: virtual time, in seconds.
        memberships: those that each peer lets connect, by its number.
        on_ban: called when a peer has banned a neighbour.
    """

    def __init__(
        self,
        members: Sequence[PublicKey],
        memberships: Sequence[Membership],
        now_s: Callable[[], float],
        on_ban: OnBan,
    ) -> None:
        self.limits = Limits()
        self._members, self._memberships, self._now_s, self._on_ban = members, memberships, now_s, on_ban
        self._gates: list[Gate | None] = [None] * len(members)

    def admits(self, number: int, neighbour: int) -> bool:
        """Whether a peer lets a neighbour connect."""
        gate, key = self._gates[number], self._members[neighbour]
        return key in self._memberships[number] if gate is None else gate.admits(key, self._now_s())

    def pays(self, number: int, neighbour: int, now_s: float) -> bool:
        """Charge a message that comes now to the neighbour's budget; False if the message is to be ignored."""
        gate = self._gates[number] or self._open(number)
        if gate.pays(self._members[neighbour], now_s):
            return True
        self._note_ban(gate, number, neighbour)
        return False

    def of(self, number: int) -> Gate:
        """A peer's gate, for what its neighbours surely pay: see :attr:`Gate.is_calm`."""
        return self._gates[number] or self._open(number)

    def wrote(self, number: int, author: int, error: Refused) -> None:
        """A member signed a message that breaks a rule."""
        if verdict(error) is Verdict.REJECT:
            gate = self.of(number)
            gate.blame(self._members[author], BLAME_REJECTED, str(error), self._now_s())
            self._note_ban(gate, number, author)

    def _note_ban(self, gate: Gate, number: int, neighbour: int) -> None:
        if not gate.admits(self._members[neighbour], self._now_s()):
            self._on_ban(number, neighbour)

    def _open(self, number: int) -> Gate:
        gate = self._gates[number] = Gate(self._memberships[number], self.limits, wall=self._now_s)
        return gate
