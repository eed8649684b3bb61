"""An experiment runs what is missing, goes on after interruptions, and keeps what diverged."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.exceptions import ReleaseRefused, TrainingDiverged
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.reproduction import parallel
from fedchain.simulator.reproduction.experiment import Measure, load_experiment
from fedchain.simulator.reproduction.library import find_experiment
from fedchain.simulator.reproduction.parallel import write_result
from fedchain.simulator.reproduction.reproduce import reproduce, run_or_diverge
from fedchain.simulator.reproduction.run_workers import Runner
from fedchain.simulator.reproduction.table import read_result
from fedchain.simulator.resuming.record import LOG, Record, RecordInUse
from fedchain.simulator.resuming.resume import identity
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.node.shell import wait_until
from tests.support.simulator.tiny_experiment import TABLE, fake_results, load


def test_only_some_cells_and_variants_are_run_if_one_asks_for_them(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    assert {(run.cell, run.variant) for run in experiment.runs({}, "more/*after")} == {("more", "FedAvg, after")}
    with pytest.raises(ScenarioError, match="no cell/variant of tiny fits"):
        reproduce(experiment, tmp_path, 1, {}, only="most/*")


def test_the_table_is_written_where_a_run_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_one(scenarios: Sequence[Scenario], *args: Any) -> None:
        raise WorkerDiedError("not finished: fedavg, seed 0")

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.run_all", lose_one)
    with pytest.raises(WorkerDiedError, match="not finished"):
        reproduce(load(tmp_path), tmp_path / "out", 1, {})
    assert (tmp_path / "out" / "table.csv").exists()


def test_what_was_measured_otherwise_is_no_result_although_the_scenario_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, asked = load(tmp_path), list[Scenario]()
    fake_results(experiment, tmp_path / "out" / "results")
    monkeypatch.setattr(
        "fedchain.simulator.reproduction.reproduce.run_all", lambda scenarios, *_: asked.extend(scenarios)
    )
    reproduce(experiment, tmp_path / "out", 1, {})
    assert asked == []
    reproduce(replace(experiment, measure="timing"), tmp_path / "out", 1, {})
    assert asked == [run.scenario for run in experiment.runs({})]


def test_an_interrupted_experiment_says_where_its_results_are_and_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, out = load(tmp_path), tmp_path / "out"

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.run_all", interrupted)
    for begun, told in enumerate(("", ", 1 interrupted, which goes on", ", 2 interrupted, which go on")):
        with pytest.raises(KeyboardInterrupt):
            reproduce(experiment, out, 1, {})
        first, *said = capsys.readouterr().out.splitlines()[1:]
        assert first == f"4 runs, 0 of them done already{told}"
        assert said == [f"what was computed is in {out}; the same command goes on from there"]
        assert [path.name for path in out.iterdir()] == ["results"], "no table of what is not there"
        run = [*experiment.runs({})][begun]
        Record.create(parallel.record_folder(out / "results", run.key), {"fedchain": "0"}).close()


def test_what_was_run_is_shown_where_the_data_of_all_others_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TABLE.replace("{ classes_avg = 4 }", f'{{ dataset = "mnist", data_dir = "{tmp_path}" }}')
    experiment, out = load(tmp_path, text), tmp_path / "out"
    fake_results(experiment, out / "results")
    for run in experiment.runs({}):
        if run.scenario.dataset == "mnist":
            (out / "results" / f"{run.key}.json").unlink()
    reproduce(replace(experiment, plots=()), out, 1, {})
    told = capsys.readouterr().out
    assert "skipped: runs on mnist; " in told
    assert "| FedAvg, before | few | 50.00 | 45.00 ± 7.07 | -5.00 |" in told
    assert "| FedAvg, before | more | – | not run: no mnist | – |" in told


@pytest.mark.parametrize(
    ("metric", "result", "line"),
    [
        ("taa", {}, "highest taa 50 %"),
        ("tal", {}, "lowest tal 0.25"),
        ("epsilon", {}, "done"),
        ("taa", {"diverged": "peer 3, round 2: the loss is nan"}, "peer 3, round 2: the loss is nan"),
    ],
)
def test_the_line_of_a_finished_run_has_the_best_that_it_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, result: dict[str, Any], line: str
) -> None:
    text = TABLE.replace('"fedavg" }\nmetric = "taa_received"', f'"solo" }}\nmetric = "{metric}"')
    said = list[str]()
    rows = [{"round": 1, "taa": 0.5, "tal": 0.75}, {"round": 2, "taa": 0.25, "tal": 0.25}]

    def run_all(scenarios: Sequence[Scenario], jobs: int, keep: Any, *more: object) -> None:
        said.extend(keep(place, {"rows": rows, **result}) for place, _ in enumerate(scenarios))

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.run_all", run_all)
    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.tabulate", lambda *given: [])
    reproduce(replace(load(tmp_path, text), plots=()), tmp_path / "out", 1, {})
    assert said[1] == f"FedAvg, after  few  seed 0: {line}"


def test_a_run_that_lost_its_processes_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker goes on with it."""

    def lose(*given: object, **named: object) -> None:
        raise WorkerDiedError("training process train-0 ended with exit code -9")

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.run_one", lose)
    with pytest.raises(WorkerDiedError):
        run_or_diverge("simulation", Scenario(), lambda number: None)


