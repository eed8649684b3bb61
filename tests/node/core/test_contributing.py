"""A node's own post for the open phase: once, and never said before it is written down."""

from dataclasses import replace

import pytest

from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import GOSSIP_SIZE_MAX, POST_SIZE_MAX, GetPosts, PostMessage, encode_message
from fedchain.node.core.effects import Persist, Publish, WriteJournal
from fedchain.node.core.events import Computed, Contributed, NotContributed
from fedchain.node.core.jobs import CheckPost, Job
from fedchain.node.core.notices import TrainingFailed
from fedchain.node.core.voting.twins import LISTENING_MS
from tests.support.chain.builders import UPDATE, genesis, payload, post
from tests.support.chain.late import late_genesis
from tests.support.node.driver import BlobRules, check_promises
from tests.support.node.stage import Stage, asked_to_contribute, blamed, published, sent

TIMEOUT_S = 60


def test_a_node_asks_for_its_contribution_once_in_each_phase() -> None:
    stage = Stage(genesis(4, phases=(UPDATE, UPDATE)), contributes=False)
    assert asked_to_contribute(stage.victim.effects) == [(1, 0)]
    assert asked_to_contribute(stage.wait(200)) == []
    stage.accept(2)
    assert asked_to_contribute(stage.victim.effects) == [(1, 0), (1, 1), (2, 0)]


def test_its_post_is_written_down_twice_before_it_is_said() -> None:
    stage = Stage(genesis(4), contributes=False)
    effects = stage.contribute()
    kinds = [type(effect) for effect in effects if isinstance(effect, WriteJournal | Persist | Publish)]
    assert kinds == [Persist, WriteJournal, Persist, Publish]
    (said,) = published(effects, PostMessage)
    assert said.payload == payload(1)
    assert published(stage.wait(200), PostMessage) == [], "it is said once"
    check_promises(stage.victim)


def test_a_large_payload_is_not_part_of_the_message() -> None:
    stage = Stage(genesis(4, inline_size_max=31), contributes=False)
    (said,) = published(stage.contribute(), PostMessage)
    assert said.payload is None


def test_only_the_first_result_counts() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.contribute(1)
    assert published(stage.contribute(2), PostMessage) == []
    before = len(stage.victim.effects)
    stage.restart()
    stage.contribute(3)
    stage.wait(LISTENING_MS / 1_000)
    (said_again,) = published(stage.victim.effects[before:], PostMessage)
    assert said_again.payload == payload(1)
    assert {item.payload_hash for item in stage.victim.posts()} == {sha256(payload(1))}
    check_promises(stage.victim)


def _without_store(late_rounds: int = 0) -> Stage:
    """A node that has posted payload 1, has lost its store but not its journal, and has listened since."""
    stage = Stage(late_genesis(4, late_rounds) if late_rounds else genesis(4), contributes=False)
    stage.contribute(1)
    stage.victim.store = MemoryStore()
    stage.restart()
    assert asked_to_contribute(stage.wait(LISTENING_MS / 1_000)) == [(1, 0)]
    return stage


@pytest.mark.parametrize("late_rounds", [0, 2])
def test_a_post_whose_payload_is_lost_is_made_again_and_said_again_if_it_is_the_same(late_rounds: int) -> None:
    """Others may wait for it: without it there may be too few posts for a block."""
    stage = _without_store(late_rounds)
    said, journal = stage.victim.posts()[0], stage.victim.journal
    effects = stage.contribute(1)
    assert [(item.post, item.payload) for item in published(effects, PostMessage)] == [(said, payload(1))]
    assert stage.victim.journal == journal, "nothing is signed"
    assert stage.victim.store.content(said.payload_hash) == payload(1)
    assert published(stage.wait(2 * TIMEOUT_S), PostMessage) == [], "it is said once"
    check_promises(stage.victim)


def test_another_payload_than_the_lost_one_is_neither_said_nor_tried_for_again() -> None:
    stage = _without_store()
    effects = [*stage.contribute(2), *stage.wait(2 * TIMEOUT_S)]
    assert (published(effects, PostMessage), asked_to_contribute(effects)) == ([], [])
    assert [type(notice) for notice in stage.victim.notices] == [TrainingFailed]
    assert len(set(stage.victim.posts())) == 1
    check_promises(stage.victim)


