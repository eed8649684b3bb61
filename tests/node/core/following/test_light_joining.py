"""Where members change, a node far behind joins at a head by certificates alone, and nobody leads it elsewhere."""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.certificate import certify
from fedchain.chain.explorer.audit import audit_store
from fedchain.chain.genesis import NEWEST_VERSION
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import TRUST_PERIOD_MS
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.proof_of_work import is_sealed, search_nonce
from fedchain.chain.state import NUMBER_MAX, genesis_state
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.rows import LIGHTS
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Final
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.cli.explorer_tables import render
from fedchain.crypto.hashing import Hash
from fedchain.network.downloads import Downloads
from fedchain.network.messages import (
    CandidateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetContent,
    GetFinal,
    GetLight,
    LightMessage,
    Message,
    VoteMessage,
    encode_message,
)
from fedchain.node.core.effects import Refuse, Send, Stop
from fedchain.node.core.following import light_joining
from fedchain.node.core.following.light_joining import LINE_MAX, LightJoining
from fedchain.node.core.notices import HeadConflicts
from tests.support.campaigns import some
from tests.support.chain.builders import ChainBuilder, SumRules, keys
from tests.support.chain.changes import UNTIL, approved, living_genesis
from tests.support.chain.light import light
from tests.support.node.crowd import Answers, Crowd, invented_root
from tests.support.node.renewed import (
    HEIGHT,
    MEMBERS,
    NEWEST,
    STRANGER,
    a_crowd,
    another_past,
    newest_members,
    renewed,
)
from tests.support.node.stage import Stage, published, refused, sent

FAR = 10**6

LAG_MAX = 4
"""Blocks by which a node that takes part may be behind, whatever liars claim."""


def joining_of(crowd: Crowd) -> LightJoining:
    found = crowd.stage.node._parts.catching_up._joining
    assert isinstance(found, LightJoining)
    return found


def test_nobody_at_the_head_is_a_founder() -> None:
    chain, _ = renewed()
    assert not {*chain.state.member_set.members} & {*chain.genesis.members}


def test_a_node_joins_at_the_head_on_one_members_answers_and_goes_on() -> None:
    crowd = a_crowd()
    crowd.add_honest(newest_members()[0])
    seconds = crowd.run(crowd.is_at_head, 30)
    assert crowd.is_at_head(), f"at height {crowd.stage.node.head.height} after {seconds} s"
    assert seconds < 10
    assert crowd.stage.victim.store.base() == HEIGHT, "no block below was fetched"
    assert len([item for item in sent(crowd.effects, GetFinal) if item.height < HEIGHT]) == 0
    stage, chain = crowd.stage, crowd.stage.chain
    stage.restart(is_heard=False)
    assert stage.node.head.block_hash == chain.tip, "from the store"
    block = chain.extend()
    try:
        stage.receive(FinalMessage(block, chain.certificate(block)))
        assert stage.node.head.block_hash == block.hash, "and it follows as a member does"
    finally:
        chain.tip = block.header.parent_hash


def test_one_that_joined_leads_others_to_the_head() -> None:
    """It has the path that led it there, and no other block below its head."""
    first = a_crowd()
    first.add_honest(newest_members()[0])
    first.run(first.is_at_head, 30)
    crowd, server = a_crowd(1), first.stage

    def answer(message: Message) -> Answers:
        if isinstance(message, GetLight):
            yield from ((0, item) for item in sent(server.receive(message), LightMessage))
        else:
            yield from crowd.answer(crowd.blocks, message)

    crowd.add(newest_members()[1], answer, lambda: (HEIGHT, crowd.blocks[-1].hash))
    crowd.run(crowd.is_at_head, 30)
    assert crowd.is_at_head()
    path = crowd.stage.victim.store._lights
    assert {*path} <= {*server.victim.store._lights}
    assert max(path) == HEIGHT


# --- lies


