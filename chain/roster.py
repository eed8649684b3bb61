"""The roster: the members of a federation at one height, their seats, and their rights there.

Every rule that needs the members reads the roster of the state by which it judges. The genesis document names only the
founders.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nsmallest
from typing import assert_never

from fedchain.chain.genesis import AggregatorRule, Contributor, Genesis
from fedchain.chain.member import Member, Standing
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey


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
    gone: frozenset[PublicKey]
    """Those of them that are gone for good since an earlier round; until then they learn that they are."""
    contributors: frozenset[PublicKey]
    """Members that may post in the phase that the next block closes."""
    electors: frozenset[PublicKey]
    """Members whose votes decide the next block."""
    seats: Mapping[PublicKey, int] = field(compare=False, repr=False)
    """Seat of each member."""

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: object) -> bool:
        return member in self.seats

    @property
    def clients(self) -> int:
        """Number of members with data: all that count but a dedicated aggregator, those counted that were convicted."""
        return len(self) - len(self.absent) - (self.rule is AggregatorRule.DEDICATED)

    @property
    def reachable(self) -> tuple[PublicKey, ...]:
        """Members that may be connected: all that are not gone for good."""
        return tuple(member for member in self.members if member not in self.gone) if self.gone else self.members

    @property
    def active(self) -> int:
        """Number of members that may vote, post and mine."""
        return len(self) - len(self.absent | self.culprits)

    def is_active(self, member: PublicKey) -> bool:
        """Whether ``member`` is a member that counts and was not convicted."""
        return member in self.seats and member not in self.culprits and member not in self.absent

    def aggregator_of(self, round_number: int) -> PublicKey | None:
        """The designated aggregator of a round; None if the federation has none."""
        return _aggregator(self.rule, self.members, self.absent, round_number)


def draw_roster(
    genesis: Genesis,
    members: tuple[PublicKey, ...],
    culprits: Set[PublicKey],
    phase: tuple[int, int],
    seeds: tuple[Hash, Hash],
    records: tuple[Member, ...] = (),
) -> Roster:
    """The roster of a state: contributors and electors are drawn from the active members.

    Args:
        genesis: the rules of the federation.
        members: public keys, by seat.
        culprits: the convicted members.
        phase: (round, phase) that the next block closes.
        seeds: hash of the block that closed the last round, which draws the contributors, and hash of the head, which
            draws the electors.
        records: the members' records; empty where members are the same for ever.
    """
    absent = frozenset(record.key for record in records if record.standing is not Standing.ACTIVE)
    without = culprits | absent
    active = tuple(member for member in members if member not in without) if without else members
    round_seed, head = seeds
    return Roster(
        members=members,
        rule=genesis.aggregator,
        culprits=frozenset(culprits),
        absent=absent,
        gone=frozenset(item.key for item in records if item.standing.is_for_good and item.round < phase[0]),
        contributors=_contributors(genesis, members, absent, active, (*phase, round_seed)),
        electors=draw(active, genesis.committee_size, head + b"committee"),
        seats=_seats(members),
    )


def draw(members: tuple[PublicKey, ...], count: int, seed: bytes) -> frozenset[PublicKey]:
    """``count`` of ``members``, drawn by ``seed`` so that anybody can verify the draw; 0 draws all."""
    return frozenset(_draw(members, count, seed)) if 0 < count < len(members) else _all(members)


def _contributors(
    genesis: Genesis,
    members: tuple[PublicKey, ...],
    absent: frozenset[PublicKey],
    active: tuple[PublicKey, ...],
    drawn_by: tuple[int, int, Hash],
) -> frozenset[PublicKey]:
    round_number, place, seed = drawn_by
    aggregator = _aggregator(genesis.aggregator, members, absent, round_number)
    if genesis.phases_of(round_number)[place].by is Contributor.AGGREGATOR:
        return frozenset(member for member in active if member == aggregator)
    if genesis.aggregator is AggregatorRule.DEDICATED:
        active = tuple(member for member in active if member != aggregator)
    return draw(active, genesis.contributors_per_round, seed + b"contributors")


def _aggregator(
    rule: AggregatorRule, members: tuple[PublicKey, ...], absent: frozenset[PublicKey], round_number: int
) -> PublicKey | None:
    match rule:
        case AggregatorRule.NONE:
            return None
        case AggregatorRule.FIXED:
            return members[0]
        case AggregatorRule.ROTATING:
            present = [member for member in members if member not in absent] if absent else members
            return present[round_number % len(present)] if present else None
        case AggregatorRule.DEDICATED:
            return members[-1]
        case _:
            assert_never(rule)


@lru_cache(maxsize=2048)
def _draw(members: tuple[PublicKey, ...], count: int, seed: bytes) -> tuple[PublicKey, ...]:
    """Cached, since each member is hashed; a state is read more than once, and in a simulation by many peers."""
    return tuple(member for _, member in nsmallest(count, ((sha256(seed + member), member) for member in members)))


@lru_cache(maxsize=8)
def _all(members: tuple[PublicKey, ...]) -> frozenset[PublicKey]:
    return frozenset(members)


@lru_cache(maxsize=8)
def _seats(members: tuple[PublicKey, ...]) -> Mapping[PublicKey, int]:
    """Cached: all states of a chain share it."""
    return {member: seat for seat, member in enumerate(members)}
