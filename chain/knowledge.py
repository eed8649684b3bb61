"""Knowledge is a function of the chain: how a block's posts become the bytes behind its ``knowledge_root``.

The chain sees payloads and knowledge as bytes. Their meaning is the learning method's business; ``Rules`` is all that
the chain asks of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fedchain.chain.exceptions import InvalidBlock, InvalidPayload, MissingPayload
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.roster import Roster
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, phase_rule
from fedchain.chain.validation import validate_content
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey

ContentLookup = Callable[[Hash], bytes | None]
"""Content-addressed bytes by their hash; None if they are not held."""


EMPTY_ROOT: Hash = sha256(EMPTY_KNOWLEDGE)
"""Root of the knowledge before the first block; its bytes need not be held."""


PART_SIZE_MAX = 16 * 2**20 + 1
"""Bytes of a part, at most."""

Part = tuple[Hash, int, int]
"""Bytes that a post refers to: hash, size, and reader, which is the place of a member or one of the three below."""

EVERYBODY, AGGREGATOR, NEXT_AGGREGATOR = -1, -2, -3
"""Readers other than one member: all members, the aggregator of the round, and that of the next round."""


@dataclass(frozen=True, slots=True)
class LatePost:
    """A post of an earlier round that a block counts."""

    sender: PublicKey
    """32 bytes: the member that posted it."""
    payload: bytes = field(repr=False)
    round: int
    """Round that it was made for."""
    knowledge: bytes = field(repr=False)
    """Knowledge that it was made from."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """The occasion of a post or an aggregate: what is done, when, and who is there."""

    phase: str
    """Name of the phase that is open."""
    round: int
    """Round number, from 1; 0 during the setup."""
    roster: Roster
    """The members at this height, and their rights."""
    late: tuple[LatePost, ...] = ()
    """Late posts that are aggregated beside those of the round, in order of sender and round."""

    @property
    def members(self) -> tuple[PublicKey, ...]:
        """Public keys of the members, by seat."""
        return self.roster.members

    @property
    def clients(self) -> int:
        """Number of members with data."""
        return self.roster.clients


class Rules(Protocol):
    """A learning method's decisions for the chain. All functions are pure.

    The occasion says who the members are. No rule may know them from elsewhere.
    """

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        """Raise ValueError unless :meth:`aggregate` accepts ``payload`` beside any others that pass here.

        The check is total: a post that passed it cannot make a block fail.
        """

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        """Knowledge after ``posts`` (sender, payload; in sender order); the same posts give the same bytes.

        Each of them passed :meth:`check` with the same knowledge and is not checked again; so did each of
        ``occasion.late``, with its own round and knowledge. Raises ValueError if well-formed payloads do not fit
        together, and anything else if the method itself fails.
        """

    def is_slow_to_check(self, phase: str) -> bool:
        """Whether posts of ``phase`` take long to check, however short they are."""

    def payload_size_max(self, phase: str) -> int:
        """Bytes that no payload of ``phase`` that passes :meth:`check` exceeds; 0 if the rules do not say, as by
        default."""
        return 0

    def knowledge_size_max(self) -> int:
        """Bytes that no knowledge exceeds; 0 if the rules do not say, as by default."""
        return 0

    def lists_parts(self, phase: str) -> bool:
        """Whether posts of ``phase`` refer to bytes that only some members read; by default posts are whole."""
        return False

    def parts(self, phase: str, payload: bytes) -> Sequence[Part]:
        """Parts that a checked ``payload`` refers to. Raises ValueError for one that could not be checked."""
        return ()

    def parts_known(self, knowledge: bytes) -> Sequence[tuple[int, Part, int]]:
        """Parts that ``knowledge`` refers to: round of the post, part, and the sender's place among the members."""
        return ()

    def check_part(self, phase: str, payload: bytes, part_hash: Hash, data: bytes) -> None:
        """Raise ValueError unless ``data`` is the part that a checked ``payload`` lists under its hash."""
        raise ValueError(f"{part_hash.hex()}: posts of {phase} are whole")


PostCheck = Callable[[Genesis, Rules, State, bytes, Post, bytes], None]
"""A function like :func:`check_post`."""


def needed_contents(state: State, transactions: Sequence[Post]) -> list[Hash]:
    """Hashes of what :func:`recompute` needs: knowledge in force, payloads, and what late posts were made from."""
    roots = {state.knowledge_root: None} | {base_of(state, post): None for post in (transactions if state.owed else ())}
    return [*roots, *[post.payload_hash for post in transactions]]


def base_of(state: State, post: Post) -> Hash:
    """Hash of the knowledge that a post of the open phase, or one that is owed to an earlier round, was made from."""
    owed = state.owed_to(post.key)
    return state.knowledge_root if owed is None else owed.knowledge_root


