"""The audit: every block of the head's chain is judged again, as a member would that saw it for the first time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.exceptions import ChainError
from fedchain.chain.fork_choice import BlockTree
from fedchain.chain.knowledge import ContentLookup, Rules, missing_contents, recompute
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, votes_required
from fedchain.chain.validation import (
    validate_knowledge,
    validate_on,
    validate_sealed,
    validate_vote,
    validate_vote_on,
)
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import is_valid_signature


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


def audit_chain(tree: BlockTree, chain: Sequence[Block], rules: Rules, content: ContentLookup) -> Verification:
    """Judge ``chain``, from height 1 to the head of ``tree``, with the payloads that ``content`` holds."""
    genesis, head, parent = tree.genesis, tree.head, tree.parent_state(tree.head)
    checks, knowledge = [], EMPTY_KNOWLEDGE
    for block in chain:
        check, knowledge = _check(tree, rules, content, block, knowledge)
        checks.append(check)
    errors = [] if parent is None else list(_vote_errors(tree, parent, chain[-1]))
    votes = len(tree.votes(head.block_hash)) - len(errors)
    required = 0 if parent is None else votes_required(genesis, parent)
    sound = all(check.verdict != "invalid" for check in checks) and not errors
    return Verification(genesis.chain_id, sound, tuple(checks), votes, required, tuple(errors))


def _check(
    tree: BlockTree, rules: Rules, content: ContentLookup, block: Block, before: bytes
) -> tuple[BlockCheck, bytes]:
    """The verdict on a block, and the knowledge after it: ``before`` if it could not be recomputed."""
    genesis, header, parent, root = tree.genesis, block.header, tree.state(block.header.parent_hash), sha256(before)
    assert parent is not None, "a block of the tree stands on a state of the tree"

    def held(content_hash: Hash) -> bytes | None:
        return before if content_hash == root else content(content_hash)

    try:
        validate_sealed(genesis, block, is_valid_signature)
        # Its time has come: it is on the chain.
        validate_on(genesis, tree.parent_state(parent), parent, block, header.timestamp_ms)
        if missing := missing_contents(parent, block.transactions, held):
            return BlockCheck(header.height, block.hash, "unchecked", tuple(missing), ""), before
        after = recompute(genesis, rules, parent, block.transactions, held)
        validate_knowledge(header, after)
    except ChainError as error:
        return BlockCheck(header.height, block.hash, "invalid", (), _reason(error)), before
    return BlockCheck(header.height, block.hash, "ok", (), ""), after


def _vote_errors(tree: BlockTree, parent: State, head: Block) -> Iterator[str]:
    """The rule that each invalid vote for ``head`` breaks."""
    for vote in tree.votes(head.hash).values():
        try:
            validate_vote(tree.genesis, vote, is_valid_signature)
            validate_vote_on(parent, head, vote)
        except ChainError as error:
            yield _reason(error)


def _reason(error: ChainError) -> str:
    return f"{type(error).__name__}: {error}"
