"""Deterministic keys, genesis documents, posts, votes and valid blocks for tests of every folder.

Nothing here looks at a clock or draws a random number: the same calls give the same bytes.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import Any

from fedchain.chain.block import Block, Header, sign_block, transactions_root, votes_root
from fedchain.chain.difficulty import TARGET_MAX, bits_from_target
from fedchain.chain.genesis import Contributor, Genesis, PhaseRule
from fedchain.chain.knowledge import Rules
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, apply_block, genesis_state, phase_rule
from fedchain.chain.transaction import Transaction, sign_transaction
from fedchain.chain.vote import Vote, sign_vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey

CREATED_MS = 1_700_000_000_000
EASY_BITS = bits_from_target(TARGET_MAX)
"""Every second hash is good enough."""

UPDATE = PhaseRule("update", Contributor.PARTICIPANT)
GLOBAL = PhaseRule("global", Contributor.AGGREGATOR)

TRAINING_MS = 1_000
"""How long after the parent block the posts of a built block are dated."""

_PAYLOAD = Struct("<8I")
_KNOWLEDGE = Struct("<8Q")


@cache
def keys(count: int) -> tuple[PrivateKey, ...]:
    """The first ``count`` keys; key i is the same whatever the count."""
    return tuple(PrivateKey(sha256(b"test key %d" % number)) for number in range(count))


def genesis(count: int = 4, /, **overrides: Any) -> Genesis:
    """A federation of ``keys(count)`` with one phase, double SHA-256 and the easiest difficulty."""
    fields: dict[str, Any] = {
        "name": "test",
        "created_ms": CREATED_MS,
        "members": tuple(key.public_key for key in keys(count)),
        "learning": (("method", '"sum"'),),
        "phases": (UPDATE,),
        "proof_function": "sha256d",
        "initial_bits": EASY_BITS,
    }
    return Genesis(**(fields | overrides))


def payload(*numbers: int) -> bytes:
    """A payload for :class:`SumRules`: up to eight numbers below 2³², padded with zeros."""
    return _PAYLOAD.pack(*numbers, *(0,) * (8 - len(numbers)))


class SumRules:
    """Rules of a trivial method: a payload is 8 little-endian uint32, knowledge 8 uint64 that sum up all posts so far.

    Knowledge depends on the whole chain, so a test that rewinds it can fail.
    """

    def check(self, phase: str, payload: bytes) -> None:
        if len(payload) != _PAYLOAD.size:
            raise ValueError(f"{len(payload)} bytes found, {phase} has {_PAYLOAD.size}")

    def aggregate(
        self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
    ) -> bytes:
        rows = [_PAYLOAD.unpack(data) for _, data in posts]
        before = _KNOWLEDGE.unpack(knowledge) if knowledge else (0,) * 8
        return _KNOWLEDGE.pack(*(sum(column) for column in zip(before, *rows, strict=True)))


def post(
    key: PrivateKey,
    genesis: Genesis,
    round_number: int,
    payload: bytes,
    *,
    phase: int = 0,
    timestamp_ms: int = CREATED_MS + TRAINING_MS,
) -> Transaction:
    """Sign a post of ``payload``."""
    return sign_transaction(key, genesis.chain_id, round_number, phase, payload, timestamp_ms)


def seal(
    genesis: Genesis,
    header: Header,
    transactions: Sequence[Transaction],
    votes: Sequence[Vote],
    key: PrivateKey,
) -> Block:
    """Mine ``header`` as it stands, roots included, and sign it in the name of ``key``."""
    mined = search_nonce(genesis.proof_function, header, 0, 1_000_000)
    assert mined is not None, "tests use easy targets"
    return sign_block(key, genesis.chain_id, mined, tuple(transactions), tuple(votes))


class ChainBuilder:
    """Extends a chain from any of its blocks, with every member it knows the key of.

    Attributes:
        genesis: the founding document.
        blocks: every block built, by hash.
        states: the state after each of them, and the genesis state.
        contents: payloads and knowledge by hash; ``contents.get`` is a ``ContentLookup``.
        tip: hash of the block that was built last.
    """

    def __init__(self, genesis: Genesis, rules: Rules | None = None) -> None:
        self.genesis = genesis
        self.rules: Rules = rules or SumRules()
        self.tip: Hash = genesis.chain_id
        self.blocks: dict[Hash, Block] = {}
        self.states: dict[Hash, State] = {self.tip: genesis_state(genesis)}
        self.contents: dict[Hash, bytes] = {sha256(EMPTY_KNOWLEDGE): EMPTY_KNOWLEDGE}
        self._keys = {key.public_key: key for key in keys(len(genesis.members))}

    def key(self, member: PublicKey) -> PrivateKey:
        """The private key of a member."""
        return self._keys[member]

    def posts(
        self,
        parent: Hash | None = None,
        *,
        members: Sequence[PublicKey] | None = None,
        payload_of: int = 0,
        timestamp_ms: int | None = None,
    ) -> tuple[Transaction, ...]:
        """Posts for the phase that is open after ``parent`` (the tip), in sender order, with distinct payloads.

        ``members`` are all contributors unless given; ``payload_of`` is added to every number posted.
        """
        state = self.states[self.tip if parent is None else parent]
        when = state.timestamp_ms + TRAINING_MS if timestamp_ms is None else timestamp_ms
        posts = []
        for member in sorted(state.contributors if members is None else members):
            place = self.genesis.index[member]
            content = payload(payload_of + place + 1, state.round, state.phase, 7)
            self.contents[sha256(content)] = content
            posts.append(
                post(self.key(member), self.genesis, state.round, content, phase=state.phase, timestamp_ms=when)
            )
        return tuple(posts)

    def votes(self, block_hash: Hash, voters: Sequence[PublicKey] | None = None) -> tuple[Vote, ...]:
        """Votes for a built block in voter order, by all its electors unless given; none for the genesis state."""
        if block_hash not in self.blocks:
            return ()
        header = self.blocks[block_hash].header
        electors = self.states[header.parent_hash].electors
        return tuple(
            sign_vote(self.key(voter), self.genesis.chain_id, block_hash, header.round, header.phase)
            for voter in sorted(electors if voters is None else voters)
        )

    def extend(
        self,
        parent: Hash | None = None,
        *,
        posts: Sequence[Transaction] | None = None,
        votes: Sequence[Vote] | None = None,
        miner: PrivateKey | None = None,
        timestamp_ms: int | None = None,
        payload_of: int = 0,
    ) -> Block:
        """Build a valid block on ``parent`` (the tip), and make it the tip.

        It holds a post of every contributor and a vote of every elector unless given, is mined by the aggregator
        (or the first member) and takes exactly the target mining time.
        """
        parent = self.tip if parent is None else parent
        state = self.states[parent]
        if posts is None:
            posts = self.posts(parent, payload_of=payload_of)
        if votes is None:
            votes = self.votes(parent)
        if miner is None:
            miner = self.key(self.genesis.aggregator_of(state.round) or self.genesis.members[0])
        if timestamp_ms is None:
            timestamp_ms = state.timestamp_ms + TRAINING_MS + self.genesis.target_mining_time_ms
        header = Header(
            version=1,
            parent_hash=parent,
            height=state.height + 1,
            round=state.round,
            phase=state.phase,
            transactions_root=transactions_root(posts),
            votes_root=votes_root(votes),
            knowledge_root=sha256(self._aggregate(state, posts)),
            timestamp_ms=timestamp_ms,
            bits=state.bits,
            miner=miner.public_key,
            nonce=0,
        )
        return self.keep(seal(self.genesis, header, posts, votes, miner))

    def extend_many(self, count: int, parent: Hash | None = None, *, payload_of: int = 0) -> list[Block]:
        """Build ``count`` blocks on top of each other."""
        blocks: list[Block] = []
        for _ in range(count):
            blocks.append(self.extend(blocks[-1].hash if blocks else parent, payload_of=payload_of))
        return blocks

    def keep(self, block: Block) -> Block:
        """Remember ``block`` and its state, valid or not, and make it the tip."""
        parent = self.states[block.header.parent_hash]
        self.blocks[block.hash] = block
        self.states[block.hash] = apply_block(self.genesis, parent, block)
        self.tip = block.hash
        return block

    def remake(
        self,
        block: Block,
        *,
        transactions: Sequence[Transaction] | None = None,
        votes: Sequence[Vote] | None = None,
        key: PrivateKey | None = None,
        **header: Any,
    ) -> Block:
        """``block`` with other contents or header fields, mined and signed anew; it is not kept.

        The roots follow the contents unless they are given, and ``key`` is the new miner.
        """
        transactions = block.transactions if transactions is None else transactions
        votes = block.votes if votes is None else votes
        key = key or self.key(block.header.miner)
        fields: dict[str, Any] = {
            "transactions_root": transactions_root(transactions),
            "votes_root": votes_root(votes),
            "miner": key.public_key,
        }
        return seal(self.genesis, replace(block.header, **(fields | header)), transactions, votes, key)

    def _aggregate(self, state: State, posts: Sequence[Transaction]) -> bytes:
        knowledge = self.contents[state.knowledge_root]
        if posts:
            phase = phase_rule(self.genesis, state).name
            contents = [(item.sender, self.contents[item.payload_hash]) for item in posts]
            knowledge = self.rules.aggregate(phase, state.round, knowledge, contents)
        self.contents[sha256(knowledge)] = knowledge
        return knowledge
