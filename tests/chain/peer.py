"""A peer reduced to the rules: it judges bytes in the order in which a node does, and keeps what holds."""

from collections.abc import Hashable

from fedchain.chain.fork_choice import BlockTree, Reorg

from fedchain.chain.block import Block
from fedchain.chain.encoding import decode
from fedchain.chain.exceptions import MissingPayload, UnknownBlock, UnknownParent
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules, recompute
from fedchain.chain.state import EMPTY_KNOWLEDGE
from fedchain.chain.transaction import Transaction
from fedchain.chain.validation import (
    validate_knowledge,
    validate_on,
    validate_payload,
    validate_sealed,
    validate_transaction,
    validate_vote,
    validate_vote_on,
    validate_window,
)
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import is_valid_signature
from fedchain.node.core.mempool import Mempool
from tests.chain.builders import SumRules

MESSAGE_SIZE_MAX = 2**20


class Peer:
    """Takes encoded blocks, posts with payloads and votes; each is taken whole or raises ``Refused``.

    Attributes:
        now_ms: the peer's clock, set by the test.
        tree: valid blocks.
        mempool: posts.
        contents: payloads and knowledge by hash.
    """

    def __init__(self, genesis: Genesis, now_ms: int, rules: Rules | None = None) -> None:
        self.genesis = genesis
        self.now_ms = now_ms
        self.rules: Rules = rules or SumRules()
        self.tree = BlockTree(genesis)
        self.mempool = Mempool()
        self.contents: dict[Hash, bytes] = {sha256(EMPTY_KNOWLEDGE): EMPTY_KNOWLEDGE}

    def receive_block(self, data: bytes) -> Reorg | None:
        """Judge an encoded block and add it to the tree."""
        block = Block.decode(data, MESSAGE_SIZE_MAX)
        knowledge = self.judge(block)
        reorg = self.tree.add_block(block)
        self.contents[block.header.knowledge_root] = knowledge
        return reorg

    def judge(self, block: Block) -> bytes:
        """The knowledge that a valid block leaves behind; nothing changes."""
        validate_sealed(self.genesis, block, is_valid_signature)
        parent = self.tree.state(block.header.parent_hash)
        if parent is None:
            raise UnknownParent("parent", f"{block.header.parent_hash.hex()} is not among {len(self.tree)} blocks")
        validate_on(self.genesis, self.tree.parent_state(parent), parent, block, self.now_ms)
        knowledge = recompute(self.genesis, self.rules, parent, block.transactions, self.contents.get)
        validate_knowledge(block.header, knowledge)
        return knowledge

    def receive_transaction(self, data: bytes) -> bool:
        """Judge an encoded post and add it to the mempool."""
        transaction = Transaction.from_record(decode(data, MESSAGE_SIZE_MAX))
        validate_transaction(self.genesis, transaction, is_valid_signature)
        validate_window(self.tree.head, transaction)
        return self.mempool.add(transaction, self.now_ms)

    def receive_payload(self, transaction: Transaction, payload: bytes) -> None:
        """Judge a payload beside a post that is known."""
        phase = self.genesis.phases_of(transaction.round)[transaction.phase].name
        if self.mempool.get((transaction.round, transaction.phase), transaction.sender) is None:
            raise MissingPayload("post", f"{transaction.hash.hex()} is not among {len(self.mempool)} posts")
        validate_payload(transaction, payload, lambda content: self.rules.check(phase, content))
        self.contents[transaction.payload_hash] = payload

    def receive_vote(self, data: bytes) -> Reorg | None:
        """Judge an encoded vote and count it."""
        vote = Vote.from_record(decode(data, MESSAGE_SIZE_MAX))
        validate_vote(self.genesis, vote, is_valid_signature)
        block = self.tree.block(vote.block_hash)
        if block is None:
            raise UnknownBlock("block", f"{vote.block_hash.hex()} is not among {len(self.tree)} blocks")
        parent = self.tree.state(block.header.parent_hash)
        assert parent is not None, "a block in the tree has its parent there"
        validate_vote_on(parent, block, vote)
        return self.tree.add_vote(vote)

    def snapshot(self) -> Hashable:
        """Everything that the peer holds, to be compared: two peers with equal snapshots behave the same."""
        tree, pool = self.tree, self.mempool
        return (
            tree.head,
            tuple(tree._states.items()),
            tuple(tree._blocks),
            tuple((block, tuple(votes.items())) for block, votes in tree._votes.items()),
            frozenset(tree._accepted),
            tuple(tree._candidates),
            tuple((parent, tuple(children)) for parent, children in tree._children.items()),
            tuple(tree._canonical),
            tuple((step, tuple(posts.items())) for step, posts in pool._posts.items()),
            tuple((step, tuple(times.items())) for step, times in pool._held_since_ms.items()),
            tuple(self.contents.items()),
        )
