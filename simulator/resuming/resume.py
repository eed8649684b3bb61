"""Finding an interrupted run: its folder, its scenario, and whether it can go on."""

import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

import fedchain
from fedchain.crypto.hashing import sha256
from fedchain.files.json_text import from_json
from fedchain.files.layout import (
    METRICS_FILE,
    RECORD_FOLDER,
    RESULT_FILE,
    RUNS_FOLDER,
    SCENARIO_FILE,
    read_found,
)
from fedchain.files.tables import read_toml
from fedchain.learning.task.choice import TaskFunction
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.own_code import hashes_of_own, hashes_of_result, hashes_of_typed
from fedchain.simulator.report import RunFolder, holds_finished, require_unfinished
from fedchain.simulator.resuming.record import Record
from fedchain.simulator.scenario import Scenario, ScenarioError, load_scenario, scenario_from_dict

CHANGES_NOTHING = ("data_dir", "workers", "train_ahead")
"""Settings that may differ when a run goes on. The workers may not where they decide who is in a cohort."""


def resumed_run(scenario_file: Path | None, overrides: Mapping[str, Any], out: Path | None) -> tuple[Scenario, Path]:
    """Find the interrupted run to resume, as :func:`interrupted_run`. Raises ScenarioError if it cannot go on."""
    scenario, folder = interrupted_run(scenario_file, overrides, out)
    _require_record(folder)
    return scenario, folder


def interrupted_run(
    scenario_file: Path | None, overrides: Mapping[str, Any], out: Path | None
) -> tuple[Scenario, Path]:
    """Find the interrupted run that a command means.

    Args:
        scenario_file: scenario file of the run; None: the one in its folder.
        overrides: settings that override the file's.
        out: the run's folder; None: the newest of the scenario's name.

    Returns:
        The scenario, and the run's folder.

    Raises:
        ScenarioError: there is no such run, or it is finished, or it is another scenario's.
        ConfigurationError: the learning task is impossible.
    """
    asked = None if scenario_file is None else load_scenario(scenario_file, overrides)
    folder = out or _newest(asked.name if asked else str(overrides.get("name", Scenario().name)))
    _require_unfinished(folder)
    asked = asked or load_scenario(folder / SCENARIO_FILE, overrides)
    require_same(folder, asked)
    return asked, folder


def require_interrupted(folder: Path, scenario: Scenario) -> None:
    """Raise ScenarioError unless a folder holds a run of this scenario that was interrupted and can go on."""
    _require_unfinished(folder)
    require_same(folder, scenario)
    _require_record(folder)


def require_new(folder: Path) -> None:
    """Raise ScenarioError if a folder exists, since runs are never mixed, or cannot be made."""
    try:
        if folder.exists():
            is_run = (folder / SCENARIO_FILE).is_file() and (folder / RECORD_FOLDER).is_dir()
            goes_on = is_run and not holds_finished(folder)
            way = " with a run that was interrupted; go on with --resume, or" if goes_on else ";"
            raise ScenarioError(f"{folder} exists already{way} name another folder with --out")
        with tempfile.TemporaryDirectory(dir=next(place for place in folder.absolute().parents if place.exists())):
            return
    except OSError as error:
        raise ScenarioError(f"{folder} cannot be made: {error.strerror}") from None


def _require_unfinished(folder: Path) -> None:
    if not (folder / SCENARIO_FILE).is_file():
        raise ScenarioError(f"{folder} holds no run that was interrupted")
    require_unfinished(folder)


