"""Validity: each rule of the protocol once, with its reason. A rule raises; returning means it holds.

``validate_sealed`` needs nothing but the genesis document, so it also guards the pool of blocks whose parent is
still unknown. ``validate_on`` needs the parent's state, ``validate_knowledge`` the recomputed aggregate. Cheap rules
come before costly ones: nobody makes us verify signatures without having paid for a proof of work.
"""

from collections.abc import Callable
from itertools import pairwise

from fedchain.chain.block import (
    BLOCK_VERSION,
    Block,
    Header,
    block_signing_message,
    transactions_root,
    votes_root,
)
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.exceptions import (
    FutureTimestamp,
    InvalidBlock,
    InvalidPayload,
    InvalidTransaction,
    InvalidVote,
    OutOfWindow,
    Refused,
)
from fedchain.chain.genesis import Contributor, Genesis
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.state import State, may_close_empty, phase_rule, votes_required
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey, Signature

SignatureCheck = Callable[[PublicKey, Signature, bytes], bool]
"""``is_valid_signature(public_key, signature, message)``, or a cache in front of it."""


# --- posts and votes


def validate_transaction(genesis: Genesis, transaction: Transaction, is_valid_signature: SignatureCheck) -> None:
    """A post on its own, before it is known which block will hold it.

    Raises:
        InvalidTransaction: it can never be part of a block.
    """
    t, size_max = transaction, genesis.payload_size_max
    phases = len(genesis.phases_of(t.round))
    # Only members post: anyone else could flood the round.
    _check(t.sender in genesis.index, InvalidTransaction, "sender", f"{t.sender.hex()} is not a member")
    # The phase must exist, or the post could never be counted.
    _check(t.phase < phases, InvalidTransaction, "phase", f"{t.phase} found, round {t.round} has {phases}")
    # The federation ends.
    _check(
        not 0 < genesis.rounds < t.round,
        InvalidTransaction,
        "round",
        f"{t.round} found, the last is {genesis.rounds}",
    )
    # A payload is allocated when it arrives: its size is bounded first.
    _check(
        t.payload_size <= size_max,
        InvalidTransaction,
        "payload size",
        f"{t.payload_size} bytes, at most {size_max}",
    )
    # The member said so itself, in this chain, round and phase.
    _check(
        is_valid_signature(t.sender, t.signature, t.signing_message(genesis.chain_id)),
        InvalidTransaction,
        "signature",
        f"{t.signature.hex()[:16]}… is not {t.sender.hex()[:16]}…'s over transaction {t.hash.hex()[:16]}…",
    )


def validate_window(state: State, transaction: Transaction) -> None:
    """Whether a post is worth keeping now: its phase is open, or one of the next round. Raises OutOfWindow."""
    step, current = (transaction.round, transaction.phase), (state.round, state.phase)
    # Closed phases take no posts, and a bounded pool holds no far future.
    if not (current <= step and transaction.round <= state.round + 1):
        raise OutOfWindow("window", f"round and phase {step} found, {current} is open")


def validate_payload(transaction: Transaction, payload: bytes, check: Callable[[bytes], None]) -> None:
    """A payload beside its transaction; ``check`` is the learning method's and raises ValueError.

    Raises:
        InvalidPayload: it is not what was signed, or the method cannot read it.
    """
    validate_content(transaction.payload_hash, transaction.payload_size, payload)
    try:
        check(payload)
    except ValueError as error:
        raise InvalidPayload("content", str(error)) from None


def validate_content(expected_hash: Hash, expected_size: int, content: bytes) -> None:
    """Content-addressed bytes against the address. Raises InvalidPayload."""
    found = sha256(content)
    # Every payload passes here; the messages are built only when they are needed.
    if found == expected_hash and len(content) == expected_size:
        return
    size = len(content)
    _check(size == expected_size, InvalidPayload, "payload size", f"{size} bytes found, {expected_size} signed")
    raise InvalidPayload("payload hash", f"{found.hex()} found, {expected_hash.hex()} signed")


def validate_vote(genesis: Genesis, vote: Vote, is_valid_signature: SignatureCheck) -> None:
    """A vote on its own. Whether the voter is in the electorate depends on the block. Raises InvalidVote."""
    # Only members vote.
    _check(vote.voter in genesis.index, InvalidVote, "voter", f"{vote.voter.hex()} is not a member")
    # The member said so itself, about this block of this chain.
    _check(
        is_valid_signature(vote.voter, vote.signature, vote.signing_message(genesis.chain_id)),
        InvalidVote,
        "signature",
        f"{vote.signature.hex()[:16]}… is not {vote.voter.hex()[:16]}…'s over block {vote.block_hash.hex()[:16]}…",
    )


