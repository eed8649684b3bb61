"""Observations of blocks before one of them is final."""

import sys
from dataclasses import replace

import pytest

from fedchain.chain.exceptions import InvalidBlock, LimitReached, UnknownParent
from fedchain.chain.post import sign_post
from fedchain.chain.roster import Roster
from fedchain.crypto.address import address
from fedchain.crypto.keys import SIGNATURE_SIZE
from fedchain.network.messages import PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute
from fedchain.node.core.events import Computed, MessageReceived, Moment, NotContributed
from fedchain.node.shell import sightings as module
from fedchain.node.shell.lookout import Lookout
from fedchain.node.shell.sightings import ELSEWHERE, REASON_SIZE_MAX, Sightings
from fedchain.node.shell.timeline import NothingPosted, SeenBlock, SeenPost, TrainingResult
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.node.stage import Stage

CHAIN = ChainBuilder(genesis(4))
FIRST, SECOND, THIRD = (CHAIN.extend(CHAIN.genesis.chain_id, miner=keys(4)[number]) for number in range(3))


def ended(sightings: Sightings, now_ms: int = 2_000) -> SeenBlock:
    seen = sightings.end(SECOND.hash, SECOND.senders, now_ms)
    assert seen is not None
    return seen


def test_every_block_is_noted_with_when_it_first_came_and_who_saw_it() -> None:
    sightings = Sightings(1, since_ms=1_000)
    sightings.see(0, FIRST, 1_500)
    sightings.see(3, FIRST, 1_600)
    sightings.accept(1, SECOND, 1_700)
    sightings.train(80)
    sightings.train(40)
    seen = ended(sightings)
    assert (seen.height, seen.hash, seen.trained_ms, seen.final_ms) == (1, SECOND.hash.hex(), 80, 1_000)
    members = [address(key.public_key) for key in keys(4)]
    assert [(item.hash, item.miner, item.posts, item.after_ms, item.seen, item.valid) for item in seen.candidates] == [
        (FIRST.hash.hex(), members[0], 4, 500, "9", "0"),
        (SECOND.hash.hex(), members[1], 4, 700, "2", "2"),
    ]
    assert seen.candidates[0].knowledge_root == FIRST.header.knowledge_root.hex()


def test_a_block_is_refused_where_it_is_not_valid_and_for_its_reason() -> None:
    sightings = Sightings(1, 0)
    for number in range(4):
        sightings.see(number, FIRST, 5)
        sightings.see(number, THIRD, 5)
    for number, error in ((0, InvalidBlock("bits", "3 found, 4 expected")), (1, UnknownParent("parent", "not open"))):
        sightings.refuse(number, FIRST.hash, error)
        sightings.refuse(number, THIRD.hash, error)
    sightings.accept(0, FIRST, 9)
    assert (set(sightings.valid), set(sightings.refused)) == ({FIRST.hash}, {THIRD.hash})
    first, third = ended(sightings).candidates
    assert (first.valid, first.refused) == ("1", {ELSEWHERE: "2"})
    assert (third.valid, third.refused) == ("0", {"bits: 3 found, 4 expected": "1", ELSEWHERE: "2"})


def test_what_training_measured_is_noted_with_the_block_that_came_next() -> None:
    sightings = Sightings(5, 0)
    sightings.measure(TrainingResult(3, 0.75, 1.5))
    seen = ended(sightings)
    assert (seen.height, seen.trained_ms, seen.training) == (5, None, TrainingResult(3, 0.75, 1.5))


def test_posts_that_the_block_does_not_count_are_noted_with_when_they_came_or_why_they_were_refused() -> None:
    sightings, members = Sightings(1, since_ms=100), [key.public_key for key in keys(6)]
    sightings.see(0, SECOND, 500)
    for now_ms, reason in ((600, ""), (700, "payload: 3 bytes"), (800, "another")):
        for number in (0, 4):  # the block counts the first member's
            sightings.post(members[number], number, now_ms, reason)
    sightings.post(members[5], 5, 900)
    assert ended(sightings).posts == (SeenPost(4, 500, "payload: 3 bytes"), SeenPost(5, 800))


def test_a_node_with_nothing_to_post_notes_why_unless_the_phase_is_over() -> None:
    stage = Stage(genesis(4, version=3))
    lookout = Lookout(stage.node, stage.me, stage.now_ms)
    said = ((1, 0, "it has no examples"), (2, 0, "too early"), (1, 1, "too early"), (1, 0, ""), (1, 0, "x" * 500))
    for round_number, phase, reason in said:
        event = NotContributed(round_number, phase, reason)
        lookout.on_event(event, stage.node.handle(event, Moment(stage.now_ms, stage.now_ms)), stage.now_ms)
        seen = lookout.sightings.end(FIRST.hash, frozenset(), 2_000)
        assert seen is not None
        noted = "x" * REASON_SIZE_MAX if len(reason) == 500 else "it has no examples"
        assert seen.nothing == (NothingPosted(stage.genesis.members.index(stage.me), noted),)
    late = lookout.sightings.end(FIRST.hash, {stage.me}, 2_000)
    assert late is None or late.nothing == (), "it posted after all"


