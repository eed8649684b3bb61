"""Lists of parts: the parts that posts refer to, and those of them that this peer reads."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR, Part, Rules
from fedchain.chain.post import Post
from fedchain.crypto.hashing import Hash
from fedchain.crypto.signatures import PublicKey
from fedchain.node.core.context import Context

LISTS_MAX = 256
"""Most posts whose lists are remembered: the lists are read again for each part that arrives."""


class PartLookup(Protocol):
    """The parts that are stored on this machine; `learning.payload.part_folder` implements it."""

    def has(self, part_hash: Hash) -> bool:
        """Whether a part is stored."""

    def read_range(self, part_hash: Hash, start: int, size: int) -> bytes | None:
        """Up to ``size`` bytes of a part from ``start`` on; None if it is not stored."""


class NoParts:
    """The lookup of federations whose posts are whole."""

    def has(self, part_hash: Hash) -> bool:
        """See :class:`PartLookup`."""
        return False

    def read_range(self, part_hash: Hash, start: int, size: int) -> bytes | None:
        """See :class:`PartLookup`."""
        return None


def lists_parts(genesis: Genesis, rules: Rules) -> bool:
    """Whether posts of any phase list parts."""
    return any(rules.lists_parts(phase.name) for phase in (*genesis.setup, *genesis.phases))


class PartLists:
    """Reads the lists of posts, and remembers the newest."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lists: OrderedDict[Hash, Sequence[Part]] = OrderedDict()  # by post
        self.are_used = lists_parts(context.genesis, context.checks.rules)
        """Whether posts of any phase list parts."""

    def parts(self, post: Post, payload: bytes) -> Sequence[Part]:
        """The parts that a checked post lists; empty if its list cannot be read."""
        if not self.are_used:
            return ()
        if post.hash not in self._lists:
            phase = self._context.genesis.phases_of(post.round)[post.phase]
            try:
                self._lists[post.hash] = self._context.checks.rules.parts(phase.name, payload)
            except ValueError:
                self._lists[post.hash] = ()
            if len(self._lists) > LISTS_MAX:
                self._lists.popitem(last=False)
        return self._lists[post.hash]

    def ours(self, post: Post, payload: bytes) -> list[Part]:
        """The parts of a post that this peer reads."""
        return [part for part in self.parts(post, payload) if self.is_ours(part[2], post.round)]

    def are_all_ours(self, post: Post, payload: bytes) -> bool:
        """Whether this peer reads every part of a post, if any: only then it knows that others could get them."""
        return all(self.is_ours(reader, post.round) for _, _, reader in self.parts(post, payload))

    def is_ours(self, reader: int, posted_in: int) -> bool:
        """Whether this peer now reads parts for ``reader`` that were posted in a round."""
        context, open_round = self._context, self._context.head.round
        if reader == EVERYBODY:
            return True
        if reader == AGGREGATOR:
            return context.me == context.head.roster.aggregator_of(max(posted_in, open_round))
        if reader == NEXT_AGGREGATOR:  # if that one is silent, the one after it takes over
            return context.me == context.head.roster.aggregator_of(max(posted_in + 1, open_round))
        return self._is_place_of(reader, context.me)

    def may_have(self, peer: PublicKey, reader: int, posted_in: int) -> bool:
        """Whether a peer reads parts for ``reader``; its head may be a round behind ours.

        A peer that is ahead may have become the aggregator that takes over; it asks again once we are there, too. The
        aggregator of a round that is not open has no claim yet: as a rule it never reads parts for its predecessor.
        """
        roster, open_round = self._context.head.roster, self._context.head.round
        if reader == EVERYBODY:
            return True
        if reader in (AGGREGATOR, NEXT_AGGREGATOR):
            first = posted_in + (reader == NEXT_AGGREGATOR)
            rounds = (max(first, number) for number in (open_round - 1, open_round))
            return any(roster.aggregator_of(number) == peer for number in rounds)
        return self._is_place_of(reader, peer)

    def _is_place_of(self, place: int, member: PublicKey) -> bool:
        members = self._context.head.roster.members
        return 0 <= place < len(members) and members[place] == member
