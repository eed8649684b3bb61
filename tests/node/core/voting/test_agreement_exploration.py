"""In any order of any messages, no two blocks are decided as long as traitors are few, and no lock is broken.

``python -m tests.soak exploration`` goes one attempt further.
"""

import pytest

from fedchain.crypto.hashing import Hash
from fedchain.node.core.voting.agreement import Agreement
from tests.support.node.exploration import Explorer


@pytest.mark.slow
@pytest.mark.long
def test_four_members_and_a_traitor_agree_in_every_course_of_two_attempts() -> None:
    found = Explorer(members=4, traitors=1, attempt_max=1).explore()
    assert found.disagreement == ()
    assert found.is_complete
    assert (found.states, found.depth) == (53_314, 17), "the explorer looks at more or fewer courses than it did"


@pytest.mark.long
@pytest.mark.parametrize(("members", "traitors"), [(3, 0), (4, 1), pytest.param(5, 1, marks=pytest.mark.slow)])
def test_other_federations_agree_in_every_course_of_one_attempt(members: int, traitors: int) -> None:
    found = Explorer(members, traitors, attempt_max=0).explore()
    assert found.disagreement == ()
    assert found.is_complete
    assert found.states > 100


@pytest.mark.long
def test_two_traitors_of_four_break_agreement() -> None:
    found = Explorer(members=4, traitors=2, attempt_max=0).explore()
    assert found.disagreement, "the oracle would not notice a disagreement"


class _Unlocked(Agreement):
    """Prevotes what it likes best, locked or not."""

    def _prevote_value(self, now_ms: int) -> Hash | None:
        return self._candidates.preferred()


@pytest.mark.slow
@pytest.mark.long
def test_without_locks_one_traitor_is_enough() -> None:
    with pytest.raises(AssertionError, match="a lock was given up without a newer quorum"):
        Explorer(4, 1, attempt_max=1, kind=_Unlocked).explore()
    assert Explorer(4, 1, attempt_max=1, kind=_Unlocked, checks_rules=False).explore().disagreement
