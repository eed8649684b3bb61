"""Rounds: who owes what in the open phase, when a block may be mined, and what it looks like. Pure decisions."""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from fedchain.chain.block import BLOCK_VERSION, Header, transactions_root, votes_root
from fedchain.chain.genesis import Contributor, Genesis
from fedchain.chain.state import State, may_close_empty, phase_rule
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey


class Step(Enum):
    """What the open phase waits for, from one peer's point of view."""

    WAIT = "wait"
    """For posts, or for somebody else's block."""
    MINE = "mine"
    """For a block over the posts at hand: this peer may mine one."""
    MINE_EMPTY = "mine empty"
    """For a block without posts: those who should have posted are silent."""


def owes_post(state: State, member: PublicKey) -> bool:
    """Whether ``member`` may contribute to the open phase."""
    return not state.finished and member in state.contributors


def next_step(genesis: Genesis, state: State, member: PublicKey, posted: int, everyone: bool, waited_ms: int) -> Step:
    """What ``member`` should do about the open phase.

    Args:
        genesis: the rules.
        state: the head.
        member: the peer that decides.
        posted: how many contributors' posts it holds.
        everyone: whether all expected contributors are among them.
        waited_ms: milliseconds since its head moved.
    """
    if state.finished:
        return Step.WAIT
    by_aggregator = phase_rule(genesis, state).by is Contributor.AGGREGATOR
    timed_out = waited_ms >= genesis.phase_timeout_ms
    quorum = 1 if by_aggregator else genesis.contribution_quorum
    is_producer = not genesis.centralized or member == genesis.aggregator_of(state.round)
    if posted >= quorum and (everyone or timed_out) and is_producer:
        return Step.MINE
    # A producer waits one timeout for stragglers, so closing the phase empty comes after two.
    patience_ms = genesis.phase_timeout_ms * (1 if by_aggregator and not posted else 2)
    producer_fails = posted < quorum or not is_producer
    if may_close_empty(genesis, state) and producer_fails and waited_ms >= patience_ms:
        return Step.MINE_EMPTY
    return Step.WAIT


def draft_header(
    state: State, miner: PublicKey, posts: Sequence[Transaction], votes: Sequence[Vote], knowledge: bytes, now_ms: int
) -> Header:
    """The header of a block on top of ``state``, still to be sealed. Its timestamp is the earliest that is valid."""
    newest_ms = max((transaction.timestamp_ms for transaction in posts), default=0)
    return Header(
        version=BLOCK_VERSION,
        parent_hash=state.block_hash,
        height=state.height + 1,
        round=state.round,
        phase=state.phase,
        transactions_root=transactions_root(posts),
        votes_root=votes_root(votes),
        knowledge_root=sha256(knowledge),
        timestamp_ms=max(now_ms, newest_ms, state.median_time_ms + 1),
        bits=state.bits,
        miner=miner,
        nonce=0,
    )


def is_same_work(draft: Header, sealed: Header) -> bool:
    """Whether ``sealed`` is ``draft`` with a nonce and a timestamp that did not go back."""
    same = replace(sealed, nonce=draft.nonce, timestamp_ms=draft.timestamp_ms) == draft
    return same and sealed.timestamp_ms >= draft.timestamp_ms
