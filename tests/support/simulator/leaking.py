"""A small federation to be attacked, and chains that it stored."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.leakage.descent import Search
from fedchain.simulator.founding import simulation_keys
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario

SCENARIO = Scenario(peers=2, partition="iid", workers=1, rounds=2, test_every=0, proof_function="sha256d")
QUICK = Search(iterations=2)
PRIVATE: dict[str, float | str] = {"gradient_noise": 1e-4, "gradient_clip": 10.0, "batch_sampling": "poisson"}


@pytest.fixture
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[bytes]]]:
    """Stored chains: parameters after one step, after two, of a private batch, prototypes with and without noise."""
    return _chains(tmp_path_factory.getbasetemp() / "leaking")


@cache  # the files that import a fixture have one each, and no test changes these chains
def _chains(place: Path) -> dict[str, tuple[Path, list[bytes]]]:
    made = {}
    kinds: tuple[tuple[str, str, dict[str, float | str]], ...] = (
        ("one", "fedavg", {"local_steps": 1, "batch_size": 1}),
        ("two", "fedavg", {"local_steps": 2, "batch_size": 1}),
        ("poisson", "fedavg", PRIVATE | {"local_steps": 1, "batch_size": 1}),
        ("prototypes", "dfpl", {"local_steps": 2}),
        ("noised prototypes", "fedph", {"local_epochs": 0, "local_steps": 2, "noise": "local"}),
    )
    for name, method, settings in kinds:
        scenario = replace(SCENARIO, peers=3, method=method, hyperparameters=settings)
        folder = place / name
        simulate(scenario, load_learner(scenario), chain_folder=folder / "chain")
        made[name] = folder, [key.public_key for key in simulation_keys(scenario)]
    return made


def invert(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["attack", "inversion", *map(str, arguments)])


def sets(**values: object) -> tuple[str, ...]:
    return tuple(word for name, value in values.items() for word in ("--set", f"{name}={value}"))
