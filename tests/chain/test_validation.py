"""Each rule of the protocol: a valid block is changed so that this rule breaks, and mined and signed anew."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import (
    FutureTimestamp,
    InvalidBlock,
    InvalidPayload,
    InvalidTransaction,
    InvalidVote,
    MissingPayload,
    OutOfWindow,
    Refused,
    UnknownParent,
)
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.state import State
from fedchain.chain.transaction import Transaction
from fedchain.chain.validation import (
    validate_payload,
    validate_sealed,
    validate_transaction,
    validate_vote,
    validate_window,
)
from fedchain.chain.vote import Vote, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature
from tests.chain.builders import EASY_BITS, GLOBAL, UPDATE, ChainBuilder, SumRules, genesis, keys, payload, post
from tests.chain.peer import Peer

KEYS = keys(6)
STRANGER = KEYS[5]
TWO_PHASES: dict[str, Any] = {"phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.FIXED}
CENTRALIZED: dict[str, Any] = {"centralized": True, "aggregator": AggregatorRule.FIXED}


class Scene:
    """Two blocks that everybody has, and a third one, ``block``, that is judged."""

    def __init__(self, **overrides: Any) -> None:
        self.genesis = genesis(4, **overrides)
        self.builder = ChainBuilder(self.genesis)
        self.first, self.second = self.builder.extend_many(2)
        self.parent: State = self.builder.states[self.second.hash]
        self.block = self.builder.extend()
        self.peer = Peer(self.genesis, self.block.header.timestamp_ms)
        self.peer.contents |= self.builder.contents
        self.peer.receive_block(self.first.encode())
        self.peer.receive_block(self.second.encode())

    @property
    def posts(self) -> tuple[Transaction, ...]:
        return self.block.transactions

    @property
    def votes(self) -> tuple[Vote, ...]:
        return self.block.votes

    def post(self, **changes: Any) -> Transaction:
        """The block's first post with other fields, signed anew."""
        changed = replace(self.posts[0], **changes)
        key = next(key for key in KEYS if key.public_key == changed.sender)
        return replace(changed, signature=key.sign(changed.signing_message(self.genesis.chain_id)))

    def with_post(self, transaction: Transaction, **header: Any) -> Block:
        """The block with that post in place of its sender's, or in addition."""
        others = [item for item in self.posts if item.sender != transaction.sender]
        return self.remake(transactions=_sorted([*others, transaction]), **header)

    def with_vote(self, vote: Vote) -> Block:
        """The block with that vote in place of its voter's, or in addition."""
        others = [item for item in self.votes if item.voter != vote.voter]
        return self.remake(votes=sorted([*others, vote], key=lambda item: item.voter))

    def remake(self, **changes: Any) -> Block:
        return self.builder.remake(self.block, **changes)


def _sorted(posts: Sequence[Transaction]) -> list[Transaction]:
    return sorted(posts, key=lambda item: item.sender)


Case = Callable[[], tuple[Scene, Block, str]]
"""The scene, the block that breaks the rule, and the whole message."""


def _version() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(version=2), "version: 2 found, 1 expected"


def _bits_not_canonical() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(bits=0x2100FFFF), "bits: 0x2100ffff is not a compact target"


def _proof_of_work() -> tuple[Scene, Block, str]:
    scene = Scene()
    header = replace(scene.block.header, nonce=0)
    while is_sealed(scene.genesis.proof_function, header):
        header = replace(header, nonce=header.nonce + 1)
    block = sign_block(KEYS[0], scene.genesis.chain_id, header, scene.posts, scene.votes)
    return (
        scene,
        block,
        f"proof of work: nonce {header.nonce} does not bring the hash to the target {EASY_BITS:#x}",
    )


def _miner() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(key=STRANGER), f"miner: {STRANGER.public_key.hex()} is not a member"


def _miner_signature() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.block
    other = sign_block(KEYS[1], scene.genesis.chain_id, block.header, block.transactions, block.votes)
    said, miner, block_hash = other.signature.hex()[:16], block.header.miner.hex()[:16], block.hash.hex()[:16]
    return scene, other, f"miner signature: {said}… is not {miner}…'s over block {block_hash}…"


def _transactions_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.block.header.transactions_root.hex()
    return (
        scene,
        scene.remake(transactions_root=bytes(32)),
        f"transactions root: {found} found, the body has {expected}",
    )


