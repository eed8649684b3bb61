"""Trackers: rounds of a simulation as they close, written where TensorBoard or MLflow shows them.

A tracker is a callback: give its ``on_round`` to whatever reports rounds, and ``close`` it at the end. Their libraries
come with the extras ``fedchain[tensorboard]`` and ``fedchain[mlflow]``, and are imported when a tracker is opened.
"""

import importlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from fedchain.files.tables import nearest
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.scenario import Scenario, ScenarioError

log = logging.getLogger("fedchain.simulator")

MLFLOW_VARIABLE = "MLFLOW_TRACKING_URI"
"""MLflow's own environment variable: its server, where `--track mlflow` names none."""

PARAMETER_SIZE_MAX = 500
"""Characters of a setting's value, at most: older servers refuse longer ones."""

_MEASURES = tuple(item.name for item in fields(RoundMetrics) if item.name != "round")


class Tracker(ABC):
    """Passes on every measure of every round once it is known, and again if it changes.

    A row grows after its round has closed: how good the aggregate is, peers measure in the round after.
    """

    def __init__(self) -> None:
        self._rows: list[RoundMetrics] = []
        self._logged: dict[tuple[int, str], float] = {}

    def on_round(self, row: RoundMetrics) -> None:
        """A round was closed."""
        self._rows.append(row)
        self._pass_on(self._rows[-2:])

    def close(self) -> None:
        """Pass on what is still missing, and end."""
        try:
            self._pass_on(self._rows)
        finally:
            self._end()

    @abstractmethod
    def _log(self, round_number: int, values: Mapping[str, float]) -> None:
        """Note measures of a round."""

    @abstractmethod
    def _end(self) -> None:
        """Write what is not written yet."""

    def _pass_on(self, rows: Sequence[RoundMetrics]) -> None:
        for row in rows:
            values = {name: float(value) for name in _MEASURES if (value := getattr(row, name)) is not None}
            news = {name: value for name, value in values.items() if self._logged.get((row.round, name)) != value}
            if news:
                self._log(row.round, news)
                self._logged |= {(row.round, name): value for name, value in news.items()}


class TensorBoardTracker(Tracker):
    """Writes an event file, a step for each round.

    Args:
        folder: for ``tensorboard --logdir``.
        scenario: what is run; its settings become a text.
        is_resumed: whether what is in the folder is of the same run, which tells all of its rounds again: it is hidden.

    Raises:
        ScenarioError: tensorboardX is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: Path, scenario: Scenario, *, is_resumed: bool = False) -> None:
        super().__init__()
        library = _library("tensorboardX", "tensorboard")
        try:
            self._writer: Any = library.SummaryWriter(str(folder), purge_step=0 if is_resumed else None)
        except OSError as error:
            raise ScenarioError(f"--track tensorboard: {folder} cannot be written: {error.strerror}") from None
        lines = (f"| {name} | {value} |" for name, value in settings_of(scenario).items())
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))

    def _log(self, round_number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round_number)
        self._writer.flush()

    def _end(self) -> None:
        self._writer.close()


class MlflowTracker(Tracker):
    """Logs a run of an experiment that is called like the scenario; settings are its parameters.

    Args:
        place: URI of a tracking server, or of a database: sqlite:///FILE.
        scenario: what is run.

    Raises:
        ScenarioError: MLflow is not installed, or the place does not answer.
    """

    def __init__(self, place: str, scenario: Scenario) -> None:
        super().__init__()
        library = _library("mlflow", "mlflow")
        try:
            self._client: Any = library.MlflowClient(tracking_uri=place)
            known = self._client.get_experiment_by_name(scenario.name)
            experiment = self._client.create_experiment(scenario.name) if known is None else known.experiment_id
            self._run = self._client.create_run(experiment).info.run_id
            for name, value in settings_of(scenario).items():
                self._client.log_param(self._run, name, str(value)[:PARAMETER_SIZE_MAX])
        except Exception as error:  # whatever its transport raises
            raise ScenarioError(f"--track mlflow: {place} does not take a run: {_one_line(error)}") from None
        self._is_lost = False

    def _log(self, round_number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._ask(self._client.log_metric, name, value, step=round_number)

    def _end(self) -> None:
        self._ask(self._client.set_terminated)

    def _ask(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Tell the server. If it is gone, the simulation goes on without it, and that is said once."""
        if self._is_lost:
            return
        try:
            call(self._run, *arguments, **named)
        except Exception as error:  # as above
            self._is_lost = True
            log.warning("MLflow is not told any more: %s", _one_line(error))


def settings_of(scenario: Scenario) -> dict[str, Any]:
    """The settings of a scenario by name, hyper-parameters by ``hyperparameters.NAME``; tables are left out."""
    found: dict[str, Any] = {}
    for name, value in scenario.to_dict().items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        elif not isinstance(value, list | tuple):
            found[name] = value
    return found


def open_tracker(wanted: str, scenario: Scenario, folder: Path, *, is_resumed: bool = False) -> Tracker:
    """Open the tracker that a command was asked for.

    Args:
        wanted: ``tensorboard`` or ``mlflow``, with ``=PLACE`` where it is not the run's folder.
        scenario: what is run.
        folder: the run's.
        is_resumed: whether the run goes on; it tells all of its rounds again.

    Raises:
        ScenarioError: there is no such tracker, or it cannot be opened.
    """
    name, _, place = wanted.partition("=")
    validate_tracker(wanted)
    return TRACKERS[name](place, scenario, folder, is_resumed)


def validate_tracker(wanted: str) -> None:
    """Raise ScenarioError for a tracker that is unknown, or whose library is not installed."""
    name, separator, place = wanted.partition("=")
    if name not in TRACKERS:
        raise ScenarioError(f"--track is {name!r}{nearest(name, TRACKERS)}")
    if separator and not place:
        raise ScenarioError(f"--track {wanted} names no place after the =")
    _library(LIBRARIES[name], name)


def _open_tensorboard(place: str, scenario: Scenario, folder: Path, is_resumed: bool) -> Tracker:
    return TensorBoardTracker(Path(place) if place else folder / "tensorboard", scenario, is_resumed=is_resumed)


def _open_mlflow(place: str, scenario: Scenario, folder: Path, is_resumed: bool) -> Tracker:
    """Open a run of the server's, another one where ours goes on: it has all rounds, and the first one is over."""
    return MlflowTracker(
        place or os.environ.get(MLFLOW_VARIABLE, "") or f"sqlite:///{folder.resolve() / 'mlflow.db'}", scenario
    )


TRACKERS: Mapping[str, Callable[[str, Scenario, Path, bool], Tracker]] = MappingProxyType(
    {"tensorboard": _open_tensorboard, "mlflow": _open_mlflow}
)
"""By name: what opens a tracker at a place, by default in the run's folder."""

LIBRARIES: Mapping[str, str] = MappingProxyType({"tensorboard": "tensorboardX", "mlflow": "mlflow"})
"""By the same names: the module that each needs."""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _library(module: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ScenarioError(f"--track {extra} needs {module}; run: pip install 'fedchain[{extra}]'") from None
