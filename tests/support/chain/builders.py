"""Deterministic keys, genesis documents, posts, votes, evidence and valid blocks for tests of every folder.

Nothing here looks at a clock or draws a random number: the same calls give the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import Any

from fedchain.chain.applying import apply_block
from fedchain.chain.block import (
    Block,
    Header,
    evidence_root,
    sign_block,
    transactions_root,
)
from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.difficulty import TARGET_MAX, bits_from_target
from fedchain.chain.evidence import Evidence, evidence_of
from fedchain.chain.genesis import Contributor, Genesis, PhaseRule
from fedchain.chain.knowledge import LatePost, Occasion, Rules, occasion_of
from fedchain.chain.membership.change import Change, changes_root
from fedchain.chain.post import Post, sign_post
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, genesis_state, votes_required
from fedchain.chain.storage.store import Final
from fedchain.chain.transition import naming_members
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey

CREATED_MS = 1_700_000_000_000
EASY_BITS = bits_from_target(TARGET_MAX)
"""Every second hash is good enough."""

BLOCK_MS = 10_000
"""Between the times of two blocks, as the voters' clocks say unless a test says otherwise."""

UPDATE = PhaseRule("update", Contributor.PARTICIPANT)
GLOBAL = PhaseRule("global", Contributor.AGGREGATOR)

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


class SumRules(Rules):
    """Rules of a trivial method: a payload is 8 little-endian uint32, knowledge 8 uint64 that sum up all posts so far.

    Knowledge depends on the whole chain, so a test that leaves a post out can fail. It also depends on the age of
    late posts, and on what they were made from.
    """

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        if len(payload) != _PAYLOAD.size:
            raise ValueError(f"{len(payload)} bytes found, {occasion.phase} has {_PAYLOAD.size}")

    def is_slow_to_check(self, phase: str) -> bool:
        return False

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        rows = [_PAYLOAD.unpack(data) for _, data in posts]
        for late in occasion.late:
            rows.append(_PAYLOAD.unpack(late.payload))
            made_from = int.from_bytes(sha256(late.knowledge)[:4], "little")
            rows.append((0, 0, 0, 0, 0, 0, made_from, (occasion.round - late.round) * 1000))
        before = _KNOWLEDGE.unpack(knowledge) if knowledge else (0,) * 8
        return _KNOWLEDGE.pack(*(sum(column) for column in zip(before, *rows, strict=True)))


def post(key: PrivateKey, genesis: Genesis, round_number: int, payload: bytes, *, phase: int = 0) -> Post:
    """Sign a post of ``payload``."""
    return sign_post(key, genesis.chain_id, round_number, phase, payload)


def double_vote(
    key: PrivateKey, genesis: Genesis, height: int, *, attempt: int = 0, kind: VoteKind = VoteKind.PRECOMMIT
) -> Evidence:
    """Votes of one slot for two blocks that do not exist."""
    votes = (sign_vote(key, genesis.chain_id, (height, attempt, kind), sha256(b"block %d" % n)) for n in range(2))
    return evidence_of(*votes)


def double_post(key: PrivateKey, genesis: Genesis, round_number: int, *, phase: int = 0) -> Evidence:
    """Two posts of one phase."""
    return evidence_of(*(post(key, genesis, round_number, payload(number), phase=phase) for number in range(2)))


def seal(
    genesis: Genesis,
    header: Header,
    transactions: Sequence[Post],
    certificate: Certificate | None,
    evidence: Sequence[Evidence],
    key: PrivateKey,
    changes: Sequence[Change] = (),
) -> Block:
    """Mine ``header`` as it stands, roots included, and sign it in the name of ``key``."""
    mined = search_nonce(genesis.proof_function, header, 0, 1_000_000)
    assert mined is not None, "tests use easy targets"
    body = tuple(transactions), certificate, tuple(evidence), tuple(changes)
    return sign_block(key, genesis.chain_id, mined, *body)


NEWCOMERS = 8
"""Keys beyond the founders' that a builder knows, unless a test has more of them join."""


