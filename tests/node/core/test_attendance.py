"""The members that are waited for in the open phase."""

import pytest

from fedchain.node.core import attendance as module
from fedchain.node.core.voting import vote_policy
from tests.support.chain.builders import genesis
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import Stage


def test_who_is_waited_for_is_known_after_every_post_and_nobody_is_once_all_is_over() -> None:
    stage = Stage(genesis(7, rounds=1), contributes=False)
    posts, missing = stage.chain.posts(), set(stage.genesis.members)
    assert stage.node.waiting_for() == missing
    for item in posts:
        stage.post(item)
        missing.discard(item.sender)
        assert stage.node.waiting_for() == missing
    stage.accept()
    stage.tick(1)
    assert stage.node.head.finished
    assert stage.node.waiting_for() == set()


def test_posts_of_members_that_nobody_waits_for_leave_the_others_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(genesis(7), contributes=False)
    unawaited, first, *others, last = stage.chain.posts()
    awaited = {item.sender for item in (first, *others, last)}
    monkeypatch.setattr(module, "expected_contributors", lambda state: awaited)
    attendance = stage.node._parts.attendance
    attendance.on_head()
    for item in (first, unawaited, *others):
        stage.post(item)
        assert attendance.missing
    assert not attendance.is_complete
    stage.post(last)
    assert not attendance.missing
    assert attendance.is_complete


def test_a_post_may_end_the_waiting_for_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(living_genesis(7))
    *first, patient, impatient = stage.others_posts()
    granted = {patient.sender: 30_000, impatient.sender: 1_000}
    monkeypatch.setattr(vote_policy, "patience_of", lambda state: granted)
    stage.post(*first)
    stage.tick(2)
    attendance = stage.node._parts.attendance
    assert attendance.waits_for_more()
    stage.node._context.mempool.add(patient, stage.now_ms)
    assert not attendance.waits_for_more(), "the other one's patience has been over for a second"
