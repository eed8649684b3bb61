"""The chain explorer: questions about a stored chain, answered from its records alone.

It prints nothing and changes nothing. Members are named by their address and hashes are raw bytes; what an answer
counts, it counts on the head's chain, unless its field says otherwise.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fedchain.chain.block import Block, Header
from fedchain.chain.difficulty import work_from_bits
from fedchain.chain.exceptions import InvalidPayload, NotFound
from fedchain.chain.explorer.audit import Verification, audit_chain
from fedchain.chain.explorer.views import (
    Absence,
    BlockSummary,
    BlockView,
    KnowledgeView,
    PeerView,
    PostView,
    Prototype,
    RoundView,
    Status,
    TransactionProof,
    TransactionView,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.merkle import merkle_proof
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, mining_time_ms, votes_required
from fedchain.chain.storage.store import Storage, load_tree
from fedchain.chain.transaction import Transaction
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey

PREFIX_SIZE_MIN = 4
"""Hexadecimal digits of a hash, or letters at the end of an address, that are enough to ask for it."""


class Prototypes(Protocol):
    """Class prototypes at a glance; all of them follow ``labels``."""

    @property
    def labels(self) -> Sequence[int]:
        """Classes that have a prototype."""

    @property
    def holders(self) -> Sequence[int]:
        """Members behind each prototype."""

    @property
    def norms(self) -> Sequence[float]:
        """L2 norm of each prototype."""

    @property
    def cosines(self) -> Sequence[Sequence[float]]:
        """Cosine of each prototype with each."""


class KnowledgeRules(Rules, Protocol):
    """A learning method that can also say what its knowledge means."""

    def summary(self, knowledge: bytes) -> Prototypes | None:
        """The class prototypes in ``knowledge``; None for a method without any. Raises ValueError."""

    def safetensors(self, knowledge: bytes) -> bytes:
        """``knowledge`` as a file that other programs read. Raises ValueError."""


class Explorer:
    """Answers about one chain. It reads the records once, at the start."""

    def __init__(self, genesis: Genesis, storage: Storage) -> None:
        """Raises StoreCorrupt if a record cannot be read."""
        self.genesis = genesis
        self._storage = storage
        self._tree = load_tree(genesis, storage.records())
        hashes = (self._tree.canonical(height) for height in range(1, self._tree.head.height + 1))
        self._chain = tuple(self._block(block_hash) for block_hash in hashes if block_hash)

    def status(self) -> Status:
        """The chain at a glance."""
        genesis, head, parent = self.genesis, self._tree.head, self._tree.parent_state(self._tree.head)
        posts = [transaction for block in self._chain for transaction in block.transactions]
        return Status(
            chain_id=genesis.chain_id,
            name=genesis.name,
            created_ms=genesis.created_ms,
            height=head.height,
            head=head.block_hash,
            timestamp_ms=head.timestamp_ms,
            round=genesis.rounds if head.finished else head.round,
            phase=None if head.finished else self._phase(head.round, head.phase),
            finished=head.finished,
            work=head.work,
            bits=head.bits,
            hashes_per_block=work_from_bits(head.bits),
            members=len(genesis.members),
            electorate=len(head.electors),
            votes=len(self._tree.votes(head.block_hash)),
            votes_required=0 if parent is None else votes_required(genesis, parent),
            forks=len(self._tree) - len(self._chain),
            posts=len(posts),
            payload_bytes=sum(post.payload_size for post in posts),
        )

    def blocks(self, limit: int) -> tuple[BlockSummary, ...]:
        """The newest blocks of the head's chain, head first, at most ``limit``."""
        return tuple(self._summarize(block) for block in reversed(self._chain[max(0, len(self._chain) - limit) :]))

    def block(self, name: str) -> BlockView:
        """A block of the head's chain by its height, or any by its hash or the beginning of it. Raises NotFound."""
        if name.isdecimal() and 1 <= int(name) <= len(self._chain):
            return self._view(self._chain[int(name) - 1])
        if name.isdecimal() and len(name) < PREFIX_SIZE_MIN:
            raise NotFound(f"no block at height {name}: the chain has heights 1 to {len(self._chain)}")
        return self._view(self._block(_expect_one(name, [block.hash for block in self._all_blocks()], "block")))

    def transaction(self, name: str) -> TransactionView:
        """A counted post by its hash or the beginning of it. Raises NotFound."""
        transaction, block = self._find_transaction(name)
        return TransactionView(self._post(transaction), self._summarize(block), self._is_on_head_chain(block))

    def peer(self, name: str) -> PeerView:
        """A member by its address or the end of it.

        Raises:
            NotFound: no member, or several.
            InvalidAddress: not an address at all.
        """
        member = self._find_member(name)
        posts = [item for block in self._chain for item in block.transactions if item.sender == member]
        return PeerView(
            address=address(member),
            public_key=member,
            elector=member in self._tree.head.electors,
            posts=len(posts),
            payload_bytes=sum(post.payload_size for post in posts),
            blocks_mined=sum(block.header.miner == member for block in self._chain),
            votes=sum(member in self._tree.votes(block.hash) for block in self._chain),
            last_round=max((post.round for post in posts), default=None),
            missed=self._tree.head.missed[self.genesis.index[member]],
        )

    def round(self, number: int) -> RoundView:
        """A round that has a block. Raises NotFound."""
        views = [self._view(block) for block in self._chain if block.header.round == number]
        if not views:
            raise NotFound(f"no block of round {number}: {self._progress()}")
        return RoundView(
            round=number,
            finished=len(views) == len(self.genesis.phases_of(number)),
            blocks=tuple(view.summary for view in views),
            transactions=tuple(post for view in views for post in view.transactions),
            missing=tuple(Absence(view.summary.phase, member) for view in views for member in view.missing),
        )

    def knowledge(self, rules: KnowledgeRules, round_number: int | None = None) -> KnowledgeView:
        """What a round, the newest finished one by default, left behind.

        Raises:
            NotFound: the round is not finished, or its knowledge is not kept.
            InvalidPayload: the method cannot read it.
        """
        header, data = self._knowledge(round_number)
        try:
            found = rules.summary(data)
        except ValueError as error:
            raise InvalidPayload("knowledge", str(error)) from None
        prototypes = None
        if found is not None:
            columns = zip(found.labels, found.holders, found.norms, found.cosines, strict=True)
            prototypes = tuple(Prototype(label, count, norm, tuple(row)) for label, count, norm, row in columns)
        return KnowledgeView(header.round, header.height, header.knowledge_root, len(data), prototypes)

    def safetensors(self, rules: KnowledgeRules) -> bytes:
        """What the newest finished round left behind, as a file. Raises as :meth:`knowledge` does."""
        _, data = self._knowledge(None)
        try:
            return rules.safetensors(data)
        except ValueError as error:
            raise InvalidPayload("knowledge", str(error)) from None

    def views(self) -> Iterator[BlockView]:
        """The head's chain in full, oldest block first."""
        return (self._view(block) for block in self._chain)

    def proof(self, name: str) -> TransactionProof:
        """Prove that the block counts a post, named as in :meth:`transaction`. Raises NotFound."""
        transaction, block = self._find_transaction(name)
        leaves = [item.hash for item in block.transactions]
        return TransactionProof(block.hash, block.header, merkle_proof(leaves, leaves.index(transaction.hash)))

    def verify(self, rules: Rules) -> Verification:
        """Judge every block of the head's chain again, as a member would that saw it for the first time."""
        return audit_chain(self._tree, self._chain, rules, self._content)

    def _summarize(self, block: Block) -> BlockSummary:
        header = block.header
        return BlockSummary(
            height=header.height,
            hash=block.hash,
            round=header.round,
            phase=self._phase(header.round, header.phase),
            miner=address(header.miner),
            timestamp_ms=header.timestamp_ms,
            mining_time_ms=mining_time_ms(self._state(header.parent_hash), block),
            posts=len(block.transactions),
            votes=len(self._tree.votes(block.hash)),
        )

    def _view(self, block: Block) -> BlockView:
        posted = {transaction.sender for transaction in block.transactions}
        return BlockView(
            summary=self._summarize(block),
            header=block.header,
            on_head_chain=self._is_on_head_chain(block),
            accepted=self._tree.is_accepted(block.hash),
            transactions=tuple(self._post(transaction) for transaction in block.transactions),
            missing=tuple(sorted(map(address, self._state(block.header.parent_hash).contributors - posted))),
            voters=tuple(sorted(map(address, self._tree.votes(block.hash)))),
        )

    def _post(self, transaction: Transaction) -> PostView:
        return PostView(
            hash=transaction.hash,
            round=transaction.round,
            phase=self._phase(transaction.round, transaction.phase),
            sender=address(transaction.sender),
            timestamp_ms=transaction.timestamp_ms,
            payload_hash=transaction.payload_hash,
            payload_size=transaction.payload_size,
            payload_kept=self._content(transaction.payload_hash) is not None,
        )

    def _find_transaction(self, name: str) -> tuple[Transaction, Block]:
        # A reorg counts a post twice: the block on the head's chain comes last and stays.
        blocks = [block for block in self._all_blocks() if not self._is_on_head_chain(block)]
        found = {item.hash: (item, block) for block in (*blocks, *self._chain) for item in block.transactions}
        return found[_expect_one(name, list(found), "transaction")]

    def _find_member(self, name: str) -> PublicKey:
        ending = name.lstrip("….")
        found = [member for member in self.genesis.members if address(member).endswith(ending)]
        if len(ending) >= PREFIX_SIZE_MIN and len(found) == 1:
            return found[0]
        if len(ending) >= PREFIX_SIZE_MIN and len(found) > 1:
            raise NotFound(f"{len(found)} members have an address that ends in {ending}")
        public_key_from_address(name)
        raise NotFound(f"{name} is not one of the {len(self.genesis.members)} members")

    def _knowledge(self, round_number: int | None) -> tuple[Header, bytes]:
        closing = {
            block.header.round: block.header
            for block in self._chain
            if block.header.phase + 1 == len(self.genesis.phases_of(block.header.round))
        }
        # The setup prepares the learning, it teaches nothing: round 0 must be asked for.
        wanted = max((1, *closing)) if round_number is None else round_number
        if wanted not in closing:
            raise NotFound(f"no knowledge of round {wanted}: {self._progress()}")
        header = closing[wanted]
        data = self._content(header.knowledge_root)
        if data is None:
            raise NotFound(f"the knowledge of round {wanted}, {header.knowledge_root.hex()}, is not kept here")
        return header, data

    def _progress(self) -> str:
        if self._tree.head.finished:
            return f"the chain ended with round {self.genesis.rounds}"
        return f"the chain is in round {self._tree.head.round}"

    def _content(self, content_hash: Hash) -> bytes | None:
        # What a federation knows at the start is nothing, and nobody has to keep it.
        return EMPTY_KNOWLEDGE if content_hash == sha256(EMPTY_KNOWLEDGE) else self._storage.content(content_hash)

    def _all_blocks(self) -> Iterator[Block]:
        """Every block of the tree, by height."""
        level = list(self._tree.children(self._tree.root))
        while level:
            yield from map(self._block, level)
            level = [child for block_hash in level for child in self._tree.children(block_hash)]

    def _block(self, block_hash: Hash) -> Block:
        block = self._tree.block(block_hash)
        assert block is not None, "only hashes of the tree are asked for"
        return block

    def _state(self, block_hash: Hash) -> State:
        state = self._tree.state(block_hash)
        assert state is not None, "only hashes of the tree are asked for"
        return state

    def _is_on_head_chain(self, block: Block) -> bool:
        return self._tree.canonical(block.header.height) == block.hash

    def _phase(self, round_number: int, phase: int) -> str:
        phases = self.genesis.phases_of(round_number)
        return phases[phase].name if phase < len(phases) else f"phase {phase}"


def _expect_one(name: str, hashes: Sequence[Hash], what: str) -> Hash:
    """The one hash that begins with the hexadecimal digits ``name``."""
    prefix = name.lower().rstrip("….")
    found = [item for item in hashes if item.hex().startswith(prefix)]
    if len(prefix) < PREFIX_SIZE_MIN:
        raise NotFound(f"{what} {name!r}: at least {PREFIX_SIZE_MIN} digits of a hash are needed")
    if not found:
        raise NotFound(f"no {what} has a hash that begins with {prefix!r}")
    if len(found) > 1:
        raise NotFound(f"{len(found)} {what}s have a hash that begins with {prefix!r}: give more of it")
    return found[0]