def _forged(height: int = FAR) -> tuple[FinalMessage, LightBlock, bytes]:
    """A head far above, whose members are the liar's own keys: it certifies itself."""
    chain, blocks = renewed()
    liars = [key.public_key for key in keys(STRANGER)[150 : 150 + MEMBERS]]
    before = genesis_state(living_genesis(MEMBERS, members=tuple(liars)))
    other, head = ChainBuilder(chain.genesis, newcomers=STRANGER), blocks[-1]
    below = replace(head.header, height=height - 1, members_root=before.member_set.root)
    other.states[below.hash] = before = replace(before, height=height - 1, round=height - 1, block_hash=below.hash)
    fields = {"parent_hash": below.hash, "height": height, "state_root": before.root}
    block = other.remake(head, key=other.key(liars[0]), **fields)
    certificate, chain_id = other.certificate(block, liars), chain.genesis.chain_id
    light_block = LightBlock(chain_id, block.header, certificate, members=before.member_set, below=below)
    return FinalMessage(block, certificate), light_block, before.encode()


LIES = {
    "forged head": "height: 26 found, 27 to 999999 expected",
    "nothing": "",
    "no answer": "",
    "without proof": "header below: none found with height",
    "another set": "member set: .* found with height 26",
    "too few": "quorum: 2 votes found, 6 of 8 required",
    "endless": "light path: 65 blocks wait, at most 64 expected",
    "other height": "height: 1 found, 2 to 26 expected",
    "no state": "",
}
"""Lies, and the words by which they are refused; no words: it may be an honest peer that lacks something."""

OF_FORGED = ("forged head", "nothing", "no answer", "endless")
"""Lies about a head that is not there."""


def _liar(crowd: Crowd, lie: str) -> Callable[[Message], Answers]:
    """The behaviour of a peer that answers with one kind of lie."""
    (final, top, _), blocks = _forged(), crowd.blocks

    def light_of(height: int, low: int, high: int) -> LightBlock | None:
        real = crowd.light(blocks[min(height, HEIGHT) - 1])
        match lie:
            case "nothing":
                return None
            case "forged head":
                return top if height == FAR else real
            case "without proof":
                return replace(real, below=None)
            case "another set":
                return replace(real, members=top.members)
            case "too few":
                return replace(real, certificate=replace(real.certificate, votes=real.certificate.votes[:2]))
            case "endless":
                return _forged(min(high - 1, FAR))[1]
            case "other height":
                return crowd.light(blocks[low] if low + 1 == height else blocks[0])
        return real

    def answer(message: Message) -> Answers:
        if isinstance(message, GetFinal):
            yield 0, final if lie in OF_FORGED else crowd.final(blocks[-1])
        elif isinstance(message, GetLight) and lie != "no answer":
            found = light_of(message.height, message.low, message.high)
            yield 0, LightMessage(message.height, found)

    return answer


@pytest.mark.parametrize("lie", LIES)
def test_liars_cost_time_and_lead_nowhere(lie: str) -> None:
    crowd = a_crowd(number=NEWEST)
    _, *liars, honest = newest_members(5)
    claimed = FAR if lie in OF_FORGED else HEIGHT
    for liar in liars:
        crowd.add(liar, _liar(crowd, lie), lambda: (claimed, invented_root(0)))
    crowd.run(lambda: False, 12)
    stage = crowd.stage
    assert stage.node.head.height == 0
    assert stage.victim.journal.slot[0] == 0, "nothing is said where a forged head is"
    assert len(sent(crowd.effects, GetLight)) < 250
    assert dict(stage.node.sizes())["joinings"] <= LINE_MAX
    said = {str(effect.error) for effect in crowd.effects if isinstance(effect, Refuse)}
    assert all(re.match(LIES[lie], words) for words in said)
    assert bool(said) == bool(LIES[lie])
    crowd.add_honest(honest)
    assert crowd.run(crowd.is_at_head, 60) < 20
    assert crowd.is_at_head()
    crowd.run(lambda: False, 10)
    assert stage.victim.journal.slot[0] <= HEIGHT + 1


