"""A height is decided in the first calm attempt that an honest member leads, whatever candidates are mined meanwhile.

``python -m tests.soak schedules`` runs thousands of schedules with ever better candidates.
"""

import pytest

from fedchain.crypto.hashing import Hash
from fedchain.node.core.voting.agreement import Agreement
from tests.support.campaigns import some
from tests.support.node.leading import attempts
from tests.support.node.schedules import ATTEMPTS_MORE, Rules, run_many


class Unled(Agreement):
    """Everybody prevotes the block that it prefers itself, in every attempt."""

    def proposal(self) -> Hash | None:
        return None


def test_all_prevote_what_an_honest_leader_prevoted_whatever_they_know() -> None:
    found = list(attempts())
    assert len(found) > 300
    assert len({attempt.proposed for attempt in found}) == 3, "a fresh block, too"
    for attempt in found:
        assert attempt.prevoted == {attempt.proposed}, attempt


def test_without_leaders_they_prevote_what_each_prefers() -> None:
    assert any(len(attempt.prevoted) > 1 for attempt in attempts(Unled)), "the search would not notice a split"


@pytest.mark.long
@pytest.mark.parametrize("is_quiet", [False, True])
@pytest.mark.parametrize("members", some([4, 7, 10], first=2))
def test_ever_better_candidates_cost_a_constant_number_of_attempts(members: int, is_quiet: bool) -> None:
    faulty = (members - 1) // 3
    figures = run_many(Rules(members, faulty, tempts=True, is_quiet=is_quiet), range(30))
    assert (figures.disagreements, figures.undecided) == (0, 0), figures
    assert figures.calm_attempts_max <= faulty + ATTEMPTS_MORE, figures
    assert figures.calm_attempts_mean <= 2, figures


@pytest.mark.long
def test_without_leaders_ever_better_candidates_keep_a_height_open() -> None:
    figures = run_many(Rules(4, 1, tempts=True, kind=Unled), range(4))
    assert figures.undecided, "the schedules cannot show what leaders are for"