def read_finished(
    folder: Path, task: TaskFunction | None = None
) -> tuple[Scenario, list[RoundMetrics], dict[str, Any]]:
    """Read a finished run: its scenario, its rounds, and its result. Raises ScenarioError.

    ``task`` is the function for own data, if the scenario names none.
    """
    if not holds_finished(folder):
        raise ScenarioError(f"{folder} holds no finished run")
    scenario = load_scenario(folder / SCENARIO_FILE, {}, task)
    result = _read_result(folder)
    try:
        rows = RunFolder(folder, scenario, is_resumed=True).read_rows()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _unreadable(folder, error) from None
    if missing := {"height", "tip", "knowledge_root", "trace_hash", "violations"} - result.keys():
        raise ScenarioError(f"{folder / RESULT_FILE} has no {min(missing)}")
    if (ended := rows[-1].height if rows else 0) != result["height"]:
        raise ScenarioError(f"{folder / METRICS_FILE} ends with height {ended}, and the run with {result['height']}")
    return scenario, rows, result


def require_same(folder: Path, asked: Scenario) -> None:
    """Raise ScenarioError unless a folder's run is of this scenario, except for settings without effect."""
    begun = scenario_from_dict(read_toml(folder / SCENARIO_FILE, ScenarioError))
    values, before = asked.to_dict(), begun.to_dict()
    for name in before | values:
        if name not in _without_effect(begun) and values.get(name) != before.get(name):
            found = f"{folder} holds another scenario: its {name} is {getattr(begun, name)!r}"
            raise ScenarioError(f"{found}, not {getattr(asked, name)!r}")


def require_same_code(folder: Path, asked: Scenario, task: TaskFunction | None) -> None:
    """Raise ScenarioError if a folder's finished run is one of other code or files of the user's own."""
    before = _read_result(folder).get("own_code", {})
    for name, found in hashes_of_result(asked, task).items():
        if before.get(name, found) != found:
            raise ScenarioError(
                f"{folder} holds a finished run of another {name}, which has changed since; name another folder with "
                "out, or read it with open_run"
            )


def _read_result(folder: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = from_json(read_found(folder / RESULT_FILE))
        return {**result}
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(folder, error) from None


def _unreadable(folder: Path, error: Exception) -> ScenarioError:
    return ScenarioError(f"the run in {folder} cannot be read: {type(error).__name__}: {error}")


def _without_effect(scenario: Scenario) -> set[str]:
    """Settings that may differ when this run goes on."""
    return {*CHANGES_NOTHING} - ({"workers"} if scenario.vectorize_clients else set())


def _require_record(folder: Path) -> None:
    if not (folder / RECORD_FOLDER).is_dir():
        raise ScenarioError(f"{folder} has no record of what was computed (--no-record), so it cannot go on")


def continued(folder: Path, scenario: Scenario, data: str) -> Record:
    """The record of a run that goes on if it was interrupted; ``data`` as of `identity`. Raises RecordError."""
    return (Record.open if folder.exists() else Record.create)(folder, identity(scenario, data=data))


def identity(scenario: Scenario, task: TaskFunction | None = None, data: str = "") -> dict[str, str]:
    """Dependencies of a run: versions of the programs that compute, its scenario, and the user's own files and data.

    The scenario is among them since its file in the run's folder may be changed before the run goes on.

    Args:
        scenario: the scenario, which may name a task and a method.
        task: the function itself, if the scenario cannot name it.
        data: the SHA-256 of its data, in hexadecimal, if they are the user's own: :meth:`Learner.hash_own`.
    """
    known = {"fedchain": fedchain.__version__, "torch": version("torch"), "numpy": version("numpy")}
    values = {name: value for name, value in scenario.to_dict().items() if name not in _without_effect(scenario)}
    own = {"scenario": sha256(tomli_w.dumps(values).encode()).hex()} | hashes_of_own(scenario)
    own |= hashes_of_typed(scenario, task) | ({"data": data} if data else {})
    return known | {name: f"of SHA-256 {found[:16]}" for name, found in own.items()}


def _newest(name: str) -> Path:
    """The last of ``runs/NAME``, ``runs/NAME-2``, … that exists."""
    path, count = RUNS_FOLDER / name, 1
    while (following := RUNS_FOLDER / f"{name}-{count + 1}").exists():
        path, count = following, count + 1
    return path