def _votes_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.block.header.votes_root.hex()
    return scene, scene.remake(votes_root=bytes(32)), f"votes root: {found} found, the body has {expected}"


def _transaction_order() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, *rest = scene.posts
    message = f"transaction order: {one.sender.hex()} follows {two.sender.hex()}"
    return scene, scene.remake(transactions=[two, one, *rest]), message


def _transaction_twice() -> tuple[Scene, Block, str]:
    scene = Scene()
    one = scene.posts[0]
    message = f"transaction order: {one.sender.hex()} follows {one.sender.hex()}"
    return scene, scene.remake(transactions=[one, *scene.posts]), message


def _second_post_of_a_member() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, other = scene.posts[0], scene.post(payload_hash=sha256(b"other"))
    message = f"transaction order: {one.sender.hex()} follows {one.sender.hex()}"
    return scene, scene.remake(transactions=[one, other, *scene.posts[1:]]), message


def _vote_order() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, *rest = scene.votes
    return (
        scene,
        scene.remake(votes=[two, one, *rest]),
        f"vote order: {one.voter.hex()} follows {two.voter.hex()}",
    )


def _vote_twice() -> tuple[Scene, Block, str]:
    scene = Scene()
    one = scene.votes[0]
    return scene, scene.remake(votes=[one] * 4), f"vote order: {one.voter.hex()} follows {one.voter.hex()}"


def _post_of_another_round() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.with_post(scene.post(round=2)), "post's phase: (2, 0) found, the block closes (3, 0)"


def _post_after_the_block() -> tuple[Scene, Block, str]:
    scene = Scene()
    time_ms = scene.block.header.timestamp_ms
    return (
        scene,
        scene.with_post(scene.post(timestamp_ms=time_ms + 1)),
        f"post's timestamp: {time_ms + 1} found, the block was sealed at {time_ms}",
    )


def _vote_for_another_block() -> tuple[Scene, Block, str]:
    scene = Scene()
    vote = scene.builder.votes(scene.first.hash)[0]
    found, expected = scene.first.hash.hex(), scene.second.hash.hex()
    return scene, scene.with_vote(vote), f"vote block: {found} found, the parent is {expected}"


def _end() -> tuple[Scene, Block, str]:
    scene = Scene(rounds=3)
    scene.peer.receive_block(scene.block.encode())
    block = scene.builder.extend(posts=())
    scene.peer.now_ms = block.header.timestamp_ms
    return scene, block, "end: round 4 found, the last is 3"


def _height() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(height=4), "height: 4 found, 3 expected"


def _round() -> tuple[Scene, Block, str]:
    scene = Scene()
    posts = [
        post(scene.builder.key(item.sender), scene.genesis, 4, scene.builder.contents[item.payload_hash])
        for item in scene.posts
    ]
    return scene, scene.remake(round=4, transactions=posts), "round: 4 found, 3 expected"


def _phase() -> tuple[Scene, Block, str]:
    scene = Scene(phases=(UPDATE, UPDATE))
    posts = scene.builder.posts(scene.block.hash)
    block = scene.remake(phase=1, transactions=posts, timestamp_ms=scene.block.header.timestamp_ms + 10_000)
    scene.peer.now_ms = block.header.timestamp_ms
    return scene, block, "phase: 1 found, 0 expected"


def _bits() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(bits=0x203FFFFF), f"bits: 0x203fffff found, {EASY_BITS:#x} expected"


def _old_timestamp() -> tuple[Scene, Block, str]:
    scene = Scene()
    median = scene.parent.median_time_ms
    posts = scene.builder.posts(scene.second.hash, timestamp_ms=median - 1)
    block = scene.remake(transactions=posts, timestamp_ms=median)
    return scene, block, f"timestamp: {median} found, the median of the last is {median}"


def _contributor_not_drawn() -> tuple[Scene, Block, str]:
    scene = Scene(contributors_per_round=2)
    (other, *_) = sorted({key.public_key for key in KEYS[:4]} - scene.parent.contributors)
    block = scene.with_post(scene.post(sender=other))
    return scene, block, f"contributor: {other.hex()} is not one of the 2 contributors of round 3"


def _contributor_not_aggregator() -> tuple[Scene, Block, str]:
    scene = _at_aggregator_phase()
    block = scene.with_post(scene.post(sender=KEYS[1].public_key))
    return scene, block, f"contributor: {KEYS[1].public_key.hex()} is not one of the 1 contributors of round 2"


