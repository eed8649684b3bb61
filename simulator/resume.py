"""Which interrupted run goes on: its folder, its scenario, and whether it can."""

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fedchain
from fedchain.crypto.hashing import sha256
from fedchain.learning.registry import is_file_path
from fedchain.node.command import RUNS_FOLDER
from fedchain.node.layout import RECORD_FOLDER, RESULT_FILE, SCENARIO_FILE
from fedchain.simulator.scenario import Scenario, ScenarioError, load_scenario

CHANGES_NOTHING = ("data_dir", "workers")
"""Settings that may be others when a run goes on."""


def resumed_run(scenario_file: Path | None, overrides: Mapping[str, Any], out: Path | None) -> tuple[Scenario, Path]:
    """Find the interrupted run that is to go on, as :func:`interrupted_run`. Raises ScenarioError if it cannot."""
    scenario, folder = interrupted_run(scenario_file, overrides, out)
    if not (folder / RECORD_FOLDER).is_dir():
        raise ScenarioError(f"{folder} has no record of what was computed (--no-record), so it cannot go on")
    return scenario, folder


def interrupted_run(
    scenario_file: Path | None, overrides: Mapping[str, Any], out: Path | None
) -> tuple[Scenario, Path]:
    """Find the interrupted run that a command means.

    Args:
        scenario_file: of the run; None: the one in its folder.
        overrides: settings over the file's.
        out: the run's folder; None: the newest of the scenario's name.

    Returns:
        What is run, and the run's folder.

    Raises:
        ScenarioError: there is no such run, or it is finished, or it is another scenario's.
        ConfigurationError: the learning task is impossible.
    """
    asked = None if scenario_file is None else load_scenario(scenario_file, overrides)
    folder = out or _newest(asked.name if asked else str(overrides.get("name", Scenario().name)))
    if not (folder / SCENARIO_FILE).is_file():
        raise ScenarioError(f"{folder} holds no run that was interrupted")
    if (folder / RESULT_FILE).exists():
        raise ScenarioError(f"{folder} holds a finished run; to run it again, name another folder with --out")
    begun = load_scenario(folder / SCENARIO_FILE, {})
    asked = asked or load_scenario(folder / SCENARIO_FILE, overrides)
    free = () if begun.vectorize_clients else CHANGES_NOTHING
    values = asked.to_dict()
    for name, value in begun.to_dict().items():
        if name not in free and values[name] != value:
            raise ScenarioError(f"{folder} holds another scenario: its {name} is {value!r}, not {values[name]!r}")
    return asked, folder


def identity(scenario: Scenario) -> dict[str, str]:
    """What a run depends on beside its scenario: the programs that compute, and the user's own code that it names."""
    known = {"fedchain": fedchain.__version__, "torch": version("torch"), "numpy": version("numpy")}
    own = {name: code for name in (scenario.task, scenario.method) if (code := _source(name)) is not None}
    return known | {name: f"of SHA-256 {sha256(code).hex()[:16]}" for name, code in own.items()}


def _source(name: str) -> bytes | None:
    """The code behind 'FILE.py:name' or 'module:name'; None for what is built in."""
    module_name, _, _ = name.rpartition(":")
    if not module_name:
        return None
    if is_file_path(name):
        return Path(module_name).read_bytes()
    found = find_spec(module_name)
    return Path(found.origin).read_bytes() if found is not None and found.origin is not None else None


def _newest(name: str) -> Path:
    """The last of ``runs/NAME``, ``runs/NAME-2``, … that is there."""
    path, count = RUNS_FOLDER / name, 1
    while (following := RUNS_FOLDER / f"{name}-{count + 1}").exists():
        path, count = following, count + 1
    return path
