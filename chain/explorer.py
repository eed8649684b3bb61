"""The chain explorer: questions about a stored chain, answered from its records alone.

It prints nothing and changes nothing. Members are named by their address and hashes are raw bytes; what an answer
counts, it counts on the head's chain, unless its field says otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedchain.chain.block import Block, Header
from fedchain.chain.difficulty import work_from_bits
from fedchain.chain.exceptions import ChainError, InvalidPayload, NotFound
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules, missing_contents, recompute
from fedchain.chain.merkle import MerkleProof, is_in_tree, merkle_proof
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, mining_time_ms, votes_required
from fedchain.chain.store import Storage, load_tree
from fedchain.chain.transaction import Transaction
from fedchain.chain.validation import (
    validate_knowledge,
    validate_on,
    validate_sealed,
    validate_vote,
    validate_vote_on,
)
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature

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


# --- answers


@dataclass(frozen=True, slots=True)
class Status:
    """The chain at a glance."""

    chain_id: Hash
    """32 bytes: hash of the genesis document."""
    name: str
    """What people call the federation."""
    created_ms: int
    """When it was founded, in milliseconds since the Unix epoch."""
    height: int
    """Blocks on the head's chain."""
    head: Hash
    """32 bytes: the newest accepted block."""
    timestamp_ms: int
    """The head's timestamp, in milliseconds since the Unix epoch."""
    round: int
    """Round that the next block belongs to."""
    phase: str
    """Phase that the next block closes."""
    finished: bool
    """Whether the last round is closed."""
    work: int
    """Expected number of hashes behind the head's chain."""
    bits: int
    """Difficulty of the next block, in compact form."""
    hashes_per_block: int
    """The same as the expected number of hashes."""
    members: int
    """Members in the genesis document."""
    electorate: int
    """Members whose votes count for the next block."""
    votes: int
    """Votes for the head."""
    votes_required: int
    """Votes it took to accept the head."""
    forks: int
    """Valid blocks that are not on the head's chain."""
    posts: int
    """Posts on the head's chain."""
    payload_bytes: int
    """Bytes of their payloads, kept or not."""


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """A block in a list."""

    height: int
    """Blocks before it, the genesis document included."""
    hash: Hash
    """32 bytes: its identity."""
    round: int
    """Round that it belongs to."""
    phase: str
    """Phase that it closes."""
    miner: str
    """Address of the member that mined it."""
    timestamp_ms: int
    """The miner's clock, in milliseconds since the Unix epoch."""
    mining_time_ms: int
    """From its newest post to its timestamp, in milliseconds."""
    posts: int
    """Posts that it counts."""
    votes: int
    """Votes for it that are known."""


@dataclass(frozen=True, slots=True)
class PostView:
    """A post."""

    hash: Hash
    """32 bytes: identity of the transaction."""
    round: int
    """Round that it contributes to."""
    phase: str
    """Phase that it contributes to."""
    sender: str
    """Address of the member that posted."""
    timestamp_ms: int
    """The sender's clock, in milliseconds since the Unix epoch."""
    payload_hash: Hash
    """32 bytes: SHA-256 of the payload."""
    payload_size: int
    """Bytes of the payload."""
    payload_kept: bool
    """Whether the payload is held here."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """A block in full."""

    summary: BlockSummary
    """What a list shows of it."""
    header: Header
    """What the proof of work seals."""
    on_head_chain: bool
    """False for a fork."""
    accepted: bool
    """Whether it has its quorum of votes."""
    transactions: tuple[PostView, ...]
    """Posts, in sender order."""
    missing: tuple[str, ...]
    """Addresses of the members that were due and whose posts it does not count."""
    voters: tuple[str, ...]
    """Addresses of the members that voted for it."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A post and where it stands."""

    post: PostView
    """The post itself."""
    block: BlockSummary
    """The block that counts it."""
    on_head_chain: bool
    """Whether that block is on the head's chain."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """What a member did."""

    address: str
    """Its libp2p peer id."""
    public_key: PublicKey
    """32 bytes."""
    elector: bool
    """Whether its vote counts for the next block."""
    posts: int
    """Posts of it that were counted."""
    payload_bytes: int
    """Bytes of their payloads."""
    blocks_mined: int
    """Blocks that it mined."""
    votes: int
    """Blocks that it voted for, as far as its votes are known."""
    last_round: int | None
    """Round of its last counted post; None if it never posted."""
    missed: int
    """Phases in a row, up to the head, in which it was due and did not post."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A post that was due and that the block does not count."""

    phase: str
    """The phase."""
    member: str
    """Address of the member."""


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round."""

    round: int
    """Its number; 0 holds the setup."""
    finished: bool
    """Whether all of its phases are closed."""
    blocks: tuple[BlockSummary, ...]
    """One for each closed phase."""
    transactions: tuple[PostView, ...]
    """Posts, by phase and sender."""
    missing: tuple[Absence, ...]
    """Who was due and is not among them, by phase and address."""


@dataclass(frozen=True, slots=True)
class Prototype:
    """A class prototype."""

    label: int
    """The class."""
    holders: int
    """Members behind it."""
    norm: float
    """L2 norm."""
    cosines: tuple[float, ...]
    """Cosine with each prototype, in order of the labels."""


@dataclass(frozen=True, slots=True)
class KnowledgeView:
    """What a finished round left behind."""

    round: int
    """The round."""
    height: int
    """Height of the block that closed it."""
    knowledge_root: Hash
    """32 bytes: SHA-256 of the knowledge."""
    size_bytes: int
    """Bytes of the knowledge."""
    prototypes: tuple[Prototype, ...] | None
    """By label; None for a method without class prototypes."""


@dataclass(frozen=True, slots=True)
class TransactionProof:
    """That a block counts a post, for somebody who holds nothing but headers."""

    block_hash: Hash
    """32 bytes: the block."""
    header: Header
    """Its header, whose hash is ``block_hash``."""
    merkle: MerkleProof
    """From the transaction's hash to the header's ``transactions_root``."""


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """What the verification of one block found."""

    height: int
    """The block's height."""
    hash: Hash
    """32 bytes: the block."""
    verdict: str
    """``ok``; ``unchecked``: its knowledge could not be recomputed; ``invalid``."""
    missing: tuple[Hash, ...]
    """Payloads or knowledge that recomputing needs and that are not kept."""
    error: str
    """The rule that it breaks, by the name of the error; empty if it breaks none."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What the verification of the head's chain found."""

    chain_id: Hash
    """32 bytes: hash of the genesis document."""
    is_valid: bool
    """Whether nothing is invalid; blocks may still be unchecked."""
    blocks: tuple[BlockCheck, ...]
    """From height 1 to the head."""
    votes: int
    """Valid votes for the head."""
    votes_required: int
    """Votes that the head needs."""
    invalid_votes: tuple[str, ...]
    """The rule that each of the head's other votes breaks."""


