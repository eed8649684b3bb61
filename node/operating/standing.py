"""Whether the federation stands still, as one of its members sees it: who has to be connected for the next block, and
is not.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.chain.state import may_close_empty
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.node import Node
from fedchain.wording import counted, some_of


class Connected(Protocol):
    """The part of a service that is read here."""

    @property
    def node(self) -> Node:
        """The state machine."""

    @property
    def genesis(self) -> Genesis:
        """The rules that the federation agreed on."""

    @property
    def me(self) -> PublicKey:
        """Public key of this peer."""

    @property
    def peers(self) -> Set[PublicKey]:
        """The connected peers."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Why no block can become final."""

    lacks: str
    """The thing that too few members can give: votes, posts, or the aggregate."""
    needed: int
    """Members that have to give it."""
    here: int
    """Members that can: those connected, and those whose post came before they left."""
    missing: tuple[PublicKey, ...]
    """The other members that could give it, in the order of their numbers."""


def standstill(service: Connected) -> Standstill | None:
    """Why nothing more is learned while the connected peers stay the same; None if something is, or none is due.

    Without votes or posts no block becomes final. Without a designated aggregator blocks do, and count no post. Where
    contributors or aggregators are drawn or take turns, the next round has others.
    """
    node = service.node
    head = node.head
    if head.finished:
        return None
    here = {service.me, *service.peers}
    electors = head.roster.electors
    if len(here & electors) < node.votes_required():
        return _lacking(head.roster.seats, "votes", node.votes_required(), electors, here)
    aggregator = head.roster.aggregator_of(head.round)
    is_the_same = service.genesis.aggregator is not AggregatorRule.ROTATING
    if aggregator is not None and aggregator not in here and is_the_same:
        return _lacking(head.roster.seats, "the aggregate", 1, {aggregator}, here)
    gave = here | {post.sender for post in node.open_posts()}
    if len(gave & head.roster.contributors) < node.posts_required() and not may_close_empty(service.genesis, head):
        return _lacking(head.roster.seats, "posts", node.posts_required(), head.roster.contributors, gave)
    return None


def _lacking(
    seats: Mapping[PublicKey, int], lacks: str, needed: int, able: Set[PublicKey], here: Set[PublicKey]
) -> Standstill:
    return Standstill(lacks, needed, len(here & able), by_number(able - here, seats))


def by_number(members: Iterable[PublicKey], seats: Mapping[PublicKey, int]) -> tuple[PublicKey, ...]:
    """Members in the order of their numbers; strangers come first."""
    return tuple(sorted(members, key=lambda member: seats.get(member, -1)))


def plain_standstill(found: Standstill, since_ms: int) -> dict[str, Any]:
    """A standstill as plain values.

    Args:
        found: the standstill.
        since_ms: when it began, in milliseconds since 1970.
    """
    return {
        "lacks": found.lacks,
        "needed": found.needed,
        "here": found.here,
        "missing": [address(member) for member in found.missing],
        "since_ms": since_ms,
    }


def standstill_text(found: dict[str, Any], numbers: dict[str, int]) -> str:
    """A standstill of a status in one line, without its beginning.

    Args:
        found: the result of :func:`plain_standstill`.
        numbers: numbers of members by address, as far as they are known.
    """
    missing = some_of([f"peer {numbers[name]}" if name in numbers else name for name in found["missing"]])
    here = "is" if found["here"] == 1 else "are"
    needed = counted(found["needed"], "member")
    return f"{found['lacks']} of {needed} needed, {found['here']} {here} here; missing: {missing}"