def _at_aggregator_phase(**overrides: Any) -> Scene:
    """A scene whose block closes the phase of the aggregator."""
    scene = Scene(**TWO_PHASES, **overrides)
    scene.peer.receive_block(scene.block.encode())
    scene.parent = scene.builder.states[scene.block.hash]
    scene.block = scene.builder.extend()
    scene.peer.contents |= scene.builder.contents
    scene.peer.now_ms = scene.block.header.timestamp_ms
    return scene


def _empty(scene: Scene, late_ms: int, **changes: Any) -> Block:
    """The scene's block without posts, ``late_ms`` after the phase timed out."""
    time_ms = scene.parent.timestamp_ms + scene.genesis.phase_timeout_ms + late_ms
    scene.peer.now_ms = time_ms
    return scene.remake(transactions=(), timestamp_ms=time_ms, knowledge_root=scene.parent.knowledge_root, **changes)


def _empty_too_early() -> tuple[Scene, Block, str]:
    scene = _at_aggregator_phase()
    block = _empty(scene, -1)
    time_ms = block.header.timestamp_ms
    return scene, block, f"empty phase: closed at {time_ms}, not before {time_ms + 1}"


def _empty_too_early_centralized() -> tuple[Scene, Block, str]:
    scene = Scene(**CENTRALIZED)
    block = _empty(scene, -1)
    time_ms = block.header.timestamp_ms
    return scene, block, f"empty phase: closed at {time_ms}, not before {time_ms + 1}"


def _no_post() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, _empty(scene, 1_000_000), "contribution quorum: 0 posts found, at least 1"


def _too_few_posts() -> tuple[Scene, Block, str]:
    scene = Scene(contribution_quorum=3)
    return scene, scene.remake(transactions=scene.posts[:2]), "contribution quorum: 2 posts found, at least 3"


def _producer() -> tuple[Scene, Block, str]:
    scene = Scene(**CENTRALIZED)
    member, aggregator = KEYS[1].public_key.hex(), KEYS[0].public_key.hex()
    return scene, scene.remake(key=KEYS[1]), f"producer: {member} mined, the aggregator is {aggregator}"


def _producer_rotates() -> tuple[Scene, Block, str]:
    scene = Scene(centralized=True, aggregator=AggregatorRule.ROTATING)
    member, aggregator = KEYS[0].public_key.hex(), KEYS[3].public_key.hex()
    return scene, scene.remake(key=KEYS[0]), f"producer: {member} mined, the aggregator is {aggregator}"


def _too_few_votes() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(votes=scene.votes[:2]), "vote quorum: 2 votes for the parent, 3 required"


def _no_elector() -> tuple[Scene, Block, str]:
    scene = Scene(committee_size=2)
    electors = scene.builder.states[scene.first.hash].electors
    (other, *_) = sorted({key.public_key for key in KEYS[:4]} - electors)
    vote = scene.builder.votes(scene.second.hash, [other])[0]
    return (
        scene,
        scene.with_vote(vote),
        f"electorate: {other.hex()} is not one of the 2 electors of height 2",
    )


def _vote_of_another_round() -> tuple[Scene, Block, str]:
    scene = Scene()
    key = scene.builder.key(scene.votes[0].voter)
    vote = sign_vote(key, scene.genesis.chain_id, scene.second.hash, 7, 0)
    return scene, scene.with_vote(vote), "vote's phase: (7, 0) found, the parent closes (2, 0)"


def _knowledge_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.block.header.knowledge_root.hex()
    return scene, scene.remake(knowledge_root=bytes(32)), f"knowledge root: {found} found, recomputed {expected}"


BLOCK_CASES: list[Case] = [
    _version,
    _bits_not_canonical,
    _proof_of_work,
    _miner,
    _miner_signature,
    _transactions_root,
    _votes_root,
    _transaction_order,
    _transaction_twice,
    _second_post_of_a_member,
    _vote_order,
    _vote_twice,
    _post_of_another_round,
    _post_after_the_block,
    _vote_for_another_block,
    _end,
    _height,
    _round,
    _phase,
    _bits,
    _old_timestamp,
    _contributor_not_drawn,
    _contributor_not_aggregator,
    _empty_too_early,
    _empty_too_early_centralized,
    _no_post,
    _too_few_posts,
    _producer,
    _producer_rotates,
    _too_few_votes,
    _no_elector,
    _vote_of_another_round,
    _knowledge_root,
]


