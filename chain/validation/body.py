"""Rules of a block's body."""

from fedchain.chain.block import Block, Header, evidence_root, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.evidence import EVIDENCE_MAX
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidSignature,
    Refused,
    check,
    check_ascending,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import changes_root
from fedchain.chain.post import Post
from fedchain.chain.state import State, may_close_empty, posts_required
from fedchain.chain.validation.certificates import validate_certificate
from fedchain.chain.validation.changes import validate_approvals, validate_change, validate_room
from fedchain.chain.validation.evidence import validate_evidence
from fedchain.chain.validation.posts import validate_post
from fedchain.chain.vote import VoteKind
from fedchain.crypto.signatures import SignatureCheck


def validate_body(genesis: Genesis, state: State, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Check posts, certificate and evidence of a block whose header is valid.

    Raises:
        InvalidSignature: the body is not the one that the miner signed.
        InvalidBlock: it breaks a rule for ever.
    """
    validate_roots(block)
    _validate_counts(genesis, state, block)
    # Sorted and unique: one set of posts or crimes has one root, and each member counts once, for each round.
    check_ascending(InvalidBlock, "transaction order", (_place(genesis, post) for post in block.transactions))
    check_ascending(InvalidBlock, "evidence order", (item.hash for item in block.evidence))
    check_ascending(InvalidBlock, "change order", (item.hash for item in block.changes))
    _validate_producer(genesis, state, block)
    for post in block.transactions:
        _validate_counted(state, block.header, post)
    try:
        for post in block.transactions:
            validate_post(genesis, state, post, is_valid_signature)
        for evidence in block.evidence:
            validate_evidence(genesis, state, evidence, is_valid_signature)
        for change in block.changes:
            validate_change(genesis, state, change, is_valid_signature)
            validate_approvals(genesis, state, change)
        validate_room(genesis, state, block.changes)
        _validate_parent_certificate(genesis, state, block.certificate, is_valid_signature)
    except InvalidBlock:
        raise
    except Refused as error:  # in any case the miner put it into its block
        raise InvalidBlock("body", str(error)) from None


def validate_roots(block: Block) -> None:
    """Check that the header commits to the whole body: a block hash names one block. Raises InvalidSignature."""
    header = block.header
    for name, found, expected in (
        ("transactions root", header.transactions_root, transactions_root(block.transactions)),
        ("certificate root", header.certificate_root, certificate_root(block.certificate)),
        ("evidence root", header.evidence_root, evidence_root(block.evidence)),
        ("changes root", header.changes_root, changes_root(block.changes)),
    ):
        # The miner signed the header, so a body that does not belong to it was put there by the peer that sent it.
        check(found == expected, InvalidSignature, name, f"{found.hex()} found, the body has {expected.hex()}")


def _validate_counts(genesis: Genesis, state: State, block: Block) -> None:
    count, crimes = len(block.transactions), len(block.evidence)
    # A block has no more posts than members may post; checking more would be wasted work.
    due = state.countable
    check(count <= due, InvalidBlock, "posts", f"{count} found, {due} may post")
    # Everybody has to check two signatures for each.
    check(crimes <= EVIDENCE_MAX, InvalidBlock, "evidence", f"{crimes} crimes found, at most {EVIDENCE_MAX} fit")
    # One conviction expels a member; a second one adds nothing.
    culprits = {state.roster.current(item.culprit) for item in block.evidence}
    check(len(culprits) == crimes, InvalidBlock, "evidence", f"{crimes} crimes of {len(culprits)} members found")
    if count == 0 and may_close_empty(genesis, state):
        return
    required = posts_required(genesis, state)
    # An aggregate of too few posts says little and hides nobody, and a single member's post could be all of it. Late
    # posts do not make up for it: a round would be closed by members that did not take part in it.
    if state.owed:
        count = sum(post.round == block.header.round for post in block.transactions)
    check(count >= required, InvalidBlock, "contribution quorum", f"{count} posts found, at least {required}")


def _validate_producer(genesis: Genesis, state: State, block: Block) -> None:
    if not block.transactions:
        return
    aggregator = state.roster.aggregator_of(state.round)
    # In a centralized federation the designated aggregator writes the chain.
    check(
        not genesis.centralized or block.header.miner == aggregator,
        InvalidBlock,
        "producer",
        f"{block.header.miner.hex()} mined, the aggregator is {aggregator.hex() if aggregator else 'nobody'}",
    )


def _validate_counted(state: State, header: Header, post: Post) -> None:
    counted, closed = (post.round, post.phase), (header.round, header.phase)
    if counted != closed:
        # A block closes one phase; posts of another one would be counted twice or too early. A late post is of the same
        # phase, of a round that still takes it, and was not counted before.
        if post.phase != header.phase or state.owed_to(post.key) is None:
            raise InvalidBlock("post's phase", f"{counted} found, the block closes {closed}")
        return
    # The chain draws the members that post; in an aggregator phase only the designated aggregator does.
    if post.sender not in state.roster.contributors:
        due = f"one of the {len(state.roster.contributors)} contributors of round {state.round}"
        raise InvalidBlock("contributor", f"{post.sender.hex()} is not {due}")


def _validate_parent_certificate(
    genesis: Genesis, state: State, certificate: Certificate | None, is_valid_signature: SignatureCheck
) -> None:
    # Every peer with its hash agrees on the genesis document, so the first block needs no votes for its parent.
    check((certificate is None) == (state.height == 0), InvalidBlock, "certificate", "only the first block has none")
    if certificate is None:
        return
    # The chain grows on final blocks only: without a quorum, a side of a partition cannot extend it.
    validate_certificate(
        genesis,
        state.deciders,
        certificate,
        VoteKind.PRECOMMIT,
        state.height,
        state.block_hash,
        is_valid_signature,
    )


def _place(genesis: Genesis, post: Post) -> bytes:
    """Sort key of a block's posts: the sender, and then the round where late posts count."""
    return post.sender + post.round.to_bytes(8, "big") if genesis.late_rounds else post.sender
