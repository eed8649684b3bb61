"""The roster: the members of a federation at one height, their seats, and their rights there.

Every rule that needs the members reads the roster of the state by which it judges. The genesis document names only the
founders.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nsmallest
from itertools import chain
from typing import assert_never

from fedchain.chain.genesis import AggregatorRule, Contributor, Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.member import Member, Standing
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey

NUMBER_SIZE = 8
"""Bytes of a place, height or round in a draw, big-endian."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The members at one height."""

    members: tuple[PublicKey, ...]
    """Public keys of 32 bytes, by seat: all that were ever members. A seat is a place in the partition, and stays."""
    rule: AggregatorRule
    """The rule that determines the designated aggregator from the seats."""
    culprits: frozenset[PublicKey]
    """Convicted members, which may not vote, post or mine any more."""
    absent: frozenset[PublicKey]
    """Members that do not count: they are still coming, away, or gone for good."""
    counting: tuple[PublicKey, ...]
    """All others that were not convicted, by seat: they may vote, post and mine."""
    gone: frozenset[PublicKey]
    """Those of the absent ones that are gone for good since an earlier round; until then they learn that they are."""
    contributors: frozenset[PublicKey]
    """Members that may post in the phase that the next block closes."""
    electors: frozenset[PublicKey]
    """Members whose votes decide the next block."""
    holder: PublicKey | None
    """The member with the role of a fixed or dedicated aggregator: of the seat in force or, while that one does not
    count, the next one by seat that can have the role. None if there is no such role."""
    dataless: PublicKey | None
    """The member that was founded as a dedicated aggregator: it has no data. None if there is none."""
    successors: Mapping[PublicKey, PublicKey]
    """For each key that was replaced lately, or whose member was convicted since, the key that the member has now."""
    excused: frozenset[PublicKey]
    """Those of them whose statements convict nobody: the others took it that they were lost or stolen."""
    seats: Mapping[PublicKey, int] = field(compare=False, repr=False)
    """Seat of each member, by the key that it has and by the one that was replaced."""
    _counting: frozenset[PublicKey] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_counting", member_set(self.counting))

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: object) -> bool:
        return member in self.seats

    @property
    def clients(self) -> int:
        """Number of members with data: all that count, and those that were convicted, but a member that has none.

        It stays as it is where the role of a dedicated aggregator passes on in the middle of a round: sums that are
        encrypted in one phase are read in the next one by the number of those that may have added to them.
        """
        return len(self) - len(self.absent) - (self.dataless is not None and self.dataless not in self.absent)

    @property
    def reachable(self) -> tuple[PublicKey, ...]:
        """Members that may be connected: all that are not gone for good."""
        return tuple(member for member in self.members if member not in self.gone) if self.gone else self.members

    @property
    def active(self) -> int:
        """Number of members that may vote, post and mine."""
        return len(self.counting)

    def is_active(self, member: PublicKey) -> bool:
        """Whether ``member`` is a member that counts and was not convicted."""
        return member in self._counting

    def current(self, key: PublicKey) -> PublicKey:
        """The key that a member has now, given that one or the one that was replaced."""
        return self.successors.get(key, key)

    def is_liable(self, key: PublicKey) -> bool:
        """Whether two statements by a key that exclude each other convict its member."""
        return key in self.seats and key not in self.excused and self.current(key) not in self.culprits

    def aggregator_of(self, round_number: int) -> PublicKey | None:
        """The designated aggregator of a round; None if the federation has none."""
        return _aggregator(self.rule, self.members, self.absent, self.holder, round_number)

    def heir(self, without: Set[PublicKey], seat: int) -> int | None:
        """The first seat that can have the role of a fixed or dedicated aggregator, from ``seat`` on and then from 0.

        Args:
            without: members that cannot, since they do not count or have failed in it.
            seat: where to begin.

        Returns:
            None if there is none: the last one with data goes on to contribute, as nobody else would.
        """
        return _heir(self.members, without, seat, self.dataless)