class ChainBuilder:
    """Extends a chain from any of its blocks, with every member it knows the key of.

    Attributes:
        genesis: the founding document.
        rules: the learning method's.
        blocks: every block built, by hash.
        states: the state after each of them, and the genesis state.
        contents: payloads and knowledge by hash; ``contents.get`` is a ``ContentLookup``.
        tip: hash of the block that was built last.
    """

    def __init__(self, genesis: Genesis, rules: Rules | None = None, *, newcomers: int = NEWCOMERS) -> None:
        self.genesis = genesis
        self.rules: Rules = rules or SumRules()
        self.tip: Hash = genesis.chain_id
        self.blocks: dict[Hash, Block] = {}
        self.states: dict[Hash, State] = {self.tip: genesis_state(genesis)}
        self.contents: dict[Hash, bytes] = {sha256(EMPTY_KNOWLEDGE): EMPTY_KNOWLEDGE}
        self._keys = {key.public_key: key for key in keys(len(genesis.members) + newcomers)}

    @property
    def state(self) -> State:
        """The state after the tip."""
        return self.states[self.tip]

    def key(self, member: PublicKey) -> PrivateKey:
        """The private key of a member."""
        return self._keys[member]

    def posts(
        self, parent: Hash | None = None, *, members: Sequence[PublicKey] | None = None, payload_of: int = 0
    ) -> tuple[Post, ...]:
        """Posts for the phase that is open after ``parent`` (the tip), in sender order, with distinct payloads.

        ``members`` are all contributors unless given; ``payload_of`` is added to every number posted.
        """
        state = self.states[self.tip if parent is None else parent]
        posts = []
        for member in sorted(state.roster.contributors if members is None else members):
            place = state.roster.seats[member]
            content = payload(payload_of + place + 1, state.round, state.phase, 7)
            self.contents[sha256(content)] = content
            posts.append(post(self.key(member), self.genesis, state.round, content, phase=state.phase))
        return tuple(posts)

    def vote(
        self,
        voter: PublicKey,
        block: Hash | Block,
        *,
        kind: VoteKind = VoteKind.PRECOMMIT,
        attempt: int = 0,
        clock_ms: int | None = None,
        mining_ms: int | None = None,
    ) -> Vote:
        """A member's vote for a block, built or remade, as :meth:`certificate` holds it; prevotes measure nothing."""
        block = block if isinstance(block, Block) else self.blocks[block]
        height = block.header.height
        if kind is VoteKind.PRECOMMIT:
            clock_ms = self.genesis.created_ms + height * BLOCK_MS if clock_ms is None else clock_ms
            mining_ms = self.genesis.target_mining_time_ms if mining_ms is None else mining_ms
        return sign_vote(
            self.key(voter),
            self.genesis.chain_id,
            (height, attempt, kind),
            block.hash,
            clock_ms=clock_ms or 0,
            mining_ms=mining_ms or 0,
        )

    def certificate(
        self,
        block: Hash | Block,
        voters: Sequence[PublicKey] | None = None,
        *,
        kind: VoteKind = VoteKind.PRECOMMIT,
        attempt: int = 0,
        clock_ms: int | Mapping[PublicKey, int] | None = None,
        mining_ms: int | Mapping[PublicKey, int] | None = None,
    ) -> Certificate:
        """Precommits for a block, built or remade: of its first quorum of electors in key order, unless given.

        Clocks and mining times are one for all voters, or one each; they are ``BLOCK_MS`` a height and exactly the
        target mining time unless given.
        """
        block = block if isinstance(block, Block) else self.blocks[block]
        if voters is None:
            electors = self.states[block.header.parent_hash].roster.electors
            voters = sorted(electors)[: votes_required(self.genesis, electors)]
        return certify(
            self.vote(
                voter,
                block,
                kind=kind,
                attempt=attempt,
                clock_ms=clock_ms[voter] if isinstance(clock_ms, Mapping) else clock_ms,
                mining_ms=mining_ms[voter] if isinstance(mining_ms, Mapping) else mining_ms,
            )
            for voter in voters
        )

    def extend(
        self,
        parent: Hash | None = None,
        *,
        posts: Sequence[Post] | None = None,
        certificate: Certificate | None = None,
        evidence: Sequence[Evidence] = (),
        changes: Sequence[Change] = (),
        miner: PrivateKey | None = None,
        payload_of: int = 0,
    ) -> Block:
        """Build a valid block on ``parent`` (the tip), and make it the tip.

        It holds a post of every contributor and the parent's :meth:`certificate` unless given, and is mined by the
        aggregator (or the first active member).
        """
        parent = self.tip if parent is None else parent
        state = self.states[parent]
        posts = self.posts(parent, payload_of=payload_of) if posts is None else posts
        evidence = sorted(evidence, key=lambda item: item.hash)
        changes = sorted(changes, key=lambda item: item.hash)
        if certificate is None and state.height > 0:
            certificate = self.certificate(parent)
        key = miner or self._miner(state)
        header = Header(
            version=state.rules.version,
            parent_hash=parent,
            height=state.height + 1,
            round=state.round,
            phase=state.phase,
            transactions_root=transactions_root(posts),
            certificate_root=certificate_root(certificate),
            evidence_root=evidence_root(evidence),
            state_root=state.root,
            knowledge_root=sha256(self._aggregate(state, posts)),
            bits=state.bits_of(key.public_key),
            miner=key.public_key,
            nonce=0,
            changes_root=changes_root(changes),
        )
        body = tuple(posts), certificate, tuple(evidence), tuple(changes)
        header = naming_members(self.genesis, state, Block(header, b"", *body))
        return self.keep(seal(self.genesis, header, posts, certificate, evidence, key, changes))

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

    def remake(self, block: Block, **changes: Any) -> Block:
        """``block`` with other contents or header fields, mined and signed anew; it is not kept.

        Args:
            block: what is changed.
            changes: ``transactions``, ``certificate``, ``evidence`` or ``changes`` of the body; ``key`` of another
                miner; or fields of the header. The roots follow the body, and ``miner`` the key, unless they are given.
        """
        posts = changes.pop("transactions", block.transactions)
        certificate = changes.pop("certificate", block.certificate)
        evidence = changes.pop("evidence", block.evidence)
        moves = changes.pop("changes", block.changes)
        key = changes.pop("key", None) or self.key(block.header.miner)
        fields: dict[str, Any] = {
            "transactions_root": transactions_root(posts),
            "certificate_root": certificate_root(certificate),
            "evidence_root": evidence_root(evidence),
            "changes_root": changes_root(moves),
            "miner": key.public_key,
        }
        header = replace(block.header, **(fields | changes))
        if "members_root" not in changes and header.parent_hash in self.states:
            body = tuple(posts), certificate, tuple(evidence), tuple(moves)
            header = naming_members(self.genesis, self.states[header.parent_hash], Block(header, b"", *body))
        return seal(self.genesis, header, posts, certificate, evidence, key, moves)

    def final(self, block: Block, certificate: Certificate | None = None) -> Final:
        """Record that a node stores of a final block, with the state before it."""
        state = self.states[block.header.parent_hash]
        return Final(block, certificate or self.certificate(block), state.encode())

    def _miner(self, state: State) -> PrivateKey:
        aggregator = state.roster.aggregator_of(state.round)
        if aggregator is not None and state.roster.is_active(aggregator):
            return self.key(aggregator)
        return self.key(next(member for member in state.roster.members if state.roster.is_active(member)))

    def _aggregate(self, state: State, posts: Sequence[Post]) -> bytes:
        knowledge = self.contents[state.knowledge_root]
        if posts:
            late, contents = [], []
            for item in posts:
                data, owed = self.contents[item.payload_hash], state.owed_to(item.key)
                if owed is None:
                    contents.append((item.sender, data))
                else:
                    late.append(LatePost(item.sender, data, item.round, self.contents[owed.knowledge_root]))
            occasion = replace(occasion_of(self.genesis, state), late=tuple(late))
            knowledge = self.rules.aggregate(occasion, knowledge, contents)
        self.contents[sha256(knowledge)] = knowledge
        return knowledge