def _expect_refusal(scene: Scene, block: Block, error: type[Refused], message: str) -> None:
    scene.peer.judge(scene.block)  # as it was, the block is valid
    before = scene.peer.snapshot()
    with pytest.raises(error) as caught:
        scene.peer.receive_block(block.encode())
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert caught.value.rule == message.split(":")[0]
    assert scene.peer.snapshot() == before


@pytest.mark.parametrize("case", BLOCK_CASES, ids=[case.__name__.strip("_") for case in BLOCK_CASES])
def test_a_block_that_breaks_a_rule_is_invalid(case: Case) -> None:
    scene, block, message = case()
    _expect_refusal(scene, block, InvalidBlock, message)


def test_a_valid_block_is_taken() -> None:
    scene = Scene()
    before = scene.peer.snapshot()
    scene.peer.receive_block(scene.block.encode())
    assert scene.block.hash in scene.peer.tree
    assert scene.peer.snapshot() != before


# --- posts, alone and inside a block


def _transaction_cases() -> list[tuple[str, dict[str, Any], str, dict[str, Any]]]:
    return [
        ("sender", {"sender": STRANGER.public_key}, f"{STRANGER.public_key.hex()} is not a member", {}),
        ("phase", {"phase": 1}, "1 found, round 3 has 1", {"phase": 1}),
        ("phase", {"round": 0}, "0 found, round 0 has 0", {"round": 0}),
        ("round", {"round": 4}, "4 found, the last is 3", {"round": 4}),
        ("payload size", {"payload_size": 1_001}, "1001 bytes, at most 1000", {}),
        ("payload size", {"payload_size": 2**64 - 1}, f"{2**64 - 1} bytes, at most 1000", {}),
    ]


@pytest.mark.parametrize(
    ("rule", "changes", "message", "header"),
    _transaction_cases(),
    ids=[f"{rule} {next(iter(changes))}" for rule, changes, _, _ in _transaction_cases()],
)
def test_a_post_that_breaks_a_rule_is_invalid(
    rule: str, changes: dict[str, Any], message: str, header: dict[str, Any]
) -> None:
    scene = Scene(rounds=3, payload_size_max=1_000, inline_size_max=1_000)
    bad = scene.post(**changes)
    with pytest.raises(InvalidTransaction) as caught:
        validate_transaction(scene.genesis, bad, is_valid_signature)
    assert (caught.value.rule, str(caught.value)) == (rule, f"{rule}: {message}")
    block = scene.remake(transactions=[bad], timestamp_ms=scene.block.header.timestamp_ms, **header)
    _expect_refusal(scene, block, InvalidTransaction, f"{rule}: {message}")


def test_a_post_that_its_sender_did_not_sign_is_invalid() -> None:
    scene = Scene()
    stolen = replace(scene.posts[0], payload_size=33)
    signature, sender, found = stolen.signature.hex()[:16], stolen.sender.hex()[:16], stolen.hash.hex()[:16]
    message = f"signature: {signature}… is not {sender}…'s over transaction {found}…"
    _expect_refusal(scene, scene.with_post(stolen), InvalidTransaction, message)


def test_a_post_of_another_chain_is_invalid() -> None:
    scene, other = Scene(), genesis(4, name="other")
    foreign = post(KEYS[0], other, 3, payload(1))
    with pytest.raises(InvalidTransaction, match=r"^signature: "):
        validate_transaction(scene.genesis, foreign, is_valid_signature)
    validate_transaction(other, foreign, is_valid_signature)


def test_the_largest_payload_is_valid() -> None:
    scene = Scene(payload_size_max=1_000, inline_size_max=1_000)
    validate_transaction(scene.genesis, scene.post(payload_size=1_000), is_valid_signature)


@pytest.mark.parametrize(
    ("step", "inside"),
    [((2, 1), False), ((3, 0), False), ((3, 1), True), ((4, 0), True), ((4, 1), True), ((5, 0), False)],
)
def test_the_window_is_the_open_phase_to_the_end_of_the_next_round(step: tuple[int, int], inside: bool) -> None:
    scene = Scene(**TWO_PHASES)
    state = replace(scene.parent, round=3, phase=1)
    transaction = scene.post(round=step[0], phase=step[1])
    if inside:
        validate_window(state, transaction)
        return
    with pytest.raises(OutOfWindow) as caught:
        validate_window(state, transaction)
    assert str(caught.value) == f"window: round and phase {step} found, (3, 1) is open"