def missing_contents(state: State, transactions: Sequence[Post], content: ContentLookup) -> list[Hash]:
    """Hashes that :func:`recompute` needs and ``content`` lacks."""
    needed = needed_contents(state, transactions)
    return [item for item in needed if item != EMPTY_ROOT and content(item) is None]


def occasion_of(genesis: Genesis, state: State, post: Post | None = None) -> Occasion:
    """The occasion on which the block after ``state`` is made, or ``post`` was: phase, round and the members."""
    if post is None or post.round == state.round:
        return Occasion(phase_rule(genesis, state).name, state.round, state.roster)
    return Occasion(genesis.phases_of(post.round)[post.phase].name, post.round, state.roster)


def check_post(genesis: Genesis, rules: Rules, state: State, knowledge: bytes, post: Post, payload: bytes) -> None:
    """Check a post for the phase that is open after ``state``, or owed to it, with its payload and the knowledge that
    it was made from.

    Raises InvalidPayload: the payload is not what its post says, or the method cannot use it.
    """
    validate_content(post.payload_hash, post.payload_size, payload)
    check_use(genesis, rules, state, knowledge, post, payload)


def check_size(genesis: Genesis, rules: Rules, post: Post) -> None:
    """Check that ``post`` signs no more bytes than :func:`check_use` lets pass: if it does, nobody need fetch them.

    Raises InvalidPayload: the method cannot use so many bytes.
    """
    phase = genesis.phases_of(post.round)[post.phase].name
    size_max = rules.payload_size_max(phase)
    if 0 < size_max < post.payload_size:
        found = f"{post.payload_size} bytes signed, at most {size_max} expected in phase {phase}"
        raise InvalidPayload("payload size", found)


def check_use(genesis: Genesis, rules: Rules, state: State, knowledge: bytes, post: Post, payload: bytes) -> None:
    """The part of :func:`check_post` that is the method's: ``payload`` is known to be the one that the post names.

    Raises InvalidPayload: the method cannot use it.
    """
    try:
        rules.check(occasion_of(genesis, state, post), post.sender, knowledge, payload)
    except ValueError as error:
        raise InvalidPayload("content", str(error)) from None


def check_part(genesis: Genesis, rules: Rules, post: Post, payload: bytes, part_hash: Hash, data: bytes) -> None:
    """Check bytes that a checked post refers to; only their readers can do so.

    Raises InvalidPayload: the post's author promised something else.
    """
    try:
        rules.check_part(genesis.phases_of(post.round)[post.phase].name, payload, part_hash, data)
    except ValueError as error:
        raise InvalidPayload("part", f"{part_hash.hex()}: {error}") from None


def recompute(
    genesis: Genesis,
    rules: Rules,
    state: State,
    transactions: Sequence[Post],
    content: ContentLookup,
    check: PostCheck = check_post,
) -> bytes:
    """The knowledge that a block over ``transactions`` leaves behind. A block without any keeps the old knowledge.

    Args:
        genesis: the rules of the federation.
        rules: the learning method's rules.
        state: the state that the block stands on.
        transactions: the posts that it counts, in sender order.
        content: finds payloads and knowledge.
        check: a cache in front of :func:`check_post`; posts that it lets pass were checked with this state, and are not
            checked again.

    Raises:
        MissingPayload: some contents that are needed are not held here.
        InvalidPayload: a payload is not what its post says, or the method cannot read it.
        InvalidBlock: the payloads do not fit together, which a total ``check`` excludes.
    """
    if missing := missing_contents(state, transactions, content):
        first, total = missing[0].hex(), len(transactions) + 1
        raise MissingPayload("payload", f"{len(missing)} of {total} contents not held, the first is {first}")
    knowledge = _held(content, state.knowledge_root)
    if not transactions:
        return knowledge
    posts, late = [], []
    for post in transactions:
        payload, base = _held(content, post.payload_hash), _held(content, base_of(state, post))
        check(genesis, rules, state, base, post, payload)
        if post.round == state.round:
            posts.append((post.sender, payload))
        else:
            late.append(LatePost(post.sender, payload, post.round, base))
    occasion = occasion_of(genesis, state)
    try:
        return rules.aggregate(replace(occasion, late=tuple(late)) if late else occasion, knowledge, posts)
    except ValueError as error:
        raise InvalidBlock("aggregate", str(error)) from None


def _held(content: ContentLookup, content_hash: Hash) -> bytes:
    data = EMPTY_KNOWLEDGE if content_hash == EMPTY_ROOT else content(content_hash)
    assert data is not None, "missing_contents was asked first"
    return data
