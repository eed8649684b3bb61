"""Answers: what a node tells a peer that asks, and what it asks a peer whose status shows more than it has.

All of it is a function of what the node holds; nothing here changes anything.
"""

from collections.abc import Collection, Iterator, Mapping

from fedchain.chain.fork_choice import BlockTree

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import ContentLookup
from fedchain.chain.transaction import Transaction
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    CANDIDATES_MAX,
    Bitmap,
    BlockMessage,
    GetBlocks,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.sync import blocks_towards, from_bitmap, locator, to_bitmap
from fedchain.node.core.mempool import Mempool

ANSWERS_MAX = 64
"""Posts or votes sent for one request; the asker asks again for the rest."""

UNKNOWN_MAX = 2
"""Unknown blocks on a known head that are asked for after one status; the others are in the next one too."""

Request = GetBlocks | GetPosts | GetVotes


class Answers:
    """Reads a node's tree, mempool and contents on behalf of its peers."""

    def __init__(self, genesis: Genesis, tree: BlockTree, mempool: Mempool, content: ContentLookup) -> None:
        self._genesis = genesis
        self._tree = tree
        self._mempool = mempool
        self._content = content

    def status(self) -> Status:
        """What this node holds."""
        head = self._tree.head
        newest = self._tree.children(head.block_hash)[1 - CANDIDATES_MAX :]
        blocks = [head.block_hash, *newest]
        return Status(
            head.block_hash,
            head.height,
            self._mark(self._mempool.posts((head.round, head.phase))),
            tuple((block, self._mark(self._tree.votes(block))) for block in blocks),
        )

    def questions(self, status: Status, on_the_way: Collection[PublicKey]) -> Iterator[Message]:
        """What to ask a peer with this ``status``, beside the blocks up to a head that is not known.

        Posts of members ``on_the_way`` are being fetched already.
        """
        tree, head = self._tree, self._tree.head
        unknown = [block_hash for block_hash, _ in status.candidates if block_hash not in tree]
        if unknown and status.head_hash in tree:  # otherwise what leads to it comes first
            known = locator(tree)
            yield from (GetBlocks(known, block_hash) for block_hash in unknown[:UNKNOWN_MAX])
        for block_hash, votes in status.candidates:
            wanted = block_hash in tree and not tree.is_accepted(block_hash)
            if wanted and (lacking := self._lacking(votes, tree.votes(block_hash))):
                yield GetVotes(block_hash, lacking)
        if status.head_hash == head.block_hash:
            held = {*self._mempool.posts((head.round, head.phase)), *on_the_way}
            if lacking := self._lacking(status.posts, held):
                yield GetPosts(head.round, head.phase, lacking)

    def answer(self, request: Request) -> Iterator[Message]:
        """Messages that answer ``request``; none where nothing is held."""
        match request:
            case GetBlocks():
                yield from (BlockMessage(block) for block in blocks_towards(self._tree, request))
            case GetPosts(round_number, phase, members):
                posts = self._mempool.posts((round_number, phase))
                yield from (self.post(posts[member]) for member in self._marked(members, posts))
            case GetVotes(block_hash, members):
                votes = self._tree.votes(block_hash)
                yield from (VoteMessage(votes[member]) for member in self._marked(members, votes))

    def post(self, transaction: Transaction) -> PostMessage:
        """A held post as it is sent: with its payload if that is small."""
        inline = transaction.payload_size <= self._genesis.inline_size_max
        return PostMessage(transaction, self._content(transaction.payload_hash) if inline else None)

    def _mark(self, members: Collection[PublicKey]) -> Bitmap:
        index = self._genesis.index
        return to_bitmap((index[member] for member in members), len(index))

    def _lacking(self, theirs: Bitmap, ours: Collection[PublicKey]) -> Bitmap | None:
        """Members marked in ``theirs`` that are not among ``ours``; None if there are none."""
        members = self._genesis.members
        lacking = [place for place in from_bitmap(theirs, len(members)) if members[place] not in ours]
        return to_bitmap(lacking, len(members)) if lacking else None

    def _marked(self, bitmap: Bitmap, held: Mapping[PublicKey, object]) -> list[PublicKey]:
        members = self._genesis.members
        marked = (members[place] for place in from_bitmap(bitmap, len(members)))
        return [member for member in marked if member in held][:ANSWERS_MAX]
