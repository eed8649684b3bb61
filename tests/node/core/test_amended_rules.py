"""The rules in force say how long a member waits, what it holds against a block and what it keeps and sends, and not
the founding document."""

from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.membership.turnout import mark_seats
from fedchain.chain.post import Post
from fedchain.network.messages import GetPayloads, GetPosts, Payloads, PostMessage
from fedchain.node.core.effects import Effect
from fedchain.node.core.events import NotContributed
from fedchain.node.core.voting.twins import SILENT_TIMEOUTS
from fedchain.node.core.voting.vote_policy import rank, turnout
from tests.support.chain.changes import UNTIL, approved, living_genesis
from tests.support.node.stage import PREVOTE, Stage, asked_to_contribute, published, sent, votes

TIMEOUT_S, SLACK_S, MINING_S = 20, 5, 1
"""Other values than the document's 60, 2 and 4."""


def _amended(*, contributes: bool = True, **values: int) -> tuple[Stage, Post]:
    """A stage of five in the first round of other rules, and the post of one of the others."""
    stage = Stage(living_genesis(5), contributes=contributes)
    said: dict[str, Any] = {"phase_timeout_ms": 1_000 * TIMEOUT_S} | values
    change = approved(stage.chain, propose_amendment(amendment_of(said), "", sequence=0, until=UNTIL))
    block = stage.block(changes=[change])
    stage.candidate(block)
    stage.final(block)
    stage.accept()
    assert stage.node.head.rules.phase_timeout_ms == 1_000 * TIMEOUT_S
    return stage, stage.others_posts()[-1]


def _prevotes(effects: list[Effect], block: Block) -> bool:
    return (PREVOTE, 0, block.hash) in votes(effects)


def test_the_first_attempt_waits_for_votes_as_long_as_was_amended() -> None:
    stage, _ = _amended(vote_timeout_ms=7_000)
    assert stage.node.voting.agreement.timeout_ms(0) == 7_000


def test_without_the_posts_required_a_block_is_waited_with_for_the_amended_time() -> None:
    stage, late = _amended()
    block = stage.block(without=[late.sender])
    assert votes(stage.candidate(block)) == []
    assert votes(stage.wait(TIMEOUT_S - 2)) == []
    assert _prevotes(stage.wait(4), block)


def test_an_empty_block_is_waited_with_for_twice_the_amended_time() -> None:
    stage, _ = _amended(contributors_per_round=4)
    block = stage.block(posts=())
    stage.candidate(block)
    assert not _prevotes(stage.wait(2 * TIMEOUT_S - 2), block)
    assert _prevotes(stage.wait(4), block)


@pytest.mark.parametrize(("held_s", "omits"), [(SLACK_S - 2, False), (SLACK_S + 1, True)])
def test_an_omission_counts_after_the_amended_time_and_is_forgiven_after_it(held_s: int, omits: bool) -> None:
    stage, late = _amended(omission_slack_ms=1_000 * SLACK_S, target_mining_time_ms=1_000 * MINING_S)
    stage.post(late)
    stage.tick(held_s)
    block = stage.block(without=[late.sender])
    stage.candidate(block)
    assert _prevotes(stage.wait(TIMEOUT_S), block) is not omits
    assert _prevotes(stage.wait(8 * MINING_S + 2), block) is omits


def test_a_post_counts_for_preference_and_as_punctual_by_the_amended_time() -> None:
    stage, late = _amended(omission_slack_ms=1_000 * SLACK_S)
    stage.post(*(post for post in stage.others_posts() if post != late))
    stage.tick(TIMEOUT_S + 1)
    stage.tick(1)
    stage.post(late)
    stage.tick(SLACK_S - 2)
    stage.candidate(stage.block())
    (entry,) = stage.node.ledger.entries.values()
    assert rank(stage.node._context, entry)[0] == -4
    said, seats = turnout(stage.node._context, entry), stage.node.head.roster.seats
    assert said is not None
    assert said.punctual == mark_seats(seat for member, seat in seats.items() if member != late.sender)


def test_an_own_key_that_spoke_elsewhere_silences_for_the_amended_time() -> None:
    stage, _ = _amended()
    stage.vote(bytes(range(32)), [stage.me])
    stage.wait(SILENT_TIMEOUTS * TIMEOUT_S - 2)
    assert stage.node.is_silent()
    stage.wait(4)
    assert not stage.node.is_silent()


def test_training_that_failed_is_tried_again_after_the_amended_time() -> None:
    stage, _ = _amended(contributes=False)
    stage.handle(NotContributed(3, 0, "the worker died"))
    assert asked_to_contribute(stage.wait(TIMEOUT_S - 2)) == []
    assert asked_to_contribute(stage.wait(4)) == [(3, 0)]


def test_payloads_travel_with_posts_up_to_the_amended_size() -> None:
    stage, late = _amended(inline_size_max=1)
    assert [message.payload is None for message in published(stage.victim.effects, PostMessage)] == [False, False, True]
    stage.post(late)
    asked = GetPosts(3, 0, stage.holds(stage.me, late.sender))
    assert [message.payload for message in sent(stage.receive(asked), PostMessage)] == [None, None]
    assert sent(stage.receive(GetPayloads(1)), Payloads) == [Payloads(1, ())]


def test_contents_are_kept_for_as_many_blocks_as_was_amended() -> None:
    stage, _ = _amended(retention_blocks=3)
    first, *_, last = stage.accept(6)
    kept = [stage.victim.store.holds_content(block.header.knowledge_root) for block in (first, last)]
    assert kept == [False, True]
