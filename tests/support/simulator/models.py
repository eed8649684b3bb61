"""Runs and nodes whose models were kept, and the command that reads them."""

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import GENESIS_FILE
from fedchain.learning.executors.executor import Question
from fedchain.learning.worker.learner import Learner
from fedchain.node.workers.process import Trainer
from fedchain.simulator.choices import RunOptions
from fedchain.simulator.console import run_scenario
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario

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


@pytest.fixture
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """dfpl and fedavg: runs. node-0 and node-1 in net: nodes of the first run's federation, by their trainers alone."""
    return _runs(tmp_path_factory.getbasetemp() / "models")


@cache  # the files that import a fixture have one each, and no test changes these folders
def _runs(folder: Path) -> Runs:
    for method in ("dfpl", "fedavg"):
        scenario = Scenario(
            method=method, peers=PEERS, rounds=ROUNDS, hyperparameters={"local_steps": 3}, mining_attempts=4, workers=1
        )
        assert not run_scenario(scenario, folder / method, RunOptions(keep_models=method == "dfpl"))
    for member in range(2):
        node = folder / "net" / f"node-{member}"
        shutil.copytree(folder / "dfpl" / "chain", node / "chain")
        with Store.open(node / "chain", read_only=True) as store:
            trainer = Trainer(store.genesis, node, member)
            for number in range(1, ROUNDS + 1):
                knowledge = Explorer(store).kept.known_before(number, "update")
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
