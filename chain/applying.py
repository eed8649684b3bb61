"""Applying a block: the state after it follows from the state before it and from what the block holds."""

from dataclasses import replace
from functools import lru_cache

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import next_bits, work_from_bits
from fedchain.chain.exceptions import ChainError
from fedchain.chain.genesis import Contributor, Genesis
from fedchain.chain.membership.amendment import Amendments
from fedchain.chain.membership.in_force import rules_of
from fedchain.chain.membership.member import Due, Member
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.membership.owed import Owed, owed_by
from fedchain.chain.membership.patience import mark_due, settle_waits, turnout_of
from fedchain.chain.membership.succession import role_after, succeed
from fedchain.chain.membership.turnout import Turnout, is_marked
from fedchain.chain.roster import counting
from fedchain.chain.state import (
    DELAYS_MAX,
    EMPTY_KNOWLEDGE,
    PUNCTUAL,
    State,
    block_time_ms,
    complete_state,
    member_set_of,
    patience_of,
    phase_rule,
    seed_of_round,
)
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey

APPLIED_MAX = 16
"""Most states that are remembered with the block that led to each."""


def apply_block(genesis: Genesis, state: State, block: Block) -> State:
    """The state after a valid ``block`` on top of ``state``.

    The newest ones are remembered: a block is judged more than once, and in a simulation by many peers, which then
    share the state after it.
    """
    return _applied(_Step(genesis, state, block))


def apply_unjudged(genesis: Genesis, state: State, block: Block) -> State | None:
    """The state after a block that may be invalid, as of a folder that somebody else wrote; None if none follows.

    A state follows from a block with a wrong signature or a wrong aggregate. None does from one whose posts or changes
    are of strangers, or whose numbers no state can hold.
    """
    try:
        return apply_block(genesis, state, block)
    except (ChainError, ArithmeticError, LookupError, TypeError, ValueError, AssertionError):
        return None


class _Step:
    """A block to apply. It equals another one of the same block object on an equal state."""

    __slots__ = ("block", "genesis", "state")

    def __init__(self, genesis: Genesis, state: State, block: Block) -> None:
        self.genesis, self.state, self.block = genesis, state, block

    def __hash__(self) -> int:
        return hash((id(self.block), self.state.root))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Step):
            return NotImplemented
        is_same = self.block is other.block and self.genesis is other.genesis
        return is_same and self.state.root == other.state.root


@lru_cache(maxsize=APPLIED_MAX)
def _applied(step: _Step) -> State:
    genesis, state, block = step.genesis, step.state, step.block
    header = block.header
    last_phase = _closes_round(genesis, state)
    time_ms, delays_ms, bits = _settle(state, block.certificate)
    members, records = _succeeded(genesis, state, block, time_ms)
    turnout = turnout_of(state.rules, block.certificate, len(state.deciders), len(state.records))
    if turnout is not None and block.certificate is not None:
        mining_ms, active = block.certificate.mining_ms, state.roster.active
        records = tuple(settle_waits(state.rules, records, turnout, mining_ms, active))
    if records:
        due, posted = _due(genesis, state, block)
        seats, in_vain = state.roster.seats, patience_of(state).keys() - posted
        records = tuple(mark_due(records, {seats[key] for key in due}, {seats[key] for key in in_vain}))
    role = role_after(state.roster, records, block) if records and last_phase else None
    amendments = _amended(state, block, role, closes_round=last_phase)
    is_as_before = amendments.in_force == state.amendments.in_force
    return complete_state(
        state.rules if is_as_before else rules_of(genesis, amendments.in_force),
        amendments=amendments,
        block_hash=header.hash,
        height=state.height + 1,
        round=state.round + 1 if last_phase else state.round,
        phase=0 if last_phase else state.phase + 1,
        finished=last_phase and state.round > 0 and state.round == state.rules.rounds,
        knowledge_root=header.knowledge_root,
        work=state.work + work_from_bits(header.bits),
        bits=bits,
        posts=len(block.transactions),
        settled_time_ms=time_ms,
        delays_ms=delays_ms,
        round_seed=seed_of_round(genesis, header.hash) if last_phase else state.round_seed,
        members=members,
        records=records,
        punctuality=_count_punctuality(genesis, state, block, turnout).ljust(len(members), bytes([PUNCTUAL])),
        convicted=(*state.convicted, *block.evidence),
        deciders=state.roster.electors,
        owed=_count_owed(genesis, state, block),
    )


def members_behind(genesis: Genesis, state: State, block: Block) -> MemberSet:
    """The members that count behind ``block``: the member set of the state after it.

    A miner's draft names them. All that says nothing of who counts is left out: what is waited for, difficulty, who has
    an aggregator's role, draws, and the bytes of the state. The block is applied whole when it is judged.
    """
    time_ms, _, _ = _settle(state, block.certificate)
    members, records = _succeeded(genesis, state, block, time_ms)
    culprits = {crime.culprit for crime in (*state.convicted, *block.evidence)}
    amendments = _amended(state, block, None, closes_round=_closes_round(genesis, state))
    return member_set_of(members, counting(members, culprits, records), amendments)


