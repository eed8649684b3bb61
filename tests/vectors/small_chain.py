"""The small chain that the vectors tell of: four members, three blocks, and one member that votes twice.

Knowledge is any bytes here: what it means is the learning method's business. Everything follows from fixed seeds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedchain.chain.block import Block, Header, evidence_root, sign_block, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.difficulty import TARGET_MAX, bits_from_target
from fedchain.chain.evidence import Evidence, evidence_of
from fedchain.chain.genesis import AggregatorRule, Contributor, FaultModel, Genesis, PhaseRule
from fedchain.chain.post import Post, sign_post
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import State, genesis_state
from fedchain.chain.transition import judge_final
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, is_valid_signature

CREATED_MS = 1_700_000_000_000

KEYS = tuple(PrivateKey(bytes([number]) * 32) for number in (1, 2, 3, 4))
"""Keys of the members, in order; the seeds are 32 times the byte 1, 2, 3, 4."""

CLOCKS_MS = (10_000, 10_200, 9_000, 60_000)
"""How far the members' clocks have gone on since the block before, in milliseconds; the last one is wrong."""

MINING_MS = (3_000, 4_500, 9_000, 0)
"""How long each member says that a block was mined."""


def small_genesis() -> Genesis:
    """The founding document of the chain: all that has a default has it, but for a quick proof of work."""
    return Genesis(
        name="vectors",
        created_ms=CREATED_MS,
        members=tuple(key.public_key for key in KEYS),
        learning=(("method", '"example"'),),
        phases=(PhaseRule("update", Contributor.PARTICIPANT),),
        proof_function="sha256d",
        initial_bits=bits_from_target(TARGET_MAX),
    )


def full_genesis() -> Genesis:
    """A document in which no field has its default."""
    return Genesis(
        name="Föderation",
        created_ms=CREATED_MS,
        members=tuple(key.public_key for key in reversed(KEYS)),
        learning=(("dataset", '"digits"'), ("method", '"example"')),
        setup=(PhaseRule("statistics", Contributor.PARTICIPANT, 4),),
        phases=(PhaseRule("update", Contributor.PARTICIPANT, 2), PhaseRule("global", Contributor.AGGREGATOR)),
        rounds=100,
        aggregator=AggregatorRule.ROTATING,
        centralized=True,
        proof_function="scrypt",
        initial_bits=0x1F0FFFF0,
        target_mining_time_ms=2_000,
        fault_model=FaultModel.CRASH,
        contribution_quorum=3,
        phase_timeout_ms=30_000,
        phase_floor_ms=1_000,
        vote_timeout_ms=500,
        committee_size=3,
        contributors_per_round=4,
        payload_size_max=2**20,
        inline_size_max=2**10,
        retention_blocks=1_000,
        omission_slack_ms=1_000,
        round_interval_ms=60_000,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """A block of the chain, and what surrounds it."""

    before: State
    """State that the block stands on."""
    block: Block
    certificate: Certificate
    """Precommits that make the block final; the next one carries them."""
    after: State
    """The state after the block."""


@dataclass(frozen=True, slots=True)
class VectorChain:
    """The chain from its genesis document on."""

    genesis: Genesis
    steps: tuple[Step, ...]
    crimes: tuple[Evidence, ...]
    """Two votes of the fourth member, which the second block proves, and two posts of the third, which none does."""


def vector_chain() -> VectorChain:
    """Three blocks. In the first round the fourth member posts nothing; the second block convicts it."""
    genesis = small_genesis()
    votes = evidence_of(
        *(precommit(genesis, 3, 1, sha256(text), attempt=0) for text in (b"one block", b"another block"))
    )
    posts = evidence_of(*(_post(genesis, 2, 2, payload) for payload in (b"one payload", b"another payload")))
    first = _extend(genesis, genesis_state(genesis), None, (0, 1, 2), miner=0, attempt=0)
    second = _extend(genesis, first.after, first.certificate, (0, 1, 2, 3), miner=1, attempt=2, evidence=(votes,))
    third = _extend(genesis, second.after, second.certificate, (0, 2), miner=2, attempt=0)
    return VectorChain(genesis, (first, second, third), (votes, posts))


def precommit(genesis: Genesis, member: int, height: int, block_hash: bytes, *, attempt: int) -> Vote:
    """A member's precommit, with what its clocks show."""
    return sign_vote(
        KEYS[member],
        genesis.chain_id,
        (height, attempt, VoteKind.PRECOMMIT),
        block_hash,
        clock_ms=genesis.created_ms + 20_000 * (height - 1) + CLOCKS_MS[member],
        mining_ms=MINING_MS[member],
    )


def _extend(
    genesis: Genesis,
    before: State,
    certificate: Certificate | None,
    posting: Iterable[int],
    *,
    miner: int,
    attempt: int,
    evidence: Sequence[Evidence] = (),
) -> Step:
    """Mine a block on ``before`` and make it final, by the votes of the first three members."""
    round_number = before.round
    posts = (_post(genesis, member, round_number, _payload(member, round_number)) for member in posting)
    counted = tuple(sorted(posts, key=lambda post: post.sender))
    draft = Header(
        version=genesis.version,
        parent_hash=before.block_hash,
        height=before.height + 1,
        round=before.round,
        phase=before.phase,
        transactions_root=transactions_root(counted),
        certificate_root=certificate_root(certificate),
        evidence_root=evidence_root(evidence),
        state_root=before.root,
        knowledge_root=sha256(b"knowledge %d" % before.round),
        bits=before.bits,
        miner=KEYS[miner].public_key,
        nonce=0,
    )
    sealed = search_nonce(genesis.proof_function, draft, 0, 2**20)
    assert sealed is not None, "a good nonce is soon found at the easiest difficulty"
    block = sign_block(KEYS[miner], genesis.chain_id, sealed, counted, certificate, tuple(evidence))
    final = certify(precommit(genesis, member, block.header.height, block.hash, attempt=attempt) for member in range(3))
    after = judge_final(genesis, before, block, final, block.header.knowledge_root, is_valid_signature)
    return Step(before, block, final, after)


def _post(genesis: Genesis, member: int, round_number: int, payload: bytes) -> Post:
    return sign_post(KEYS[member], genesis.chain_id, round_number, 0, payload)


def _payload(member: int, round_number: int) -> bytes:
    return b"payload of member %d in round %d" % (member + 1, round_number)
