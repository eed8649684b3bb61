"""The state of the chain at a block: what every rule of the next block is judged by. A pure function of the chain."""

from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest

from fedchain.chain.block import Block
from fedchain.chain.difficulty import next_bits, work_from_bits
from fedchain.chain.genesis import Contributor, Genesis, PhaseRule
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey

MEDIAN_WINDOW = 11
"""A block must be newer than the median of this many blocks before it. (Bitcoin: nMedianTimeSpan)"""

EMPTY_KNOWLEDGE = b""
"""What a federation knows before its first block."""


@dataclass(frozen=True, slots=True)
class State:
    """What the chain says after one block."""

    block_hash: Hash
    """32 bytes: the block; the chain id for the genesis state."""
    parent_hash: Hash
    """32 bytes: the block before it; the chain id for the first two states."""
    height: int
    """Blocks since the genesis document."""
    round: int
    """Round that the *next* block belongs to."""
    phase: int
    """Phase that the *next* block closes."""
    finished: bool
    """Whether the federation's last round is closed."""
    knowledge_root: Hash
    """32 bytes: hash of the knowledge in force."""
    work: int
    """Expected number of hashes behind the whole chain."""
    bits: int
    """Difficulty of the next block, in compact form."""
    timestamps_ms: tuple[int, ...]
    """Timestamps of the last blocks, oldest first, at most ``MEDIAN_WINDOW``."""
    missed: tuple[int, ...]
    """For each member, how many phases in a row it was due and did not post."""
    round_seed: Hash
    """32 bytes: hash of the block that closed the last round; draws the contributors of this one."""
    contributors: frozenset[PublicKey]
    """Members that may post in the phase that the next block closes."""
    electors: frozenset[PublicKey]
    """Members whose votes count for the next block: the active ones, or a committee drawn from them."""

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the block."""
        return self.timestamps_ms[-1]

    @property
    def median_time_ms(self) -> int:
        """Median timestamp of the last blocks: the next one must be newer."""
        return sorted(self.timestamps_ms)[len(self.timestamps_ms) // 2]


@lru_cache(maxsize=4)
def genesis_state(genesis: Genesis) -> State:
    """The state before the first block. Kept: every peer that wakes begins there, and to draw from many takes time."""
    first_round, seed = 0 if genesis.setup else 1, genesis.chain_id
    missed = (0,) * len(genesis.members)
    return State(
        block_hash=genesis.chain_id,
        parent_hash=genesis.chain_id,
        height=0,
        round=first_round,
        phase=0,
        finished=False,
        knowledge_root=sha256(EMPTY_KNOWLEDGE),
        work=0,
        bits=genesis.initial_bits,
        timestamps_ms=(genesis.created_ms,),
        missed=missed,
        round_seed=seed,
        contributors=_contributors(genesis, first_round, 0, seed),
        electors=_electors(genesis, missed, genesis.chain_id),
    )


def apply_block(genesis: Genesis, state: State, block: Block) -> State:
    """The state after a valid ``block`` on top of ``state``."""
    header = block.header
    last_phase = state.phase + 1 == len(genesis.phases_of(state.round))
    next_round, next_phase = (state.round + 1, 0) if last_phase else (state.round, state.phase + 1)
    seed = header.hash if last_phase else state.round_seed
    missed = _count_missed(genesis, state, block)
    return State(
        block_hash=header.hash,
        parent_hash=state.block_hash,
        height=state.height + 1,
        round=next_round,
        phase=next_phase,
        finished=last_phase and state.round > 0 and state.round == genesis.rounds,
        knowledge_root=header.knowledge_root,
        work=state.work + work_from_bits(header.bits),
        bits=next_bits(header.bits, mining_time_ms(state, block), genesis.target_mining_time_ms),
        timestamps_ms=(*state.timestamps_ms, header.timestamp_ms)[-MEDIAN_WINDOW:],
        missed=missed,
        round_seed=seed,
        contributors=_contributors(genesis, next_round, next_phase, seed),
        electors=_electors(genesis, missed, header.hash),
    )


def mining_time_ms(parent: State, block: Block) -> int:
    """How long the block took to mine: from its newest contribution (or its parent, if it is empty) on."""
    newest = max((transaction.timestamp_ms for transaction in block.transactions), default=parent.timestamp_ms)
    return max(0, block.header.timestamp_ms - newest)


def phase_rule(genesis: Genesis, state: State) -> PhaseRule:
    """The phase that the next block closes."""
    return genesis.phases_of(state.round)[state.phase]


def may_close_empty(genesis: Genesis, state: State) -> bool:
    """Whether the open phase depends on few enough members that their silence could stop the federation for ever.

    Where every member may post, one that comes back late is enough, and waiting for it is better than an idle round.
    """
    by_aggregator = phase_rule(genesis, state).by is Contributor.AGGREGATOR
    return by_aggregator or genesis.centralized or genesis.contributors_per_round > 0 or state.phase > 0


def expected_contributors(genesis: Genesis, state: State) -> frozenset[PublicKey]:
    """Contributors worth waiting for: those that posted when they were last due, so a dead peer costs one timeout."""
    return frozenset(member for member in state.contributors if not state.missed[genesis.index[member]])


def votes_required(genesis: Genesis, parent: State) -> int:
    """How many electors must vote for a block on top of ``parent`` before it is accepted."""
    return len(parent.electors) * genesis.vote_quorum_percent // 100 + 1


def draw(members: tuple[PublicKey, ...], count: int, seed: bytes) -> frozenset[PublicKey]:
    """``count`` of ``members``, drawn by ``seed`` so that anyone can check it; 0 draws all."""
    if count == 0 or count >= len(members):
        return frozenset(members)
    return frozenset(nsmallest(count, members, key=lambda member: sha256(seed + member)))


def _contributors(genesis: Genesis, round_number: int, phase: int, seed: Hash) -> frozenset[PublicKey]:
    if genesis.phases_of(round_number)[phase].by is Contributor.AGGREGATOR:
        aggregator = genesis.aggregator_of(round_number)
        return frozenset() if aggregator is None else frozenset({aggregator})
    return draw(genesis.members, genesis.contributors_per_round, seed + b"contributors")


def _electors(genesis: Genesis, missed: tuple[int, ...], block_hash: Hash) -> frozenset[PublicKey]:
    active = tuple(
        member for member, times in zip(genesis.members, missed, strict=True) if times < genesis.inactive_after
    )
    return draw(active, genesis.committee_size, block_hash + b"committee")


def _count_missed(genesis: Genesis, state: State, block: Block) -> tuple[int, ...]:
    # A phase that is closed empty says nothing about its contributors, and it must not empty the electorate.
    if not block.transactions or phase_rule(genesis, state).by is Contributor.AGGREGATOR:
        return state.missed
    missed = list(state.missed)
    posted = {transaction.sender for transaction in block.transactions}
    for member in state.contributors:
        place = genesis.index[member]
        missed[place] = 0 if member in posted else missed[place] + 1
    return tuple(missed)
