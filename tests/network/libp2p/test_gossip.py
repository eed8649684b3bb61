"""A fault of the sender is held against it, anything that may heal is not."""

import pytest

from fedchain.chain import exceptions
from fedchain.chain.exceptions import Invalid, Refused, Unready
from fedchain.network.verdict import Verdict, verdict

REJECTED = {
    "InvalidEncoding",
    "InvalidSignature",
    "InvalidPost",
    "InvalidPayload",
    "InvalidVote",
    "InvalidCertificate",
    "InvalidEvidence",
    "InvalidChange",
    "InvalidBlock",
}
IGNORED = {
    "UnknownParent",
    "MissingPayload",
    "AlreadyKnown",
    "OutOfWindow",
    "Equivocation",
    "LimitReached",
    "MethodFailed",
}


def _refusals() -> dict[str, type[Refused]]:
    known = (value for value in vars(exceptions).values() if isinstance(value, type))
    return {
        kind.__name__: kind for kind in known if issubclass(kind, Refused) and kind not in (Refused, Invalid, Unready)
    }


def test_what_is_taken_is_passed_on() -> None:
    assert verdict(None) is Verdict.ACCEPT


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_a_broken_rule_is_held_against_the_sender(name: str) -> None:
    assert verdict(_refusals()[name]("rule", "message")) is Verdict.REJECT


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_may_heal_is_only_dropped(name: str) -> None:
    assert verdict(_refusals()[name]("rule", "message")) is Verdict.IGNORE


def test_the_table_names_every_refusal() -> None:
    assert set(_refusals()) == REJECTED | IGNORED


def test_the_two_families_decide_for_refusals_to_come() -> None:
    assert verdict(Invalid("rule", "message")) is Verdict.REJECT
    assert verdict(Unready("rule", "message")) is Verdict.IGNORE
