"""Lives: since which round each member of a federation that changes counted, was away, or was gone, and its other keys.

Members go away by silence, which no block says, so standings are read by following the chain from state to state. That
is done once for each block; only what changes is kept, which is little for each member.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fedchain.chain.explorer.founding import plain_values
from fedchain.chain.explorer.history import follow
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.member import Member
from fedchain.chain.state import State, genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey


@dataclass(frozen=True, slots=True)
class Span:
    """Rounds in a row in which a place has one standing."""

    standing: str
    """active, coming, away, left, removed or convicted."""
    first: int
    """Its first round."""
    last: int | None
    """Its last round; None if it has it still."""


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A member has another key."""

    kind: str
    """``rekey``: it took it itself; ``recover``: the others gave it."""
    round: int
    """Round in which it began to hold."""
    height: int
    """First height that it decides."""


@dataclass(frozen=True, slots=True)
class Life:
    """The life of one place."""

    number: int
    """The place, from 0."""
    address: str
    """Address of the member that has it."""
    spans: tuple[Span, ...]
    """Its standings, the first one first."""
    keys: tuple[OtherKey, ...]
    """Its other keys, the first one first."""


@dataclass(frozen=True, slots=True)
class OtherRules:
    """An amendment begins."""

    round: int
    """Its first round."""
    height: int
    """Its first height."""
    values: tuple[tuple[str, int | str], ...]
    """Names and values."""


@dataclass(frozen=True, slots=True)
class LivesView:
    """The lives of all places up to one height."""

    height: int
    """The height that is decided next."""
    round: int
    """Its round."""
    lives: tuple[Life, ...]
    """By place; none where members are the same for ever."""
    rules: tuple[OtherRules, ...]
    """Amendments that began, the first one first."""


@dataclass(slots=True)
class _Place:
    """The changes of one place, each with the first height at which it holds."""

    spans: list[tuple[int, int, bool, str]] = field(default_factory=list)
    """Height, round, whether the round begins there, and standing."""
    keys: list[tuple[int, int, str, PublicKey]] = field(default_factory=list)
    """Height, round, kind, and key; the first one is that of its beginning."""


class Lives:
    """Follows a chain whose members change; it has nothing of any other one."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._begin(None)

    def _begin(self, state: State | None) -> None:
        self._state = state
        self._places = list[_Place]()
        self._rules = list[OtherRules]()
        if state is not None:
            self._note(state, state)

    def read(self, store: Store, head: int, count: int = 2**63) -> bool:
        """Follow up to ``count`` more blocks; return whether all up to the ``head`` are known now.

        Raises StoreCorrupt or InvalidEncoding.
        """
        if self._genesis.version < CHANGES_VERSION:
            return True
        if self._state is None or not self._is_continued(store, head):
            self._begin(genesis_state(self._genesis))
        assert self._state is not None, "it has begun"
        for height in range(self._state.height + 1, min(head, self._state.height + count) + 1):
            found = store.final(height)
            after = None if found is None else follow(self._genesis, self._state, found[0])
            if after is None:  # a damaged block: what came after it is as if nothing had happened there
                after = store.state_before(height + 1)
            if after is None:
                return True
            self._note(self._state, after)
            self._state = after
        return self._state.height >= head

    @property
    def height(self) -> int:
        """Height of the highest block that was followed; -1 if none was."""
        return -1 if self._state is None else self._state.height

    def at(self, height: int, round_number: int) -> LivesView:
        """The lives up to a height that is decided next, of a round."""
        known = [place for place in self._places if place.spans[0][0] <= height]
        lives = tuple(_life(number, place, height) for number, place in enumerate(known))
        return LivesView(height, round_number, lives, tuple(item for item in self._rules if item.height <= height))

    def amended(self, name: str, height: int) -> int | str | None:
        """The value of an amended parameter at a height; None if the founded one holds there."""
        held = (dict(item.values) for item in reversed(self._rules) if item.height <= height)
        return next((values[name] for values in held if name in values), None)

    def _is_continued(self, store: Store, head: int) -> bool:
        """Whether the last block is still on the chain: a folder may have been cut back and filled again."""
        state = self._state
        if state is None or state.height == 0:
            return state is not None
        return state.height <= head and any(
            block_hash == state.block_hash for block_hash, _ in store.hashes(state.height, state.height)
        )

    def _note(self, before: State, after: State) -> None:
        height, number = after.height + 1, after.round
        for place, record in enumerate(after.records):
            if place == len(self._places):
                self._places.append(_Place(keys=[(height, number, "", record.key)]))
            life, standing = self._places[place], _standing(after, record)
            if not life.spans or life.spans[-1][-1] != standing:
                life.spans.append((height, number, after.phase == 0, standing))
            if life.keys[-1][-1] != record.key:
                is_own = record.former is not None and record.former.is_liable
                life.keys.append((height, number, "rekey" if is_own else "recover", record.key))
        if before.amendments.in_force != after.amendments.in_force:
            had = set(before.amendments.in_force)
            others = tuple(pair for pair in after.amendments.in_force if pair not in had)
            self._rules.append(OtherRules(number, height, plain_values(others)))


def _standing(state: State, record: Member) -> str:
    return "convicted" if record.key in state.roster.culprits else record.standing.name.lower()


def _life(number: int, place: _Place, height: int) -> Life:
    keys = [item for item in place.keys if item[0] <= height]
    others = tuple(OtherKey(kind, begin, first) for first, begin, kind, _ in keys if kind)
    return Life(number, address(keys[-1][-1]), tuple(_spans(place, height)), others)


def _spans(place: _Place, height: int) -> Iterator[Span]:
    found = [item for item in place.spans if item[0] <= height]
    for (_, first, _, standing), following in zip(found, [*found[1:], None], strict=True):
        last = None if following is None else following[1] - following[2]  # a conviction holds in mid-round
        yield Span(standing, first, last)