# --- votes, alone and inside a block


def test_a_vote_of_a_stranger_is_invalid() -> None:
    scene = Scene()
    vote = sign_vote(STRANGER, scene.genesis.chain_id, scene.second.hash, 2, 0)
    message = f"voter: {STRANGER.public_key.hex()} is not a member"
    _expect_refusal(scene, scene.with_vote(vote), InvalidVote, message)
    with pytest.raises(InvalidVote) as caught:
        validate_vote(scene.genesis, vote, is_valid_signature)
    assert str(caught.value) == message


def test_a_vote_that_its_voter_did_not_sign_is_invalid() -> None:
    scene = Scene()
    vote = replace(scene.votes[0], signature=scene.votes[1].signature)
    signature, voter, block = vote.signature.hex()[:16], vote.voter.hex()[:16], scene.second.hash.hex()[:16]
    message = f"signature: {signature}… is not {voter}…'s over block {block}…"
    _expect_refusal(scene, scene.with_vote(vote), InvalidVote, message)


def _vote(scene: Scene, place: int, round_number: int, phase: int) -> bytes:
    vote = sign_vote(KEYS[place], scene.genesis.chain_id, scene.second.hash, round_number, phase)
    return encode(vote.to_record())


def test_a_vote_names_the_round_and_phase_of_its_block() -> None:
    scene = Scene()
    scene.peer.receive_vote(_vote(scene, 0, 2, 0))
    before = scene.peer.snapshot()
    for round_number, phase in ((3, 0), (1, 0), (2, 1)):
        with pytest.raises(InvalidVote) as caught:
            scene.peer.receive_vote(_vote(scene, 1, round_number, phase))
        assert str(caught.value) == f"round and phase: {(round_number, phase)} found, the block closes (2, 0)"
    assert scene.peer.snapshot() == before


def test_only_electors_vote() -> None:
    scene = Scene(committee_size=2)
    before, electors = scene.peer.snapshot(), scene.builder.states[scene.first.hash].electors
    for place, key in enumerate(KEYS[:4]):
        if key.public_key in electors:
            continue
        with pytest.raises(InvalidVote) as caught:
            scene.peer.receive_vote(_vote(scene, place, 2, 0))
        member = key.public_key.hex()[:16]
        assert str(caught.value) == f"electorate: {member}… is not one of the 2 electors of height 2"
    assert scene.peer.snapshot() == before


# --- what may heal


def test_a_block_with_an_unknown_parent_may_heal() -> None:
    scene = Scene()
    child = scene.builder.extend(scene.block.hash)
    _expect_refusal(scene, child, UnknownParent, f"parent: {scene.block.hash.hex()} is not among 2 blocks")


def test_a_timestamp_too_far_ahead_heals_when_the_clock_moves_on() -> None:
    scene = Scene()
    time_ms = scene.block.header.timestamp_ms
    scene.peer.now_ms = time_ms - scene.genesis.clock_ahead_max_ms - 1
    before = scene.peer.snapshot()
    with pytest.raises(FutureTimestamp) as caught:
        scene.peer.receive_block(scene.block.encode())
    assert str(caught.value) == f"timestamp: {time_ms} found, at most {time_ms - 1} now"
    assert scene.peer.snapshot() == before
    scene.peer.now_ms += 1
    scene.peer.receive_block(scene.block.encode())


def test_a_missing_payload_heals_when_it_arrives() -> None:
    scene = Scene()
    payload_hash = scene.posts[2].payload_hash
    content = scene.peer.contents.pop(payload_hash)
    before = scene.peer.snapshot()
    with pytest.raises(MissingPayload) as caught:
        scene.peer.receive_block(scene.block.encode())
    assert str(caught.value) == f"payload: 1 of 5 contents not held, the first is {payload_hash.hex()}"
    assert scene.peer.snapshot() == before
    scene.peer.contents[payload_hash] = content
    scene.peer.receive_block(scene.block.encode())


# --- payloads


def test_a_payload_is_what_was_signed() -> None:
    content, other = payload(1), payload(2)
    transaction = post(KEYS[0], genesis(4), 1, content)
    check = lambda data: SumRules().check("update", data)  # noqa: E731
    validate_payload(transaction, content, check)
    for wrong, message in (
        (content + b"\x00", "payload size: 33 bytes found, 32 signed"),
        (b"", "payload size: 0 bytes found, 32 signed"),
        (other, f"payload hash: {sha256(other).hex()} found, {sha256(content).hex()} signed"),
    ):
        with pytest.raises(InvalidPayload) as caught:
            validate_payload(transaction, wrong, check)
        assert str(caught.value) == message