# --- questions


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
            round=head.round,
            phase=self._phase(head.round, head.phase),
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
            raise NotFound(f"no block of round {number}: the chain is in round {self._tree.head.round}")
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
        head, parent = self._tree.head, self._tree.parent_state(self._tree.head)
        checks, knowledge = [], EMPTY_KNOWLEDGE
        for block in self._chain:
            check, knowledge = self._check(rules, block, knowledge)
            checks.append(check)
        errors = [] if parent is None else [error for error in self._vote_errors(parent) if error]
        votes = len(self._tree.votes(head.block_hash)) - len(errors)
        required = 0 if parent is None else votes_required(self.genesis, parent)
        sound = all(check.verdict != "invalid" for check in checks) and not errors
        return Verification(self.genesis.chain_id, sound, tuple(checks), votes, required, tuple(errors))

    def _check(self, rules: Rules, block: Block, before: bytes) -> tuple[BlockCheck, bytes]:
        """The verdict on a block, and the knowledge after it: ``before`` if it could not be recomputed."""
        genesis, header, parent = self.genesis, block.header, self._state(block.header.parent_hash)
        root = sha256(before)

        def content(content_hash: Hash) -> bytes | None:
            return before if content_hash == root else self._content(content_hash)

        try:
            validate_sealed(genesis, block, is_valid_signature)
            # Its time has come: it is on the chain.
            validate_on(genesis, self._tree.parent_state(parent), parent, block, header.timestamp_ms)
            if missing := missing_contents(parent, block.transactions, content):
                return BlockCheck(header.height, block.hash, "unchecked", tuple(missing), ""), before
            after = recompute(genesis, rules, parent, block.transactions, content)
            validate_knowledge(header, after)
        except ChainError as error:
            reason = f"{type(error).__name__}: {error}"
            return BlockCheck(header.height, block.hash, "invalid", (), reason), before
        return BlockCheck(header.height, block.hash, "ok", (), ""), after

    def _vote_errors(self, parent: State) -> Iterator[str]:
        head = self._block(self._tree.head.block_hash)
        for vote in self._tree.votes(head.hash).values():
            try:
                validate_vote(self.genesis, vote, is_valid_signature)
                validate_vote_on(parent, head, vote)
            except ChainError as error:
                yield f"{type(error).__name__}: {error}"

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
            state = f"round {self._tree.head.round} is open"
            raise NotFound(f"no knowledge of round {wanted}: it is not finished, {state}")
        header = closing[wanted]
        data = self._content(header.knowledge_root)
        if data is None:
            raise NotFound(f"the knowledge of round {wanted}, {header.knowledge_root.hex()}, is not kept here")
        return header, data

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


def is_proven(proof: TransactionProof) -> bool:
    """Whether the proof holds. That the header is on the chain is for its reader to know."""
    return proof.header.hash == proof.block_hash and is_in_tree(proof.merkle, proof.header.transactions_root)


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