@pytest.mark.parametrize("measure", ["timing", "forgetting"])
def test_a_measure_without_a_chain_is_refused_to_a_method_whose_posts_list_parts(measure: Measure) -> None:
    """It ended the whole experiment in a traceback."""
    found = run_or_diverge(measure, Scenario(method="fedgkt", peers=2, rounds=1), lambda number: None)
    said = f"{measure} is measured without a chain, and fedgkt's posts list parts for members of one"
    assert found == {"failed": said}


def test_a_result_holds_the_promises_that_its_run_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(rows=[], tip="ab", trace_hash="cd", violations=["agreement: two heads"])
    monkeypatch.setattr(parallel, "load_learner", lambda scenario: SimpleNamespace(hash_own=lambda: ""))
    monkeypatch.setattr(parallel, "simulate", lambda *given, **named: broken)
    assert parallel.run_one(Scenario(), lambda number: None)["violations"] == ["agreement: two heads"]


@pytest.mark.slow
def test_an_interrupted_experiment_runs_what_is_missing_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = replace(load(tmp_path), seeds=(0,), plots=("lines", "boxes", "curves", "map"))
    keep = parallel.write_result
    written: list[str] = []

    def interrupted(results: Path, key: str, result: dict[str, Any]) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(key)
        keep(results, key, result)

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.write_result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, tmp_path / "out", 1, {})
    (finished,) = (tmp_path / "out" / "results").glob("*.json")
    text = finished.read_text()
    assert finished.stem == written[0]
    assert f"what was computed is in {tmp_path / 'out'}; the same command goes on" in capsys.readouterr().out
    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.write_result", keep)
    capsys.readouterr()
    entries = reproduce(experiment, tmp_path / "out", 1, {})
    assert "2 runs, 1 of them done already" in capsys.readouterr().out
    assert len(entries) == 4
    assert finished.read_text() == text, "what was finished is not run again"
    results = {
        run.cell: json.loads((tmp_path / "out" / "results" / f"{run.key}.json").read_text())
        for run in experiment.runs({})
    }
    assert [(len(result["rows"]), result["violations"]) for result in results.values()] == [(1, [])] * 2
    for entry in entries:
        metric = experiment.variant(entry.variant).metric
        assert entry.mean == pytest.approx(100 * results[entry.cell]["rows"][0][metric])
    names = {"table", "boxes", "curves", "map"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results", "table.md", "table.tex", "table.csv", "rounds.csv", *(f"{name}.png" for name in names),
        *(f"{name}.pdf" for name in names),
    }  # fmt: skip


def test_a_simulation_that_was_interrupted_goes_on_from_its_record(tmp_path: Path) -> None:
    (run, *_) = load(tmp_path, TABLE.replace("rounds = 1", "rounds = 4")).runs({})
    record = parallel.record_folder(tmp_path, run.key) / "record.log"

    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_or_diverge("simulation", run.scenario, interrupt, tmp_path)
    kept = record.read_bytes()
    closed: list[int] = []
    result = run_or_diverge("simulation", run.scenario, closed.append, tmp_path)
    assert closed == [1, 2, 3, 4]
    assert result == run_or_diverge("simulation", run.scenario, lambda number: None)
    assert record.read_bytes().startswith(kept), "the record goes on"
    assert record.stat().st_size < 2 * len(kept), "what it holds is not computed again"


