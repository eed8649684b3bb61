"""A comparison is an experiment that nobody wrote: methods by swept settings by seeds, kept, and tidy in a table."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.simulator.reproduction import reproduce as reproduction
from fedchain.simulator.reproduction.experiment import key_of, load_experiment
from fedchain.simulator.scenario import Scenario, scenario_from_dict
from tests.support.cli_compare import Keep, compare
from tests.support.cli_compare import ran as ran
from tests.support.cli_compare import undrawn as undrawn
from tests.support.paths import DOCS

GUIDE = DOCS / "guides" / "experiments.md"


def test_methods_are_set_side_by_side_with_their_deviation(ran: list[Scenario], tmp_path: Path) -> None:
    shown = compare(tmp_path, "--methods", "dfpl,solo", "--seeds", "3", "--peers", "4", "--rounds", "2").stdout
    assert [(run.seed, run.method) for run in ran] == [(s, m) for s in range(3) for m in ("dfpl", "solo")]
    assert {(run.peers, run.rounds, run.workers) for run in ran} == {(4, 2, 1)}
    assert "Mean ± standard deviation of 3 seeds." in shown
    assert "| variant | cell | taa | worst member |\n|---|---|--:|--:|\n" in shown
    assert "\ntaa (%): Test average accuracy of the local models after training" in shown
    assert (
        "| dfpl | digits | 65.00 ± 10.00 | 32.50 ± 5.00 |\n| solo | digits | 60.00 ± 10.00 | 30.00 ± 5.00 |\n" in shown
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results", "table.md", "table.tex", "table.csv", "rounds.csv", "table.png", "table.pdf",
        "curves.png", "curves.pdf", "experiment.toml",
    }  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_a_table_of_runs_that_broke_a_promise_ends_with_exit_code_1(ran: list[Scenario], tmp_path: Path) -> None:
    words = ("--methods", "solo,dfpl", "--seeds", "1", "--rounds", "2")
    compare(tmp_path, *words)
    file = next((tmp_path / "out" / "results").glob("*.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"violations": ["agreement: two heads"]}))
    assert "(1 with broken promises)" in compare(tmp_path, *words, exit_code=1).stdout
    out = tmp_path / "out"
    again = CliRunner().invoke(app, ["reproduce", str(out / "experiment.toml"), "--out", str(out)])
    assert again.exit_code == 1, again.output


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("experiment.toml", "experiment.toml is there, and no comparison wrote it; name another folder with --out"),
        ("scenario.toml", "out is the folder of a simulated run; name another one with --out"),
    ],
)
def test_what_lies_in_the_folder_is_not_written_over(ran: list[Scenario], tmp_path: Path, kept: str, said: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / kept).write_text("of the user")
    result = CliRunner().invoke(app, ["compare", "--methods", "solo", "--out", str(tmp_path / "out")])
    assert (result.exit_code, ran) == (2, [])
    assert result.stderr.endswith(f"{said}\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [kept]
    assert (tmp_path / "out" / kept).read_text() == "of the user"


@pytest.mark.usefixtures("undrawn")
def test_a_setting_goes_before_the_file_and_an_option_before_both(ran: list[Scenario], tmp_path: Path) -> None:
    """A setting was passed over in silence where the file had another value, and so were processes of each run."""
    (tmp_path / "x.toml").write_text("peers = 5\nrounds = 2\nmining_attempts = 7\n[hyperparameters]\nmomentum = 0.5\n")
    words = (str(tmp_path / "x.toml"), "--methods", "solo", "--seeds", "1", "--peers", "3")
    sets = ("--set", "mining_attempts=4", "--set", "momentum=0.25", "--set", "workers=2", "--set", "partition=iid")
    compare(tmp_path, *words, *sets, "--partition", "dirichlet")
    (run,) = ran
    assert (run.peers, run.rounds, run.mining_attempts, run.workers) == (3, 2, 4, 2)
    assert (dict(run.hyperparameters), run.partition) == ({"momentum": 0.25}, "dirichlet")


def test_a_hyper_parameter_among_the_settings_of_a_file_is_told_its_place(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("learning_rate = 0.1\n")
    refused = CliRunner().invoke(app, ["compare", str(tmp_path / "x.toml"), "--methods", "solo"])
    assert refused.exit_code == 2
    assert refused.stderr == (
        "fedchain: learning_rate is a hyper-parameter of solo: it stands below [hyperparameters]\n"
    )


def test_a_full_disk_leaves_each_file_as_it_was(ran: list[Scenario], tmp_path: Path) -> None:
    words, out = ("--methods", "dfpl", "--seeds", "1"), tmp_path / "out"
    compare(tmp_path, *words)
    files = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert len(files) == 9
    for file in files.keys() - {out / "curves.png", out / "curves.pdf"}:  # which take longest, and come as the table's
        (full := file.with_name(f"{file.name}.unfinished")).symlink_to("/dev/full")
        refused = compare(tmp_path, *words, exit_code=2)
        assert refused.stderr == f"fedchain: {file}: No space left on device\n"
        assert file.read_bytes() == files[file]
        assert not full.is_symlink()


def test_a_single_seed_has_no_deviation(ran: list[Scenario], tmp_path: Path) -> None:
    shown = compare(tmp_path, "--methods", "solo", "--seeds", "1", "--rounds", "2").stdout
    assert "One seed." in shown
    assert "| solo | digits | 50.00 | 25.00 |\n" in shown
    assert "±" not in shown
    (_, row, worst) = csv.reader((tmp_path / "out" / "table.csv").read_text().splitlines())
    assert row == ["solo", "digits", "taa", "", "50.0000", "", "", "50.0000"]
    assert worst == ["solo", "digits", "worst member", "", "25.0000", "", "", "25.0000"]


@pytest.mark.usefixtures("undrawn")
def test_what_is_finished_is_kept_and_a_longer_comparison_adds_to_it(ran: list[Scenario], tmp_path: Path) -> None:
    compare(tmp_path, "--methods", "solo", "--seeds", "1", "--rounds", "2")
    shown = compare(tmp_path, "--methods", "solo,dfpl", "--seeds", "2", "--rounds", "2").stdout
    assert "4 runs, 1 of them done already" in shown
    assert len(ran) == 4
    again = CliRunner().invoke(app, ["reproduce", str(tmp_path / "out" / "experiment.toml")])
    assert again.exit_code == 0, again.output
    assert again.stdout.endswith(f"written to {tmp_path / 'out'}\n"), "not where another comparison may be"
    assert "4 runs, 4 of them done already" in again.stdout
    assert again.stdout.splitlines()[2:-1] == shown.splitlines()[2:-1]


@pytest.mark.usefixtures("undrawn")
def test_sweeps_make_a_cell_of_each_combination_and_rounds_are_tidy(ran: list[Scenario], tmp_path: Path) -> None:
    words = ("--methods", "dfpl,solo", "--seeds", "1", "--rounds", "2", "--set", "seed=5", "--set", "solo.momentum=0.5")
    compare(tmp_path, *words, "--sweep", "peers=3,4", "--sweep", "regularizer-weight=0.1,2")
    of_dfpl = [(run.peers, run.hyperparameters["regularizer_weight"]) for run in ran if run.method == "dfpl"]
    assert of_dfpl == [(3, 0.1), (3, 2), (4, 0.1), (4, 2)]
    of_solo = [(run.peers, dict(run.hyperparameters)) for run in ran if run.method == "solo"]
    assert of_solo == [(3, {"momentum": 0.5}), (4, {"momentum": 0.5})], "the same for each weight: it runs once"
    rows = list(csv.DictReader((tmp_path / "out" / "rounds.csv").read_text().splitlines()))
    assert len(rows) == 2 * 4 * 2 * 2, "methods, cells, rounds, measures; what was not measured has no line"
    assert rows[0].items() >= {
        "variant": "dfpl", "cell": "peers=3, regularizer_weight=0.1", "peers": "3", "regularizer_weight": "0.1",
        "seed": "5", "round": "1", "measure": "taa",
    }.items()  # fmt: skip
    assert float(rows[2]["value"]) == pytest.approx(1.05), "a fraction"
    assert {row["regularizer_weight"] for row in rows if row["variant"] == "solo"} == {""}
    results = {path.stem for path in (tmp_path / "out" / "results").glob("*.json")}
    assert {row["run"] for row in rows} == results


@pytest.mark.usefixtures("undrawn")
def test_a_measure_that_a_method_lacks_is_left_open(ran: list[Scenario], tmp_path: Path) -> None:
    words = ("--methods", "solo", "--seeds", "1", "--rounds", "2", "--metric", "taa", "--metric", "taa_received")
    shown = compare(tmp_path, *words).stdout
    assert "| solo | digits | 50.00 | – (0 of 1) | 25.00 |\n" in shown


def test_what_needs_a_missing_data_set_is_skipped_and_the_table_says_so(ran: list[Scenario], tmp_path: Path) -> None:
    words = ("--methods", "solo", "--seeds", "1", "--rounds", "2", "--set", f"data_dir={tmp_path}")
    shown = compare(tmp_path, *words, "--sweep", "dataset=digits,svhn").stdout
    assert [run.dataset for run in ran] == ["digits"]
    assert (
        "| solo | dataset=digits | 50.00 | 25.00 |\n| solo | dataset=svhn | not run: no svhn | not run: no svhn |\n"
        in shown
    )
    assert "Not run, because svhn is not here: train_32x32.mat" in shown
    refused = compare(tmp_path, *words, "--dataset", "svhn", "--out", str(tmp_path / "other"), exit_code=2)
    assert refused.stderr.startswith("fedchain: train_32x32.mat (MD5 ")


@pytest.mark.usefixtures("undrawn")
def test_a_method_that_fails_is_told_below_the_table_and_run_again(
    ran: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--methods", "solo,dfpl", "--seeds", "1", "--rounds", "2")
    complete: Callable[..., None] = vars(reproduction)["run_all"]

    def run_all(scenarios: Sequence[Scenario], jobs: int, keep: Keep, *others: object) -> None:
        def fail(place: int, result: dict[str, Any]) -> str:
            return keep(place, {"failed": "boom (own.py, line 3)"} if scenarios[place].method == "dfpl" else result)

        complete(scenarios, jobs, fail, *others)

    with monkeypatch.context() as patched:
        patched.setattr(reproduction, "run_all", run_all)
        shown = compare(tmp_path, *words, exit_code=2)
    assert "| solo | digits | 50.00 | 25.00 |\n" in shown.stdout
    assert "| dfpl |" not in shown.stdout
    said = "dfpl, digits, seed 0: boom (own.py, line 3)"
    assert shown.stderr == f"fedchain: not in the table: {said}\n"
    assert f"\nNot in the table: {said}.\n" in shown.stdout
    assert "| dfpl | digits | 55.00 | 27.50 |\n" in compare(tmp_path, *words).stdout


@pytest.mark.usefixtures("undrawn")
def test_a_method_that_fails_in_places_is_not_taken_for_one_that_works_everywhere(
    ran: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mean over the cells stood beside the others' as if it had all of them, and that of a cell as of all seeds."""
    complete: Callable[..., None] = vars(reproduction)["run_all"]

    def run_all(scenarios: Sequence[Scenario], jobs: int, keep: Keep, *others: object) -> None:
        def fail(place: int, result: dict[str, Any]) -> str:
            run = scenarios[place]
            fails = run.method == "dfpl" and (run.classes_avg == 3 or run.seed == 1)
            return keep(place, {"failed": "boom (own.py, line 3)"} if fails else result)

        complete(scenarios, jobs, fail, *others)

    monkeypatch.setattr(reproduction, "run_all", run_all)
    words = ("--methods", "solo,dfpl", "--seeds", "2", "--rounds", "2", "--sweep", "classes_avg=2,3")
    shown = compare(tmp_path, *words, exit_code=2)
    assert "| dfpl | classes_avg=2 | 55.00 (1 of 2) | 27.50 (1 of 2) |\n" in shown.stdout
    assert "| dfpl | classes_avg=3 |" not in shown.stdout
    assert "| solo | taa | 5" in shown.stdout
    assert "| dfpl | taa |" not in shown.stdout, "no mean over fewer cells than the others'"
    places = "classes_avg=3, seeds 0, 1", "classes_avg=2, seed 1"
    parts = [f"dfpl, {place}: boom (own.py, line 3)" for place in places]
    assert shown.stderr == f"fedchain: not in the table: {'; '.join(parts)}\n"
    assert all(f"\nNot in the table: {part}.\n" in shown.stdout for part in parts)


