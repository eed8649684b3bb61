"""A run is called where a loop runs, awaited, in a thread, cancelled, and told by its callback."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import fedchain
from fedchain.awaiting import wait, wait_in_loop
from fedchain.simulator.scenario import ScenarioError
from tests.python.tasks import load

QUICK: dict[str, Any] = {"peers": 3, "mining_attempts": 8, "hyperparameters": {"local_steps": 3}}


@pytest.fixture(scope="module")
def run() -> fedchain.Run:
    return fedchain.simulate(task=load, rounds=2, **QUICK)


def test_it_is_called_where_a_loop_runs_awaited_and_in_a_thread(run: fedchain.Run) -> None:
    found: list[fedchain.Run] = []

    async def main() -> Sequence[fedchain.Run]:
        found.append(fedchain.simulate(task=load, rounds=2, **QUICK))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        both = await asyncio.gather(*(fedchain.simulate_async(task=load, rounds=2, **QUICK) for _ in range(2)))
        ticking.cancel()
        assert ticks > 5, "the loop goes on meanwhile"
        return both

    found += asyncio.run(main())
    thread = threading.Thread(target=lambda: found.append(fedchain.simulate(task=load, rounds=2, **QUICK)))
    thread.start()
    thread.join()
    assert [one.trace_hash for one in found] == [run.trace_hash] * 4


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ZeroDivisionError])
def test_what_the_callback_raises_ends_the_run_and_its_processes(raised: type[BaseException]) -> None:
    threads = torch.get_num_threads()

    def on_round(row: fedchain.RoundRecord) -> None:
        assert threading.current_thread() is threading.main_thread()
        raise raised

    with pytest.raises(raised):
        fedchain.simulate(rounds=1_000, on_round=on_round, **QUICK)
    assert multiprocessing.active_children() == []
    assert [thread.name for thread in threading.enumerate() if thread.name == "fedchain-simulation"] == []
    assert torch.get_num_threads() == threads


def test_the_work_waits_until_a_round_is_handled() -> None:
    """Else a callback that stops a run would stop it rounds later."""
    order: list[str] = []

    def work(told: Callable[[int], None], stop: threading.Event) -> str:
        for number in (1, 2):
            told(number)
            order.append(f"after {number}")
        return "done"

    def handle(number: int) -> None:
        time.sleep(0.05)
        order.append(f"handled {number}")

    assert wait(work, handle) == "done"
    assert order == ["handled 1", "after 1", "handled 2", "after 2"]


@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_interrupt_while_the_thread_starts_ends_the_work(
    has_started: bool, is_awaited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run would go on for ever behind the prompt, with its processes, and keep its folder to itself."""

    class Interrupted(threading.Thread):
        def start(self) -> None:
            if has_started:
                super().start()
            raise KeyboardInterrupt

    def work(told: Callable[[int], None], stop: threading.Event) -> str:
        told(1)
        return "done"

    monkeypatch.setattr("fedchain.awaiting.threading.Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(wait_in_loop(work, print)) if is_awaited else wait(work, print)
    assert [thread.name for thread in threading.enumerate() if thread.name == "fedchain-simulation"] == []


def test_a_coroutine_function_is_awaited_or_refused() -> None:
    heard: list[int] = []

    async def on_round(row: fedchain.RoundRecord) -> None:
        await asyncio.sleep(0)
        heard.append(row.round)

    asyncio.run(fedchain.simulate_async("solo", rounds=2, on_round=on_round, **QUICK))
    assert heard == [1, 2]
    with pytest.raises(ScenarioError, match="on_round is a coroutine function, which only simulate_async"):
        fedchain.simulate("solo", rounds=2, on_round=on_round, **QUICK)


def test_cancelling_ends_the_run_and_its_processes() -> None:
    async def main() -> None:
        first = asyncio.Event()
        task = asyncio.create_task(fedchain.simulate_async(rounds=1_000, on_round=lambda row: first.set(), **QUICK))
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert multiprocessing.active_children() == []
