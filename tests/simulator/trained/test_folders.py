"""Models leave runs and nodes as files that plain PyTorch takes, with the accuracy that was measured, to the bit."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from typer.testing import CliRunner

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import GENESIS_FILE, MODELS_FOLDER, TRAINING_FILE, read_metrics
from fedchain.learning.executors.executor import Question
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.model_file import write_model
from fedchain.node.workers.process import Trainer
from fedchain.simulator.console import run_scenario
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario
from fedchain.simulator.trained.origins import read_file

PEERS, ROUNDS, STRANGER = 3, 2, "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"


class Plain(nn.Module):
    """The user's own module: it knows nothing of this program, and returns logits alone."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc3(self.fc2(self.fc1(images.flatten(1)).relu()).relu())
        return logits

    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        with torch.no_grad():
            right = self.eval()(images).argmax(dim=1) == labels
        return int(right.sum()) / len(labels)


@dataclass(frozen=True)
class Runs:
    """Folders of one federation for each method, and who has its data."""

    folder: Path
    learner: Learner

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def own_test_set(self, member: int) -> tuple[torch.Tensor, torch.Tensor]:
        with self.learner.lend(member, 1) as client:
            return client.test_images, client.test_labels


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """dfpl and fedavg: runs. node-0 and node-1 in net: nodes of the first run's federation, by their trainers alone."""
    folder = tmp_path_factory.mktemp("models")
    for method in ("dfpl", "fedavg"):
        scenario = Scenario(
            method=method, peers=PEERS, rounds=ROUNDS, hyperparameters={"local_steps": 3}, mining_attempts=4, workers=1
        )
        assert not run_scenario(scenario, folder / method, keep_models=method == "dfpl")
    for member in range(2):
        node = folder / "net" / f"node-{member}"
        shutil.copytree(folder / "dfpl" / "chain", node / "chain")
        with Store.open(node / "chain", read_only=True) as store:
            trainer = Trainer(store.genesis, node, member, "")
            for number in range(1, ROUNDS + 1):
                knowledge = Explorer(store).known_before(number, "update")
                trainer.ask(Question(member, "update", number, knowledge))
            (folder / "net" / GENESIS_FILE).write_bytes(store.genesis.encode())
    return Runs(folder, load_learner(scenario))


