"""Each rule of a block: a valid one is changed so that this rule breaks, and mined and signed anew.

Rules of votes, certificates and evidence on their own stand in their own files.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidPayload,
    InvalidPost,
    InvalidSignature,
    MissingPayload,
    OutOfWindow,
    Refused,
    UnknownParent,
)
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.post import Post
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.state import State, votes_required
from fedchain.chain.transition import judge_block
from fedchain.chain.validation import CLOCK_MS_MAX, validate_content, validate_post, validate_window
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature
from tests.support.chain.builders import (
    EASY_BITS,
    GLOBAL,
    UPDATE,
    ChainBuilder,
    double_post,
    double_vote,
    genesis,
    keys,
    payload,
    post,
)
from tests.support.chain.peer import Peer, encode_final

KEYS = keys(12)
STRANGER = KEYS[11]
TWO_PHASES: dict[str, Any] = {"phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.FIXED}
CENTRALIZED: dict[str, Any] = {"centralized": True, "aggregator": AggregatorRule.FIXED}


class Scene:
    """Two final blocks that everybody has, and a third one, ``block``, that is judged."""

    def __init__(self, count: int = 4, **overrides: Any) -> None:
        self.genesis = genesis(count, **overrides)
        self.builder = ChainBuilder(self.genesis)
        self.peer = Peer(self.genesis)
        self.first, self.second = self.step(), self.step()
        self.block = self.propose()

    def step(self, **extension: Any) -> Block:
        """One more final block that everybody has."""
        block = self.builder.extend(self.peer.state.block_hash, **extension)
        self.peer.receive_final(encode_final(block, self.builder.certificate(block)))
        self.peer.contents |= self.builder.contents
        return block

    def propose(self, **extension: Any) -> Block:
        """A valid block that nobody has yet, whose payloads everybody holds."""
        self.block = self.builder.extend(self.parent.block_hash, **extension)
        self.peer.contents |= self.builder.contents
        return self.block

    @property
    def parent(self) -> State:
        return self.peer.state

    @property
    def posts(self) -> tuple[Post, ...]:
        return self.block.transactions

    @property
    def certificate(self) -> Certificate:
        assert self.block.certificate is not None
        return self.block.certificate

    def post(self, **changes: Any) -> Post:
        """The block's first post with other fields, signed anew."""
        changed = replace(self.posts[0], **changes)
        key = next(key for key in KEYS if key.public_key == changed.sender)
        return replace(changed, signature=key.sign(changed.signing_message(self.genesis.chain_id)))

    def with_post(self, post: Post, **header: Any) -> Block:
        """The block with that post in place of its first one."""
        others = [item for item in self.posts[1:] if item.sender != post.sender]
        return self.remake(transactions=sorted([*others, post], key=lambda item: item.sender), **header)

    def with_voters(self, voters: Sequence[PublicKey], **said: Any) -> Block:
        """The block with a certificate for its parent by those voters."""
        return self.remake(certificate=self.builder.certificate(self.parent.block_hash, voters, **said))

    def remake(self, **changes: Any) -> Block:
        return self.builder.remake(self.block, **changes)


Case = Callable[[], tuple[Scene, Block, str]]
"""The scene, the block that breaks the rule, and the whole message."""


# --- the header


def _version() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(version=1), "version: 1 found, 2 expected"


def _end() -> tuple[Scene, Block, str]:
    scene = Scene(rounds=3)
    scene.step()
    return scene, scene.propose(), "end: round 4 found, the last is 3"


def _height() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(height=4), "height: 4 found, 3 expected"


def _round() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(round=4), "round: 4 found, 3 expected"


def _phase() -> tuple[Scene, Block, str]:
    scene = Scene(phases=(UPDATE, UPDATE))
    return scene, scene.remake(phase=1), "phase: 1 found, 0 expected"


def _state_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.parent.root.hex()
    return scene, scene.remake(state_root=bytes(32)), f"state root: {found} found, {expected} expected"


def _bits() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(bits=0x203FFFFF), f"bits: 0x203fffff found, {EASY_BITS:#x} expected"


def _bits_not_canonical() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(bits=0x2100FFFF), f"bits: 0x2100ffff found, {EASY_BITS:#x} expected"


