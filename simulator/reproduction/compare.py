"""A comparison of methods as a generated experiment: cells are swept settings, variants are methods."""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import tomli_w

from fedchain.files.field_texts import field_texts
from fedchain.files.tables import nearest
from fedchain.learning.registry import agreed_name, hyperparameter_names, load_method
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.reproduction.experiment import Cell, Column, Experiment, Variant, validate_seeds
from fedchain.simulator.reproduction.table import PERCENT, scale_of
from fedchain.simulator.scenario import Scenario, ScenarioError

SWEPT_MAX = 1_000
"""Largest number of cells: more are taken for a mistake."""

_NOT_SWEPT = (
    *("name", "method", "seed", "hyperparameters", "hash_rates", "faults", "clocks", "adversaries"),
    *(
        "admission",
        "sponsors",
        "away_after",
        "patience_percent",
        "changes",
        "churn",
        "data_dir",
        "workers",
        "train_ahead",
    ),
)

_FIELDS = tuple(item.name for item in fields(Scenario) if item.name not in _NOT_SWEPT)


def build_comparison(
    methods: Sequence[str],
    seeds: int,
    scenario: Mapping[str, Any],
    settings: Mapping[str, Any],
    sweeps: Sequence[str],
    metrics: Sequence[str],
) -> Experiment:
    """Build the experiment that compares methods on the same data, from the same seeds.

    Args:
        methods: names, at least one, or FILE.py:Class, or module:Class.
        seeds: number of seeds, from the scenario's on.
        scenario: values that all runs share.
        settings: hyper-parameters by NAME, for every method that has one of this name, or by METHOD.NAME.
        sweeps: NAME=VALUE,VALUE…: fields of a scenario, or hyper-parameters; a cell for each combination. A method that
            lacks a hyper-parameter is the same in all its cells, and runs once.
        metrics: fields of `RoundMetrics`; the table has the last round's value of each.

    Raises:
        ScenarioError: a name is given twice, or is unknown, or there are too many seeds.
        ConfigurationError: there is no such method.
    """
    validate_seeds(seeds)
    _validate_names(methods, metrics)
    known = {method: hyperparameter_names(load_method(agreed_name(method))) for method in methods}
    points = _read_points(sweeps, known)
    dataset = scenario.get("task") or scenario.get("dataset", Scenario().dataset)
    cells = {", ".join(f"{name}={value}" for name, value in point.items()) or str(dataset): point for point in points}
    metrics = list(dict.fromkeys(metrics))
    columns = {metric: metric for metric in metrics}
    if "taa" in columns:
        columns["worst member"] = "taa_worst"
    texts, first = field_texts(RoundMetrics), scenario.get("seed", Scenario().seed)
    return Experiment(
        name=str(scenario.get("name", "compare")),
        title=", ".join(methods) if {"dataset", "task"} & points[0].keys() else f"{', '.join(methods)} on {dataset}",
        seeds=tuple(range(first, first + seeds)),
        note="\n\n".join(
            f"{metric}{' (%)' if scale_of(metric) == PERCENT else ''}: {texts[metric]}" for metric in metrics
        ),
        plots=("bars", "curves"),
        curves=tuple(metrics),
        scenario={name: value for name, value in scenario.items() if name not in ("method", "seed")},
        columns=tuple(
            Column(name=name, statistic="last", metric=metric, is_optional=True) for name, metric in columns.items()
        ),
        cells=tuple(
            Cell(name=name, scenario={key: value for key, value in point.items() if key in _FIELDS})
            for name, point in cells.items()
        ),
        variants=_variants_of(known, _settings_by_method(settings, known), cells, metrics[0]),
    )