def ask(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["model", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def export(out: Path, *arguments: object) -> Path:
    result = CliRunner().invoke(app, ["model", "export", *map(str, arguments), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.long
@pytest.mark.parametrize("source", ["dfpl", "net", "net/node-1"])
def test_a_member_s_model_is_taken_by_plain_pytorch_and_is_as_good_as_measured(
    runs: Runs, tmp_path: Path, source: str
) -> None:
    path = export(tmp_path / "model.safetensors", runs / source, "--member", 1)
    model = Plain()
    model.load_state_dict(safetensors.torch.load_file(path), strict=True)
    accuracy = model.accuracy(*runs.own_test_set(1))
    answer = ask("evaluate", runs / source, "--member", 1)
    assert answer["accuracy"] == answer["reported"]["accuracy"] == accuracy
    assert read_file(path).state.keys() == read_file(runs / "dfpl" / "models" / "member-1.safetensors").state.keys()
    again = export(tmp_path / "again.safetensors", runs / source, "--member", 1)
    assert again.read_bytes() == path.read_bytes()


def test_members_accuracies_make_up_what_the_run_reported(runs: Runs) -> None:
    accuracies = [ask("evaluate", runs / "dfpl", "--member", member)["accuracy"] for member in range(PEERS)]
    assert sum(accuracies) / PEERS == list(read_metrics(runs / "dfpl"))[-1]["taa"]


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_the_common_model_of_any_round_is_as_good_as_the_run_reported(runs: Runs, tmp_path: Path, number: int) -> None:
    path = export(tmp_path / "model.safetensors", runs / "fedavg", "--aggregate", "--round", number)
    model = Plain()
    model.load_state_dict(safetensors.torch.load_file(path), strict=True)
    row = list(read_metrics(runs / "fedavg"))[number - 1]
    accuracies = [model.accuracy(*runs.own_test_set(member)) for member in range(PEERS)]
    assert sum(accuracies) / PEERS == row["taa_received"]
    answer = ask("evaluate", runs / "fedavg", "--aggregate", "--round", number)
    assert answer["accuracy"] == row["taa_received"]
    assert answer["test_accuracy"] == row["test_accuracy_received"]
    assert answer["is_same"]
    assert ask("evaluate", runs / "fedavg", "--file", path)["accuracies"] == accuracies


def test_every_model_is_measured_on_every_test_set(runs: Runs) -> None:
    matrix = ask("cross-site", runs / "dfpl")
    assert matrix["sites"] == list(range(PEERS))
    for owner in range(PEERS):
        model = Plain()
        model.load_state_dict(read_file(runs / "dfpl" / "models" / f"member-{owner}.safetensors").state)
        expected = [model.accuracy(*runs.own_test_set(site)) for site in range(PEERS)]
        assert matrix["accuracies"][str(owner)] == expected
    assert ask("cross-site", runs / "fedavg")["accuracies"].keys() == {"aggregate"}
    assert ask("cross-site", runs / "net" / "node-1")["accuracies"] == {"1": matrix["accuracies"]["1"]}
    shown = CliRunner().invoke(app, ["model", "cross-site", str(runs / "net")]).stdout
    own, others = matrix["accuracies"]["0"][0], sum(matrix["accuracies"]["0"][1:]) / (PEERS - 1)
    assert f"{100 * own:.2f} {100 * others:>7.2f}" in shown


def test_another_accuracy_than_the_run_s_is_told(runs: Runs, tmp_path: Path) -> None:
    changed = tmp_path / "run"
    shutil.copytree(runs / "dfpl", changed)
    path = changed / "models" / "member-0.safetensors"
    state = {name: -value for name, value in read_file(path).state.items()}
    path.write_bytes(write_model(state, _header(path)))
    result = CliRunner().invoke(app, ["model", "evaluate", str(changed), "--member", "0"])
    assert result.exit_code == 1
    assert "the run measured 0." in result.stdout


def test_a_file_of_another_program_in_their_place_has_no_history(runs: Runs, tmp_path: Path) -> None:
    changed = tmp_path / "run"
    shutil.copytree(runs / "dfpl", changed)
    path = changed / "models" / "member-0.safetensors"
    path.write_bytes(write_model(read_file(path).state))
    answer = ask("evaluate", changed, "--member", 0)
    assert answer["accuracy"] == ask("evaluate", runs / "dfpl", "--member", 0)["accuracy"]
    assert answer["reported"] == {"accuracy": None, "test_accuracy": None}
    refused = CliRunner().invoke(app, ["model", "evaluate", str(changed), "--member", "0", "--round", "1"])
    assert refused.stderr == "fedchain: member 0's model is kept as it was after its last round, not after 1\n"


def _header(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    found: dict[str, str] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    return found


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
        (("export", "dfpl", "--member", STRANGER, "--out", "z"), "is not one of the 3 members"),
        (("export", "dfpl", "--aggregate", "--out", "z"), "dfpl has no common model"),
        (("export", "dfpl", "--member", "1", "--aggregate", "--out", "z"), "--member and --aggregate name two models"),
        (("export", "dfpl", "--member", "1", "--round", "1", "--out", "z"), "as it was after round 2, not after 1"),
        (("export", "fedavg", "--member", "1", "--out", "z"), "keeps no local models; simulate with --keep-models"),
        (("export", "fedavg", "--aggregate", "--round", "3", "--out", "z"), "no knowledge of round 3"),
        (("export", "net/node-0", "--member", "1", "--out", "z"), "member 1's is on its own machine"),
        (("export", "net", "--member", "2", "--out", "z"), "holds the local model of member 0, 1; member 2's"),
        (("export", "dfpl", "--member", "1", "--out", "dfpl/scenario.toml"), "exists already; nothing is overwritten"),
        (("export", "nowhere", "--aggregate", "--out", "z"), "is not a folder"),
        (("export", ".", "--aggregate", "--out", "z"), "is no folder of a run, a node or a test network"),
        *((("export", "bare", *whose, "--out", "z"), BARE) for whose in ((), ("--member", "1"), ("--aggregate",))),
        (("cross-site", "bare"), BARE),
        (("evaluate", "dfpl", "--file", "dfpl/metrics.jsonl"), "dfpl/metrics.jsonl is no safetensors file"),
        (("evaluate", "dfpl", "--file", "none"), "none cannot be read: No such file or directory"),
        (("evaluate", "dfpl", "--file", "odd"), "fc1.weight of the model: (64, 64) expected, as member 0's model has"),
        (("evaluate", "dfpl", "--file", "odd", "--aggregate"), "leave out --aggregate and --round"),
        (("evaluate", "empty", "--member", "0"), "holds no local model: its member has not trained yet"),
        (("evaluate", "damaged", "--member", "0"), "training.msgpack cannot be read"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(runs.folder)
    Path("odd").write_bytes(write_model({"fc1.weight": torch.zeros(2)}))
    for name in ("empty", "damaged"):
        shutil.copytree(runs / "net" / "node-0" / "chain", Path(name, "chain"), dirs_exist_ok=True)
    Path("damaged", TRAINING_FILE).write_bytes(b"\0\0\0\3abc")
    shutil.copytree("dfpl", "bare", ignore=shutil.ignore_patterns(MODELS_FOLDER), dirs_exist_ok=True)
    result = CliRunner().invoke(app, ["model", *words])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert message in line
    assert not Path("z").exists()


def test_a_solo_member_has_a_model_and_the_federation_none(tmp_path: Path) -> None:
    scenario = Scenario(method="solo", peers=2, rounds=1, hyperparameters={"local_steps": 1}, mining_attempts=4)
    run_scenario(scenario, tmp_path / "solo", keep_models=True)
    assert ask("evaluate", tmp_path / "solo", "--member", 1)["is_same"]
    refused = CliRunner().invoke(app, ["model", "evaluate", str(tmp_path / "solo"), "--aggregate"])
    assert refused.exit_code == 2
    assert refused.stderr == "fedchain: solo has no common model, only those of its members; ask for a member's\n"