def _proof_of_work() -> tuple[Scene, Block, str]:
    scene = Scene()
    header = replace(scene.block.header, nonce=0)
    while is_sealed(scene.genesis.proof_function, header):
        header = replace(header, nonce=header.nonce + 1)
    block = sign_block(KEYS[0], scene.genesis.chain_id, header, scene.posts, scene.certificate)
    message = f"proof of work: nonce {header.nonce} does not bring the hash to the target {EASY_BITS:#x}"
    return scene, block, message


# --- how many, and in which order


def _more_posts_than_contributors() -> tuple[Scene, Block, str]:
    scene = Scene(contributors_per_round=2)
    posts = scene.builder.posts(scene.parent.block_hash, members=scene.parent.roster.members[:3])
    return scene, scene.remake(transactions=posts), "posts: 3 found, 2 may post"


def _too_many_crimes() -> tuple[Scene, Block, str]:
    scene = Scene(10)
    crimes = [double_vote(key, scene.genesis, 2) for key in KEYS[:9]]
    block = scene.remake(evidence=sorted(crimes, key=lambda item: item.hash))
    return scene, block, "evidence: 9 crimes found, at most 8 fit"


def _two_crimes_of_a_member() -> tuple[Scene, Block, str]:
    scene = Scene()
    crimes = [double_vote(KEYS[1], scene.genesis, 2), double_post(KEYS[1], scene.genesis, 2)]
    block = scene.remake(evidence=sorted(crimes, key=lambda item: item.hash))
    return scene, block, "evidence: 2 crimes of 1 members found"


def _no_post() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, _empty(scene), "contribution quorum: 0 posts found, at least 3"


def _too_few_posts() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(transactions=scene.posts[:2]), "contribution quorum: 2 posts found, at least 3"


def _too_few_posts_for_the_document() -> tuple[Scene, Block, str]:
    scene = Scene(contribution_quorum=4)
    return scene, scene.remake(transactions=scene.posts[:3]), "contribution quorum: 3 posts found, at least 4"


def _too_few_posts_for_the_phase() -> tuple[Scene, Block, str]:
    scene = Scene(phases=(replace(UPDATE, quorum=4),), contribution_quorum=1)
    return scene, scene.remake(transactions=scene.posts[:3]), "contribution quorum: 3 posts found, at least 4"


def _too_few_posts_where_a_phase_may_close_empty() -> tuple[Scene, Block, str]:
    scene = Scene(contributors_per_round=3)
    return scene, scene.remake(transactions=scene.posts[:1]), "contribution quorum: 1 posts found, at least 2"


def _transaction_order() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, *rest = scene.posts
    message = f"transaction order: {one.sender.hex()} follows {two.sender.hex()}"
    return scene, scene.remake(transactions=[two, one, *rest]), message


def _transaction_twice() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, *_ = scene.posts
    message = f"transaction order: {one.sender.hex()} follows {one.sender.hex()}"
    return scene, scene.remake(transactions=[one, one, two]), message


def _second_post_of_a_member() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, other = scene.posts[0], scene.post(payload_hash=sha256(b"other"))
    message = f"transaction order: {one.sender.hex()} follows {one.sender.hex()}"
    return scene, scene.remake(transactions=[one, other, *scene.posts[1:3]]), message


def _evidence_order() -> tuple[Scene, Block, str]:
    scene = Scene()
    crimes = [double_vote(key, scene.genesis, 2) for key in KEYS[:2]]
    later, sooner = sorted(crimes, key=lambda item: item.hash, reverse=True)
    message = f"evidence order: {sooner.hash.hex()} follows {later.hash.hex()}"
    return scene, scene.remake(evidence=[later, sooner]), message


# --- who


def _producer() -> tuple[Scene, Block, str]:
    scene = Scene(**CENTRALIZED)
    member, aggregator = KEYS[1].public_key.hex(), KEYS[0].public_key.hex()
    return scene, scene.remake(key=KEYS[1]), f"producer: {member} mined, the aggregator is {aggregator}"


def _producer_rotates() -> tuple[Scene, Block, str]:
    scene = Scene(centralized=True, aggregator=AggregatorRule.ROTATING)
    member, aggregator = KEYS[0].public_key.hex(), KEYS[3].public_key.hex()
    return scene, scene.remake(key=KEYS[0]), f"producer: {member} mined, the aggregator is {aggregator}"