@pytest.mark.parametrize("height", [NUMBER_MAX, 2**64 - 1])
def test_nobody_is_asked_in_words_that_cannot_be_written(height: int) -> None:
    """A liar's head may be so high that the next height has no number; its certificate need not be anybody's."""
    crowd, liar, (chain, blocks) = a_crowd(), newest_members()[0], renewed()
    key, head, chain_id = keys(STRANGER)[150], blocks[-1], chain.genesis.chain_id
    header = search_nonce(chain.genesis.proof_function, replace(head.header, height=height), 0, 10**6)
    assert header is not None
    block = sign_block(key, chain_id, header, head.transactions, head.certificate, head.evidence, head.changes)
    vote = sign_vote(key, chain_id, (height, 0, VoteKind.PRECOMMIT), block.hash, clock_ms=1)

    def answer(message: Message) -> Answers:
        yield from [(0, FinalMessage(block, certify([vote])))] if isinstance(message, GetFinal) else []

    crowd.add(liar, answer, lambda: (height, block.hash))
    crowd.run(lambda: False, 8)
    said = [encode_message(effect.message) for effect in crowd.effects if isinstance(effect, Send)]
    assert said
    assert bool(sent(crowd.effects, GetLight)) == (height == NUMBER_MAX)
    crowd.add_honest(newest_members()[1])
    assert crowd.run(crowd.is_at_head, 30) < 20
    assert crowd.is_at_head()


def test_no_state_is_fetched_before_the_header_that_names_it_is_verified() -> None:
    crowd, (final, _, _) = a_crowd(), _forged()

    def lie(message: Message) -> Answers:
        if isinstance(message, GetFinal):
            yield 0, final

    crowd.add(newest_members()[0], lie, lambda: (FAR, final.block.hash))
    crowd.run(lambda: False, 3)
    assert sent(crowd.effects, GetLight)
    assert not sent(crowd.effects, GetContent)


@pytest.mark.parametrize("seed", some(range(12), first=4))
def test_no_mixture_of_liars_keeps_a_node_from_the_head(seed: int) -> None:
    """One of those that answer is honest, and comes when it likes."""
    crowd, draw = a_crowd(seed, number=NEWEST), Random(seed)
    others = draw.sample(newest_members()[1:], MEMBERS - 1)
    for liar in others[: draw.randrange(2, MEMBERS - 1)]:
        lie = draw.choice([*LIES])
        crowd.add(liar, _liar(crowd, lie), partial(_claim, FAR if lie in OF_FORGED else HEIGHT))
    crowd.add_honest(others[-1], starts_ms=draw.choice((0, 1_500, 6_000)))
    seconds = crowd.run(crowd.is_at_head, 90)
    assert crowd.is_at_head(), f"at height {crowd.stage.node.head.height} after {seconds} s"
    assert crowd.stage.victim.journal.slot[0] <= HEIGHT + 1


def _claim(height: int) -> tuple[int, Hash]:
    return height, invented_root(0)


