"""An experiment: the cells, variants and seeds behind a table of a paper, as a TOML file describes them."""

import hashlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedchain.simulator.metrics import RoundMetrics
from fedchain.simulator.scenario import Scenario, ScenarioError, nearest, read_toml, scenario_from_dict

STATISTICS = ("best", "last", "last5")
"""What of a run's rounds counts: the highest value, the last one, or the mean of the last five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A column of the table: what is varied besides the method."""

    name: str
    scenario: Mapping[str, Any]
    """Scenario values of this cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A row of the table: a method with its settings, and one number taken from its runs."""

    name: str
    scenario: Mapping[str, Any]
    """Scenario values of this variant."""
    hyperparameters: Mapping[str, Any]
    """Hyper-parameters on top of the experiment's."""
    metric: str
    """Field of ``RoundMetrics`` that is reported."""
    paper: Mapping[str, float]
    """The paper's number by cell name, in percent; cells that it does not report are absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The runs behind one table."""

    name: str
    title: str
    source: str
    """Where the paper's numbers stand."""
    seeds: tuple[int, ...]
    statistic: str
    """One of ``STATISTICS``."""
    cells: tuple[Cell, ...]
    variants: tuple[Variant, ...]
    scenario: Mapping[str, Any]
    """Scenario values that all runs share."""

    def runs(self, overrides: Mapping[str, Any]) -> Iterator["Run"]:
        """Every run once, seed by seed, so that an interrupted experiment has whole columns; twins are merged."""
        seen = set()
        for seed in self.seeds:
            for cell in self.cells:
                for variant in self.variants:
                    run = Run(cell.name, variant.name, seed, self.scenario_of(cell, variant, seed, overrides))
                    if run.key not in seen:
                        seen.add(run.key)
                        yield run

    def scenario_of(self, cell: Cell, variant: Variant, seed: int, overrides: Mapping[str, Any]) -> Scenario:
        """The scenario of one run; raises ScenarioError or ConfigurationError if it is impossible."""
        values = {**self.scenario, **cell.scenario, **variant.scenario, **overrides, "seed": seed}
        values["hyperparameters"] = {**self.scenario.get("hyperparameters", {}), **variant.hyperparameters}
        scenario = scenario_from_dict(values)
        scenario.validate()
        return scenario

    def value_of(self, rows: Sequence[Mapping[str, Any]], metric: str) -> float:
        """The reported number of one run, in percent.

        Raises:
            ScenarioError: the run did not measure ``metric``.
        """
        known = [row[metric] for row in rows if row[metric] is not None]
        if not known:
            raise ScenarioError(f"metric {metric} was not measured in any of {len(rows)} rounds")
        chosen = {"best": max(known), "last": known[-1], "last5": statistics.mean(known[-5:])}
        return 100 * float(chosen[self.statistic])


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation of an experiment."""

    cell: str
    variant: str
    seed: int
    scenario: Scenario

    @property
    def key(self) -> str:
        """Names the run by what it computes; see :func:`key_of`."""
        return key_of(self.scenario)


def key_of(scenario: Scenario) -> str:
    """Names a simulation by what it computes: 16 hexadecimal digits over all settings that matter for its result."""
    neutral = replace(scenario, data_dir="", workers=1, name="")
    text = json.dumps(neutral.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_experiment(path: Path) -> Experiment:
    """Read an experiment file; raises ScenarioError with one clear line."""
    values = read_toml(path)
    expect_keys(str(path), values, [item.name for item in fields(Experiment)])
    if values["statistic"] not in STATISTICS:
        raise ScenarioError(f"{path} statistic is {values['statistic']!r}{nearest(values['statistic'], STATISTICS)}")
    cells = tuple(_read(Cell, f"{path} cells[{i}]", item, {}) for i, item in enumerate(values["cells"]))
    optional = {"hyperparameters": {}, "metric": "taa", "paper": {}, "scenario": {}}
    variants = tuple(
        _read(Variant, f"{path} variants[{i}]", item, optional) for i, item in enumerate(values["variants"])
    )
    metrics = [item.name for item in fields(RoundMetrics)]
    for variant in variants:
        if variant.metric not in metrics:
            raise ScenarioError(
                f"{path} {variant.name} has metric {variant.metric!r}{nearest(variant.metric, metrics)}"
            )
        for cell in variant.paper:
            if cell not in {known.name for known in cells}:
                raise ScenarioError(f"{path} {variant.name} has a paper number for {cell!r}, which is not a cell")
    return Experiment(**{**values, "seeds": tuple(values["seeds"]), "cells": cells, "variants": variants})


def _read(kind: Any, name: str, values: Mapping[str, Any], optional: Mapping[str, Any]) -> Any:
    complete = {**optional, **values}
    expect_keys(name, complete, [item.name for item in fields(kind)])
    return kind(**complete)


def expect_keys(name: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ScenarioError for the first key that is not known, or that is missing."""
    for key in values:
        if key not in known:
            raise ScenarioError(f"{name} has no key {key!r}{nearest(key, known)}")
    for key in known:
        if key not in values:
            raise ScenarioError(f"{name} lacks the key {key!r}")
