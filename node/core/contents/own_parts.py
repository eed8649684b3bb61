"""Parts that our own posts list, and the peers that may have them from us."""

from collections.abc import Iterator, Sequence

from fedchain.chain.knowledge import Part
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.contents.part_lists import PartLists
from fedchain.node.core.context import Context


class OwnParts:
    """Knows the readers that we posted each part for.

    Only its author gives a part, and only to the readers that its own post lists. A list by another member may be the
    lie of somebody that wants the part; so may a post that names it as its payload, until that was checked.
    """

    def __init__(self, context: Context, lists: PartLists) -> None:
        self._context, self._lists = context, lists
        self._own: dict[Hash, set[tuple[int, int]]] = {}  # (reader, round) of those that the knowledge lists
        self._were_own: dict[Hash, set[tuple[int, int]]] = {}  # the same of the knowledge before it

    def on_knowledge(self, known: Sequence[tuple[int, Part, int]]) -> None:
        """The knowledge at the head is here; it lists these parts: round of the post, part, and seat of its sender."""
        context = self._context
        self._were_own, self._own = self._own, {}
        for number, (part_hash, _, reader), sender in known:
            if context.head.roster.members[sender] == context.me:
                self._own.setdefault(part_hash, set()).add((reader, number))

    def may_have(self, peer: PublicKey, part_hash: Hash) -> bool:
        """Whether a peer reads a part of ours."""
        return any(self._lists.may_have(peer, reader, number) for reader, number in self._readers(part_hash))

    def _readers(self, part_hash: Hash) -> Iterator[tuple[int, int]]:
        """(reader, round) pairs: readers for which we list a part, and the rounds in which we posted it."""
        for known in (self._own, self._were_own):
            yield from known.get(part_hash, ())
        for post in self._context.mempool.all():
            payload = self._context.content(post.payload_hash) if post.sender == self._context.me else None
            if payload is not None:
                listed = self._lists.parts(post, payload)
                yield from ((reader, post.round) for other, _, reader in listed if other == part_hash)