def test_of_a_method_that_fails_the_reason_is_all_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_one(*arguments: object, **named: object) -> dict[str, Any]:
        raise OwnCodeFailed("boom")

    monkeypatch.setattr(reproduction, "run_one", run_one)
    assert reproduction.run_or_diverge("simulation", Scenario(), lambda number: None) == {"failed": "boom"}


@pytest.mark.parametrize(
    ("impossible", "reason"),
    [
        ({"partition": "dirichlet", "dirichlet_alpha": 1e-4}, "no dirichlet partition with alpha 0.0001 gave each"),
        ({"method": "fedgkt", "model": "split-mlp-1", "degree": 2}, "fedgkt posts by reference, which needs every p"),
    ],
)
def test_a_run_that_turns_out_to_be_impossible_ends_no_other_one(impossible: dict[str, Any], reason: str) -> None:
    """One cell of a sweep ended the whole comparison, without a table and without its name."""
    scenario = scenario_from_dict({"peers": 10, "rounds": 1, "mining_attempts": 4} | impossible)
    scenario.validate()
    found = reproduction.run_or_diverge("simulation", scenario, lambda number: None)
    assert [*found] == ["failed"]
    assert found["failed"].startswith(reason)


@pytest.mark.usefixtures("undrawn")
def test_what_was_skipped_is_run_once_the_data_are_there(
    ran: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--methods", "solo", "--seeds", "1", "--rounds", "2", "--sweep", "dataset=digits,mnist")
    compare(tmp_path, *words, "--set", f"data_dir={tmp_path}")
    monkeypatch.setattr(reproduction, "load_dataset", lambda name, data_dir: None)
    compare(tmp_path, *words, "--set", f"data_dir={tmp_path}")
    assert [run.dataset for run in ran] == ["digits", "mnist"]


def test_the_file_that_the_guide_explains_is_an_experiment(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(name = .*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "few-classes.toml"
    path.write_text(block, encoding="utf-8")
    experiment = load_experiment(path)
    runs = {(run.cell, run.variant): run.scenario for run in experiment.runs({})}
    assert len(runs) == 4
    settings = {cell: dict(runs[cell, "DFPL"].hyperparameters) for cell in ("two classes", "four classes")}
    assert settings["two classes"] == {"learning_rate": 0.1, "regularizer_weight": 1.0}
    assert settings["four classes"] == {"learning_rate": 0.1, "regularizer_weight": 0.5, "batch_size": 16}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "methods is empty, name at least one: --methods dfpl,fedavg,solo"),
        (("--methods", "dfpl,dfpl"), "methods has a name twice"),
        (("--methods", "dfplx"), "unknown method 'dfplx'; did you mean 'dfpl'?"),
        (("--methods", "dfpl", "--sweep", "peers"), "--sweep 'peers' is not of the form NAME=VALUE,VALUE"),
        (("--methods", "dfpl", "--sweep", "peers=3,,4"), "is not of the form NAME=VALUE,VALUE"),
        (("--methods", "dfpl", "--sweep", "peers=3,3"), "has a value twice"),
        (("--methods", "dfpl", "--sweep", "peeers=3"), "did you mean 'peers'?"),
        (("--methods", "dfpl", "--sweep", "peers=three"), "peers is 'three', it must be of type int"),
        (("--methods", "dfpl", "--sweep", "peers=3", "--sweep", "peers=4"), "sweep has a name twice"),
        (("--methods", "dfpl", "--set", "shots=3", "--set", "shots=3"), "--set shots is given twice"),
        (
            ("--methods", "dfpl", "--set", "test_every=1", "--sweep", "test-every=1,2"),
            "--set test_every=1 and --sweep test-every=1,2 name one setting; give one of them",
        ),
        (
            ("--methods", "dfpl", "--set", "dfpl.momentum=0", "--sweep", "momentum=0,0.9"),
            "--set dfpl.momentum=0 and --sweep momentum=0,0.9 name one setting; give one of them",
        ),
        (("--methods", "dfpl", "--peers", "4", "--sweep", "peers=3,4"), "--peers and --sweep peers=3,4 name one"),
        (("--methods", "dfpl", "--set", "mu=3"), "--set mu: neither a setting nor a hyper-parameter of dfpl"),
        (("--methods", "dfpl", "--set", "peers=3"), "--set peers: it has an option of its own"),
        (("--methods", "dfpl", "--set", "shot=3"), "of dfpl; did you mean 'shots'?"),
        (("--methods", "dfpl", "--set", "dfpl.shots=3"), "--set dfpl.shots: no hyper-parameter of dfpl"),
        (("--methods", "dfpl", "--set", "solo.momentum=0"), "solo is none of the methods dfpl"),
        (("--methods", "dfpl", "--metric", "taa_recieved"), "metric is 'taa_recieved'; did you mean 'taa_received'?"),
        (("--methods", "dfpl", "--metric", "psnr_l2"), "metric is 'psnr_l2'"),
        (
            ("--methods", "dfpl,fedph", "--set", "local_steps=5"),
            "fedchain: fedph: local_steps is 5, which has no effect",
        ),
        (
            ("--methods", "dfpl,solo", "--set", "shots=9", "--sweep", "partition=n-way,iid"),
            "fedchain: dfpl, partition=iid: shots is 9, which has no effect",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    refused = compare(tmp_path, *words, exit_code=2)
    (line,) = refused.stderr.strip().splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("line", "name"), [("hyperparameters = 3", "hyperparameters"), ("seed = 'one'", "seed")])
def test_a_mistake_in_the_scenario_s_file_is_one_line(tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "wrong.toml").write_text(line)
    refused = compare(tmp_path, str(tmp_path / "wrong.toml"), "--methods", "dfpl", exit_code=2)
    assert re.fullmatch(rf"fedchain: scenario {name} is .*, it must be .*\n", refused.stderr)


@pytest.mark.usefixtures("undrawn")
def test_missing_files_are_fetched_into_the_folder_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Scenario]
) -> None:
    asked = list[tuple[str, str]]()
    monkeypatch.setattr("fedchain.cli.compare.download_files", lambda name, folder: asked.append((name, folder)))
    compare(tmp_path, "--methods", "fedavg", "--set", "data_dir=there", "--download")
    assert asked == [("digits", "there")]