@pytest.mark.parametrize("made", [payload(1), b"no payload of the method's"], ids=["good", "bad"])
def test_what_is_checked_when_the_key_turns_out_to_have_posted_is_held_for_nobody(made: bytes) -> None:
    """A large payload is checked off the loop. Others that asked for the post would convict the key for both."""
    stage, jobs = Stage(genesis(4), contributes=False, is_heard=False), list[Job]()
    stage.victim._verbs = replace(stage.victim._verbs, compute=jobs.append)
    stage.handle(Contributed(1, 0, made))
    said = post(stage.victim.key, stage.genesis, 1, payload(2))
    stage.receive(PostMessage(said, payload(2)))
    stage.tick(1)
    assert [job.post == said for job in jobs if isinstance(job, CheckPost)] == [False, True]
    effects = [item for job in jobs for item in stage.handle(Computed(job, stage.node._context.checks.run(job)))]
    assert stage.node.open_posts() == (said,)
    assert blamed(effects) == []
    (shown,) = sent(stage.receive(GetPosts(1, 0, stage.holds(stage.me))), PostMessage)
    assert (shown.post, stage.node.journal.posts) == (said, (said,))


def test_results_of_other_phases_are_ignored() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.accept()
    for round_number, phase in ((1, 0), (3, 0), (2, 1)):
        assert published(stage.contribute(1, round_number, phase), PostMessage) == []
    assert stage.victim.posts() == []


def test_nobody_hears_of_a_post_that_may_not_be_said_yet() -> None:
    """It is not written down: after a crash another one would be signed."""
    stage = Stage(genesis(4), contributes=False, is_heard=False)
    stage.contribute()
    assert stage.node.journal.post(1, 0) is None
    effects = stage.receive(GetPosts(1, 0, stage.holds(stage.me)))
    assert sent(effects, PostMessage) == []
    assert stage.node._parts.answers.status(stage.node.voting.agreement).posts == stage.holds()
    stage.hear()
    (said,) = published(stage.victim.effects, PostMessage)
    assert sent(stage.receive(GetPosts(1, 0, stage.holds(stage.me))), PostMessage) == [said]
    check_promises(stage.victim)


def test_a_payload_that_nobody_would_take_is_not_said_and_tried_once_more_after_the_timeout() -> None:
    stage = Stage(genesis(4), contributes=False)
    effects = stage.handle(Contributed(1, 0, b"a model that diverged"))
    assert (published(effects, PostMessage), blamed(effects)) == ([], [])
    assert [type(notice) for notice in stage.victim.notices] == [TrainingFailed]
    assert asked_to_contribute(stage.wait(TIMEOUT_S - 1)) == []
    assert asked_to_contribute(stage.wait(2)) == [(1, 0)], "others may wait for it"
    assert published(stage.contribute(), PostMessage)


def test_training_that_failed_is_tried_once_more_after_the_timeout_or_in_the_next_round() -> None:
    for waits in (True, False):
        stage = Stage(genesis(4), contributes=False)
        stage.handle(NotContributed(1, 0, "the worker died"))
        assert [type(notice) for notice in stage.victim.notices] == [TrainingFailed]
        if waits:
            assert asked_to_contribute(stage.wait(TIMEOUT_S - 1)) == []
            assert asked_to_contribute(stage.wait(2)) == [(1, 0)]
        else:
            stage.accept()
            assert asked_to_contribute(stage.victim.effects) == [(1, 0), (2, 0)]


def test_a_phase_that_was_thought_to_be_over_is_asked_for_again() -> None:
    stage = Stage(genesis(4), contributes=False)
    assert asked_to_contribute(stage.handle(NotContributed(1, 0, ""))) == [(1, 0)]
    assert not stage.victim.notices


def test_who_is_not_drawn_owes_nothing() -> None:
    founding = genesis(6, contributors_per_round=2)
    for number in range(6):
        stage = Stage(founding, number, contributes=False)
        assert bool(asked_to_contribute(stage.victim.effects)) == (stage.me in stage.node.head.roster.contributors)


@pytest.mark.parametrize(("size", "inline"), [(GOSSIP_SIZE_MAX, False), (GOSSIP_SIZE_MAX - POST_SIZE_MAX, True)])
def test_a_post_with_a_payload_as_large_as_the_rules_let_travel_fits_into_a_gossip_message(
    size: int, inline: bool
) -> None:
    """It was not sent, and each of the others had to ask for it."""
    founding = genesis(4, inline_size_max=GOSSIP_SIZE_MAX, payload_size_max=2**20)
    stage = Stage(founding, rules=BlobRules(), contributes=False)
    (message,) = published(stage.handle(Contributed(1, 0, bytes(size))), PostMessage)
    assert (message.payload is not None) is inline
    large = replace(message.post, round=2**62, phase=2**62, payload_size=2**31)
    assert size * inline < len(encode_message(PostMessage(large, message.payload))) <= GOSSIP_SIZE_MAX