def _closes_round(genesis: Genesis, state: State) -> bool:
    return state.phase + 1 == len(genesis.phases_of(state.round))


def _succeeded(
    genesis: Genesis, state: State, block: Block, time_ms: int
) -> tuple[tuple[PublicKey, ...], tuple[Member, ...]]:
    """Keys and records of the members behind a block, but for what is waited for."""
    closes_round = _closes_round(genesis, state)
    records = succeed(state.rules, state.roster, state.records, block, closes_round=closes_round, now_ms=time_ms)
    return tuple(record.key for record in records) if block.changes else state.roster.members, records


def _amended(state: State, block: Block, role: int | None, *, closes_round: bool) -> Amendments:
    """The amendments after a block: what it counts is on its way, and what is due holds.

    ``role`` is the place that has the role of an aggregator by rule, if it has one.
    """
    amendments = state.amendments
    for change in block.changes:
        if change.amendment is not None:
            amendments = amendments.with_one(replace(change.amendment, round=change.begins(state.round)))
    named = state.rules.founded_aggregator if amendments.aggregator is None else amendments.aggregator
    if role is not None and role != named:
        amendments = amendments.followed_by(role)
    return amendments.at(state.round + 1) if closes_round else amendments


def _settle(state: State, certificate: Certificate | None) -> tuple[int, tuple[tuple[int, ...], ...], int]:
    """Time, posting delays and difficulty, once the votes for ``state``'s block are on the chain.

    A phase lasts from one block's time to the next one's. The posts' delay is this duration without the mining time;
    waiting for posts is not mining and does not change the difficulty.
    """
    if certificate is None:
        return state.settled_time_ms, state.delays_ms, state.bits
    time_ms, mining_ms = block_time_ms(state, certificate), certificate.mining_ms
    bits = next_bits(state.bits, mining_ms, state.rules.target_mining_time_ms)
    round_number, phase = (
        (state.round, state.phase - 1) if state.phase else (state.round - 1, len(state.rules.phases) - 1)
    )
    if round_number == 0 or state.posts == 0:  # the setup comes once, and a phase that is closed empty has no posts
        return time_ms, state.delays_ms, bits
    delay_ms = max(0, time_ms - mining_ms - state.settled_time_ms)
    delays = list(state.delays_ms)
    delays[phase] = (*delays[phase], delay_ms)[-DELAYS_MAX:]
    return time_ms, tuple(delays), bits


def _count_owed(genesis: Genesis, state: State, block: Block) -> tuple[Owed, ...]:
    """The posts that are owed after a block: each is counted once, and in the next ``late_rounds`` rounds at most.

    Nothing is owed to a phase of the aggregator, on whose post the others build at once, nor to one that began without
    knowledge, for then nobody can tell what a late post changed.
    """
    if not genesis.late_rounds:
        return ()
    seats, counted = state.roster.seats, [(post.round, state.roster.seats[post.sender]) for post in block.transactions]
    after = []
    for item in state.owed:
        if item.phase == state.phase:
            if item.round + genesis.late_rounds <= state.round:  # this was its last chance
                continue
            item = item.without(seat for round_number, seat in counted if round_number == item.round)
        if item.due:
            after.append(item)
    is_participants = phase_rule(genesis, state).by is Contributor.PARTICIPANT
    if state.round and is_participants and state.knowledge_root != sha256(EMPTY_KNOWLEDGE):
        posted = {seat for round_number, seat in counted if round_number == state.round}
        lacking = {seats[member] for member in state.roster.contributors} - posted
        if lacking:
            after.append(owed_by(state.round, state.phase, state.knowledge_root, lacking))
    return tuple(after)


def _count_punctuality(genesis: Genesis, state: State, block: Block, turnout: Turnout | None) -> bytes:
    counts = bytearray(state.punctuality)
    if state.records:
        # Miners may count whom they like, so a quorum says who was in time, for the phase of the block before.
        for seat, record in enumerate(state.records if turnout is not None else ()):
            if turnout is not None and record.due is not Due.NOT:
                counts[seat] = min(PUNCTUAL, counts[seat] + 1) if is_marked(turnout.punctual, seat) else 0
        return bytes(counts)
    due, posted = _due(genesis, state, block)
    for member in due:
        place = state.roster.seats[member]
        counts[place] = min(PUNCTUAL, counts[place] + 1) if member in posted else 0
    return bytes(counts)


def _due(genesis: Genesis, state: State, block: Block) -> tuple[frozenset[PublicKey], frozenset[PublicKey]]:
    """Members of whom a block says whether they were due for it, and those whose posts it counts."""
    # A phase that is closed empty says nothing about its contributors, nor does an aggregator's phase about members.
    if not block.transactions or phase_rule(genesis, state).by is Contributor.AGGREGATOR:
        return frozenset(), frozenset()
    return state.roster.contributors, block.senders
