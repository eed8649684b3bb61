"""Rules of posts, and of the contents that they sign."""

from fedchain.chain.exceptions import (
    InvalidPayload,
    InvalidPost,
    InvalidSignature,
    OutOfWindow,
    check,
)
from fedchain.chain.genesis import AggregatorRule, Contributor, Genesis
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.validation.signature import validate_signature
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.signatures import SignatureCheck

PHASES_AHEAD = 1
"""How many rounds ahead of the head's a post may be to be taken: a member may be faster than we are."""


def validate_window(state: State, post: Post) -> None:
    """Check that a post is for the open phase or a later one of this round or the next, or owed to an earlier round.

    Raises OutOfWindow.
    """
    step, low = (post.round, post.phase), (state.round, state.phase)
    # Every post passes here; the message is built only when it is needed.
    is_closed = step < low and state.owed_to(post.key) is None
    if state.finished or is_closed or post.round > state.round + PHASES_AHEAD:
        raise OutOfWindow("post's round", f"{step} found, {low} is open")


def validate_post(genesis: Genesis, state: State, post: Post, is_valid_signature: SignatureCheck) -> None:
    """Check a post on its own, before it is known which block will count it.

    Raises:
        InvalidSignature: its sender did not write it.
        InvalidPost: it can never be part of a block.
        OutOfWindow: its sender does not count now, or others may know already why it is right.
    """
    phases, size_max = len(genesis.phases_of(post.round)), genesis.payload_size_max
    # Only members post: anyone else could flood the round. Where keys may be replaced, others may know of one that we
    # do not know yet.
    if post.sender not in state.roster.seats:
        wrong = OutOfWindow if state.records else InvalidSignature
        raise wrong("sender", f"{post.sender.hex()} is no member")
    # Only members that count post; the peer that passed the post on may not know of a conviction or a change yet.
    if not state.roster.is_active(post.sender):
        how = "was convicted" if post.sender in state.roster.culprits else "does not count now"
        raise OutOfWindow("sender", f"{post.sender.hex()} {how}")
    # The sender itself signed this, for this chain, round and phase.
    validate_signature(genesis, post.sender, post, is_valid_signature)
    # The phase must exist, or the post could never be counted.
    if post.phase >= phases:
        raise InvalidPost("phase", f"{post.phase} found, round {post.round} has {phases}")
    # Nothing follows the last round.
    if 0 < (last := state.rules.rounds) < post.round:
        # An amendment that others count already may let the federation go on.
        raise (OutOfWindow if state.records else InvalidPost)("round", f"{post.round} found, the last is {last}")
    _validate_role(genesis, state, post)
    # Everybody has to fetch, keep and aggregate it.
    if post.payload_size > size_max:
        raise InvalidPost("payload size", f"{post.payload_size} bytes found, at most {size_max} are allowed")


def _validate_role(genesis: Genesis, state: State, post: Post) -> None:
    by_aggregator = genesis.phases_of(post.round)[post.phase].by is Contributor.AGGREGATOR
    aggregator, sender = state.roster.aggregator_of(post.round), post.sender.hex()
    posts = f"posts to phase {post.phase} of round {post.round}, which is"
    # Where members change, others may know already that another one has the role in a phase to come.
    is_certain = not state.records or (post.round, post.phase) == (state.round, state.phase)
    wrong = InvalidPost if is_certain else OutOfWindow
    # Only the designated aggregator posts to the aggregator's phases; the chain says who it is.
    if by_aggregator and post.sender != aggregator:
        named = "nobody" if aggregator is None else aggregator.hex()
        raise wrong("contributor", f"{sender} {posts} the aggregator's, {named}")
    if by_aggregator:
        return
    # The member that was founded as a dedicated aggregator has no data.
    if post.sender == state.roster.dataless:
        raise InvalidPost("contributor", f"{sender}, without data, {posts} the participants'")
    # While it has the role another one does not contribute, but what it owed by then may still be counted.
    is_dedicated = genesis.aggregator is AggregatorRule.DEDICATED and post.sender == aggregator
    if is_dedicated and state.owed_to(post.key) is None:
        raise wrong("contributor", f"{sender}, the dedicated aggregator, {posts} the participants'")


def validate_content(expected_hash: Hash, expected_size: int, content: bytes) -> None:
    """Check content-addressed bytes against their hash and size. Raises InvalidPayload."""
    found = sha256(content)
    # Every payload passes here; the messages are built only when they are needed.
    if found == expected_hash and len(content) == expected_size:
        return
    size = len(content)
    check(size == expected_size, InvalidPayload, "payload size", f"{size} bytes found, {expected_size} signed")
    raise InvalidPayload("payload hash", f"{found.hex()} found, {expected_hash.hex()} signed")
