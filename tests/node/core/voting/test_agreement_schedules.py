"""One height on a network that calms down: all honest members decide the same, and soon.

``python -m tests.soak schedules`` runs thousands.
"""

import pytest

from tests.support.node.schedules import Rules, run_many

COUNT = 60


@pytest.mark.long
@pytest.mark.parametrize("two_faced", [False, True])
@pytest.mark.parametrize(
    ("members", "traitors"),
    [(4, 1), (7, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((5, 1), (10, 3)))],
)
def test_with_few_traitors_all_decide_the_same_soon_after_it_is_calm(
    members: int, traitors: int, two_faced: bool
) -> None:
    figures = run_many(Rules(members, traitors, two_faced), range(COUNT))
    assert (figures.disagreements, figures.undecided) == (0, 0), figures
    assert figures.attempts_median <= 1, figures
    assert figures.attempts_99 <= 8, figures
    assert figures.after_calm_s_99 <= 8, figures


@pytest.mark.parametrize("members", [1, 2, 3])
def test_without_traitors_small_federations_decide_too(members: int) -> None:
    figures = run_many(Rules(members, 0), range(COUNT))
    assert (figures.disagreements, figures.undecided) == (0, 0), figures


def test_a_quorum_that_nobody_hands_out_costs_attempts() -> None:
    """A traitor that shows its vote to one member alone locks it against the others, until that member leads."""
    with_it, without = (run_many(Rules(4, 1, hands_out=is_said), range(200)) for is_said in (True, False))
    assert (without.disagreements, without.undecided) == (0, 0)
    assert without.calm_attempts_max > with_it.calm_attempts_max, "the schedules cannot show what handing out is for"


def test_more_traitors_than_allowed_break_agreement() -> None:
    figures = run_many(Rules(4, 2, two_faced=True), range(COUNT))
    assert figures.disagreements > 0, "the oracle would not notice a disagreement"
