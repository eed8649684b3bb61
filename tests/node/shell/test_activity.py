"""A node says what it does."""

from fedchain.node.shell.activity import Activity


def test_a_failure_lasts_until_a_contribution_and_a_refusal_is_none() -> None:
    activity = Activity()
    activity.fail("round 1: boom", is_fault=True)
    activity.fail("round 2: the budget is spent", is_fault=False)
    assert (activity.failure, activity.is_failing) == ("round 2: the budget is spent", False)
    assert activity.training_failures == 1


def test_a_phase_that_measures_nothing_leaves_what_was_measured() -> None:
    activity = Activity()
    activity.train(1, 0.75, 1.5)
    activity.train(2, None, None)
    assert (activity.accuracy, activity.epsilon, activity.trained_round) == (0.75, 1.5, 2)