def test_peers_that_saw_nothing_of_a_block_note_nothing() -> None:
    assert Sightings(1, 0).end(bytes(32), frozenset(), 10) is None


def test_what_liars_send_is_bounded_and_valid_blocks_are_all_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKS_MAX", 1)
    sightings = Sightings(1, 0)
    for block in (FIRST, SECOND, THIRD):
        sightings.see(0, block, 1)
    sightings.accept(0, THIRD, 2)
    for number in range(20):
        sightings.refuse(0, FIRST.hash, LimitReached("candidates", f"{number}" + "x" * 300))
        sightings.refuse(0, SECOND.hash, LimitReached("candidates", "it was not noted"))
    first, third = ended(sightings).candidates
    assert (first.hash, third.hash) == (FIRST.hash.hex(), THIRD.hash.hex())
    assert (max(map(len, first.refused)), len(first.refused)) == (module.REASON_SIZE_MAX, module.REASONS_MAX)


def test_why_attempts_failed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 3)
    stage, sightings = Stage(genesis(4)), Sightings(1, 0)
    sightings.see(0, SECOND, 1)
    for number in range(10):
        stage.node.voting.agreement.attempt = number
        sightings.follow(0, stage.node)
    assert [item.attempt for item in ended(sightings).failed] == [0, 1, 2]


def test_no_body_of_a_block_that_was_only_seen_is_kept() -> None:
    """64 junk blocks of 4 MiB each took a gigabyte of a node until the height was decided."""
    sightings, posts = Sightings(1, 0), (*FIRST.transactions,)
    alone = sys.getrefcount(posts)
    sightings.see(0, replace(FIRST, transactions=posts), 5)
    assert [item.posts for item in ended(sightings).candidates] == [4]
    assert sys.getrefcount(posts) == alone


def test_a_neighbour_s_lie_about_a_post_is_not_its_sender_s_fault() -> None:
    stage = Stage(genesis(5, version=3))
    lookout = Lookout(stage.node, stage.me, stage.now_ms)
    first, second, third, fourth = stage.others_posts()
    other = sign_post(stage.chain.key(third.sender), stage.genesis.chain_id, 1, 1, b"for another phase")
    for message in (
        PostMessage(first, b"another payload"),
        PostMessage(replace(second, signature=bytes(SIGNATURE_SIZE)), None),
        PostMessage(replace(other, phase=0), None),
        PostMessage(fourth, None),
        PostMessage(sign_post(stage.chain.key(fourth.sender), stage.genesis.chain_id, 1, 0, b"a second one"), None),
    ):
        event = MessageReceived(stage.relay, message)
        lookout.on_event(event, stage.handle(event), stage.now_ms)
    seen = lookout.sightings.end(SECOND.hash, frozenset(), stage.now_ms)
    assert seen is not None
    noted = {post.member: post.reason for post in seen.posts}
    numbers = [stage.genesis.index[post.sender] for post in (first, fourth)]
    assert sorted(noted) == sorted(numbers), "nobody signed the others"
    assert noted[numbers[0]] == ""
    assert noted[numbers[1]].startswith("one post per phase")


def test_a_post_that_its_check_refuses_is_noted_with_the_reason() -> None:
    """The check is an event of its own, behind the message: such a post looked as if a block had left it out."""
    stage = Stage(genesis(4))
    node, lookout, sender = stage.node, Lookout(stage.node, stage.me, stage.now_ms), stage.others[0]
    bad = sign_post(stage.chain.key(sender), stage.genesis.chain_id, 1, 0, b"garbage")
    event, moment = MessageReceived(stage.relay, PostMessage(bad, b"garbage")), Moment(stage.now_ms, stage.now_ms)
    effects = node.handle(event, moment)
    lookout.on_event(event, effects, stage.now_ms)
    (job,) = [effect.job for effect in effects if isinstance(effect, Compute)]
    done = Computed(job, Checks(stage.genesis, stage.chain.rules).run(job))
    lookout.on_event(done, node.handle(done, moment), stage.now_ms)
    seen = lookout.sightings.end(SECOND.hash, frozenset(), stage.now_ms)
    assert seen is not None
    (post,) = seen.posts
    assert post.member == stage.genesis.index[sender]
    assert post.reason.startswith("content: 7 bytes found")


def test_no_post_is_noted_in_the_name_of_a_member_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before its signature is looked at: a neighbour could make an absent member look present."""
    stage = Stage(genesis(5, version=3))
    lookout, (first, *_) = Lookout(stage.node, stage.me, stage.now_ms), stage.others_posts()
    is_active = Roster.is_active
    monkeypatch.setattr(Roster, "is_active", lambda at, member: member != first.sender and is_active(at, member))
    event = MessageReceived(stage.relay, PostMessage(replace(first, signature=bytes(SIGNATURE_SIZE)), None))
    lookout.on_event(event, stage.handle(event), stage.now_ms)
    assert lookout.sightings.end(SECOND.hash, frozenset(), stage.now_ms) is None