def _contributor_not_drawn() -> tuple[Scene, Block, str]:
    scene = Scene(contributors_per_round=2)
    (other, *_) = sorted(set(scene.parent.roster.members) - scene.parent.roster.contributors)
    block = scene.with_post(scene.post(sender=other))
    return scene, block, f"contributor: {other.hex()} is not one of the 2 contributors of round 3"


def _contributor_not_aggregator() -> tuple[Scene, Block, str]:
    scene = _at_aggregator_phase()
    block = scene.with_post(scene.post(sender=KEYS[1].public_key))
    return scene, block, f"contributor: {KEYS[1].public_key.hex()} is not one of the 1 contributors of round 2"


def _contributor_convicted() -> tuple[Scene, Block, str]:
    scene = _with_conviction()
    block = scene.with_post(scene.post(sender=KEYS[1].public_key))
    return scene, block, f"contributor: {KEYS[1].public_key.hex()} is not one of the 6 contributors of round 4"


def _contributor_stranger() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.with_post(scene.post(sender=STRANGER.public_key))
    return scene, block, f"contributor: {STRANGER.public_key.hex()} is not one of the 4 contributors of round 3"


# --- posts and evidence in the body


def _post_of_another_round() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.with_post(scene.post(round=2)), "post's phase: (2, 0) found, the block closes (3, 0)"


def _post_of_another_phase() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.with_post(scene.post(phase=1)), "post's phase: (3, 1) found, the block closes (3, 0)"


def _post_not_signed() -> tuple[Scene, Block, str]:
    scene = Scene()
    stolen = replace(scene.posts[0], payload_size=33)
    signature, sender = stolen.signature.hex()[:16], stolen.sender.hex()[:16]
    message = f"body: signature: {signature}… is not {sender}…'s over this post"
    return scene, scene.with_post(stolen), message


def _post_too_large() -> tuple[Scene, Block, str]:
    scene = Scene(payload_size_max=1_000, inline_size_max=1_000)
    block = scene.with_post(scene.post(payload_size=1_001))
    return scene, block, "body: payload size: 1001 bytes found, at most 1000 are allowed"


def _crime_of_a_convicted() -> tuple[Scene, Block, str]:
    scene = _with_conviction()
    block = scene.remake(evidence=[double_post(KEYS[1], scene.genesis, 2)])
    return scene, block, f"body: culprit: {KEYS[1].public_key.hex()} was convicted before"


def _crime_that_is_none() -> tuple[Scene, Block, str]:
    scene = Scene()
    crime = double_vote(KEYS[1], scene.genesis, 2)
    block = scene.remake(evidence=[replace(crime, second=crime.first)])
    return scene, block, "body: statements: one does not exclude the other"


# --- the parent's certificate


def _no_certificate() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(certificate=None), "certificate: only the first block has none"


def _certificate_of_the_first_block() -> tuple[Scene, Block, str]:
    scene = Scene()
    scene.peer = Peer(scene.genesis)
    scene.peer.contents |= scene.builder.contents
    scene.block = scene.first
    return scene, scene.remake(certificate=scene.second.certificate), "certificate: only the first block has none"


def _certificate_of_prevotes() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.with_voters(scene.parent.roster.members[:3], kind=VoteKind.PREVOTE)
    return scene, block, "body: certificate's kind: prevotes found, precommits expected"


def _certificate_of_another_block() -> tuple[Scene, Block, str]:
    scene = Scene()
    other = scene.builder.extend(scene.first.hash, payload_of=50)
    block = scene.remake(certificate=scene.builder.certificate(other))
    return scene, block, f"body: certificate's block: {other.hash.hex()} found, {scene.second.hash.hex()} expected"


def _certificate_of_another_height() -> tuple[Scene, Block, str]:
    scene = Scene()
    parent = replace(scene.second, header=replace(scene.second.header, height=7))
    votes = [scene.builder.vote(member, parent) for member in scene.parent.roster.members[:3]]
    votes = [_resigned(scene, vote, block_hash=scene.second.hash) for vote in votes]
    return scene, scene.remake(certificate=certify(votes)), "body: certificate's height: 7 found, 2 expected"