def test_heads_that_lead_nowhere_do_not_keep_a_node_from_the_blocks_next_to_its_own() -> None:
    crowd, (honest, *liars) = a_crowd(follows=2), newest_members()
    lie, begun_ms, lags = _liar(crowd, "endless"), crowd.stage.now_ms, []

    def grown() -> int:
        return min(HEIGHT, 3 + (crowd.stage.now_ms - begun_ms) // 2_000)

    def look() -> bool:
        lags.append(grown() - crowd.stage.node.head.height)
        return crowd.is_at_head()

    crowd.add(
        honest,
        lambda message: crowd.answer(crowd.blocks[: grown()], message),
        lambda: (grown(), crowd.blocks[grown() - 1].hash),
    )
    for liar in liars:
        crowd.add(liar, lambda message: ((600, item) for _, item in lie(message)), partial(_claim, FAR))
    crowd.run(look, 60)
    assert crowd.is_at_head()
    assert max(lags) <= LAG_MAX


def test_a_light_block_that_nobody_asked_for_is_refused_and_changes_nothing() -> None:
    crowd, peer = a_crowd(), newest_members()[0]
    top = crowd.light(crowd.blocks[-1])
    before = crowd.stage.digest()
    assert refused(crowd.stage.receive(LightMessage(HEIGHT, top), peer)) == ["OutOfWindow"]
    assert crowd.stage.digest() == before


def test_a_head_with_another_body_is_refused_before_anything_is_asked_for_it() -> None:
    crowd, peer = a_crowd(), newest_members()[0]
    block, certificate = crowd.blocks[-1], crowd.final(crowd.blocks[-1]).certificate
    altered = FinalMessage(replace(block, transactions=block.transactions[1:]), certificate)

    def answer(message: Message) -> Answers:
        yield from [(0, altered)] if isinstance(message, GetFinal) else ()

    crowd.add(peer, answer, lambda: (HEIGHT, block.hash))
    crowd.run(lambda: peer in crowd.refused(), 5)
    assert peer in crowd.refused()
    assert sent(crowd.effects, GetLight) == []


def test_a_head_without_work_is_refused_before_anything_is_asked_for_it() -> None:
    crowd, peer = a_crowd(), newest_members()[0]
    block, certificate = crowd.blocks[-1], crowd.final(crowd.blocks[-1]).certificate
    nonces = (replace(block.header, nonce=nonce) for nonce in range(1_000))
    header = next(header for header in nonces if not is_sealed(crowd.stage.chain.genesis.proof_function, header))
    idle = replace(block, header=header)
    votes = replace(certificate, block_hash=idle.hash)

    def answer(message: Message) -> Answers:
        yield from [(0, FinalMessage(idle, votes))] if isinstance(message, GetFinal) else ()

    crowd.add(peer, answer, lambda: (HEIGHT, idle.hash))
    crowd.run(lambda: peer in crowd.refused(), 5)
    assert peer in crowd.refused()
    assert sent(crowd.effects, GetLight) == []


def test_who_replaces_a_signature_below_a_true_head_is_blamed_and_another_leads() -> None:
    crowd, (liar, honest, *_) = a_crowd(), newest_members()
    final = crowd.final(crowd.blocks[-1])
    altered = FinalMessage(replace(final.block, signature=bytes(64)), final.certificate)

    def answer(message: Message) -> Answers:
        yield from [(0, altered)] if isinstance(message, GetFinal) else crowd.answer(crowd.blocks, message)

    crowd.add(liar, answer, lambda: (HEIGHT, final.block.hash))
    crowd.run(lambda: liar in crowd.refused(), 30)
    assert liar in crowd.refused()
    assert crowd.stage.node.head.height == 0
    crowd.add_honest(honest)
    crowd.run(crowd.is_at_head, 60)
    assert crowd.is_at_head()


def test_what_another_peer_says_in_place_of_the_one_that_leads_changes_nothing() -> None:
    """It could end each walk with a word otherwise, and so could what the one that leads said of another height."""
    crowd, (first, other, *_) = a_crowd(), newest_members()
    crowd.add_honest(first)
    crowd.run(lambda: bool(sent(crowd.effects, GetLight)), 10)
    (question,), before = sent(crowd.effects, GetLight), crowd.stage.digest()
    for said in (None, crowd.light(crowd.blocks[question.height - 1])):
        assert refused(crowd.stage.receive(LightMessage(question.height, said), other)) == ["OutOfWindow"]
    assert refused(crowd.stage.receive(LightMessage(question.height + 1, None), first)) == ["OutOfWindow"]
    assert crowd.stage.digest() == before
    walk = joining_of(crowd)._walk
    assert walk is not None
    assert walk.asked == question


def test_what_one_peer_led_through_is_not_asked_for_again() -> None:
    """The first gives up half way; the next goes on where it ended."""
    crowd, (first, second, *_) = a_crowd(), newest_members()
    crowd.stage.now_ms += 2 * TRUST_PERIOD_MS  # the founding document has no limit of age, nor what follows from it

    def half(message: Message) -> Answers:
        if not isinstance(message, GetLight) or len(sent(crowd.effects, GetLight)) < 8:
            yield from crowd.answer(crowd.blocks, message)

    crowd.add(first, half, lambda: (HEIGHT, crowd.blocks[-1].hash))
    crowd.run(lambda: len(sent(crowd.effects, GetLight)) == 8, 10)
    trusted = joining_of(crowd)._trusted
    assert trusted is not None
    assert 0 < trusted.height < HEIGHT
    crowd.add_honest(second)
    crowd.run(crowd.is_at_head, 30)
    assert crowd.is_at_head()
    assert all(question.low >= trusted.height for question in sent(crowd.effects, GetLight)[8:])


def test_an_old_head_that_is_true_is_a_step_on_the_way() -> None:
    crowd, (old, new, *_) = a_crowd(), newest_members()
    crowd.add(old, partial(crowd.answer, crowd.blocks[:14]), lambda: (14, crowd.blocks[13].hash))
    crowd.run(lambda: crowd.stage.node.head.height == 14, 10)
    assert crowd.stage.node.head.height == 14
    crowd.add_honest(new)
    crowd.run(crowd.is_at_head, 30)
    assert crowd.is_at_head()


def test_two_certified_heads_are_reported_and_neither_is_joined_at() -> None:
    """More members lie than the federation bears: it takes two quorums of one height."""
    crowd, peers = a_crowd(), newest_members()
    chain, last = crowd.stage.chain, crowd.blocks[-1]
    posts = last.transactions[:-1]
    other = chain.remake(last, transactions=posts)
    certificates = {block.hash: chain.certificate(block, sorted(peers)) for block in (last, other)}

    def lie(message: Message) -> Answers:
        if isinstance(message, GetFinal):
            yield 0, FinalMessage(other, certificates[other.hash])

    def slow(message: Message) -> Answers:
        yield from ((500, item) for _, item in crowd.answer(crowd.blocks, message))

    crowd.add(peers[0], slow, lambda: (HEIGHT, last.hash))
    crowd.add(peers[1], lie, lambda: (HEIGHT, other.hash))
    crowd.run(lambda: False, 20)
    stage = crowd.stage
    (told,) = [item for item in stage.victim.notices if isinstance(item, HeadConflicts)]
    assert (told.height, {*told.hashes}) == (HEIGHT, {last.hash, other.hash})
    assert {*told.signers} <= {*peers}
    assert stage.node.conflict() == told
    assert stage.node.head.height == 0
    accused = {message.evidence.culprit for message in published(crowd.effects, EvidenceMessage)}
    assert accused == {*told.signers}
    assert accused


def test_a_head_older_than_the_trust_period_is_followed_from_block_by_block() -> None:
    crowd = a_crowd(follows=3)
    stage, peer = crowd.stage, newest_members()[0]
    assert stage.node.head.height == 3
    claim = stage.status(height=HEIGHT, head_hash=crowd.blocks[-1].hash)
    stage.now_ms += TRUST_PERIOD_MS - 60_000
    assert [item.height for item in sent(stage.receive(claim, peer), GetFinal)] == [HEIGHT]
    crowd = a_crowd(follows=3)
    crowd.stage.now_ms += TRUST_PERIOD_MS + 60_000
    assert [item.height for item in sent(crowd.stage.receive(claim, peer), GetFinal)] == [4]


def test_where_no_height_can_be_skipped_blocks_are_followed_one_by_one() -> None:
    chain = ChainBuilder(living_genesis(20, committee_size=7))
    blocks = chain.extend_many(12)
    stage = Stage(chain.genesis, number=STRANGER, is_heard=False, contributes=False)
    claim = stage.status(height=12, head_hash=blocks[-1].hash)
    assert [item.height for item in sent(stage.receive(claim), GetFinal)] == [1]


@pytest.mark.parametrize(("founded", "amended", "asked"), [(7, 0, 12), (0, 7, 3)])
def test_the_committee_in_force_says_whether_heights_can_be_skipped(founded: int, amended: int, asked: int) -> None:
    chain = ChainBuilder(living_genesis(20, committee_size=founded))
    amendment = propose_amendment(amendment_of({"committee_size": amended}), "", sequence=0, until=UNTIL)
    blocks = [chain.extend(changes=[approved(chain, amendment)]), *chain.extend_many(11)]
    stage = Stage(chain.genesis, number=STRANGER, is_heard=False, contributes=False)
    for block in blocks[:2]:
        stage.receive(FinalMessage(block, chain.certificate(block)))
    claim = stage.status(height=12, head_hash=blocks[-1].hash)
    assert [item.height for item in sent(stage.receive(claim), GetFinal)] == [asked]


# --- a later version of the protocol


def _upgraded() -> tuple[ChainBuilder, list[Block]]:
    """Five members, of whose 14 blocks the last 12 are of a version that this program does not know."""
    chain = ChainBuilder(living_genesis(5))
    amendment = propose_amendment(amendment_of({"version": NEWEST_VERSION + 1}), "", sequence=0, until=UNTIL)
    blocks = [chain.extend(changes=[approved(chain, amendment)]), *chain.extend_many(13)]
    assert [block.header.version for block in blocks] == [NEWEST_VERSION] * 2 + [NEWEST_VERSION + 1] * 12
    return chain, blocks


def _away(chain: ChainBuilder, blocks: Sequence[Block]) -> Crowd:
    """The last member's node, which was off since the founding."""
    stage = Stage(chain.genesis, number=4, is_heard=False, contributes=False)
    stage.chain = chain
    return Crowd(stage, blocks)


def test_a_node_that_slept_over_a_later_version_stops_and_says_why() -> None:
    """It refused every light block of the new version, and asked for others without an end and without a word."""
    chain, blocks = _upgraded()
    crowd = _away(chain, blocks)
    crowd.add_honest(*chain.genesis.members[:4])
    crowd.run(lambda: bool(_stops(crowd)), 10)
    (reason,) = {item.reason for item in _stops(crowd)}
    assert reason == (
        "version 4 of the protocol is in force in round 14, this program speaks versions up to 3: "
        "start the node with a newer one"
    )
    assert not refused(crowd.effects), "nobody lied"


def test_a_later_version_that_too_few_signed_for_stops_nobody() -> None:
    chain, blocks = _upgraded()
    crowd, liar, head = _away(chain, blocks[:1]), chain.genesis.members[0], blocks[-1]
    few = LightBlock(
        chain.genesis.chain_id,
        head.header,
        chain.certificate(head, chain.genesis.members[:2]),
        members=chain.states[head.header.parent_hash].member_set,
        below=blocks[-2].header,
    )

    def answer(message: Message) -> Answers:
        if isinstance(message, GetFinal):
            yield 0, FinalMessage(head, few.certificate)
        elif isinstance(message, GetLight):
            yield 0, LightMessage(message.height, few)

    crowd.add(liar, answer, lambda: (head.header.height, head.hash))
    crowd.add_honest(*chain.genesis.members[1:4])
    crowd.run(lambda: bool(_stops(crowd)), 20)
    assert not _stops(crowd)
    assert crowd.is_at_head()
    assert [item.height for item in sent(crowd.effects, GetLight)], "the liar led"


def _stops(crowd: Crowd) -> list[Stop]:
    return [effect for effect in crowd.effects if isinstance(effect, Stop)]


# --- an invitation's block


def test_the_way_leads_over_the_block_that_an_invitation_names() -> None:
    place = 15
    crowd = a_crowd(waypoint=(place, renewed()[1][place - 1].hash))
    crowd.add_honest(newest_members()[0])
    crowd.run(crowd.is_at_head, 30)
    assert crowd.is_at_head()
    assert place in crowd.stage.victim.store._lights


def test_a_chain_without_the_block_that_an_invitation_names_is_refused() -> None:
    crowd = a_crowd(waypoint=(15, invented_root(15)))
    crowd.add_honest(*newest_members(3))
    crowd.run(crowd.is_at_head, 10)
    assert crowd.stage.node.head.height == 0
    said = {str(effect.error) for effect in crowd.effects if isinstance(effect, Refuse)}
    assert said
    assert all(words.startswith("invitation: ") and "another chain than the inviter's" in words for words in said)


def _of_another_past(message: Message) -> Answers:
    """The answers of somebody that has the founders' keys, as far as it goes."""
    other, blocks = another_past()
    if isinstance(message, GetFinal):
        yield from ((0, FinalMessage(block, other.certificate(block))) for block in blocks[message.height - 1 :])
    elif isinstance(message, GetLight) and message.low < len(blocks):
        last = min(message.height, len(blocks))
        yield 0, LightMessage(message.height, light(other, blocks[last - 1].hash))
    elif isinstance(message, GetContent):
        states = {state.root: state.encode() for state in other.states.values()}
        yield 0, Chunk(message.content_hash, message.offset, states.get(message.content_hash, b"")[message.offset :])


def test_the_next_peer_begins_anew_where_one_led_to_another_past_and_fell_silent() -> None:
    place = 15
    crowd, (liar, honest, *_) = a_crowd(waypoint=(place, renewed()[1][place - 1].hash)), newest_members()
    others = {block.hash for block in another_past()[1]}

    def lie(message: Message) -> Answers:
        yield from [(0, crowd.final(crowd.blocks[-1]))] if isinstance(message, GetFinal) else _of_another_past(message)

    crowd.add(liar, lie, lambda: (HEIGHT, crowd.blocks[-1].hash))
    crowd.run(lambda: False, 12)
    trusted = joining_of(crowd)._trusted
    assert trusted is not None
    assert trusted.block_hash in others, "it was led there"
    crowd.add_honest(honest)
    crowd.run(crowd.is_at_head, 60)
    assert crowd.is_at_head()
    assert honest not in crowd.refused()
    assert others.isdisjoint(item.header.hash for item in crowd.stage.victim.store._lights.values())


@pytest.mark.parametrize("is_asked", [True, False])
def test_another_past_is_not_followed_below_the_block_that_an_invitation_names(is_asked: bool) -> None:
    place = 15
    crowd, (liar, honest, *_) = a_crowd(waypoint=(place, renewed()[1][place - 1].hash)), newest_members()
    other, blocks = another_past()
    if is_asked:
        crowd.add(liar, _of_another_past, lambda: (8, blocks[7].hash))
    else:
        first = blocks[0]
        state = other.states[other.genesis.chain_id]
        messages: list[Message] = [FinalMessage(first, other.certificate(first)), CandidateMessage(first)]
        for kind in VoteKind:
            messages += [VoteMessage(other.vote(key, first.hash, kind=kind)) for key in sorted(state.roster.electors)]
        for message in messages:
            crowd.send(liar, message)
    crowd.run(lambda: False, 8)
    assert crowd.stage.node.head.height == 0
    crowd.add_honest(honest)
    crowd.run(crowd.is_at_head, 60)
    assert crowd.is_at_head()
    assert honest not in crowd.refused()


def test_where_blocks_are_followed_one_by_one_the_named_one_has_to_be_among_them() -> None:
    chain = ChainBuilder(living_genesis(20, committee_size=7))
    first, second = chain.extend_many(2)
    stage = Stage(chain.genesis, number=STRANGER, is_heard=False, contributes=False)
    stage.victim.waypoint = 2, invented_root(2)
    stage.restart(is_heard=False)
    stage.receive(FinalMessage(first, chain.certificate(first)))
    assert stage.node.head.height == 1
    assert refused(stage.receive(FinalMessage(second, chain.certificate(second)))) == ["InvalidBlock"]
    assert refused(stage.receive(CandidateMessage(second))) == ["InvalidBlock"]
    assert stage.node.head.height == 1


def test_a_state_that_comes_slowly_gets_more_time_with_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = a_crowd()
    monkeypatch.setattr(Downloads, "arrived", lambda self, content_hash: 1)
    monkeypatch.setattr(light_joining, "TURN_MS", 1_500)

    asked = Counter[int]()

    def slow(message: Message) -> Answers:
        walk = joining_of(crowd)._walk
        if not isinstance(message, GetContent) or walk is None:
            yield from crowd.answer(crowd.blocks, message)
            return
        asked[walk.since_ms] += 1
        if asked[walk.since_ms] == 2:  # 3 s after its turn began
            yield from crowd.answer(crowd.blocks, message)

    crowd.add(newest_members()[0], slow, lambda: (HEIGHT, crowd.blocks[-1].hash))
    crowd.run(crowd.is_at_head, 120)
    assert crowd.is_at_head()


# --- on disk


@pytest.mark.parametrize("is_forged", [True, False])
def test_a_path_that_was_altered_is_written_anew(tmp_path: Path, is_forged: bool) -> None:
    """Otherwise no start would find its way to the head again, and the node would join anew each time."""
    folder = tmp_path / "chain"
    with Store.create(folder, renewed()[0].genesis, is_durable=False) as store:
        crowd = a_crowd(store=store)
        crowd.add_honest(newest_members()[0])
        crowd.run(crowd.is_at_head, 30)
        top = store.light_below(HEIGHT)
    assert top is not None
    data = replace(top, certificate=replace(top.certificate, votes=top.certificate.votes[:2])).encode()
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        if is_forged:
            LIGHTS.insert(connection, (HEIGHT, data), replace=True)
        else:
            connection.execute("UPDATE lights SET data = ? WHERE height = ?", (data, HEIGHT))
    with Store.open(folder) as store:
        assert store.head() is None
        crowd = a_crowd(store=store)
        crowd.add_honest(newest_members()[0])
        crowd.run(crowd.is_at_head, 30)
        assert crowd.is_at_head()
    with Store.open(folder) as store:
        assert store.head() is not None
        assert list(store.damage()) == []


@pytest.mark.parametrize("follows", [0, 5])
def test_a_node_that_joined_goes_on_from_its_folder(tmp_path: Path, follows: int) -> None:
    """The start verifies the head again, from the founding document on; with the path altered there is no head."""
    folder = tmp_path / "chain"
    with Store.create(folder, renewed()[0].genesis, is_durable=False) as store:
        crowd = a_crowd(store=store, follows=follows)
        crowd.add_honest(newest_members()[0])
        crowd.run(crowd.is_at_head, 30)
        assert crowd.is_at_head()
    with Store.open(folder) as store:
        head = store.head()
        assert head is not None
        assert head.block.hash == crowd.blocks[-1].hash
        assert list(store.damage()) == []
        path = [height for (height,) in store._reader.execute("SELECT height FROM lights ORDER BY height")]
        top = store.light_below(HEIGHT)
        assert top is not None
        report = audit_store(store, SumRules())
        assert (report.is_valid, report.base, report.height) == (True, HEIGHT, HEIGHT)
        assert 0 < report.path_certificates < HEIGHT
        said = " ".join(map(str, render(report, store.genesis)))
        assert f"the head is proven by {report.path_certificates} certificates from the founding document on" in said
        assert f"blocks below height {HEIGHT} are not held" in said
    assert path[-1] == HEIGHT
    forged = replace(top, certificate=replace(top.certificate, votes=top.certificate.votes[:2]))
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        LIGHTS.insert(connection, (HEIGHT, forged.encode()), replace=True)
    with Store.open(folder) as store:
        left = store.head()
        assert (0 if left is None else left.block.header.height) == follows


def test_a_head_that_moves_meanwhile_is_where_the_way_begins_anew(tmp_path: Path) -> None:
    """The path in the folder has no gap then: a start finds its way to the head."""
    folder = tmp_path / "chain"
    with Store.create(folder, renewed()[0].genesis, is_durable=False) as store:
        crowd = a_crowd(store=store, follows=3)
        (guide,) = newest_members(1)
        crowd.add_honest(guide)
        trusted = partial(getattr, joining_of(crowd), "_trusted")
        crowd.run(lambda: trusted() is not None and trusted().height > 3, 10)
        last = trusted().height + 1
        assert last < HEIGHT
        for block in crowd.blocks[3:last]:
            crowd.stage.receive(FinalMessage(block, crowd.stage.chain.certificate(block)))
        assert crowd.stage.node.head.height == last
        assert trusted() is None or trusted().height == last
        crowd.run(crowd.is_at_head, 30)
        assert crowd.is_at_head()
    with Store.open(folder) as store:
        head = store.head()
        assert head is not None
        assert head.block.hash == crowd.blocks[-1].hash
        assert store.light_below(last) is not None


def test_a_forged_state_and_head_in_the_folder_of_one_that_joined_are_not_believed(tmp_path: Path) -> None:
    """Members that somebody wrote there vouch for each other, and no path leads to them."""
    final, top, state = _forged(HEIGHT + 1)
    folder = tmp_path / "chain"
    with Store.create(folder, renewed()[0].genesis, is_durable=False) as store:
        crowd = a_crowd(store=store)
        crowd.add_honest(newest_members()[0])
        crowd.run(crowd.is_at_head, 30)
        store.append([top, Final(final.block, final.certificate, state)])
    with Store.open(folder) as store:
        head = store.head()
        assert head is not None
        assert head.block.hash == crowd.blocks[-1].hash