@pytest.mark.usefixtures("undrawn")
def test_a_first_run_that_is_impossible_ends_no_other_one(ran: list[Scenario], tmp_path: Path) -> None:
    """Where it came second it was told below the table; where it came first there was no table."""
    words = ("--methods", "solo", "--seeds", "1", "--peers", "10", "--rounds", "2", "--partition", "dirichlet")
    refused = compare(tmp_path, *words, "--set", "dirichlet_alpha=0.0001", exit_code=2)
    assert refused.stderr.startswith("fedchain: no dirichlet partition with alpha 0.0001 gave each")
    assert not ran, "bad data are told once"
    compare(tmp_path, *words, "--sweep", "dirichlet_alpha=0.0001,1")
    assert [run.dirichlet_alpha for run in ran] == [0.0001, 1]
    (tmp_path / "out" / "results" / f"{key_of(ran[0])}.json").unlink()
    compare(tmp_path, *words, "--sweep", "dirichlet_alpha=0.0001,1")
    assert [run.dirichlet_alpha for run in ran] == [0.0001, 1, 0.0001], "the others' table is shown again"


@pytest.mark.usefixtures("undrawn", "ran")
def test_a_metric_that_is_given_twice_is_told_once(tmp_path: Path) -> None:
    """The table had it once, and the note and the curves twice."""
    words = ("--methods", "solo", "--seeds", "1", "--rounds", "2", "--metric", "tal", "--metric", "taa")
    shown = compare(tmp_path, *words, "--metric", "taa").stdout
    assert shown.count("taa (%): ") == 1
    assert load_experiment(tmp_path / "out" / "experiment.toml").curves == ("tal", "taa")