def _too_few_votes() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.with_voters(scene.parent.roster.members[:2])
    return scene, block, "body: quorum: 2 votes found, 3 of 4 required"


def _vote_twice() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, _ = sorted(scene.certificate.votes, key=lambda vote: vote.voter)
    message = f"body: vote order: {one.voter.hex()} follows {one.voter.hex()}"
    return scene, scene.remake(certificate=certify([one, one, two])), message


def _two_measurements_of_a_voter() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, _ = sorted(scene.certificate.votes, key=lambda vote: vote.voter)
    other = scene.builder.vote(one.voter, scene.second, clock_ms=5)
    message = f"body: vote order: {one.voter.hex()} follows {one.voter.hex()}"
    return scene, scene.remake(certificate=certify([one, other, two])), message


def _vote_order() -> tuple[Scene, Block, str]:
    scene = Scene()
    one, two, three = scene.certificate.votes
    shuffled = replace(scene.certificate, votes=(two, one, three))
    return (
        scene,
        scene.remake(certificate=shuffled),
        f"body: vote order: {one.voter.hex()} follows {two.voter.hex()}",
    )


def _vote_of_no_elector() -> tuple[Scene, Block, str]:
    scene = Scene(committee_size=2)
    (other, *_) = sorted(set(scene.parent.roster.members) - scene.parent.deciders)
    block = scene.with_voters([min(scene.parent.deciders), other])
    named = f"{other.hex()[:16]}… is not one of the 2 electors of height 2"
    return scene, block, f"body: certificate's vote: electorate: {named}"


def _vote_of_a_convicted() -> tuple[Scene, Block, str]:
    scene = _with_conviction()
    scene.step()
    scene.propose()
    active = sorted(scene.parent.deciders)
    block = scene.with_voters([*active[:3], KEYS[1].public_key])
    named = f"{KEYS[1].public_key.hex()[:16]}… is not one of the 6 electors of height 4"
    return scene, block, f"body: certificate's vote: electorate: {named}"


def _vote_not_signed() -> tuple[Scene, Block, str]:
    scene = Scene()
    first, second, third = scene.certificate.votes
    forged = replace(first, clock_ms=first.clock_ms + 1)
    said, voter = forged.signature.hex()[:16], forged.voter.hex()[:16]
    message = f"body: certificate's vote: signature: {said}… is not {voter}…'s over this vote"
    return scene, scene.remake(certificate=certify([forged, second, third])), message


def _vote_of_another_attempt() -> tuple[Scene, Block, str]:
    scene = Scene()
    votes = [scene.builder.vote(member, scene.second, attempt=int(place == 2)) for place, member in _voters(scene)]
    block = scene.remake(certificate=certify(votes))
    voter = votes[2]
    said, signer = voter.signature.hex()[:16], voter.voter.hex()[:16]
    return scene, block, f"body: certificate's vote: signature: {said}… is not {signer}…'s over this vote"


def _clock_without_end() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.with_voters(scene.parent.roster.members[:3], clock_ms=CLOCK_MS_MAX + 1, mining_ms=0)
    found = f"clock {CLOCK_MS_MAX + 1} and mining time 0 found, at most {CLOCK_MS_MAX} are allowed"
    return scene, block, f"body: certificate's vote: measurements: {found}"


# --- the knowledge


def _knowledge_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.block.header.knowledge_root.hex()
    return scene, scene.remake(knowledge_root=bytes(32)), f"knowledge root: {found} found, recomputed {expected}"


def _knowledge_of_an_empty_block() -> tuple[Scene, Block, str]:
    scene = _at_aggregator_phase()
    found, expected = bytes(32).hex(), scene.parent.knowledge_root.hex()
    block = scene.remake(transactions=(), knowledge_root=bytes(32))
    return scene, block, f"knowledge root: {found} found, recomputed {expected}"


def _at_aggregator_phase(**overrides: Any) -> Scene:
    """A scene whose block closes the phase of the aggregator."""
    scene = Scene(**(TWO_PHASES | overrides))
    scene.step()
    scene.propose()
    return scene


def _with_conviction() -> Scene:
    """Seven members, the second of which was convicted by the final block before."""
    scene = Scene(7)
    scene.step(evidence=[double_vote(KEYS[1], scene.genesis, 2)])
    scene.propose()
    return scene