def test_a_payload_that_the_method_cannot_read_is_invalid_alone_and_in_a_block() -> None:
    scene = Scene()
    content = payload(1)[:-1]
    bad = scene.post(payload_hash=sha256(content), payload_size=31)
    scene.peer.contents[sha256(content)] = content
    message = "content: 31 bytes found, update has 32"
    _expect_refusal(scene, scene.with_post(bad), InvalidPayload, message)
    with pytest.raises(InvalidPayload) as caught:
        validate_payload(bad, content, lambda data: SumRules().check("update", data))
    assert str(caught.value) == message


def test_a_stored_payload_that_changed_is_noticed() -> None:
    scene = Scene()
    scene.peer.contents[scene.posts[0].payload_hash] = payload(9)
    expected = scene.posts[0].payload_hash.hex()
    message = f"payload hash: {sha256(payload(9)).hex()} found, {expected} signed"
    with pytest.raises(InvalidPayload) as caught:
        scene.peer.receive_block(scene.block.encode())
    assert str(caught.value) == message


class _Picky(SumRules):
    def aggregate(
        self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
    ) -> bytes:
        if round_number == 3:
            raise ValueError("shapes (3, 2) and (2, 3) do not fit")
        return super().aggregate(phase, round_number, knowledge, posts)


def test_posts_that_do_not_fit_together_make_an_invalid_block() -> None:
    scene = Scene()
    scene.peer.rules = _Picky()
    before = scene.peer.snapshot()
    with pytest.raises(InvalidBlock) as caught:
        scene.peer.receive_block(scene.block.encode())
    assert str(caught.value) == "aggregate: shapes (3, 2) and (2, 3) do not fit"
    assert scene.peer.snapshot() == before


# --- valid at the edge


def test_any_member_closes_a_silent_aggregators_phase_when_it_timed_out() -> None:
    for scene in (_at_aggregator_phase(), Scene(**CENTRALIZED)):
        block = _empty(scene, 0, key=KEYS[3])
        scene.peer.receive_block(block.encode())
        after = scene.peer.tree.state(block.hash)
        assert after is not None
        assert after.knowledge_root == scene.parent.knowledge_root


def test_an_empty_block_may_not_change_the_knowledge() -> None:
    scene = _at_aggregator_phase()
    block = scene.builder.remake(_empty(scene, 0), knowledge_root=bytes(32))
    expected = scene.parent.knowledge_root.hex()
    message = f"knowledge root: {bytes(32).hex()} found, recomputed {expected}"
    _expect_refusal(scene, block, InvalidBlock, message)


def test_one_post_is_quorum_in_the_aggregators_phase() -> None:
    scene = _at_aggregator_phase(contribution_quorum=4)
    assert len(scene.posts) == 1
    scene.peer.receive_block(scene.block.encode())


def test_any_member_may_mine_the_aggregators_post_where_the_federation_is_not_centralized() -> None:
    scene = _at_aggregator_phase()
    scene.peer.receive_block(scene.remake(key=KEYS[2]).encode())


def test_exactly_the_quorums_are_enough() -> None:
    scene = Scene(contribution_quorum=2)
    block = scene.builder.extend(scene.second.hash, posts=scene.posts[:2], votes=scene.votes[:3])
    scene.peer.contents |= scene.builder.contents
    scene.peer.receive_block(block.encode())


def test_a_post_may_be_as_new_as_the_block_and_the_block_one_newer_than_the_median() -> None:
    scene = Scene()
    time_ms = scene.parent.median_time_ms + 1
    posts = scene.builder.posts(scene.second.hash, timestamp_ms=time_ms)
    scene.peer.receive_block(scene.remake(transactions=posts, timestamp_ms=time_ms).encode())


def test_strangers_signatures_are_not_verified_before_the_proof_of_work() -> None:
    scene, _, _ = _proof_of_work()
    _, block, _ = _proof_of_work()
    calls: list[PublicKey] = []

    def counting(public_key: PublicKey, signature: bytes, message: bytes) -> bool:
        calls.append(public_key)
        return True

    with pytest.raises(InvalidBlock, match=r"^proof of work"):
        validate_sealed(scene.genesis, block, counting)
    assert calls == []
