"""A node says what it does."""

from fedchain.node.shell.activity import Activity


def test_a_failure_lasts_until_a_contribution_and_a_refusal_is_none() -> None:
    activity = Activity()
    activity.fail("round 1: boom", is_fault=True)
    activity.fail("round 2: the budget is spent", is_fault=False)
    assert (activity.failure, activity.is_failing) == ("round 2: the budget is spent", False)
    assert activity.training_failures == 1
