"""Models are measured on every test set."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.files.layout import read_metrics
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.simulator.trained.folders import TrainedModel
from fedchain.simulator.trained.measure import measure_cross_site
from fedchain.simulator.trained.origins import read_file
from tests.support.simulator.models import PEERS, Plain, Runs, ask
from tests.support.simulator.models import runs as runs


def test_members_accuracies_make_up_what_the_run_reported(runs: Runs) -> None:
    accuracies = [ask("evaluate", runs / "dfpl", "--member", member)["accuracy"] for member in range(PEERS)]
    assert sum(accuracies) / PEERS == list(read_metrics(runs / "dfpl"))[-1]["taa"]


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
    assert "dfpl on digits: accuracy in %, models down, test sets across" in " ".join(shown.split())


def test_a_model_is_measured_as_one_of_its_owner_s() -> None:
    """Members may have models of several kinds; the common model is of the first member's."""
    asked = []

    def noting(_: object, owner: int, sites: Sequence[int]) -> list[Evaluation]:
        asked.append((owner, tuple(sites)))
        return [Evaluation(local_accuracy=0.5, local_loss=1.0) for _ in sites]

    models = [SimpleNamespace(state={}, origin=SimpleNamespace(member=member)) for member in (2, None, 1)]
    learner: Any = SimpleNamespace(measure=noting)
    found = measure_cross_site(learner, cast(list[TrainedModel], models), [0, 3])
    assert found.owners == (2, None, 1)
    assert asked == [(2, (0, 3)), (0, (0, 3)), (1, (0, 3))]


def test_another_accuracy_than_the_run_s_is_told(runs: Runs, tmp_path: Path) -> None:
    changed = tmp_path / "run"
    shutil.copytree(runs / "dfpl", changed)
    path = changed / "models" / "member-0.safetensors"
    state = {name: -value for name, value in read_file(path).state.items()}
    path.write_bytes(b"".join(state_pieces(state, _header(path))))
    result = CliRunner().invoke(app, ["model", "evaluate", str(changed), "--member", "0"])
    assert result.exit_code == 1
    assert "the run measured 0." in result.stdout


def _header(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    found: dict[str, str] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    return found
