"""Troubles: how long something was wrong, with which peers."""

import sys
from types import FrameType
from typing import Any

from fedchain.simulator.disturbances import Clock, Fault, Traitors, Trouble, troubles


def _after(*faults: Fault) -> list[tuple[str, tuple[int, ...], float, float | None, str]]:
    return [(item.kind, item.peers, item.begin_s, item.end_s, item.detail) for item in troubles(faults, (), ())]


def test_a_crash_lasts_until_the_restart_and_one_without_it_to_the_end() -> None:
    faults = (
        Fault(at_s=30.0, kind="restart", peers=(2,)),
        Fault(at_s=10.0, kind="crash", peers=(3, 2)),
        Fault(at_s=20.0, kind="kill", peers=(3,)),
    )
    assert _after(*faults) == [("down", (2,), 10.0, 30.0, ""), ("down", (3,), 10.0, None, "")]


def test_a_peer_that_is_restarted_while_it_is_up_is_down_for_a_moment() -> None:
    assert _after(Fault(at_s=5.0, kind="restart", peers=(1,))) == [("down", (1,), 5.0, 5.0, "")]


def test_a_partition_lasts_until_the_next_one_or_until_the_network_heals() -> None:
    faults = (
        Fault(at_s=1.0, kind="partition", peers=(0, 1)),
        Fault(at_s=2.0, kind="partition", peers=(1, 2)),
        Fault(at_s=3.0, kind="heal"),
    )
    assert _after(*faults) == [("cut", (0, 1), 1.0, 2.0, ""), ("cut", (1, 2), 2.0, 3.0, "")]


def test_a_slow_peer_is_so_until_its_factor_changes() -> None:
    faults = (
        Fault(at_s=1.0, kind="slow", peers=(4,), factor=6.0),
        Fault(at_s=2.0, kind="slow", peers=(4,), factor=2.5),
        Fault(at_s=3.0, kind="slow", peers=(4,), factor=1.0),
    )
    assert _after(*faults) == [("slow", (4,), 1.0, 2.0, "×6"), ("slow", (4,), 2.0, 3.0, "×2.5")]


def test_liars_lie_from_the_beginning_and_clocks_are_wrong_from_their_time() -> None:
    clocks = Clock(peers=(5,), offset_s=-20.0), Clock(peers=(0, 1), drift=0.5, at_s=7.0)
    traitors = (Traitors(behaviour="flooder", peers=(6,), parameters={"rate": 3.0}),)
    assert troubles((), clocks, traitors) == (
        Trouble("clock", (5,), 0.0, None, "-20 s"),
        Trouble("lying", (6,), 0.0, None, "flooder (rate 3)"),
        Trouble("clock", (0, 1), 7.0, None, "gains +0.5 s each second"),
    )


def _steps(count: int) -> int:
    """Instructions that are executed for peers that are down while the network heals as often."""
    executed = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal executed
        frame.f_trace_opcodes = True
        executed += event == "opcode"
        return trace

    heals = tuple(Fault(at_s=float(second), kind="heal") for second in range(count))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        troubles((Fault(at_s=0.0, kind="crash", peers=tuple(range(count))), *heals), (), ())
    finally:
        sys.settrace(before)
    return executed


def test_the_cost_grows_with_the_faults_and_not_with_their_square() -> None:
    assert _steps(200) < 3 * _steps(100)