@lru_cache(maxsize=8)
def by_key(members: frozenset[PublicKey]) -> tuple[PublicKey, ...]:
    """Members in the order of their keys, in which a block counts their posts."""
    return tuple(sorted(members))


def draw_roster(
    genesis: Genesis,
    members: tuple[PublicKey, ...],
    culprits: Set[PublicKey],
    phase: tuple[int, int],
    seeds: tuple[bytes, bytes],
    records: tuple[Member, ...] = (),
    named: int | None = None,
) -> Roster:
    """The roster of a state: contributors and electors are drawn from the active members.

    Args:
        genesis: the rules of the federation.
        members: public keys, by seat.
        culprits: the keys by which members were convicted.
        phase: (round, phase) that the next block closes.
        seeds: what draws the contributors (:func:`seed_of_contributors`) and the electors (:func:`seed_of_electors`).
        records: the members' records; empty where members are the same for ever.
        named: seat with the role of a fixed or dedicated aggregator; None if the genesis document's has it.
    """
    successors, culprits, absent = _standings(culprits, records)
    without = culprits | absent
    active = _others(members, without)
    contributors_seed, electors_seed = seeds
    seats = _seats(members)
    places = seats if records else None
    dataless = members[len(genesis.participants)] if genesis.aggregator is AggregatorRule.DEDICATED else None
    seat, holder = genesis.founded_aggregator if named is None else named, None
    if seat is not None:
        heir = _heir(members, without, seat, dataless) if records else None
        holder = members[seat if heir is None else heir]
    aggregator = _aggregator(genesis.aggregator, members, absent, holder, phase[0])
    return Roster(
        members=members,
        rule=genesis.aggregator,
        culprits=culprits,
        absent=absent,
        counting=active,
        gone=frozenset(item.key for item in records if item.standing.is_for_good and item.round < phase[0]),
        contributors=_contributors(genesis, active, (aggregator, dataless), (*phase, contributors_seed), places),
        electors=draw(active, genesis.committee_size, electors_seed, places),
        holder=holder,
        dataless=dataless,
        successors=successors,
        excused=frozenset(item.former.key for item in records if item.former and not item.former.is_liable),
        seats=seats if not successors else {**seats, **{old: seats[new] for old, new in successors.items()}},
    )


def counting(
    members: tuple[PublicKey, ...], culprits: Set[PublicKey], records: tuple[Member, ...]
) -> tuple[PublicKey, ...]:
    """The members that may vote, post and mine, by seat; see :func:`draw_roster`."""
    _, culprits, absent = _standings(culprits, records)
    return _others(members, culprits | absent)


def _standings(
    culprits: Set[PublicKey], records: tuple[Member, ...]
) -> tuple[dict[PublicKey, PublicKey], frozenset[PublicKey], frozenset[PublicKey]]:
    """Former keys with the key that each member has now, convicted members by the latter, members that do not count."""
    successors = {item.former.key: item.key for item in records if item.former is not None}
    absent = frozenset(record.key for record in records if record.standing is not Standing.ACTIVE)
    culprits = frozenset(successors.get(key, key) for key in culprits) if successors else frozenset(culprits)
    return successors, culprits, absent


def _others(members: tuple[PublicKey, ...], without: frozenset[PublicKey]) -> tuple[PublicKey, ...]:
    return tuple(member for member in members if member not in without) if without else members


def seed_of_electors(genesis: Genesis, height: int, parent_hash: Hash) -> bytes:
    """The seed that draws the electors of a height.

    From version 3 on no block has a part in it: its miner would throw away blocks that draw others than it likes.
    """
    if genesis.version < CHANGES_VERSION:
        return parent_hash + b"committee"
    return genesis.chain_id + b"committee" + height.to_bytes(NUMBER_SIZE, "big")


