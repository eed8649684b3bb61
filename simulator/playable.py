"""Changes that a simulation cannot play: each is looked at where those before it leave its peer, and the rules.

A change is counted in the round in which it is proposed, if there is room, and holds from the second one after it on;
another key holds at once. Changes that all nodes would refuse by then are refused here: they would be lost without a
word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import SupportsIndex

from fedchain.chain.genesis import FaultModel
from fedchain.chain.membership.amendment import ADMISSION, AGGREGATOR, AMENDABLE
from fedchain.chain.membership.change import ROUNDS_AHEAD, TEXT_SIZE_MAX
from fedchain.chain.membership.succession import amended_end
from fedchain.node.founding.amending import NUMBER_MAX
from fedchain.simulator.disturbances import MemberChange

_FOR_GOOD = {"leave": "it leaves", "remove": "it is removed"}
"""Kinds of changes behind which a member is gone, and how that is said."""

_OF_KEYS = ("rekey", "recover")

_NUMBER_BYTES = 8
"""Room for what is put behind the names of newcomers that come together."""


@dataclass(frozen=True, slots=True)
class _Peer:
    """A peer that has come, as changes leave it."""

    last: MemberChange | None = None
    """The last one by which it came, goes, is away or back; None if it counts and there is none."""
    before: "_Peer | None" = None
    """The peer before that one."""
    key_round: int | None = None
    """Round in which it got another key last; None if it has the first one."""
    changed_round: int = 0
    """Round of the last change of any kind."""

    @property
    def counts(self) -> bool:
        """Whether it counts in the end."""
        return self.last is None or self.last.kind in ("join", "back")

    def after(self, row: MemberChange) -> "_Peer":
        """The peer behind a change that can be played."""
        if row.kind not in _OF_KEYS:
            return replace(self, last=row, before=self, changed_round=row.round)
        if self.before is not None and self.last is not None and self.last.kind == "leave":  # which that takes back
            return self.before.after(row)
        return replace(self, key_round=row.round, changed_round=row.round)

    def reason_against(self, row: MemberChange, *, may_be_silent: bool) -> str:
        """Why its node, or the others', would refuse a change of it; empty if they would not.

        Args:
            row: the change.
            may_be_silent: whether members that are silent are away without a change.
        """
        last, kind, key_round = self.last, row.kind, self.key_round
        is_away = last is not None and last.kind == "away"
        if last is not None:
            is_new = row.round < last.round + ROUNDS_AHEAD
            if last.kind in _FOR_GOOD and not (is_new and last.kind == "leave" and kind == "recover"):
                return f"{_FOR_GOOD[last.kind]} in round {last.round}"
            if is_new and kind not in ("remove", "recover"):  # which wait for nothing that the member wants
                return f"its {last.kind} of round {last.round} holds from round {last.round + ROUNDS_AHEAD} on"
        if kind == "away" and is_away:
            return "it is away already"
        if kind == "back" and not is_away and not may_be_silent:
            return "it is not away"
        if kind == "rekey" and key_round is not None and row.round <= key_round + ROUNDS_AHEAD:
            return f"it has another key since round {key_round}: the next one can come in round {key_round + 3}"
        return ""


def validate_playable(
    rows: Sequence[MemberChange], members: int, fault_model: str, first: int, rounds: int, away_after: int
) -> None:
    """Raise ValueError for the first change that cannot be played, naming it.

    Args:
        rows: the changes of a scenario, in any order.
        members: number of founders.
        fault_model: the scenario's, as are ``rounds`` and ``away_after``.
        first: the round in which changes are proposed first, behind the first block.
        rounds: the last round, unless an amendment moves it.
        away_after: rounds of silence behind which a member is away; 0: it never is.
    """
    changes = [replace(row, round=max(row.round, first)) for row in rows]
    peers = {number: _Peer() for number in range(members)}
    joins = {number: row.round for row in changes if row.kind == "join" for number in row.peers}
    silence = max([away_after, *(row.values.get("away_after", 0) for row in changes)])
    last, amended, goes = last_round(changes, rounds), set[int](), ""
    for place, row in sorted(enumerate(changes), key=lambda item: item[1].round):
        name, when = f"changes[{place}]", f"in round {row.round}"
        if 0 < last < row.round:
            raise ValueError(f"{name}: {row.kind} {when}, but round {last} is the last one")
        most = TEXT_SIZE_MAX - _NUMBER_BYTES * (row.kind == "join")
        if (size := len(row.reason.encode())) > most:
            raise ValueError(f"{name}: reason has {size} bytes, at most {most} are allowed")
        if row.kind == "amend":
            _validate_amendment(name, row, peers)
            if row.round in amended:
                raise ValueError(f"{name}: another amendment {when}")
            amended.add(row.round)
        for number in row.peers:
            said, peer = f"{name}: {row.kind} of peer {number} {when}", peers.get(number, _Peer())
            if row.kind != "join":
                if joins.get(number, 0) >= row.round:
                    raise ValueError(f"{said}, but it joins in round {joins[number]}")
                if peer.changed_round == row.round:
                    raise ValueError(f"{name}: another change of peer {number} {when}")
                if reason := peer.reason_against(row, may_be_silent=silence > 0):
                    raise ValueError(f"{said}, but {reason}")
            peers[number] = peer.after(row)
            goes = said if row.kind in (*_FOR_GOOD, "away") else goes
    left = sum(peer.counts for peer in peers.values())
    least = 4 if FaultModel(fault_model) is FaultModel.BYZANTINE and members >= 4 else 1
    if goes and left < least:
        raise ValueError(f"{goes} leaves {left} members, but {least} have to stay")


def _validate_amendment(name: str, row: MemberChange, peers: Mapping[int, _Peer]) -> None:
    earliest = row.round + ROUNDS_AHEAD
    if 0 < row.begin < earliest:
        raise ValueError(
            f"{name}: begin is {row.begin}, but an amendment of round {row.round} can begin with {earliest}"
        )
    for key, value in row.values.items():
        if key == ADMISSION:
            raise ValueError(f"{name}: admission is no number, and no scenario amends it")
        if key in AMENDABLE:
            _validate_whole(name, key, value)
    heir = row.values.get(AGGREGATOR)
    if heir is None:
        return
    last = peers[int(heir)].last if heir in peers else None
    if heir not in peers or (last is not None and last.kind in _FOR_GOOD):
        raise ValueError(f"{name}: aggregator is {heir}, but there is no such member in round {row.round}")


def _validate_whole(name: str, key: str, value: float) -> None:
    is_whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)  # as numbers of NumPy's are
    if not (is_whole and 0 <= value <= NUMBER_MAX):
        raise ValueError(f"{name}: {key} is {value!r}, it must be a whole number from 0 to {NUMBER_MAX}")


def last_round(changes: Sequence[MemberChange], rounds: int) -> int:
    """The round that is the last one if blocks count all amendments at once; 0 if there is none.

    Raises ValueError for an end that is no whole number.
    """
    ends = []
    for place, row in enumerate(changes):
        if (end := row.values.get("rounds")) is not None:
            _validate_whole(f"changes[{place}]", "rounds", end)
            ends.append((row.round, row.begin, int(end)))
    return amended_end(rounds, ends)
