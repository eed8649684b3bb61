"""`fedchain model`: what cannot be had is one line."""

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import CHAIN_FOLDER, MODELS_FOLDER, RESULT_FILE, TRAINING_FILE
from fedchain.learning.executors.executor import Question
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.node.workers.process import Trainer
from fedchain.simulator.choices import RunOptions
from fedchain.simulator.console import run_scenario
from fedchain.simulator.scenario import Scenario
from fedchain.simulator.trained.origins import read_file
from tests.support.simulator.models import STRANGER, Runs, ask, export
from tests.support.simulator.models import runs as runs

BARE = (
    "fedchain: bare holds no model: members of dfpl share none, and theirs were not kept; "
    "simulate again with --keep-models"
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "dfpl", "--out", "z"), "whose model? --member 0 to 2, or --aggregate"),
        (("export", "dfpl", "--member", "3", "--out", "z"), "member 3: the members of this federation are 0 to 2"),
        (("export", "dfpl", "--member", "1" * 5000, "--out", "z"), "1: the members of this federation are 0 to 2"),
        (("export", "dfpl", "--member", STRANGER, "--out", "z"), "is not one of the 3 members"),
        (("export", "dfpl", "--aggregate", "--out", "z"), "dfpl has no common model"),
        (("export", "dfpl", "--member", "1", "--aggregate", "--out", "z"), "--member and --aggregate name two models"),
        (("export", "dfpl", "--member", "1", "--round", "1", "--out", "z"), "as it was after round 2, not after 1"),
        (("export", "fedavg", "--member", "1", "--out", "z"), "keeps no local models; simulate with --keep-models"),
        (("export", "fedavg", "--aggregate", "--round", "3", "--out", "z"), "no knowledge of round 3"),
        (("export", "net/node-0", "--member", "1", "--out", "z"), "member 1's is on its own machine"),
        (("export", "net", "--member", "2", "--out", "z"), "holds the local model of member 0, 1; member 2's"),
        (("export", "dfpl", "--member", "1", "--out", "dfpl/scenario.toml"), "exists already; nothing is overwritten"),
        (("export", "fedavg", "--aggregate", "--out", "."), ". exists already; nothing is overwritten"),
        (("export", "nowhere", "--aggregate", "--out", "z"), "is not a folder"),
        (("export", ".", "--aggregate", "--out", "z"), "is no folder of a run, a node or a test network"),
        *((("export", "bare", *whose, "--out", "z"), BARE) for whose in ((), ("--member", "1"), ("--aggregate",))),
        (("cross-site", "bare"), BARE),
        (("evaluate", "dfpl", "--file", "dfpl/metrics.jsonl"), "dfpl/metrics.jsonl is no safetensors file"),
        (("evaluate", "dfpl", "--file", "none"), "none cannot be read: No such file or directory"),
        (("evaluate", "dfpl", "--file", "odd"), "member 0's model: fc1.weight: (64, 64) expected, as the model has it"),
        (("evaluate", "dfpl", "--file", "odd", "--aggregate"), "leave out --aggregate and --round"),
        (("evaluate", "dfpl", "--file", "odd", "--round", "1"), "leave out --aggregate and --round"),
        (("evaluate", "net/node-1", "--round", "1"), "as it was after round 2, not after 1"),
        (("evaluate", "empty", "--member", "0"), "holds no local model: its member has not trained yet"),
        (("evaluate", "damaged", "--member", "0"), "training.msgpack is damaged"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(runs.folder)
    Path("odd").write_bytes(b"".join(state_pieces({"fc1.weight": torch.zeros(2)})))
    for name in ("empty", "damaged"):
        shutil.copytree(runs / "net" / "node-0" / "chain", Path(name, "chain"), dirs_exist_ok=True)
    Path("damaged", TRAINING_FILE).write_bytes(b"\0\0\0\3abc")
    shutil.copytree("dfpl", "bare", ignore=shutil.ignore_patterns(MODELS_FOLDER), dirs_exist_ok=True)
    result = CliRunner().invoke(app, ["model", *words])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert message in line
    assert not Path("z").exists()


def test_a_node_s_only_model_needs_no_name(runs: Runs) -> None:
    answer = ask("evaluate", runs / "net" / "node-1")
    assert answer["model"].startswith("member 1's model after round 2: dfpl on digits, model digits-mlp, 6,570 numbers")


def test_a_folder_that_is_not_there_is_made_for_a_model(runs: Runs, tmp_path: Path) -> None:
    path = export(tmp_path / "some" / "folder" / "model.safetensors", runs / "fedavg", "--aggregate")
    assert read_file(path).state


def test_a_file_is_measured_on_the_data_of_a_member_or_of_all(runs: Runs, tmp_path: Path) -> None:
    path = export(tmp_path / "model.safetensors", runs / "fedavg", "--aggregate")
    whole = ask("evaluate", runs / "fedavg", "--file", path)
    one = ask("evaluate", runs / "fedavg", "--file", path, "--member", 1)
    assert (whole["sites"], one["sites"]) == ([0, 1, 2], [1])
    assert one["accuracies"] == whole["accuracies"][1:2]


def test_a_file_is_measured_as_a_model_of_the_member_whose_data_are_asked_for(tmp_path: Path) -> None:
    """Members may have models of several kinds."""
    scenario = Scenario(
        method="solo", model="digits-mlp+logistic", peers=2, rounds=1, hyperparameters={"local_steps": 1}, workers=1
    )
    run_scenario(scenario, tmp_path / "run", RunOptions(keep_models=True))
    path = tmp_path / "run" / MODELS_FOLDER / "member-1.safetensors"
    found = ask("evaluate", tmp_path / "run", "--file", path, "--member", 1)
    assert found["accuracy"] == ask("evaluate", tmp_path / "run", "--member", 1)["accuracy"]


def test_what_was_measured_is_said_with_where(runs: Runs) -> None:
    said = CliRunner().invoke(app, ["model", "evaluate", str(runs / "dfpl"), "--member", "1"]).stdout.splitlines()
    own, whole = (ask("evaluate", runs / "dfpl", "--member", 1)[name] for name in ("accuracy", "test_accuracy"))
    assert said[1:] == [
        f"accuracy  {own!r} ({100 * own:.2f} %) on member 1's test set; the run measured the same",
        f"accuracy  {whole!r} ({100 * whole:.2f} %) on the whole test set; the run measured the same",
    ]
    assert ask("evaluate", runs / "dfpl", "--member", 0)["model"].startswith("member 0's model after round 2: ")
    common = CliRunner().invoke(app, ["model", "evaluate", str(runs / "fedavg"), "--aggregate"]).stdout.splitlines()
    assert common[0].startswith("the aggregate after round 2: ")
    mean = ask("evaluate", runs / "fedavg", "--aggregate")["accuracy"]
    assert common[1].startswith(f"accuracy  {mean!r} ({100 * mean:.2f} %) on the members' test sets (mean over 3); ")


def test_a_node_whose_round_is_not_closed_yet_has_its_own_model_alone(runs: Runs, tmp_path: Path) -> None:
    with Store.open(runs / "fedavg" / CHAIN_FOLDER, read_only=True) as store:
        genesis = store.genesis
    Store.create(tmp_path / "node" / CHAIN_FOLDER, genesis).close()
    Trainer(genesis, tmp_path / "node", 2).ask(Question(2, "update", 1, b""))
    assert ask("cross-site", tmp_path / "node")["accuracies"].keys() == {"2"}
    refused = CliRunner().invoke(app, ["model", "evaluate", str(tmp_path / "node"), "--aggregate"])
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_solo_member_has_a_model_and_the_federation_none(tmp_path: Path) -> None:
    scenario = Scenario(method="solo", peers=2, rounds=1, hyperparameters={"local_steps": 1}, mining_attempts=4)
    run_scenario(scenario, tmp_path / "solo", RunOptions(keep_models=True))
    assert ask("evaluate", tmp_path / "solo", "--member", 1)["is_same"]
    refused = CliRunner().invoke(app, ["model", "evaluate", str(tmp_path / "solo"), "--aggregate"])
    assert refused.exit_code == 2
    assert refused.stderr == "fedchain: solo has no common model, only those of its members; ask for a member's\n"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("solo", "holds no model: members of solo share none, and theirs are kept when it is finished; "),
        ("fedavg", "has local models when finished; "),
    ],
)
def test_a_run_that_keeps_models_at_its_end_is_to_go_on(tmp_path: Path, method: str, message: str) -> None:
    """It was told to be simulated with --keep-models, as it had been."""
    scenario = Scenario(method=method, peers=2, rounds=1, hyperparameters={"local_steps": 1}, mining_attempts=4)
    run_scenario(scenario, tmp_path / "run", RunOptions(keep_models=True))
    for path in (*(tmp_path / "run" / MODELS_FOLDER).iterdir(), tmp_path / "run" / RESULT_FILE):
        path.unlink()  # as where it was interrupted
    refused = CliRunner().invoke(app, ["model", "export", str(tmp_path / "run"), "--member", "0", "--out", "z"])
    assert refused.exit_code == 2
    assert f"{message}fedchain simulate --resume --out {tmp_path / 'run'} goes on" in refused.stderr