def seed_of_contributors(genesis: Genesis, round_number: int, round_seed: Hash) -> bytes:
    """The seed that draws the contributors of a round.

    ``round_seed`` is the hash of the block that closed the round before. From version 3 on it has no part in the draw.
    """
    if genesis.version < CHANGES_VERSION:
        return round_seed + b"contributors"
    return genesis.chain_id + b"contributors" + round_number.to_bytes(NUMBER_SIZE, "big")


def draw(
    members: tuple[PublicKey, ...],
    count: int,
    seed: bytes,
    places: Mapping[PublicKey, int] | None = None,
    *,
    is_claim: bool = False,
) -> frozenset[PublicKey]:
    """``count`` of ``members``, drawn by ``seed`` so that anybody can verify the draw; 0 draws all.

    Where keys may be replaced, ``places`` draw in their stead: otherwise a member could look for a key that is drawn.
    If the members are no more than a stranger's claim, the draw is not remembered: it could invent large sets for ever.
    """
    if not 0 < count < len(members):
        return frozenset(members) if is_claim else member_set(members)
    if places is None:
        return frozenset(_draw(members, count, seed))
    named = {places[member].to_bytes(NUMBER_SIZE, "big"): member for member in members}
    drawn = _drawn if is_claim else _draw
    return frozenset(named[name] for name in drawn(tuple(named), count, seed))


def _contributors(
    genesis: Genesis,
    active: tuple[PublicKey, ...],
    without: tuple[PublicKey | None, PublicKey | None],
    drawn_by: tuple[int, int, bytes],
    places: Mapping[PublicKey, int] | None,
) -> frozenset[PublicKey]:
    (round_number, place, seed), (aggregator, _) = drawn_by, without
    if genesis.phases_of(round_number)[place].by is Contributor.AGGREGATOR:
        return frozenset(member for member in active if member == aggregator)
    if genesis.aggregator is AggregatorRule.DEDICATED:
        active = tuple(member for member in active if member not in without)
    return draw(active, genesis.contributors_per_round, seed, places)


def _heir(members: tuple[PublicKey, ...], without: Set[PublicKey], seat: int, dataless: PublicKey | None) -> int | None:
    """See :meth:`Roster.heir`."""
    with_data = len(members) - len(without | {dataless}) if dataless is not None else len(members)
    for heir in chain(range(seat, len(members)), range(seat)):
        key = members[heir]
        if key not in without and (dataless in (None, key) or with_data > 1):
            return heir
    return None


def _aggregator(
    rule: AggregatorRule,
    members: tuple[PublicKey, ...],
    absent: frozenset[PublicKey],
    holder: PublicKey | None,
    round_number: int,
) -> PublicKey | None:
    match rule:
        case AggregatorRule.NONE:
            return None
        case AggregatorRule.FIXED | AggregatorRule.DEDICATED:
            return holder
        case AggregatorRule.ROTATING:
            present = [member for member in members if member not in absent] if absent else members
            return present[round_number % len(present)] if present else None
        case _:
            assert_never(rule)


@lru_cache(maxsize=2048)
def _draw(members: tuple[PublicKey, ...], count: int, seed: bytes) -> tuple[PublicKey, ...]:
    """Cached, since each member is hashed; a state is read more than once, and in a simulation by many peers."""
    return _drawn(members, count, seed)


def _drawn(members: tuple[PublicKey, ...], count: int, seed: bytes) -> tuple[PublicKey, ...]:
    return tuple(member for _, member in nsmallest(count, ((sha256(seed + member), member) for member in members)))


@lru_cache(maxsize=8)
def member_set(members: tuple[PublicKey, ...]) -> frozenset[PublicKey]:
    """Members as a set, one object for all that stand at one state."""
    return frozenset(members)


@lru_cache(maxsize=8)
def _seats(members: tuple[PublicKey, ...]) -> Mapping[PublicKey, int]:
    """Cached: all states of a chain share it."""
    return {member: seat for seat, member in enumerate(members)}