def write_experiment(experiment: Experiment) -> str:
    """The experiment as text of a file for `fedchain reproduce`."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items() if item not in ("", (), {}, [])}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    return tomli_w.dumps(plain(asdict(experiment)))


def read_value(text: str) -> Any:
    """One value of a sweep: the TOML value, or the text itself if it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def _validate_names(methods: Sequence[str], metrics: Sequence[str]) -> None:
    if not methods:
        raise ScenarioError("methods is empty, name at least one: --methods dfpl,fedavg,solo")
    if len(set(methods)) < len(methods):
        raise ScenarioError(f"methods has a name twice: {', '.join(methods)}")
    measured = [item.name for item in fields(RoundMetrics)]
    for metric in metrics:
        if metric not in measured:
            raise ScenarioError(f"metric is {metric!r}{nearest(metric, measured)}")


def _read_points(sweeps: Sequence[str], known: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Every combination of the swept values, by name; without a sweep, a single empty one."""
    swept = dict(_read_sweep(text, known) for text in sweeps)
    if len(swept) < len(sweeps):
        raise ScenarioError(f"sweep has a name twice: {', '.join(sweeps)}")
    points = [dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())]
    if len(points) > SWEPT_MAX:
        raise ScenarioError(f"sweep has {len(points)} combinations, at most {SWEPT_MAX} are compared")
    return points


def _read_sweep(text: str, known: Mapping[str, Sequence[str]]) -> tuple[str, list[Any]]:
    name, separator, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not separator or not all(value.strip() for value in values.split(",")):
        raise ScenarioError(f"--sweep {text!r} is not of the form NAME=VALUE,VALUE")
    hyperparameters = {parameter for names in known.values() for parameter in names}
    if name == "seed":
        raise ScenarioError("--sweep seed: a comparison has seeds of its own, say --seeds 3")
    if name not in _FIELDS and name not in hyperparameters:
        hint = nearest(name, sorted({*_FIELDS, *hyperparameters}))
        raise ScenarioError(f"--sweep {name}: neither a setting nor a hyper-parameter of {', '.join(known)}{hint}")
    found = [read_value(value.strip()) for value in values.split(",")]
    if len(set(map(str, found))) < len(found):
        raise ScenarioError(f"--sweep {text!r} has a value twice")
    return name, found


def _variants_of(
    known: Mapping[str, Sequence[str]],
    own: Mapping[str, Mapping[str, Any]],
    cells: Mapping[str, Mapping[str, Any]],
    metric: str,
) -> tuple[Variant, ...]:
    """A row for each method, with those swept values that are hyper-parameters of it."""
    chosen = {
        method: {cell: {key: value for key, value in point.items() if key in names} for cell, point in cells.items()}
        for method, names in known.items()
    }
    return tuple(
        Variant(
            name=method,
            scenario={"method": method},
            hyperparameters=own[method],
            in_cell={cell: values for cell, values in chosen[method].items() if values},
            metric=metric,
        )
        for method in known
    )


def _settings_by_method(settings: Mapping[str, Any], known: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Hyper-parameters of each method; a setting by METHOD.NAME overrides one by NAME."""
    found: dict[str, dict[str, Any]] = {method: {} for method in known}
    for name, value in sorted(settings.items(), key=lambda item: "." in item[0]):
        of, _, parameter = name.rpartition(".")
        takers = [of] if of else [method for method, names in known.items() if parameter in names]
        if of and of not in known:
            raise ScenarioError(f"--set {name}: {of} is none of the methods {', '.join(known)}")
        if not takers or parameter not in known[takers[0]]:
            names = {item for method in takers or known for item in known[method]}
            if of:
                raise ScenarioError(f"--set {name}: no hyper-parameter of {of}{nearest(parameter, sorted(names))}")
            if name in _FIELDS:
                raise ScenarioError(f"--set {name}: it has an option of its own, or stands in a scenario's file")
            hint = nearest(parameter, sorted({*_FIELDS, *names}))
            raise ScenarioError(f"--set {name}: neither a setting nor a hyper-parameter of {', '.join(known)}{hint}")
        for method in takers:
            found[method][parameter] = value
    return found
