"""Metrics of the aggregator; the metrics that a running node serves are tested in ``test_testnet.py``."""

from typing import Any, cast

import pytest

from fedchain.node.operating.metrics import CountingNetwork, NodeCollector, _readiness
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.service import Service


class Member:
    """Has a status."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self.activity = Activity()

    def status(self) -> dict[str, Any]:
        numbers = dict.fromkeys(("height", "round", "electors", "quorum", "attempt", "catching_up_to"), 1)
        truths = dict.fromkeys(("finished", "elector", "quorum_reachable", "silent"), False)
        named = {
            "electors_missing": [],
            "convicted": [],
            "address": "me",
            "aggregator": "",
            "peers": ["other"],
            "clocks_off": {},
            "clock_offset_ms": 0,
            "failing": "",
            "method_fails": "",
        }
        return {**numbers, **truths, **named, "head_age_s": None, **self._changes}


def test_who_cannot_train_is_not_ready() -> None:
    well = {"catching_up_to": 0, "quorum_reachable": True}
    assert _readiness(Member(**well).status()) == (True, "it takes part")
    failing = Member(**well, failing="round 18: KeyError: 'x' (own.py, line 3)")
    assert _readiness(failing.status()) == (False, "it cannot train, round 18: KeyError: 'x' (own.py, line 3)")


def test_who_does_not_reach_the_aggregator_is_not_ready() -> None:
    well = {"catching_up_to": 0, "quorum_reachable": True}
    for aggregator in ("", "me", "other"):
        assert _readiness(Member(**well, aggregator=aggregator).status()) == (True, "it takes part")
    gone = Member(**well, aggregator="gone").status()
    assert _readiness(gone) == (False, "gone, which aggregates this round, is not connected")


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [("", (None, None)), ("me", (1.0, 1.0)), ("other", (0.0, 1.0)), ("gone", (0.0, 0.0))],
)
def test_who_aggregates_is_told_where_anybody_does(
    aggregator: str, expected: tuple[float | None, float | None]
) -> None:
    collector = NodeCollector(cast(Service, Member(aggregator=aggregator)), cast(CountingNetwork, None))
    values = {metric.name: metric.samples[0].value for metric in collector._chain()}
    assert (values.get("fedchain_aggregator"), values.get("fedchain_aggregator_reachable")) == expected