def _empty(scene: Scene, **changes: Any) -> Block:
    """The scene's block without posts."""
    return scene.remake(transactions=(), knowledge_root=scene.parent.knowledge_root, **changes)


def _voters(scene: Scene) -> list[tuple[int, PublicKey]]:
    return list(enumerate(sorted(scene.parent.roster.members)[:3]))


def _resigned(scene: Scene, vote: Any, **changes: Any) -> Any:
    changed = replace(vote, **changes)
    return replace(
        changed, signature=scene.builder.key(vote.voter).sign(changed.signing_message(scene.genesis.chain_id))
    )


BLOCK_CASES: list[Case] = [
    _version,
    _end,
    _height,
    _round,
    _phase,
    _state_root,
    _bits,
    _bits_not_canonical,
    _proof_of_work,
    _more_posts_than_contributors,
    _too_many_crimes,
    _two_crimes_of_a_member,
    _no_post,
    _too_few_posts,
    _too_few_posts_for_the_document,
    _too_few_posts_for_the_phase,
    _too_few_posts_where_a_phase_may_close_empty,
    _transaction_order,
    _transaction_twice,
    _second_post_of_a_member,
    _evidence_order,
    _producer,
    _producer_rotates,
    _contributor_not_drawn,
    _contributor_not_aggregator,
    _contributor_convicted,
    _contributor_stranger,
    _post_of_another_round,
    _post_of_another_phase,
    _post_not_signed,
    _post_too_large,
    _crime_of_a_convicted,
    _crime_that_is_none,
    _no_certificate,
    _certificate_of_the_first_block,
    _certificate_of_prevotes,
    _certificate_of_another_block,
    _certificate_of_another_height,
    _too_few_votes,
    _vote_twice,
    _two_measurements_of_a_voter,
    _vote_order,
    _vote_of_no_elector,
    _vote_of_a_convicted,
    _vote_not_signed,
    _vote_of_another_attempt,
    _clock_without_end,
    _knowledge_root,
    _knowledge_of_an_empty_block,
]


def _expect_refusal(scene: Scene, block: Block, error: type[Refused], message: str) -> None:
    before = scene.peer.snapshot()
    with pytest.raises(error) as caught:
        scene.peer.receive_block(block.encode())
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert caught.value.rule == message.split(":")[0]
    assert scene.peer.snapshot() == before


@pytest.mark.parametrize("case", BLOCK_CASES, ids=[case.__name__.strip("_") for case in BLOCK_CASES])
def test_a_block_that_breaks_a_rule_is_its_miners_fault(case: Case) -> None:
    scene, block, message = case()
    if case is not _end:
        scene.peer.judge(scene.block)  # as it was, the block is valid
    _expect_refusal(scene, block, InvalidBlock, message)


def test_a_valid_block_is_taken() -> None:
    scene = Scene()
    before = scene.peer.snapshot()
    scene.peer.receive_block(scene.block.encode())
    assert scene.block.hash in scene.peer.candidates
    assert scene.peer.snapshot() != before


# --- bytes that its miner did not write are the sender's fault


def _miner_stranger() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(key=STRANGER), f"miner: {STRANGER.public_key.hex()} is no active member"


def _miner_convicted() -> tuple[Scene, Block, str]:
    scene = _with_conviction()
    return scene, scene.remake(key=KEYS[1]), f"miner: {KEYS[1].public_key.hex()} is no active member"


def _miner_signature() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.block
    other = sign_block(KEYS[1], scene.genesis.chain_id, block.header, block.transactions, block.certificate)
    said, miner, block_hash = other.signature.hex()[:16], block.header.miner.hex()[:16], block.hash.hex()[:16]
    return scene, other, f"miner signature: {said}… is not {miner}…'s over block {block_hash}…"


def _other_posts() -> tuple[Scene, Block, str]:
    scene = Scene()
    other = scene.remake(transactions=scene.posts[:3])
    found, has = scene.block.header.transactions_root.hex(), other.header.transactions_root.hex()
    block = replace(scene.block, transactions=other.transactions)
    return scene, block, f"transactions root: {found} found, the body has {has}"


