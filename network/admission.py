"""The gate: which peers may connect, how much each neighbour may cost us, and when it has misbehaved too often.

Only members are let in, and a member that was banned stays out, also after a restart and with another key. There are
as many records as there are members, so nothing here grows. Times are those of a clock that nobody sets; only stored
and displayed bans use calendar time.

A member that costs more than its share is first made to wait: its messages are read later, and its questions are
dropped. It is blamed only for acts that no honest neighbour commits, and for going on where everybody else would have
stopped.

Guests, whose keys are no members', have one budget together. A liar vouches for as many as it may, and as many budgets
would let it keep a node from everybody else. So would liars whose shares of our time add up: each member has a part of
a share, so that all that may lie have one, and those that take more have one more together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedchain.chain.genesis import FaultModel
from fedchain.crypto.keys import PublicKey
from fedchain.network.bans import Ban, read_bans, shown_reason, write_bans
from fedchain.network.limits import BLAME_OVER_BUDGET, Limits, TokenBucket
from fedchain.network.membership import Membership
from fedchain.network.saving import Save, save_now

GUESTS: PublicKey = b"guests"
"""Stands for all guests, where a payer is named."""

SETTLED_MIN = 64
"""A gate that keeps more accounts of messages than this drops those of members that owe it none."""

CALM = 0.5
"""Part of its budget of messages that a member has to have left for its next one to be paid without looking."""

EXCESS = 4.0
"""Multiple of the message budget beyond which a neighbour is blamed."""


class _Budgets:
    """Budgets for everything that a member may cost beside its messages. An untouched budget is full."""

    __slots__ = ("answers", "bytes", "cpu", "excess", "part")

    def __init__(self, limits: Limits, now_s: float) -> None:
        beyond = EXCESS - 1.0
        self.excess = TokenBucket(beyond * limits.messages_per_s, beyond * limits.messages_burst, now_s)
        """Messages beyond the budget that are dropped without blame."""
        self.bytes = TokenBucket(limits.bytes_per_s, limits.bytes_burst, now_s)
        self.cpu = TokenBucket(limits.cpu_share, limits.cpu_burst_s, now_s)
        self.part = TokenBucket(limits.cpu_share, limits.cpu_burst_s, now_s)
        """Its part of a share of our time; what it takes counts as often as members may lie."""
        self.answers = TokenBucket(limits.answer_bytes_per_s, limits.answer_bytes_burst, now_s)
        """Bytes sent because it asked."""


class _Conduct:
    """One member's budgets beside that of messages, if it ever needed them, and how it has behaved."""

    __slots__ = ("_budgets", "_limits", "blame", "blamed_at_s", "slow_s")

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits = limits
        self._budgets: _Budgets | None = None
        self.slow_s = 0.0
        """How long to wait before it is read again, because messages of it were dropped."""
        self.blame, self.blamed_at_s = 0.0, now_s

    def budgets(self, now_s: float) -> _Budgets:
        """Budgets for everything else that the member may cost; made when they are first needed."""
        if self._budgets is None:
            self._budgets = _Budgets(self._limits, now_s)
        return self._budgets


