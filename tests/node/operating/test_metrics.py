"""Metrics of the aggregator; the metrics that a running node serves are tested in ``test_testnet.py``."""

import socket
import time
from typing import Any, cast

import pytest

from fedchain.node.config import NodeFailed
from fedchain.node.operating.metrics import CountingNetwork, NodeCollector, _readiness, answer_metrics
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.service import Service
from tests.support.node.shell import on_trio


class Member:
    """Has a status."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self.activity = Activity()

    def shows(self, **changes: Any) -> None:
        self._changes |= changes

    def status(self) -> dict[str, Any]:
        numbers = dict.fromkeys(("height", "round", "electors", "quorum", "attempt", "catching_up_to"), 1)
        truths = dict.fromkeys(("finished", "elector", "quorum_reachable", "silent"), False) | {"counts": True}
        named = {
            "electors_missing": [],
            "gathers": 0,
            "slow_write_s": 0.0,
            "convicted": [],
            "address": "me",
            "aggregator": "",
            "peers": ["other"],
            "clocks_off": {},
            "clock_offset_ms": 0,
            "failing": "",
            "not_counted": "",
            "method_fails": "",
            "stands": None,
            "conflict": None,
            "numbers": {"gone": 3},
        }
        return {**numbers, **truths, **named, "head_age_s": None, **self._changes}


def test_who_cannot_train_is_not_ready() -> None:
    well = {"catching_up_to": 0}
    assert _readiness(Member(**well).status()) == (True, "it takes part")
    failing = Member(**well, failing="round 18: KeyError: 'x' (own.py, line 3)")
    assert _readiness(failing.status()) == (False, "it cannot train, round 18: KeyError: 'x' (own.py, line 3)")


def test_why_a_node_that_does_not_vote_is_not_ready() -> None:
    """One that a quorum had contradicted said "nothing in its own name yet", and waits for no others."""
    found = _readiness(Member(silent=True, waiting_for="its operator: a quorum disagrees").status())
    assert found == (False, "it does not vote, and waits for its operator: a quorum disagrees")


def test_a_node_that_joins_neither_of_two_chains_is_not_ready() -> None:
    conflict = {"height": 9, "hashes": ["aa", "bb"], "signers": []}
    found = _readiness(Member(catching_up_to=12, conflict=conflict).status())
    assert found == (False, "two blocks of height 9 are certified, and it joins neither chain")


def test_the_versions_are_those_with_which_the_node_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that were replaced under a running node were shown as what runs, and looked for with each scrape."""
    installed = {"numpy": "1.0"}
    monkeypatch.setattr("fedchain.node.operating.metrics.version", lambda name: installed.get(name, "3.0"))
    collector = NodeCollector(cast(Service, Member()), cast(CountingNetwork, None))
    installed["numpy"] = "2.0"
    assert next(collector.collect()).samples[0].labels["numpy"] == "1.0"


def test_who_lacks_blocks_is_not_ready() -> None:
    assert _readiness(Member(catching_up_to=12).status()) == (False, "it lacks the blocks up to height 12")


@pytest.mark.parametrize(("catching_up_to", "behind"), [(0, 0), (9, 2)])
def test_how_far_a_node_is_behind_is_0_while_it_lacks_nothing(catching_up_to: int, behind: int) -> None:
    member = Member(height=7, catching_up_to=catching_up_to)
    collector = NodeCollector(cast(Service, member), cast(CountingNetwork, None))
    values = {metric.name: metric.samples[0].value for metric in collector._chain()}
    assert values["fedchain_blocks_behind"] == behind


def test_a_member_of_a_federation_that_stands_still_is_not_ready() -> None:
    stands = {"lacks": "the aggregate", "needed": 1, "here": 0, "missing": ["gone"], "since_ms": 0}
    found = _readiness(Member(catching_up_to=0, stands=stands).status())
    assert found == (
        False,
        "the federation stands still: the aggregate of 1 member needed, 0 are here; missing: peer 3",
    )


@pytest.mark.parametrize("set_by_s", [0, -3_600, 86_400])
def test_a_standstill_is_counted_from_its_beginning(monkeypatch: pytest.MonkeyPatch, set_by_s: int) -> None:
    """It was counted by the calendar: with the clock set back it lasted 0 s, and nobody was woken."""
    calendar_ms, monotonic_s = 1_800_000_000_000, 50.0
    monkeypatch.setattr(time, "time", lambda: calendar_ms / 1_000)
    monkeypatch.setattr(time, "time_ns", lambda: calendar_ms * 1_000_000)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic_s)
    member = Member()

    def standstill_s() -> float:
        collector = NodeCollector(cast(Service, member), cast(CountingNetwork, None))
        return next(m.samples[0].value for m in collector._chain() if m.name == "fedchain_standstill_seconds")

    assert standstill_s() == 0.0
    member.activity.stand(stands=True)
    stands = {"lacks": "votes", "needed": 3, "here": 2, "missing": ["gone"]}
    member.shows(stands=stands | {"since_ms": member.activity.stands_since_ms})
    calendar_ms, monotonic_s = calendar_ms + 90_000 + 1_000 * set_by_s, monotonic_s + 90.0
    assert standstill_s() == 90.0
    member.activity.stand(stands=False)
    member.shows(stands=None)
    assert standstill_s() == 0.0


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


@pytest.mark.parametrize(("host", "why"), [("127.0.0.1", "the port is in use"), ("192.0.2.1", "not have that address")])
@on_trio
async def test_an_address_that_was_taken_since_the_check_may_be_free_at_another_start(host: str, why: str) -> None:
    """Two nodes that begin at once pass the check together: the later one was left alone by systemd for ever."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"{host}:{other.getsockname()[1]}"
        with pytest.raises(NodeFailed, match=f"metrics cannot be served on {place}: .*{why}"):
            await answer_metrics(place, cast(Service, Member()), cast(CountingNetwork, None))