def _other_certificate() -> tuple[Scene, Block, str]:
    scene = Scene()
    other = scene.builder.certificate(scene.second, attempt=1)
    found, has = scene.block.header.certificate_root.hex(), other.hash.hex()
    return scene, replace(scene.block, certificate=other), f"certificate root: {found} found, the body has {has}"


def _left_out_certificate() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, has = scene.block.header.certificate_root.hex(), bytes(32).hex()
    return scene, replace(scene.block, certificate=None), f"certificate root: {found} found, the body has {has}"


def _other_evidence() -> tuple[Scene, Block, str]:
    scene = Scene()
    crime = double_vote(KEYS[1], scene.genesis, 2)
    other = scene.remake(evidence=[crime])
    message = f"evidence root: {bytes(32).hex()} found, the body has {other.header.evidence_root.hex()}"
    return scene, replace(scene.block, evidence=(crime,)), message


SENDER_CASES: list[Case] = [
    _miner_stranger,
    _miner_convicted,
    _miner_signature,
    _other_posts,
    _other_certificate,
    _left_out_certificate,
    _other_evidence,
]


@pytest.mark.parametrize("case", SENDER_CASES, ids=[case.__name__.strip("_") for case in SENDER_CASES])
def test_a_block_that_its_miner_did_not_write_is_its_senders_fault(case: Case) -> None:
    scene, block, message = case()
    scene.peer.judge(scene.block)
    _expect_refusal(scene, block, InvalidSignature, message)


# --- posts on their own


def _transaction_cases() -> list[tuple[str, dict[str, Any], type[Refused], str]]:
    stranger = STRANGER.public_key
    return [
        ("sender", {"sender": stranger}, InvalidSignature, f"{stranger.hex()} is no member"),
        ("phase", {"phase": 1}, InvalidPost, "1 found, round 3 has 1"),
        ("phase", {"phase": 2**64 - 1}, InvalidPost, f"{2**64 - 1} found, round 3 has 1"),
        ("phase", {"round": 0}, InvalidPost, "0 found, round 0 has 0"),
        ("round", {"round": 4}, InvalidPost, "4 found, the last is 3"),
        ("round", {"round": 2**64 - 1}, InvalidPost, f"{2**64 - 1} found, the last is 3"),
        ("payload size", {"payload_size": 1_001}, InvalidPost, "1001 bytes found, at most 1000 are allowed"),
        (
            "payload size",
            {"payload_size": 2**64 - 1},
            InvalidPost,
            f"{2**64 - 1} bytes found, at most 1000 are allowed",
        ),
    ]


@pytest.mark.parametrize(
    ("rule", "changes", "error", "message"),
    _transaction_cases(),
    ids=[f"{rule} {changes}" for rule, changes, _, _ in _transaction_cases()],
)
def test_a_post_that_breaks_a_rule_is_refused(
    rule: str, changes: dict[str, Any], error: type[Refused], message: str
) -> None:
    scene = Scene(rounds=3, payload_size_max=1_000, inline_size_max=1_000)
    bad = scene.post(**changes)
    with pytest.raises(error) as caught:
        validate_post(scene.genesis, scene.parent, bad, is_valid_signature)
    assert type(caught.value) is error
    assert (caught.value.rule, str(caught.value)) == (rule, f"{rule}: {message}")


def test_a_post_that_its_sender_did_not_sign_is_the_fault_of_who_passed_it_on() -> None:
    scene, other = Scene(), genesis(4, name="other")
    foreign = post(KEYS[0], other, 3, payload(1))
    for bad in (replace(scene.posts[0], payload_size=33), foreign):
        with pytest.raises(InvalidSignature, match=r"^signature: "):
            validate_post(scene.genesis, scene.parent, bad, is_valid_signature)
    validate_post(other, ChainBuilder(other).state, foreign, is_valid_signature)


