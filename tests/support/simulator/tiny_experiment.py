"""A tiny experiment, and results as if it had run."""

import json
from pathlib import Path
from typing import Any

from fedchain.simulator.reproduction.experiment import Experiment, load_experiment

TABLE = """
name = "tiny"
title = "A tiny table"
source = "Somebody, Table I"
seeds = [0, 1]

[scenario]
peers = 3
rounds = 1
workers = 1
mining_attempts = 4
proof_function = "sha256d"

[scenario.hyperparameters]
local_steps = 2

[[cells]]
name = "few"
scenario = { classes_avg = 2 }

[[cells]]
name = "more"
scenario = { classes_avg = 4 }

[[variants]]
name = "FedAvg, before"
scenario = { method = "fedavg" }
paper = { few = [50.0] }

[[variants]]
name = "FedAvg, after"
scenario = { method = "fedavg" }
metric = "taa_received"
"""


def load(tmp_path: Path, text: str = TABLE) -> Experiment:
    path = tmp_path / "tiny.toml"
    path.write_text(text)
    return load_experiment(path)


def fake_results(experiment: Experiment, results: Path) -> None:
    """Accuracies that depend on seed and cell: 40, 50 for few; 60, 70 for more, and ten points less after."""
    results.mkdir(parents=True, exist_ok=True)
    for run in experiment.runs({}):
        taa = (0.4 if run.cell == "few" else 0.6) + 0.1 * run.seed
        first, second = {"taa": taa - 0.2, "taa_received": None}, {"taa": taa, "taa_received": taa - 0.1}
        rows: list[dict[str, Any]] = [{"round": 1, **first}, {"round": 2, **second}]
        (results / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