def validate_vote_on(parent: State, block: Block, vote: Vote) -> None:
    """A vote for a block whose parent's state is known. Raises InvalidVote."""
    said, found = (vote.round, vote.phase), (block.header.round, block.header.phase)
    # Round and phase are signed, so that they bind the vote even for who has not seen the block.
    _check(said == found, InvalidVote, "round and phase", f"{said} found, the block closes {found}")
    # Who may vote is drawn by the chain.
    _check(
        vote.voter in parent.electors,
        InvalidVote,
        "electorate",
        f"{vote.voter.hex()[:16]}… is not one of the {len(parent.electors)} electors of height {block.header.height}",
    )


# --- blocks


def validate_sealed(genesis: Genesis, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Everything about a block that needs no other block. Raises InvalidBlock."""
    header = block.header
    # A later format may mean anything.
    _check(
        header.version == BLOCK_VERSION,
        InvalidBlock,
        "version",
        f"{header.version} found, {BLOCK_VERSION} expected",
    )
    # One target has one spelling, and there is an easiest one.
    _check(is_canonical_bits(header.bits), InvalidBlock, "bits", f"{header.bits:#x} is not a compact target")
    # Work was spent on exactly this header.
    _check(
        is_sealed(genesis.proof_function, header),
        InvalidBlock,
        "proof of work",
        f"nonce {header.nonce} does not bring the hash to the target {header.bits:#x}",
    )
    # Blocks cost members their reputation: strangers have none.
    _check(header.miner in genesis.index, InvalidBlock, "miner", f"{header.miner.hex()} is not a member")
    # The miner is who it says; the aggregator's blocks depend on it.
    _check(
        is_valid_signature(header.miner, block.signature, block_signing_message(genesis.chain_id, header.hash)),
        InvalidBlock,
        "miner signature",
        f"{block.signature.hex()[:16]}… is not {header.miner.hex()[:16]}…'s over block {header.hash.hex()[:16]}…",
    )
    _validate_roots(header, block)
    _validate_order(block)
    for transaction in block.transactions:
        _validate_counted(genesis, header, transaction, is_valid_signature)
    for vote in block.votes:
        # Votes in the body are the parent's certificate, nothing else.
        _check(
            vote.block_hash == header.parent_hash,
            InvalidBlock,
            "vote block",
            f"{vote.block_hash.hex()} found, the parent is {header.parent_hash.hex()}",
        )
        validate_vote(genesis, vote, is_valid_signature)


def validate_on(genesis: Genesis, grandparent: State | None, parent: State, block: Block, now_ms: int) -> None:
    """A sealed block against its parent's state and the local clock; ``grandparent`` is None at height 1.

    Raises:
        InvalidBlock: it breaks a rule for ever.
        FutureTimestamp: it may become valid when the clock moves on.
    """
    _validate_place(genesis, parent, block.header)
    _validate_time(genesis, parent, block, now_ms)
    _validate_contributors(parent, block)
    _validate_producer(genesis, parent, block)
    if grandparent is not None:
        _validate_certificate(genesis, grandparent, parent, block)


def validate_knowledge(header: Header, knowledge: bytes) -> None:
    """The recomputed knowledge against the header, byte for byte: a tolerance would let miners drift.

    Raises:
        InvalidBlock: the miner computed something else.
    """
    found = sha256(knowledge)
    _check(
        found == header.knowledge_root,
        InvalidBlock,
        "knowledge root",
        f"{header.knowledge_root.hex()} found, recomputed {found.hex()}",
    )


def _validate_roots(header: Header, block: Block) -> None:
    # The header commits to the whole body, so a block hash names one block.
    for name, found, expected in (
        ("transactions root", header.transactions_root, transactions_root(block.transactions)),
        ("votes root", header.votes_root, votes_root(block.votes)),
    ):
        _check(found == expected, InvalidBlock, name, f"{found.hex()} found, the body has {expected.hex()}")


def _validate_order(block: Block) -> None:
    # Sorted and unique: one set of posts or votes has one root, and each member counts once.
    for name, members in (
        ("transaction order", [transaction.sender for transaction in block.transactions]),
        ("vote order", [vote.voter for vote in block.votes]),
    ):
        for before, after in pairwise(members):
            _check(before < after, InvalidBlock, name, f"{after.hex()} follows {before.hex()}")


def _validate_counted(
    genesis: Genesis, header: Header, transaction: Transaction, is_valid_signature: SignatureCheck
) -> None:
    counted, closed = (transaction.round, transaction.phase), (header.round, header.phase)
    # A block closes one phase; posts of another one would be counted twice or too early.
    _check(counted == closed, InvalidBlock, "post's phase", f"{counted} found, the block closes {closed}")
    # Mining time is measured from the newest post, so it may not be negative.
    _check(
        transaction.timestamp_ms <= header.timestamp_ms,
        InvalidBlock,
        "post's timestamp",
        f"{transaction.timestamp_ms} found, the block was sealed at {header.timestamp_ms}",
    )
    validate_transaction(genesis, transaction, is_valid_signature)


def _validate_place(genesis: Genesis, parent: State, header: Header) -> None:
    # Nothing follows the last round.
    _check(not parent.finished, InvalidBlock, "end", f"round {header.round} found, the last is {genesis.rounds}")
    # Height, round and phase count on from the parent: each phase is closed exactly once.
    for name, found, expected in (
        ("height", header.height, parent.height + 1),
        ("round", header.round, parent.round),
        ("phase", header.phase, parent.phase),
    ):
        _check(found == expected, InvalidBlock, name, f"{found} found, {expected} expected")
    # Difficulty is the retarget's, not the miner's choice.
    _check(header.bits == parent.bits, InvalidBlock, "bits", f"{header.bits:#x} found, {parent.bits:#x} expected")


def _validate_time(genesis: Genesis, parent: State, block: Block, now_ms: int) -> None:
    time_ms, median_ms = block.header.timestamp_ms, parent.median_time_ms
    # Time moves on even when single clocks do not; without it the retarget could be fooled.
    _check(
        time_ms > median_ms,
        InvalidBlock,
        "timestamp",
        f"{time_ms} found, the median of the last is {median_ms}",
    )
    # A clock far ahead would stretch the mining time; it may be ours that is behind, so this can heal.
    latest_ms = now_ms + genesis.clock_ahead_max_ms
    _check(time_ms <= latest_ms, FutureTimestamp, "timestamp", f"{time_ms} found, at most {latest_ms} now")


def _validate_contributors(parent: State, block: Block) -> None:
    count = len(parent.contributors)
    for transaction in block.transactions:
        # Who posts is drawn by the chain; in an aggregator phase it is the designated aggregator alone.
        _check(
            transaction.sender in parent.contributors,
            InvalidBlock,
            "contributor",
            f"{transaction.sender.hex()} is not one of the {count} contributors of round {parent.round}",
        )


def _validate_producer(genesis: Genesis, parent: State, block: Block) -> None:
    header, count = block.header, len(block.transactions)
    if count == 0 and may_close_empty(genesis, parent):
        # Silent contributors must not stop the federation: anyone may close their phase empty, but late.
        earliest_ms = parent.timestamp_ms + genesis.phase_timeout_ms
        _check(
            header.timestamp_ms >= earliest_ms,
            InvalidBlock,
            "empty phase",
            f"closed at {header.timestamp_ms}, not before {earliest_ms}",
        )
        return
    by_aggregator = phase_rule(genesis, parent).by is Contributor.AGGREGATOR
    quorum = 1 if by_aggregator else genesis.contribution_quorum
    # An aggregate of too few says little and hides nobody.
    _check(count >= quorum, InvalidBlock, "contribution quorum", f"{count} posts found, at least {quorum}")
    aggregator = genesis.aggregator_of(parent.round)
    # In a centralized federation the designated aggregator writes the chain.
    _check(
        not genesis.centralized or header.miner == aggregator,
        InvalidBlock,
        "producer",
        f"{header.miner.hex()} mined, the aggregator is {aggregator.hex() if aggregator else 'nobody'}",
    )


def _validate_certificate(genesis: Genesis, grandparent: State, parent: State, block: Block) -> None:
    required, count = votes_required(genesis, grandparent), len(block.votes)
    # The chain grows only on accepted blocks: no side of a partition can extend it.
    _check(count >= required, InvalidBlock, "vote quorum", f"{count} votes for the parent, {required} required")
    closed = grandparent.round, grandparent.phase
    for vote in block.votes:
        _check(
            vote.voter in grandparent.electors,
            InvalidBlock,
            "electorate",
            f"{vote.voter.hex()} is not one of the {len(grandparent.electors)} electors of height {parent.height}",
        )
        # Round and phase are part of what was signed.
        _check(
            (vote.round, vote.phase) == closed,
            InvalidBlock,
            "vote's phase",
            f"{(vote.round, vote.phase)} found, the parent closes {closed}",
        )


def _check(condition: bool, error: type[Refused], rule: str, message: str) -> None:
    if not condition:
        raise error(rule, message)