READS_A_FILE = """
import pathlib, torch
def load(member):
    shift = int(pathlib.Path({path!r}).read_text())
    inputs, labels = (torch.arange(64.0).reshape(16, 4) + shift) * 1e17, torch.arange(16) % 2
    return torch.nn.Linear(4, 2), (inputs, labels), (inputs, labels)
"""


@pytest.mark.usefixtures("undrawn")
def test_results_of_other_data_than_a_task_gives_now_are_refused(tmp_path: Path) -> None:
    """One table would mix them; runs that end early because training diverges are of some data, too."""
    data, task = tmp_path / "shift.txt", tmp_path / "own.py"
    data.write_text("0")
    task.write_text(READS_A_FILE.format(path=str(data)))
    words = ["--set", f"task={task}:load", "--methods", "solo,fedavg", "--seeds", "1", "--rounds", "1", "--peers", "2"]
    words += ["--set", "proof_function=sha256d", "--set", "fedavg.learning_rate=1000"]
    assert "diverged" in compare(tmp_path, *words).stdout
    kept = {path: path.read_text() for path in (tmp_path / "out" / "results").iterdir()}
    assert len({json.loads(text)["data"] for text in kept.values()}) == 1
    assert "2 runs, 2 of them done already" in compare(tmp_path, *words).stdout
    data.write_text("1")
    said = compare(tmp_path, *words, exit_code=2).stderr
    assert f"results holds results of other data than {task}:load gives now: name another folder with --out" in said
    assert {path: path.read_text() for path in (tmp_path / "out" / "results").iterdir()} == kept
    data.unlink()
    assert "2 runs, 2 of them done already" in compare(tmp_path, *words).stdout, "what cannot be read is no other data"


DRAWS = """
import torch
class Net(torch.nn.Linear):
    def forward(self, inputs):
        return inputs, super().forward(inputs)
def load(member):
    inputs, labels = torch.randn(16, 4), torch.arange(16) % 2
    return Net(4, 2), (inputs, labels), (inputs, labels)
"""


@pytest.mark.usefixtures("undrawn")
def test_data_that_a_task_draws_are_the_same_again_for_each_method(tmp_path: Path) -> None:
    """Members that begin with one model draw with one seed, and those of another method each with its own."""
    task = tmp_path / "own.py"
    task.write_text(DRAWS)
    words = ["--set", f"task={task}:load", "--methods", "fedavg,fedproto", "--seeds", "1", "--rounds", "1"]
    words += ["--peers", "2", "--set", "proof_function=sha256d"]
    compare(tmp_path, *words)
    kept = [json.loads(path.read_text())["data"] for path in (tmp_path / "out" / "results").iterdir()]
    assert len({*kept}) == 2
    assert "2 runs, 2 of them done already" in compare(tmp_path, *words).stdout
