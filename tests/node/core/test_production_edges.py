"""A member's duties to a phase where rules meet: after a restart, a conviction, an alarm that was none, a new head."""

from fedchain.network.messages import CandidateMessage, PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute
from fedchain.node.core.events import Computed, Event, MessageReceived, Moment, Tick
from fedchain.node.core.jobs import CheckPost, Recompute
from tests.support.chain.builders import CREATED_MS, UPDATE, double_vote, genesis, payload, post
from tests.support.node.stage import Stage, asked_to_contribute, asked_to_mine, published

TIMEOUT_S = 60


# --- its own post


def test_after_a_restart_a_second_post_is_not_even_signed() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.contribute(1)
    stage.restart()
    again = [effect.job for effect in stage.contribute(2) if isinstance(effect, Compute)]
    assert not [job for job in again if isinstance(job, CheckPost)]


def test_where_our_key_posted_elsewhere_long_before_no_second_post_is_said() -> None:
    """It was about a height so far ahead that it was no alarm, and stands in nobody's journal here."""
    stage = Stage(genesis(4, phases=(UPDATE, UPDATE, UPDATE)), contributes=False)
    elsewhere = post(stage.victim.key, stage.genesis, 2, payload(99))
    stage.receive(PostMessage(elsewhere, payload(99)))
    for _ in range(3):
        block = stage.block(without=[stage.me])
        stage.candidate(block)
        stage.final(block)
    assert (stage.node.head.round, stage.node.head.phase) == (2, 0)
    effects = [*stage.contribute(1, 2, 0), *stage.wait(2 * TIMEOUT_S)]
    assert not [item for item in published(effects, PostMessage) if item.post != elsewhere]


# --- blocks


def test_a_post_that_comes_between_the_deadline_and_the_next_tick_begins_the_mining() -> None:
    for waited_ms, mines in ((1_000 * TIMEOUT_S - 1, 0), (1_000 * TIMEOUT_S, 1)):
        stage = Stage(genesis(7))
        *posts, late, _ = stage.others_posts()
        assert not asked_to_mine(stage.post(*posts))
        stage.now_ms += waited_ms
        assert len(asked_to_mine(stage.post(late))) == mines


def test_knowledge_that_was_computed_for_another_head_is_not_mined() -> None:
    """Phases that close empty count the same posts, none, and leave something else behind."""
    stage = Stage(genesis(6, contributors_per_round=2), contributes=False)
    jobs = []
    for is_first in (True, False):
        stage.wait(2 * TIMEOUT_S - 1)
        stage.now_ms += 1_000
        moment = Moment(stage.now_ms - CREATED_MS, stage.now_ms)
        effects = stage.node.handle(Tick(), moment)
        jobs += [item.job for item in effects if isinstance(item, Compute) and isinstance(item.job, Recompute)]
        if is_first:
            block = stage.block()
            stage.candidate(block)
            stage.final(block)
    results = [Checks(stage.genesis, stage.chain.rules).recompute(job) for job in jobs]
    assert [job.transactions for job in jobs] == [(), ()]
    assert not asked_to_mine(stage.handle(Computed(jobs[0], results[0])))
    (mine,) = asked_to_mine(stage.handle(Computed(jobs[1], results[1])))
    assert mine.header.knowledge_root == stage.node.head.knowledge_root


def test_knowledge_that_was_computed_without_the_newest_post_is_not_mined_with_it() -> None:
    stage, jobs = Stage(genesis(5, contribution_quorum=3), contributes=False), list[Recompute]()
    *posts, late = stage.others_posts()
    stage.post(*posts)
    stage.now_ms += 1_000 * TIMEOUT_S
    waiting: list[Event] = [
        Tick(),
        MessageReceived(stage.relay, PostMessage(late, stage.chain.contents[late.payload_hash])),
    ]
    checks = Checks(stage.genesis, stage.chain.rules)
    while waiting:
        moment = Moment(stage.now_ms - CREATED_MS, stage.now_ms)
        for effect in stage.node.handle(waiting.pop(0), moment):
            if isinstance(effect, Compute) and isinstance(effect.job, Recompute):
                jobs.append(effect.job)
            elif isinstance(effect, Compute):
                waiting.append(Computed(effect.job, checks.run(effect.job)))
    assert [len(job.transactions) for job in jobs] == [3, 4]
    results = [checks.recompute(job) for job in jobs]
    assert not asked_to_mine(stage.handle(Computed(jobs[0], results[0])))
    (mine,) = asked_to_mine(stage.handle(Computed(jobs[1], results[1])))
    assert mine.header.knowledge_root == results[1].root


def test_a_block_counts_no_post_of_a_member_that_was_not_drawn() -> None:
    stage = Stage(genesis(7, contributors_per_round=4))
    drawn = stage.node.head.roster.contributors
    uninvited = [member for member in stage.others if member not in drawn]
    stage.post(*stage.chain.posts(members=uninvited))
    (message,) = published(stage.mine(stage.post(*stage.others_posts())), CandidateMessage)
    assert {item.sender for item in message.block.transactions} == drawn


def test_a_member_that_was_convicted_owes_nothing_any_more() -> None:
    stage = Stage(genesis(4))
    stage.accept()
    convicting = stage.block(evidence=[double_vote(stage.victim.key, stage.genesis, 1)])
    stage.candidate(convicting)
    stage.final(convicting)
    effects = [*stage.post(*stage.others_posts()), *stage.wait(3 * TIMEOUT_S)]
    assert (asked_to_contribute(effects), asked_to_mine(effects), published(effects, PostMessage)) == ([], [], [])
