"""A Ray cluster of two nodes: the same trace as processes, whatever is lost in the middle. Without Ray: skipped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedchain
from fedchain import testing
from fedchain.cli.main import app
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.remote_training import RemoteTraining, own_modules
from fedchain.learning.executors.workers import Gone
from fedchain.simulator.choices import PROCESSES, RAY
from fedchain.simulator.reproduction.parallel import RunsProgress
from fedchain.simulator.scenario import Scenario
from tests.support.node.shell import wait_until
from tests.support.ray_cluster import actors, at, cluster
from tests.support.simulator.relayed import SCENARIO as BULK

ray = pytest.importorskip("ray", reason="Ray is an extra of the package, for which there is make ray-test")

SCENARIO = Scenario(method="scaffold", peers=5, rounds=4, hyperparameters={"local_steps": 2})
"""Clients remember; a peer restarts."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with cluster(2) as found:
        yield found


def trace(executor: str, scenario: Scenario = SCENARIO, on_round: Callable[..., None] = lambda row: None) -> str:
    return fedchain.simulate(scenario=scenario, executor=executor, on_round=on_round, keep_models=False).trace_hash


@pytest.fixture(scope="module")
def expected() -> str:
    return trace(PROCESSES)


def test_actors_pass(nodes: Any) -> None:
    from fedchain.learning.executors.on_ray import RayWorkers
    from fedchain.learning.executors.remote import RemoteExecutor

    def build(plan: Any) -> RemoteExecutor:
        workers = RayWorkers(partial(RemoteTraining, plan.encode(), None, own_modules(plan)), 2)
        assert workers.count == 2
        return RemoteExecutor(plan, workers)

    testing.check_executor(build)


def test_two_nodes_compute_what_processes_compute(nodes: Any, expected: str, tmp_path: Path) -> None:
    found = fedchain.simulate(scenario=SCENARIO, executor=RAY, out=tmp_path / "run")
    assert found.trace_hash == expected
    assert len({tuple(value.flatten()[:9].tolist()) for value in found.state(1).values()}) > 1
    wait_until(lambda: actors() == [], "the actors' end, which Ray is asked for and does a moment later")


def test_parts_travel(nodes: Any) -> None:
    assert trace(RAY, BULK) == trace(PROCESSES, BULK)


def test_the_run_goes_on_when_an_actor_is_killed(nodes: Any, expected: str) -> None:
    killed = list[int]()

    def kill() -> None:
        killed.append(actors()[-1])
        os.kill(killed[0], signal.SIGKILL)

    assert trace(f"{RAY}:{nodes.address}", on_round=at(2, kill)) == expected
    assert killed


def test_a_comparison_is_the_same_when_a_node_is_lost_in_the_middle(
    nodes: Any, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"--methods": "fedavg,scaffold,solo", "--seeds": "4", "--peers": "3", "--rounds": "3"}
    words = ["compare", *(word for option in chosen.items() for word in option), "--set", "local_steps=1"]
    here = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "here")])
    assert here.exit_code == 0, here.output
    third, update = at(3, nodes.remove), RunsProgress.update

    def lose(shown: RunsProgress, place: int, number: int) -> None:
        update(shown, place, number)
        third()

    monkeypatch.setattr(RunsProgress, "update", lose)
    there = CliRunner().invoke(app, [*words, "--executor", RAY, "--out", str(tmp_path / "there")])
    assert there.exit_code == 0, there.output
    assert "goes on with another worker" in there.output
    files = sorted(path.name for path in (tmp_path / "here" / "results").iterdir())
    assert len(files) == 12
    for name in files:
        assert read(tmp_path / "there" / "results" / name) == read(tmp_path / "here" / "results" / name)
    for name in ("table.csv", "rounds.csv"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_one_node_computes_what_processes_compute(nodes: Any, expected: str) -> None:
    assert trace(RAY) == expected


def test_the_run_goes_on_when_a_node_is_lost(expected: str) -> None:
    ray.shutdown()
    with cluster(2) as nodes:
        assert trace(RAY, on_round=at(2, nodes.remove)) == expected


def test_a_lost_machine_that_still_counts_gives_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray counts one without power for half a minute; an actor for it would never start, and its run never end."""
    from fedchain.learning.executors import on_ray

    ray.shutdown()
    with cluster(2) as nodes:
        workers = on_ray.RayWorkers(Echo, 2)
        assert workers.count == 2
        for worker in range(2):
            workers.send(worker, worker)
        assert {workers.receive(60), workers.receive(60)} == {0, 1}
        nodes.remove()
        monkeypatch.setattr(workers, "_room", lambda: 2)
        monkeypatch.setattr(on_ray, "START_S", 1.0)
        for worker in range(2):
            workers.send(worker, worker)
        heard = [workers.receive(60), workers.receive(60)]
        (gone,) = (said for said in heard if isinstance(said, Gone))
        assert not workers.replace(gone.worker)
        workers.send(1 - gone.worker, "still there")
        assert workers.receive(60) == "still there"
        workers.close()


class Echo:
    def do(self, message: Any) -> Any:
        return message

    def close(self) -> None:
        pass


def test_workers_of_one_process_share_a_cluster_until_the_last_of_them_are_closed() -> None:
    from fedchain.learning.executors.on_ray import RayWorkers

    ray.shutdown()
    first = RayWorkers(Echo, 1)
    second = RayWorkers(Echo, 1)
    first.close()
    first.close()
    second.send(0, "still there")
    assert second.receive(60) == "still there"
    third = RayWorkers(Echo, 1)
    second.close()
    third.send(0, "still there")
    assert third.receive(60) == "still there"
    third.close()
    assert not ray.is_initialized()


def test_a_cluster_that_does_not_start_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(**_: Any) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray says it

    ray.shutdown()
    monkeypatch.setattr(ray, "init", late)
    with pytest.raises(
        ConfigurationError, match=r"no Ray cluster answers at this machine: .* timed out during startup"
    ):
        trace(RAY)


def test_sigterm_is_handled_as_before() -> None:
    program = """if True:
        import os, signal
        from fedchain.learning.executors.on_ray import RayWorkers

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        workers = RayWorkers(list, 1)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            workers.close()
            print("unwound")
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "unwound\n"), done.stderr


def test_a_cluster_that_the_caller_has_joined_is_left_to_it() -> None:
    from fedchain.learning.executors.on_ray import RayWorkers

    with cluster(1):
        RayWorkers(list, 1).close()  # type: ignore[arg-type]
        assert ray.is_initialized()


def read(path: Path) -> Any:
    return json.loads(path.read_text())