class Gate:
    """Knows members and bans, and keeps accounts.

    Args:
        members: those that may connect now.
        limits: budgets, and how much blame is too much.
        folder: where the ban list is kept; None: bans end with the process.
        wall: the calendar's time in Unix seconds, for the ban list.
        now_s: now, on the clock by which all other times here are given.
        save: has the ban list written; the bans hold as long as we run, also on a disk that refuses it.
    """

    def __init__(
        self,
        members: Membership,
        limits: Limits,
        folder: Path | None = None,
        *,
        wall: Callable[[], float],
        now_s: float = 0.0,
        save: Save = save_now,
    ) -> None:
        self.members = members
        self._limits, self._folder, self._wall, self._write = limits, folder, wall, save
        self._message_s = 1.0 / limits.messages_per_s
        # Half a message more than the budget, for sums of times are rounded.
        self._owed_max_s = (limits.messages_burst - 0.5) * self._message_s
        self._calm_s = (limits.messages_burst - max(CALM * limits.messages_burst, 2.0)) * self._message_s
        self._even_s = {GUESTS: now_s}  # when the budget of messages is full again, of each that has used it
        self._settle_at = SETTLED_MIN  # number of these at which it is worth while to look which are full
        self.is_calm = True
        """Whether every member has always had so much left of its budget that its next message is surely paid."""
        self._conduct: dict[PublicKey, _Conduct] = {}
        self._guests = _Conduct(limits, now_s)  # what all of them together may cost
        self._beyond = TokenBucket(limits.cpu_share, limits.cpu_burst_s, now_s)  # for all that take more than a part
        self._bans: dict[PublicKey, tuple[Ban, float]] = {}  # with its end on our clock
        self._successors: dict[PublicKey, PublicKey] = {}  # keys that were replaced lately, with those of now
        for ban in read_bans(folder) if folder is not None else ():
            self._resume(ban, now_s)

    def admits(self, peer: PublicKey, now_s: float) -> bool:
        """Whether ``peer`` may connect."""
        known = self._bans.get(peer)
        return peer in self.members and (known is None or now_s >= known[1])

    def forget(self, peer: PublicKey) -> None:
        """Drop the accounts of one that is a member no more. A ban of it still ends in its time."""
        self._conduct.pop(peer, None)
        self._even_s.pop(peer, None)

    def follow(self, successors: Mapping[PublicKey, PublicKey], now_s: float) -> None:
        """Members replaced their keys: what a former key did is its member's, which has one budget under both.

        Otherwise a member would have another budget, and no ban, as often as it takes another key.

        Args:
            successors: for each key that its member replaced lately, the key that the member has now.
            now_s: now.
        """
        for old, new in successors.items():
            if self._successors.get(old) == new:
                continue
            conduct = self._of(old, now_s)
            if new in self.members:
                self._conduct[new] = conduct
                if (even_s := self._even_s.pop(old, None)) is not None:
                    self._even_s[new] = max(even_s, self._even_s.get(new, even_s))
            if (known := self._bans.get(old)) is not None and now_s < known[1]:
                self._bans[new] = replace(known[0], peer=new), known[1]
                self._save(now_s)
        self._successors = dict(successors)

    # budgets

    def pays(self, peer: PublicKey, now_s: float) -> bool:
        """Take a message from the peer's budget; False: it has none left, and the message is to be dropped.

        Each message that is dropped delays what comes behind it until there is room for one. A peer that nevertheless
        finds a way to go far beyond its budget is blamed; a guest for its own messages alone, whoever used the budget.
        """
        payer = self._payer(peer) if self._successors or self.members.guests else peer
        even_s = self._even_s.get(payer)
        if even_s is None:
            if payer not in self.members:
                return True  # nothing is kept of it
            even_s = now_s
        if even_s < now_s:
            even_s = now_s
        if even_s - now_s > self._calm_s:
            self.is_calm = False
            if even_s - now_s > self._owed_max_s:
                self._refuse(peer, now_s)
                return False
        self._even_s[payer] = even_s + self._message_s
        if len(self._even_s) > self._settle_at:
            self._settle(now_s)
        return True

    def pay(self, messages: Sequence[tuple[PublicKey, float]]) -> None:
        """Take messages from their members' budgets that are surely paid (:attr:`is_calm`), one of each at most.

        Args:
            messages: each message's member, and the time at which it came; the earliest comes first.
        """
        even_s, message_s = self._even_s, self._message_s
        for peer, now_s in messages:
            since_s = even_s.get(peer, now_s)
            even_s[peer] = (since_s if since_s > now_s else now_s) + message_s
        if len(even_s) > self._settle_at:
            self._settle(messages[-1][1])

    def _settle(self, now_s: float) -> None:
        """Drop members whose budget of messages is full: all of it is left to those of whom nothing is known.

        A budget is full again within milliseconds, and a simulation has thousands of gates for thousands of members.
        """
        known, guests_s = self._even_s.items(), self._even_s[GUESTS]
        self._even_s = {GUESTS: guests_s} | {peer: even_s for peer, even_s in known if even_s > now_s}
        self._settle_at = max(SETTLED_MIN, 2 * len(self._even_s))

    def _payer(self, peer: PublicKey) -> PublicKey:
        """The one whose budget of messages a peer's are taken from."""
        if peer in self.members.guests:
            return GUESTS
        successor = self._successors.get(peer, peer)
        return successor if successor in self.members else peer

    def _refuse(self, peer: PublicKey, now_s: float) -> None:
        """A peer has no budget left for its message."""
        conduct = self._of(peer, now_s)
        conduct.slow_s += self._message_s
        if not conduct.budgets(now_s).excess.spends(1.0, now_s):
            self.blame(peer, BLAME_OVER_BUDGET, "far more messages than its budget", now_s)

    def charge(
        self,
        peer: PublicKey,
        *,
        cpu_s: float = 0.0,
        is_new: bool = False,
        bytes_in: int = 0,
        bytes_out: int = 0,
        now_s: float,
    ) -> None:
        """Take what a peer has cost us from its budgets: time of ours, bytes read, and bytes sent because it asked.

        Time for new and good gossip is no part of what liars could take: the rules bound what a member may say.
        """
        budgets = self._account(peer, now_s).budgets(now_s)
        budgets.cpu.borrow(cpu_s, now_s)
        if cpu_s and not is_new:
            if budgets.part.borrow(0.0, now_s) > 0.0:
                self._beyond.borrow(cpu_s, now_s)
            else:
                budgets.part.borrow(cpu_s * self._liars_max(), now_s)
        budgets.bytes.borrow(bytes_in, now_s)
        budgets.answers.borrow(bytes_out, now_s)

    def may_ask(self, peer: PublicKey, now_s: float) -> bool:
        """Whether a question of the peer's is to be answered: it owes us neither time nor bytes."""
        budgets = self._account(peer, now_s).budgets(now_s)
        return budgets.cpu.borrow(0.0, now_s) == 0.0 and budgets.answers.borrow(0.0, now_s) == 0.0

    def pause_s(self, peer: PublicKey, now_s: float) -> float:
        """How long to wait before more of a peer is read, in seconds."""
        conduct = self._of(peer, now_s)
        slow_s, conduct.slow_s = conduct.slow_s, 0.0
        budgets = self._account(peer, now_s).budgets(now_s)
        together_s = min(budgets.part.borrow(0.0, now_s), self._beyond.borrow(0.0, now_s))
        return slow_s + max(budgets.bytes.borrow(0.0, now_s), budgets.cpu.borrow(0.0, now_s), together_s)

    def _liars_max(self) -> int:
        """As many members as may lie, at least one."""
        return max(1, FaultModel.BYZANTINE.faulty(len(self.members) - len(self.members.guests)))

    # blame

    def blame(self, peer: PublicKey, amount: float, reason: str, now_s: float) -> bool:
        """Hold something against a peer; True: that was too much, and it is banned now."""
        conduct, limits = self._of(peer, now_s), self._limits
        forgiven = limits.blame_decay_per_s * max(0.0, now_s - conduct.blamed_at_s)
        conduct.blame = max(0.0, conduct.blame - forgiven) + amount
        conduct.blamed_at_s = now_s
        if conduct.blame < limits.blame_max:
            return False
        conduct.blame = 0.0
        self.ban(peer, reason, now_s)
        return True

    def ban(self, peer: PublicKey, reason: str, now_s: float) -> None:
        """Keep a member out for ``Limits.ban_s`` seconds."""
        if peer in self.members:
            since_s, ban_s = self._wall(), self._limits.ban_s
            self._bans = {member: known for member, known in self._bans.items() if now_s < known[1]}
            self._bans[peer] = Ban(peer, shown_reason(reason), since_s, since_s + ban_s), now_s + ban_s
            self._save(now_s)

    def pardon(self, peer: PublicKey, now_s: float) -> bool:
        """Lift a member's ban, with its former key's, and forget all blame; whether there was one."""
        was_banned = not self.admits(peer, now_s) and peer in self._bans
        for key in (peer, *(old for old, new in self._successors.items() if new == peer)):
            self._conduct.pop(key, None)
            self._even_s.pop(key, None)
            if self._bans.pop(key, None) is not None:
                self._save(now_s)
        return was_banned

    def bans(self, now_s: float) -> tuple[Ban, ...]:
        """The bans that hold now, the oldest first."""
        held = [ban for ban, end_s in self._bans.values() if now_s < end_s]
        return tuple(sorted(held, key=lambda ban: (ban.since_s, ban.peer)))

    def _account(self, peer: PublicKey, now_s: float) -> _Conduct:
        """The account from which a peer pays."""
        return self._guests if peer in self.members.guests else self._of(peer, now_s)

    def _of(self, peer: PublicKey, now_s: float) -> _Conduct:
        return self._conduct.get(peer) or self._begin(peer, now_s)

    def _begin(self, peer: PublicKey, now_s: float) -> _Conduct:
        conduct = _Conduct(self._limits, now_s)
        if peer in self.members:
            self._conduct[peer] = conduct
        return conduct

    def _resume(self, ban: Ban, now_s: float) -> None:
        """Go on with a ban of an earlier run. It never lasts longer than it was meant to, whatever the calendar did.

        Its member may have joined, or have its key, since the founding: then we learn only later that it is one.
        """
        meant_s = ban.until_s - ban.since_s if ban.since_s else self._limits.ban_s
        left_s = min(ban.until_s - self._wall(), meant_s)
        if left_s > 0.0:
            self._bans[ban.peer] = ban, now_s + left_s

    def _save(self, now_s: float) -> None:
        if self._folder is not None:
            self._write("the ban list", partial(write_bans, self._folder, self.bans(now_s)))