def test_a_run_whose_record_is_another_programs_begins_anew_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One record is of another version, one has another trace, and one was left behind by a run that is finished."""
    experiment = load(tmp_path)
    older, other, finished, *_ = experiment.runs({})
    results = tmp_path / "out" / "results"
    folders = [parallel.record_folder(results, run.key) for run in (older, other, finished)]
    fake_results(experiment, results)
    for run in (older, other):
        (results / f"{run.key}.json").unlink()
    Record.create(folders[0], {"fedchain": "0"}).close()
    with closing(Record.create(folders[1], identity(other.scenario))) as record:
        record.close_round(1, bytes(32), {})
    Record.create(folders[2], {"fedchain": "0"}).close()

    def run_all(scenarios: Sequence[Scenario], jobs: int, keep: Any, console: Any, run: Runner, executor: str) -> None:
        for place, scenario in enumerate(scenarios):
            console.print(keep(place, run(scenario, lambda number: None)), soft_wrap=True)

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.run_all", run_all)
    reproduce(experiment, tmp_path / "out", 1, {})
    told = [line.partition("; begun anew: ")[2] for line in capsys.readouterr().out.splitlines() if "; begun" in line]
    assert [line.split(" record ")[0].partition(str(results))[0] for line in told] == ["", "round 1 differs from the"]
    assert not any(folder.exists() for folder in folders)
    expected = run_or_diverge("simulation", other.scenario, lambda number: None)
    assert json.loads((results / f"{other.key}.json").read_text()) == json.loads(json.dumps(expected))


def test_promises_that_a_run_broke_stand_in_its_line_and_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path / "out" / "results")
    (run, *_) = experiment.runs({})
    file = tmp_path / "out" / "results" / f"{run.key}.json"
    result = json.loads(file.read_text()) | {"violations": ["agreement: two heads", "lost: a block"]}
    file.unlink()

    def run_all(scenarios: Sequence[Scenario], jobs: int, keep: Any, console: Any, run: Runner, executor: str) -> None:
        console.print(keep(0, result), soft_wrap=True)

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.run_all", run_all)
    reproduce(experiment, tmp_path / "out", 1, {})
    told = capsys.readouterr().out
    assert "; 2 promises broken: agreement: two heads" in told
    assert "(1 with broken promises)" in told


def test_a_record_that_another_process_has_is_left_to_it(tmp_path: Path) -> None:
    (run, *_) = load(tmp_path).runs({})
    folder = parallel.record_folder(tmp_path, run.key)
    with closing(Record.create(folder, identity(run.scenario))):
        if not (child := os.fork()):
            try:
                run_or_diverge("simulation", run.scenario, lambda number: None, tmp_path)
            except RecordInUse:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert (folder / LOG).exists()


@pytest.mark.slow
@pytest.mark.long
def test_a_comparison_that_was_killed_goes_on_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """From the outside: all its processes are killed, and the same command comes to what a whole run measures."""
    quick = ("--peers", "3", "--rounds", "16", "--set", "mining_attempts=8", "--set", "local_steps=2")
    words = ("compare", "--methods", "fedavg", "--seeds", "1", "--jobs", "1", *quick)
    killed = tmp_path / "killed"
    command = [sys.executable, "-u", "-m", "fedchain", *words, "--out", str(killed)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        # The first bytes of the record, not a line of progress: on a fast machine that comes when the run is over.
        wait_until(lambda: any(path.stat().st_size for path in killed.glob("results/*.record/record.log")), "a record")
        os.killpg(process.pid, signal.SIGKILL)
    (record,) = (killed / "results").glob("*.record")
    again = CliRunner().invoke(app, [*words, "--out", str(killed)])
    assert again.exit_code == 0, again.output
    assert "1 run, 0 of them done already, 1 interrupted, which goes on" in again.stdout
    assert not record.exists()
    (run,) = load_experiment(killed / "experiment.toml").runs({})
    whole = run_or_diverge("simulation", run.scenario, lambda number: None)
    assert json.loads((killed / "results" / f"{run.key}.json").read_text()) == json.loads(json.dumps(whole))


def test_a_run_that_diverges_is_a_result_and_not_the_end() -> None:
    run = next(load_experiment(find_experiment("dfpl-table1-fmnist")).runs({"dataset": "digits", "rounds": 1}))
    diverging = replace(run.scenario, hyperparameters={"learning_rate": 1e3, "momentum": 0.99})
    result = run_or_diverge("simulation", diverging, lambda number: None)
    assert result["rows"] == []
    assert "round 1" in result["diverged"]


@pytest.mark.parametrize(
    ("error", "is_spent"),
    [(TrainingDiverged(3, 2, 7, float("nan")), False), (ReleaseRefused("peer 3, round 2: its total epsilon"), True)],
)
def test_a_run_that_ends_early_keeps_the_rounds_before_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_spent: bool
) -> None:
    def diverge(
        scenario: Scenario, learner: object, on_round: Callable[[RoundMetrics], None], *, record: object
    ) -> None:
        on_round(RoundMetrics(round=1, height=1, virtual_s=2.0, taa=0.5, tal=1.0))
        raise error

    monkeypatch.setattr(parallel, "simulate", diverge)
    (run, *_) = load(tmp_path).runs({})
    closed: list[int] = []
    result = run_or_diverge("simulation", run.scenario, closed.append)
    assert closed == [1]
    assert [row["taa"] for row in result["rows"]] == [0.5]
    assert result["diverged"].startswith("peer 3, round 2")
    write_result(tmp_path, "it", result)
    found = read_result(tmp_path / "it.json")
    assert found is not None
    assert (found.diverged, found.spent) == (True, is_spent)