def test_only_the_aggregator_posts_to_its_phases() -> None:
    """Anyone else's post could never be counted, and everybody would fetch and keep its payload."""
    scene = Scene(phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.ROTATING)
    for round_number, phase, place in ((3, 1, 3), (4, 1, 0), (4, 0, 2)):
        good = scene.post(round=round_number, phase=phase, sender=KEYS[place].public_key)
        validate_post(scene.genesis, scene.parent, good, is_valid_signature)
    bad = scene.post(round=3, phase=1, sender=KEYS[1].public_key)
    with pytest.raises(InvalidPost) as caught:
        validate_post(scene.genesis, scene.parent, bad, is_valid_signature)
    member, aggregator = KEYS[1].public_key.hex(), KEYS[3].public_key.hex()
    found = f"{member} posts to phase 1 of round 3, which is the aggregator's, {aggregator}"
    assert str(caught.value) == f"contributor: {found}"


def test_a_dedicated_aggregator_posts_to_no_other_phase() -> None:
    scene = Scene(phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED)
    aggregator = scene.genesis.members[-1]
    validate_post(scene.genesis, scene.parent, scene.post(round=3, phase=1, sender=aggregator), is_valid_signature)
    with pytest.raises(InvalidPost) as caught:
        validate_post(scene.genesis, scene.parent, scene.post(round=3, phase=0, sender=aggregator), is_valid_signature)
    found = f"{aggregator.hex()}, without data, posts to phase 0 of round 3, which is the participants'"
    assert str(caught.value) == f"contributor: {found}"


def test_a_post_of_a_convicted_member_is_ignored_and_nobody_is_blamed() -> None:
    scene = _with_conviction()
    with pytest.raises(OutOfWindow) as caught:
        validate_post(scene.genesis, scene.parent, scene.post(sender=KEYS[1].public_key), is_valid_signature)
    assert str(caught.value) == f"sender: {KEYS[1].public_key.hex()} was convicted"


def test_the_largest_payload_is_valid() -> None:
    scene = Scene(payload_size_max=1_000, inline_size_max=1_000)
    validate_post(scene.genesis, scene.parent, scene.post(payload_size=1_000), is_valid_signature)


@pytest.mark.parametrize(
    ("step", "inside"),
    [
        ((2, 1), False),
        ((3, 0), False),
        ((3, 1), True),
        ((4, 0), True),
        ((4, 1), True),
        ((5, 0), False),
        ((2**64 - 1, 0), False),
    ],
)
def test_the_window_is_the_open_phase_to_the_end_of_the_next_round(step: tuple[int, int], inside: bool) -> None:
    scene = Scene(**TWO_PHASES)
    state = replace(scene.parent, round=3, phase=1)
    post = scene.post(round=step[0], phase=step[1])
    if inside:
        validate_window(state, post)
        return
    with pytest.raises(OutOfWindow) as caught:
        validate_window(state, post)
    assert str(caught.value) == f"post's round: {step} found, (3, 1) is open"


def test_nothing_is_posted_after_the_end() -> None:
    scene = Scene(rounds=2)
    with pytest.raises(OutOfWindow, match=r"^post's round: \(3, 0\) found"):
        validate_window(scene.parent, scene.post(round=3))


# --- what may heal


def test_a_block_of_another_height_may_heal() -> None:
    scene = Scene()
    for block in (scene.builder.extend(scene.block.hash), scene.second, scene.first):
        found, head = block.header.parent_hash.hex(), scene.second.hash.hex()
        _expect_refusal(scene, block, UnknownParent, f"parent: {found} found, the block at height 2 is {head}")


def test_a_missing_payload_heals_when_it_arrives() -> None:
    scene = Scene()
    payload_hash = scene.posts[2].payload_hash
    content = scene.peer.contents.pop(payload_hash)
    message = f"payload: 1 of 5 contents not held, the first is {payload_hash.hex()}"
    _expect_refusal(scene, scene.block, MissingPayload, message)
    scene.peer.contents[payload_hash] = content
    scene.peer.receive_block(scene.block.encode())


# --- payloads


def test_a_payload_is_what_was_signed() -> None:
    content, other = payload(1), payload(2)
    signed = post(KEYS[0], genesis(4), 1, content)
    validate_content(signed.payload_hash, signed.payload_size, content)
    for wrong, message in (
        (content + b"\x00", "payload size: 33 bytes found, 32 signed"),
        (b"", "payload size: 0 bytes found, 32 signed"),
        (other, f"payload hash: {sha256(other).hex()} found, {sha256(content).hex()} signed"),
    ):
        with pytest.raises(InvalidPayload) as caught:
            validate_content(signed.payload_hash, signed.payload_size, wrong)
        assert str(caught.value) == message


