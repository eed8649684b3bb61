"""A verdict follows from whose fault a refusal is."""

from fedchain.chain.exceptions import InvalidVote, UnknownParent
from fedchain.network.verdict import Verdict, verdict


def test_taken_is_passed_on_faults_are_rejected_and_what_may_heal_is_dropped() -> None:
    assert verdict(None) is Verdict.ACCEPT
    assert verdict(InvalidVote("vote", "x")) is Verdict.REJECT
    assert verdict(UnknownParent("vote", "x")) is Verdict.IGNORE
