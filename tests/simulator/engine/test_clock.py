"""Virtual time: it passes without being waited for, in order, and it cannot stand still unnoticed."""

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from fedchain.simulator.disturbances import Clock
from fedchain.simulator.engine.clock import EPOCH_MS, DeadlockError, VirtualTimeLoop, WallClock


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_a_year_takes_no_time(loop: VirtualTimeLoop) -> None:
    begun, cpu = time.monotonic(), time.process_time()
    loop.run_until_complete(asyncio.sleep(365 * 86_400))
    assert loop.time() == 365 * 86_400
    assert time.monotonic() - begun < 3_600, "virtual time was waited for"
    assert time.process_time() - cpu < 3_600


def test_the_clock_starts_at_zero_and_counts_whole_milliseconds(loop: VirtualTimeLoop) -> None:
    assert (loop.time(), loop.now_ms()) == (0.0, 0)
    loop.run_until_complete(asyncio.sleep(1.2344))
    assert loop.time() == pytest.approx(1.2344)
    assert loop.now_ms() == 1_234


def test_timers_fire_in_the_order_of_their_times(loop: VirtualTimeLoop) -> None:
    fired: list[tuple[str, int]] = []

    def note(name: str) -> None:
        fired.append((name, loop.now_ms()))

    for name, delay_s in (("late", 3.0), ("early", 1.0), ("middle", 2.0), ("twin", 2.0)):
        loop.call_later(delay_s, note, name)
    loop.call_later(4.0, loop.stop)
    loop.run_forever()
    assert fired == [("early", 1_000), ("middle", 2_000), ("twin", 2_000), ("late", 3_000)]


def test_a_timer_set_by_a_timer_counts_from_there(loop: VirtualTimeLoop) -> None:
    seen: list[float] = []

    def first() -> None:
        loop.call_later(0.5, second)

    def second() -> None:
        seen.append(loop.time())
        loop.stop()

    loop.call_later(1.0, first)
    loop.run_forever()
    assert seen == [1.5]


def test_what_is_ready_runs_before_time_goes_on(loop: VirtualTimeLoop) -> None:
    order: list[str] = []
    loop.call_later(0.001, order.append, "timer")
    loop.call_later(0.002, loop.stop)

    def again(left: int) -> None:
        order.append("soon")
        if left:
            loop.call_soon(again, left - 1)

    loop.call_soon(again, 50)
    loop.run_forever()
    assert order == ["soon"] * 51 + ["timer"]


def test_a_cancelled_timer_never_fires(loop: VirtualTimeLoop) -> None:
    fired: list[int] = []
    loop.call_later(1.0, fired.append, 1).cancel()
    loop.call_later(2.0, loop.stop)
    loop.run_forever()
    assert fired == []


class _ByAsyncio(VirtualTimeLoop):
    """Virtual time with the heap and the turns of asyncio."""

    call_at = asyncio.SelectorEventLoop.call_at
    _run_once = asyncio.SelectorEventLoop._run_once  # type: ignore[attr-defined]

    def __init__(self) -> None:
        super().__init__()
        self._selector = self._clock


def test_timers_of_one_moment_are_called_in_the_order_of_asyncio_also_after_many_were_cancelled() -> None:
    found = [_fired(kind) for kind in (VirtualTimeLoop, _ByAsyncio)]
    assert len(found[0]) > 1_000
    assert found[0] == found[1]


def _fired(kind: type[VirtualTimeLoop]) -> list[tuple[int, float]]:
    """Timers set and cancelled at random, many for one moment: the numbers of those called, and when."""
    loop, draw, fired = kind(), random.Random(7), list[tuple[int, float]]()
    waiting = dict[int, asyncio.TimerHandle]()

    def fire(number: int) -> None:
        waiting.pop(number, None)
        fired.append((number, loop.time()))
        for _ in range(draw.randrange(3) if len(fired) < 1_000 else 0):
            new = len(fired) * 10 + len(waiting)
            waiting[new] = loop.call_later(draw.randrange(4) / 4, fire, new)
        if draw.random() < 0.2:
            for number in [number for number in waiting if draw.random() < 0.4]:
                waiting.pop(number).cancel()
        waiting[-len(fired)] = (
            loop.call_later(draw.randrange(4) / 4, fire, -len(fired))
            if len(fired) < 1_500
            else (loop.call_later(0.0, loop.stop))
        )

    for number in range(300):
        waiting[number] = loop.call_at(draw.randrange(8) / 8, fire, number)
    loop.call_at(200_000.0, loop.stop)  # further than one step of the clock
    loop.run_forever()
    loop.run_forever()
    loop.close()
    return fired


def test_waiting_for_what_nobody_will_do_is_an_error(loop: VirtualTimeLoop) -> None:
    nobody: asyncio.Future[None] = loop.create_future()
    loop.call_later(7.0, lambda: None)
    with pytest.raises(DeadlockError, match=r"7\.000 s"):
        loop.run_until_complete(nobody)


def test_a_wrong_clock_drifts_from_when_it_is_wrong_and_errors_add_up() -> None:
    late, other = Clock(peers=(0,), offset_s=2.0, drift=0.5, at_s=10.0), Clock(peers=(0,), offset_s=-1.0)
    readings = [WallClock((late, other)).read_ms(now_ms) - EPOCH_MS for now_ms in (9_999, 10_000, 20_000)]
    assert readings == [8_999, 11_000, 26_000]
    assert WallClock().read_ms(20_000) == EPOCH_MS + 20_000