def test_a_payload_that_the_method_cannot_read_is_invalid_in_a_block() -> None:
    scene = Scene()
    content = payload(1)[:-1]
    bad = scene.post(payload_hash=sha256(content), payload_size=31)
    scene.peer.contents[sha256(content)] = content
    _expect_refusal(scene, scene.with_post(bad), InvalidPayload, "content: 31 bytes found, update has 32")


# --- valid at the edge


def test_any_member_closes_a_silent_aggregators_phase() -> None:
    for scene in (_at_aggregator_phase(), Scene(**CENTRALIZED)):
        block = _empty(scene, key=KEYS[3])
        scene.peer.receive_block(block.encode())
        _, after = scene.peer.candidates[block.hash]
        assert after.knowledge_root == scene.parent.knowledge_root


def test_one_post_is_quorum_in_the_aggregators_phase() -> None:
    scene = _at_aggregator_phase(contribution_quorum=4)
    assert len(scene.posts) == 1
    scene.peer.receive_block(scene.block.encode())


def test_any_member_may_mine_the_aggregators_post_where_the_federation_is_not_centralized() -> None:
    scene = _at_aggregator_phase()
    scene.peer.receive_block(scene.remake(key=KEYS[2]).encode())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_exactly_the_quorums_are_enough_and_all_may_vote(count: int) -> None:
    scene = Scene(count)
    quorum = votes_required(scene.genesis, scene.parent.roster.electors)
    full = scene.with_voters(scene.parent.roster.members)
    least = scene.propose(posts=scene.posts[:quorum])
    assert (len(least.transactions), len(scene.certificate.votes)) == (quorum, quorum)
    for block in (full, least):
        scene.peer.receive_block(block.encode())
        assert block.hash in scene.peer.candidates


def test_the_most_crimes_fit() -> None:
    scene = Scene(10)
    crimes = [double_vote(key, scene.genesis, 2) for key in KEYS[:8]]
    block = scene.remake(evidence=sorted(crimes, key=lambda item: item.hash))
    scene.peer.receive_block(block.encode())
    _, after = scene.peer.candidates[block.hash]
    assert len(after.convicted) == 8


def test_a_culprits_post_still_counts_in_the_block_that_convicts_it() -> None:
    scene = Scene()
    block = scene.remake(evidence=[double_vote(KEYS[0], scene.genesis, 2)], key=KEYS[0])
    assert KEYS[0].public_key in {item.sender for item in block.transactions}
    scene.peer.receive_block(block.encode())


# --- what a refusal costs


COSTS: list[tuple[Case, int]] = [
    (_miner_stranger, 0),
    (_miner_convicted, 0),
    (_miner_signature, 1),
    (_bits_not_canonical, 1),
    (_proof_of_work, 1),
    (_other_posts, 1),
    (_more_posts_than_contributors, 1),
    (_too_many_crimes, 1),
    (_transaction_twice, 1),
    (_contributor_stranger, 1),
    (_post_not_signed, 2),
    (_crime_that_is_none, 5),
    (_vote_twice, 5),
    (_too_few_votes, 5),
    (_vote_not_signed, 6),
]
"""Checks of a signature before a block is refused: one for its header, then the body in order up to what is wrong."""


@pytest.mark.parametrize(("case", "checks"), COSTS, ids=[case.__name__.strip("_") for case, _ in COSTS])
def test_cheap_rules_come_before_costly_ones(case: Case, checks: int) -> None:
    scene, block, message = case()
    calls: list[PublicKey] = []

    def counting(public_key: PublicKey, signature: bytes, content: bytes) -> bool:
        calls.append(public_key)
        return is_valid_signature(public_key, signature, content)

    with pytest.raises(Refused) as caught:
        judge_block(scene.genesis, scene.parent, block, None, counting)
    assert str(caught.value) == message
    assert len(calls) <= checks


def test_a_stale_block_costs_no_signature_check() -> None:
    scene = Scene()

    def never(*_: object) -> bool:
        raise AssertionError("no signature has to be looked at")

    with pytest.raises(UnknownParent):
        judge_block(scene.genesis, scene.parent, scene.first, None, never)
