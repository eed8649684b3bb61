"""Trackers: rounds of a simulation as they close, written where TensorBoard or MLflow shows them.

A tracker is a callback for rounds, valid while its context is open. The trackers' libraries come with the extras
``fedchain[tensorboard]`` and ``fedchain[mlflow]``, and are imported when a tracker is opened.
"""

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from fedchain.files.tables import nearest
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.scenario import Scenario, ScenarioError

log = logging.getLogger("fedchain.simulator")

MLFLOW_VARIABLE = "MLFLOW_TRACKING_URI"
"""MLflow's own environment variable for its server, used if `--track mlflow` names none."""

PARAMETER_SIZE_MAX = 500
"""Largest number of characters of a setting's value: older servers refuse longer ones."""

Tracker = Callable[[RoundMetrics], None]
"""Called with each round's row when the round is closed."""

Log = Callable[[int, Mapping[str, float]], None]
"""Notes the measures of a round."""

_MEASURES = tuple(item.name for item in fields(RoundMetrics) if item.name != "round")


@contextmanager
def open_tracker(wanted: str, scenario: Scenario, folder: Path, *, is_resumed: bool = False) -> Iterator[Tracker]:
    """Open a tracker.

    It passes on every measure of every round once it is known, and again if it changes: peers measure the aggregate
    in the round after.

    Args:
        wanted: ``tensorboard`` or ``mlflow``, with ``=PLACE`` if it is not the run's folder.
        scenario: the scenario of the run; its settings are noted, too.
        folder: the run's folder.
        is_resumed: whether the run was resumed; it then reports all of its rounds again.

    Raises:
        ScenarioError: there is no such tracker, or it cannot be opened.
    """
    name, _, place = wanted.partition("=")
    validate_tracker(wanted)
    note, end = TRACKERS[name](place, scenario, folder, is_resumed)
    rows, logged = list[RoundMetrics](), dict[tuple[int, str], float]()

    def pass_on(some: Sequence[RoundMetrics]) -> None:
        for row in some:
            values = {name: float(value) for name in _MEASURES if (value := getattr(row, name)) is not None}
            news = {name: value for name, value in values.items() if logged.get((row.round, name)) != value}
            if news:
                note(row.round, news)
                logged.update({(row.round, name): value for name, value in news.items()})

    def on_round(row: RoundMetrics) -> None:
        rows.append(row)
        pass_on(rows[-2:])

    try:
        yield on_round
    finally:
        try:
            pass_on(rows)
        finally:
            end()


def validate_tracker(wanted: str) -> None:
    """Raise ScenarioError for a tracker that is unknown, or whose library is not installed."""
    name, separator, place = wanted.partition("=")
    if name not in TRACKERS:
        raise ScenarioError(f"--track is {name!r}{nearest(name, TRACKERS)}")
    if separator and not place:
        raise ScenarioError(f"--track {wanted} names no place after the =")
    _library(LIBRARIES[name], name)


def settings_of(scenario: Scenario) -> dict[str, Any]:
    """The settings of a scenario by name, hyper-parameters by ``hyperparameters.NAME``; tables are left out."""
    found: dict[str, Any] = {}
    for name, value in scenario.to_dict().items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        elif not isinstance(value, list | tuple):
            found[name] = value
    return found


def _tensorboard(place: str, scenario: Scenario, folder: Path, is_resumed: bool) -> tuple[Log, Callable[[], None]]:
    """An event file with a step for each round. A resumed run hides its earlier events, and writes all again."""
    events = Path(place) if place else folder / "tensorboard"
    library = _library(LIBRARIES["tensorboard"], "tensorboard")
    try:
        writer = library.SummaryWriter(str(events), purge_step=0 if is_resumed else None)
    except OSError as error:
        raise ScenarioError(f"--track tensorboard: {events} cannot be written: {error.strerror}") from None
    lines = (f"| {name} | {value} |" for name, value in settings_of(scenario).items())
    writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))

    def note(round_number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, round_number)
        writer.flush()

    return note, writer.close


def _mlflow(place: str, scenario: Scenario, folder: Path, is_resumed: bool) -> tuple[Log, Callable[[], None]]:
    """A run in the experiment with the scenario's name; a resumed run gets another one, since the first has ended."""
    place = place or os.environ.get(MLFLOW_VARIABLE, "") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    library = _library(LIBRARIES["mlflow"], "mlflow")
    try:
        client = library.MlflowClient(tracking_uri=place)
        known = client.get_experiment_by_name(scenario.name)
        experiment = client.create_experiment(scenario.name) if known is None else known.experiment_id
        run = client.create_run(experiment).info.run_id
        for name, value in settings_of(scenario).items():
            client.log_param(run, name, str(value)[:PARAMETER_SIZE_MAX])
    except Exception as error:  # any error of its transport
        raise ScenarioError(f"--track mlflow: {place} does not take a run: {_one_line(error)}") from None
    is_lost = False

    def ask(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Call the server. If it fails, the simulation goes on without it, after one warning."""
        nonlocal is_lost
        if is_lost:
            return
        try:
            call(run, *arguments, **named)
        except Exception as error:  # as above
            is_lost = True
            log.warning("MLflow gets no more rounds: %s", _one_line(error))

    def note(round_number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            ask(client.log_metric, name, value, step=round_number)

    return note, lambda: ask(client.set_terminated)


TRACKERS: Mapping[str, Callable[[str, Scenario, Path, bool], tuple[Log, Callable[[], None]]]] = MappingProxyType(
    {"tensorboard": _tensorboard, "mlflow": _mlflow}
)
"""Functions that open a tracker at a place, by default in the run's folder, by name; each returns a log and its end."""

LIBRARIES: Mapping[str, str] = MappingProxyType({"tensorboard": "tensorboardX", "mlflow": "mlflow"})
"""Modules that the trackers need, by the same names."""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _library(module: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ScenarioError(f"--track {extra} needs {module}; run: pip install 'fedchain[{extra}]'") from None
