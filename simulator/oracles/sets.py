"""Sets: who counts at each height, and by which rules, recomputed from the blocks alone.

It shares no code with the chain's own records: places, keys and dates stand in plain lists, and every kind of change
has its line. The sets that a state draws from places, contributors and electors, are taken from it.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import AggregatorRule, Contributor, Genesis
from fedchain.chain.membership.amendment import AGGREGATOR, AMENDABLE
from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.state import State, genesis_state
from fedchain.crypto.keys import PublicKey


@dataclass(slots=True)
class _Place:
    """One place, as the blocks tell of it."""

    keys: list[PublicKey]
    """All that it ever had, the newest last."""
    counts: bool
    gone_in: int | None = None
    """The round since which it is gone for good; None if it is not."""
    is_convicted: bool = False
    silent: int = 0
    """Blocks in a row to which it owed a post, and was silent."""
    due: tuple[int, str] | None = None
    """The round from which a change holds, and its kind."""
    begun_ms: int = 0
    """When it began to count; 0 of founders. For four timeouts from then on its silence has no consequence."""


@dataclass(slots=True)
class Sets:
    """Follows a chain whose members change.

    Args:
        genesis: the founding document.
    """

    genesis: Genesis
    _places: list[_Place] = field(init=False)
    _rules: dict[str, Any] = field(init=False)
    _coming: list[tuple[int, dict[str, int | str]]] = field(init=False, default_factory=list)
    _named: _Place | None = field(init=False, default=None)
    """The place named for the role of a fixed or dedicated aggregator; None where there is no such role."""
    _dataless: _Place | None = field(init=False, default=None)
    """The place of the founder without data, if there is one."""
    _aggregator: _Place | None = field(init=False, default=None)
    """The place that had the role before the newest block, since the named one counts, or is the next that does."""
    _has_failed: bool = field(init=False, default=False)
    """Whether that one has just been silent for too long in its role, and stays a member all the same."""

    def __post_init__(self) -> None:
        self._places = [_Place([key], True) for key in genesis_state(self.genesis).roster.members]
        self._rules = {name: _said(self.genesis, name) for name in AMENDABLE if name != AGGREGATOR}
        if self.genesis.aggregator is AggregatorRule.FIXED:
            self._named = self._places[0]
        elif self.genesis.aggregator is AggregatorRule.DEDICATED:
            self._named = self._dataless = self._places[-1]

    def follow(self, before: State, block: Block) -> None:
        """Take the next final block, on top of the state ``before``."""
        holders = {key: place for place in self._places for key in place.keys}
        self._hear(before, block, block.certificate)
        for crime in block.evidence:
            holders[crime.culprit].is_convicted = True
        for change in block.changes:
            if change.member not in holders or not holders[change.member].is_convicted:
                self._count(change, holders, before.round)
        if before.phase + 1 == len(self.genesis.phases_of(before.round)):
            clock_ms = before.settled_time_ms if block.certificate is None else block.certificate.clock_ms
            self._begin(before.round + 1, max(before.settled_time_ms + bool(block.certificate), clock_ms))

    def differences(self, state: State) -> list[str]:
        """Each way in which a state says otherwise."""
        active = {place.keys[-1] for place in self._places if place.counts and not place.is_convicted}
        said = {key for key in state.roster.members if state.roster.is_active(key)}
        found = [f"{len(active ^ said)} members count, or do not"] if active != said else []
        if tuple(place.keys[-1] for place in self._places) != state.roster.members:
            found.append("places have other keys")
        gone = {place.keys[-1] for place in self._places if place.gone_in is not None and place.gone_in < state.round}
        if gone != state.roster.gone:
            found.append(f"{len(gone ^ state.roster.gone)} members may be connected, or may not")
        if (place := self._in_role()) and place.keys[-1] != state.roster.aggregator_of(state.round):
            found.append(f"{place.keys[-1].hex()[:16]} is the aggregator")
        role = self.genesis.founded_aggregator if state.amendments.aggregator is None else state.amendments.aggregator
        if self._named and (named := self._places.index(self._named)) != role:
            found.append(f"place {role} has the role, {named} is named for it")
        of_participants = self.genesis.phases_of(state.round)[state.phase].by is Contributor.PARTICIPANT
        idle = {place.keys[-1] for place in (self._dataless, self._in_role()) if self._dataless and place}
        if of_participants and idle & state.roster.contributors:
            found.append(f"{len(idle & state.roster.contributors)} that have no data, or the role, contribute")
        return found + [
            f"{name} is {said}, {value} is in force"
            for name, value in self._rules.items()
            if (said := _said(state.rules, name)) != value
        ]

    def _in_role(self) -> _Place | None:
        """The place that has the role; the named one if none may have it."""
        return self._heir() or self._named

    def _heir(self, *, but: _Place | None = None) -> _Place | None:
        """The named place, or the first behind it in a circle that may have the role; None if none may."""
        if self._named is None:
            return None
        counting = [place for place in self._places if place.counts and not place.is_convicted and place is not but]
        if self._dataless is not None and sum(place is not self._dataless for place in counting) < 2:
            counting = [place for place in counting if place is self._dataless]  # the last client goes on as one
        at = self._places.index(self._named)
        behind = (place for place in counting if self._places.index(place) >= at)
        return next(behind, counting[0] if counting else None)

    def _hear(self, before: State, block: Block, certificate: Certificate | None) -> None:
        heard = {post.sender for post in block.transactions}
        voted = {vote.voter for vote in certificate.votes} if certificate else set()
        phases = self.genesis.phases_of(before.round)
        own = [phase.by is Contributor.AGGREGATOR for phase in phases]
        self._aggregator = self._in_role()
        writes = self._aggregator if self.genesis.centralized else None
        can_follow = self._heir(but=self._aggregator) is not None
        for place in self._places:
            if place is self._aggregator and any(own) and can_follow:
                if own[before.phase]:  # all others wait for what it posts there
                    place.silent = 0 if place.keys[-1] in heard else place.silent + self._posts_of_round()
                continue
            had = set(place.keys[-2:])  # the votes of the block below may be of the key that was just replaced
            if place.keys[-1] in heard or had & voted or (heard and place is writes):
                place.silent = 0
            elif place is writes or (heard and place.keys[-1] in before.roster.contributors):
                place.silent += 1

    def _posts_of_round(self) -> int:
        """Posts that a contributor owes in one round."""
        return max(1, [phase.by for phase in self.genesis.phases].count(Contributor.PARTICIPANT))

    def _count(self, change: Change, holders: dict[PublicKey, _Place], round_number: int) -> None:
        due = round_number + 2
        match change.kind:
            case ChangeKind.AMEND:
                assert change.amendment is not None, "an amendment has values"
                self._coming.append((change.amendment.round or due, dict(change.amendment.values)))
            case ChangeKind.JOIN:
                self._places.append(_Place([change.member], False, due=(due, "comes")))
            case ChangeKind.BACK:
                holders[change.member].due = due, "comes"
            case ChangeKind.LEAVE:
                holders[change.member].due = due, "leaves"
            case ChangeKind.REMOVE:
                holders[change.member].due = due, "is removed"
            case ChangeKind.AWAY:
                holders[change.member].due = due, "is away"
            case ChangeKind.REKEY:
                holders[change.member].keys.append(change.key)
            case ChangeKind.RECOVER:
                place = holders[change.member]
                place.keys.append(change.key)
                if place.due is not None and place.due[1] == "leaves":
                    place.due = None

    def _begin(self, round_number: int, now_ms: int) -> None:
        self._send_away(round_number, now_ms)
        for place in self._places:
            if place.due is not None and place.due[0] <= round_number:
                place.counts = place.due[1] == "comes"
                if place.due[1] in ("leaves", "is removed"):
                    place.gone_in = round_number
                place.due, place.silent = None, 0
                place.begun_ms = now_ms if place.counts else place.begun_ms
        self._pass_on()
        for begin, values in sorted(self._coming, key=lambda item: item[0]):
            if begin <= round_number:
                self._rules |= {name: value for name, value in values.items() if name != AGGREGATOR}
                if AGGREGATOR in values:
                    self._named = self._places[int(values[AGGREGATOR])]
        self._coming = [item for item in self._coming if item[0] > round_number]

    def _send_away(self, round_number: int, now_ms: int) -> None:
        patience = self._rules["away_after"] * self._posts_of_round()
        active = [place for place in self._places if place.counts and not place.is_convicted]
        leaving = sum(place.due is not None and place.due[1] != "comes" for place in self._places if place.counts)
        fewest = 4 if self.genesis.fault_model.faulty(4) and len(self._places) >= 4 else 1
        room = max(0, min(max(1, len(active) // 4), len(active) - leaving - fewest))
        grace_ms = 4 * self._rules["phase_timeout_ms"]
        begun = [place for place in active if now_ms - place.begun_ms >= grace_ms]
        silent = [place for place in begun if place.due is None and place.silent >= patience > 0]
        silent.sort(key=lambda place: -place.silent)
        for place in silent[:room]:
            place.counts, place.silent = False, 0
        self._has_failed = self._aggregator in silent[room:]

    def _pass_on(self) -> None:
        """Name the next place for the role if the one that has it has failed, or goes."""
        place, self._named = self._aggregator, self._aggregator
        if place is None:
            return
        self._named = self._heir(but=place if self._has_failed or place.due is not None else None) or place


def _said(rules: Genesis, name: str) -> Any:
    """The value that rules have for a name of an amendment."""
    if name not in AMENDABLE:
        return dict(rules.learning).get(name)
    value = getattr(rules, name)
    return value.value if isinstance(value, Enum) else value
