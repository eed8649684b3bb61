"""Each rule of a body: a valid block is changed so that this rule breaks, and mined and signed anew.

Rules of votes, certificates, evidence and changes on their own stand in their own files.
"""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import certify
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidPayload,
    InvalidSignature,
    MissingPayload,
)
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.state import votes_required
from fedchain.chain.validation.votes import CLOCK_MS_MAX
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from tests.support.chain.builders import (
    UPDATE,
    double_post,
    double_vote,
    payload,
)
from tests.support.chain.peer import Peer
from tests.support.chain.scene import (
    CENTRALIZED,
    KEYS,
    STRANGER,
    Case,
    Scene,
    at_aggregator_phase,
    empty,
    expect_cost,
    expect_refusal,
    with_conviction,
)


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
    return scene, empty(scene), "contribution quorum: 0 posts found, at least 3"


def _too_few_posts() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(transactions=scene.posts[:2]), "contribution quorum: 2 posts found, at least 3"


def _too_few_posts_for_the_document() -> tuple[Scene, Block, str]:
    scene = Scene(contribution_quorum=4)
    return scene, scene.remake(transactions=scene.posts[:3]), "contribution quorum: 3 posts found, at least 4"


def _too_few_posts_for_the_phase() -> tuple[Scene, Block, str]:
    scene = Scene(phases=(replace(UPDATE, quorum=4),), contribution_quorum=1)
    return scene, scene.remake(transactions=scene.posts[:3]), "contribution quorum: 3 posts found, at least 4"


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
    scene = at_aggregator_phase()
    block = scene.with_post(scene.post(sender=KEYS[1].public_key))
    return scene, block, f"contributor: {KEYS[1].public_key.hex()} is not one of the 1 contributors of round 2"


def _contributor_convicted() -> tuple[Scene, Block, str]:
    scene = with_conviction()
    block = scene.with_post(scene.post(sender=KEYS[1].public_key))
    return scene, block, f"contributor: {KEYS[1].public_key.hex()} is not one of the 6 contributors of round 4"


def _contributor_stranger() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.with_post(scene.post(sender=STRANGER.public_key))
    return scene, block, f"contributor: {STRANGER.public_key.hex()} is not one of the 4 contributors of round 3"


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
    scene = with_conviction()
    block = scene.remake(evidence=[double_post(KEYS[1], scene.genesis, 2)])
    return scene, block, f"body: culprit: {KEYS[1].public_key.hex()} was convicted before"


def _crime_that_is_none() -> tuple[Scene, Block, str]:
    scene = Scene()
    crime = double_vote(KEYS[1], scene.genesis, 2)
    block = scene.remake(evidence=[replace(crime, second=crime.first)])
    return scene, block, "body: statements: one does not exclude the other"


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
    scene = with_conviction()
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


def _voters(scene: Scene) -> list[tuple[int, PublicKey]]:
    return list(enumerate(sorted(scene.parent.roster.members)[:3]))


def _resigned(scene: Scene, vote: Any, **changes: Any) -> Any:
    changed = replace(vote, **changes)
    return replace(
        changed, signature=scene.builder.key(vote.voter).sign(changed.signing_message(scene.genesis.chain_id))
    )


BLOCK_CASES: list[Case] = [
    _more_posts_than_contributors,
    _too_many_crimes,
    _two_crimes_of_a_member,
    _no_post,
    _too_few_posts,
    _too_few_posts_for_the_document,
    _too_few_posts_for_the_phase,
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
]


@pytest.mark.parametrize("case", BLOCK_CASES, ids=[case.__name__.strip("_") for case in BLOCK_CASES])
def test_a_block_that_breaks_a_rule_is_its_miners_fault(case: Case) -> None:
    scene, block, message = case()
    scene.peer.judge(scene.block)  # as it was, the block is valid
    expect_refusal(scene, block, InvalidBlock, message)


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
    _other_posts,
    _other_certificate,
    _left_out_certificate,
    _other_evidence,
]


@pytest.mark.parametrize("case", SENDER_CASES, ids=[case.__name__.strip("_") for case in SENDER_CASES])
def test_a_block_that_its_miner_did_not_write_is_its_senders_fault(case: Case) -> None:
    scene, block, message = case()
    scene.peer.judge(scene.block)
    expect_refusal(scene, block, InvalidSignature, message)


def test_a_missing_payload_heals_when_it_arrives() -> None:
    scene = Scene()
    payload_hash = scene.posts[2].payload_hash
    content = scene.peer.contents.pop(payload_hash)
    message = f"payload: 1 of 5 contents not held, the first is {payload_hash.hex()}"
    expect_refusal(scene, scene.block, MissingPayload, message)
    scene.peer.contents[payload_hash] = content
    scene.peer.receive_block(scene.block.encode())


def test_a_payload_that_the_method_cannot_read_is_invalid_in_a_block() -> None:
    scene = Scene()
    content = payload(1)[:-1]
    bad = scene.post(payload_hash=sha256(content), payload_size=31)
    scene.peer.contents[sha256(content)] = content
    expect_refusal(scene, scene.with_post(bad), InvalidPayload, "content: 31 bytes found, update has 32")


def test_any_member_closes_a_silent_aggregators_phase() -> None:
    for scene in (at_aggregator_phase(), Scene(**CENTRALIZED)):
        block = empty(scene, key=KEYS[3])
        scene.peer.receive_block(block.encode())
        _, after = scene.peer.candidates[block.hash]
        assert after.knowledge_root == scene.parent.knowledge_root


def test_one_post_is_quorum_in_the_aggregators_phase() -> None:
    scene = at_aggregator_phase(contribution_quorum=4)
    assert len(scene.posts) == 1
    scene.peer.receive_block(scene.block.encode())


def test_any_member_may_mine_the_aggregators_post_where_the_federation_is_not_centralized() -> None:
    scene = at_aggregator_phase()
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


COSTS: list[tuple[Case, int]] = [
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
    expect_cost(case, checks)
