"""An experiment: the cells, variants, columns and seeds behind a table or figure of a paper, read from a TOML file."""

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from fedchain.files.layout import is_file_name
from fedchain.files.tables import build, nearest, read_toml
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition.split import class_range
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.own_code import hashes_of_own
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict

SEEDS_MAX = 10_000
"""Most seeds that an experiment may be asked for: each is a run for each of its variants."""

Statistic = Literal["best", "last", "last5", "mean", "reach"]
"""Statistic of a run's rounds: the best value, of a loss the lowest; the last one, the mean of the last five or of all;
or the first round that reaches a mark or a fraction of another variant's best value, or the expense until then."""

Optimum = Literal["", "lowest", "highest"]
"""The best of a column's numbers, if it is wanted."""

Plot = Literal["bars", "boxes", "curves", "lines", "map"]
"""Pictures: bars per cell, boxes over the seeds, curves over the rounds, lines over the cells, a heat map."""

Measure = Literal["simulation", "forgetting", "inversion", "timing"]
"""Kind of a run: a simulation of the federation, FedReg's measurement of forgetting in local training, training
followed by attacks on posts, or a measurement of the processor time of training and aggregation."""

FORGETTING_METRICS = ("loss_before", "forgetting", "forgetting_fedavg")
"""Metrics of forgetting in a row: the mean loss of theta(t-1) on the data of the clients of round t - 1, its increase
under the models of round t, and that under FedAvg's models. All in nats."""

INVERSION_METRICS = ("psnr_cosine", "psnr_l2", "ssim_cosine", "ssim_l2", "labels_recovered", "psnr_class_mean")
"""Metrics of attacks on one-step posts, in the last row: similarity to the originals of the images that either
distance finds (PSNR in dB), the fraction of labels that was recovered, and the PSNR of the class's mean image."""

TIMING_METRICS = ("training_cpu_s", "aggregation_cpu_s")
"""Metrics of time in a row: processor seconds of a client's contribution, on average, and of one aggregation."""

METRICS = (
    *(item.name for item in fields(RoundMetrics)),
    *FORGETTING_METRICS,
    *INVERSION_METRICS,
    *TIMING_METRICS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Settings that vary besides the method: a data set and its partition, or a point on a figure's axis."""

    name: str
    scenario: Mapping[str, Any] = field(default_factory=dict)
    """Scenario values of this cell."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters on top of the experiment's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One number that is taken from a run."""

    name: str = ""
    statistic: Statistic = "best"
    rounds: int = 0
    """Number of first rounds that count; 0: all."""
    metric: str = ""
    """Field of ``RoundMetrics``; empty: the variant's metric."""
    fraction: float = 1.0
    """reach: the fraction of ``of``'s best value that must be reached; a loss reaches what it is not above."""
    of: str = ""
    """reach: the variant that sets the mark, in the same cell and under the same seed."""
    mark: float = 0.0
    """reach: the mark itself, in place of a fraction of another variant's value; accuracies are fractions."""
    is_optional: bool = False
    """Whether runs that do not measure the metric have no number here, nor those that measured it before the last round
    alone where ``last`` is asked for; otherwise the former are an error, and the latter have their last number."""
    spend: tuple[str, ...] = ()
    """reach: fields of ``RoundMetrics`` that are summed over the rounds up to the mark, in place of the round."""
    seek: Optimum = ""
    """lowest, highest: the table ends with the cell in which each variant's mean is lowest or highest; empty: none."""

    def validate(self, variants: Sequence[str]) -> None:
        """Raise ScenarioError for an unknown metric or variant, or for two marks."""
        if self.metric:
            _expect_known("column metric", self.metric, METRICS)
        if self.statistic != "reach":
            return
        if not self.mark:
            _expect_known(f"column {self.name!r} of", self.of, variants)
        elif self.of:
            raise ScenarioError(f"column {self.name!r} has a mark, {self.mark}, and one of {self.of}")
        for metric in self.spend:
            _expect_known(f"column {self.name!r} spend", metric, METRICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A row of the table: a method with its settings."""

    name: str
    scenario: Mapping[str, Any] = field(default_factory=dict)
    """Scenario values of this variant."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters on top of the cell's."""
    in_cell: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Hyper-parameters on top of these, by cell name."""
    metric: str = "taa"
    """The field of ``RoundMetrics`` that is reported."""
    rounds_hyperparameter: str = ""
    """The method's hyper-parameter that states the number of rounds. A run of ten rounds then does not begin like one
    of six, so each column with its own number of rounds has its own runs."""
    paper: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The paper's numbers by cell name, one per column, nan if it has none. Accuracies are in percent."""
    paper_best: str = ""
    """The paper's best cell; empty if it names none."""
    figure: str = ""
    """Name of the picture in which the variant is drawn, with all others of that name; empty: one for those without."""

    def validate(self, cells: Sequence[str], columns: int) -> None:
        """Raise ScenarioError for an unknown metric or cell, for an invalid figure, or for a wrong count of numbers."""
        _expect_known(f"{self.name} metric", self.metric, METRICS)
        if self.paper_best:
            _expect_known(f"{self.name} paper_best", self.paper_best, cells)
        if not re.fullmatch(r"[\w-]*", self.figure):
            raise ScenarioError(f"{self.name} figure is {self.figure!r}, it must be the name of a file")
        for cell in (*self.paper, *self.in_cell):
            if cell not in cells:
                raise ScenarioError(f"{self.name} has a number for {cell!r}, which is not a cell")
        for cell, numbers in self.paper.items():
            if len(numbers) != columns:
                raise ScenarioError(f"{self.name} has {list(numbers)} for {cell!r}, it must be an array of {columns}")


def validate_seeds(wanted: int) -> None:
    """Raise ScenarioError for more seeds than an experiment may have."""
    if wanted > SEEDS_MAX:
        raise ScenarioError(f"--seeds is {wanted}, it must be at most {SEEDS_MAX:,}")


def first_seeds(listed: tuple[int, ...], wanted: int | None) -> tuple[int, ...]:
    """The first ``wanted`` seeds of an experiment, None: all; if it lists fewer, the smallest others are added.

    Raises ScenarioError: too many are wanted.
    """
    if wanted is None:
        return listed
    validate_seeds(wanted)
    others = (seed for seed in itertools.count() if seed not in listed)
    return tuple(itertools.islice(itertools.chain(listed, others), wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The runs behind one table or figure."""

    name: str
    title: str
    source: str = ""
    """Source of the paper's numbers; empty if there are none."""
    scale: str = ""
    """Reductions that let a CPU run it; empty if there are none."""
    note: str = ""
    """Note on reading the table; printed under it."""
    seeds: tuple[int, ...]
    measure: Measure = "simulation"
    plots: tuple[Plot, ...] = ("bars",)
    curves: tuple[str, ...] = ()
    """curves: fields of ``RoundMetrics``, one row of panels each; empty: the variants' metrics."""
    scenario: Mapping[str, Any]
    """Scenario values that all runs share."""
    columns: tuple[Column, ...] = (Column(),)
    reference: str = ""
    """Name of a cell of reference: the table then ends with the largest drop of each variant below its number there.
    Empty if there is none."""
    expected: tuple[str, ...] = ()
    """Cells that are expected to be best: the table then counts the variants whose best cell is one of them."""
    cells: tuple[Cell, ...]
    variants: tuple[Variant, ...]

    def runs(self, overrides: Mapping[str, Any], only: str = "*") -> Iterator["Run"]:
        """Every run once, seed by seed, so that an interrupted experiment has whole columns; equal runs are merged.

        Args:
            overrides: scenario values that override the file's.
            only: pattern of the "cell/variant" to run.
        """
        seen = set()
        for seed in self.seeds:
            for cell in self.cells:
                for variant in self.variants:
                    if not fnmatchcase(f"{cell.name}/{variant.name}", only):
                        continue
                    for column in self.columns:
                        scenario = self.scenario_of(cell, variant, seed, overrides, column.rounds)
                        run = Run(cell.name, variant.name, seed, scenario, key_of(scenario))
                        if run.key not in seen:
                            seen.add(run.key)
                            yield run

    def scenario_of(
        self, cell: Cell, variant: Variant, seed: int, overrides: Mapping[str, Any], rounds: int = 0
    ) -> Scenario:
        """The scenario of one run; only its first ``rounds`` rounds are used (0: all).

        Raises ScenarioError, which names the run among others, if it is impossible.
        """
        values = {**self.scenario, **cell.scenario, **variant.scenario, **overrides, "seed": seed}
        settings = {
            **self.scenario.get("hyperparameters", {}),
            **cell.hyperparameters,
            **variant.hyperparameters,
            **variant.in_cell.get(cell.name, {}),
        }
        try:
            scenario = scenario_from_dict({**values, "hyperparameters": settings})
            if variant.rounds_hyperparameter:
                total = min(rounds or scenario.rounds, scenario.rounds)
                settings[variant.rounds_hyperparameter] = total
                scenario = replace(scenario, rounds=total, hyperparameters=settings)
            scenario.validate()
        except (ScenarioError, ConfigurationError) as error:
            places = (variant.name, self.variants), (cell.name, self.cells)
            which = [name for name, others in places if len(others) > 1]
            raise ScenarioError(": ".join([", ".join(which), str(error)] if which else [str(error)])) from error
        return scenario

    @property
    def is_search(self) -> bool:
        """Whether the experiment seeks the best number of rounds: each cell then has its own number."""
        return any(column.seek for column in self.columns) and all("rounds" in cell.scenario for cell in self.cells)

    def variant(self, name: str) -> Variant:
        """The variant of this name, which must exist."""
        return next(variant for variant in self.variants if variant.name == name)


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation of an experiment."""

    cell: str
    variant: str
    seed: int
    scenario: Scenario
    key: str
    """Name of the run: that of its scenario when it was planned, see :func:`key_of`."""


_LATER = {
    **{"private_seed": 0, "classes": 0, "feature_shift": "none", "task": "", "round_interval_s": 0.0},
    **{"omission_slack_s": 2.0, "payload_mib_max": 0, "inline_kib_max": 64},
}
"""Scenario values that the names of older results leave out, with their values then."""


def key_of(scenario: Scenario) -> str:
    """Name of a simulation: 16 hexadecimal digits of a hash over all settings that affect its result.

    The user's own code and weights are among them: a method that was changed does not find its earlier results. So is
    the number of workers where they decide which clients are trained as one batch. An n-way partition counts by its
    range of classes: FedProto's sampler treats (4, 2) and (3, 3) alike.
    """
    workers = scenario.workers if scenario.vectorize_clients else 1
    values = replace(scenario, data_dir="", workers=workers, train_ahead=True, name="").to_dict()
    if scenario.partition == "n-way" and scenario.dataset in DATASETS:
        config = scenario.learning_config()
        values["classes_avg"], values["classes_std"] = class_range(config, config.dataset_info.classes)
    values["aggregator"] = scenario.aggregator_rule.value
    for name, default in _LATER.items():
        if values[name] == default:
            del values[name]
    if own := hashes_of_own(scenario):
        values["own"] = sorted(own.values())
        values["weights"] = bool(scenario.weights)  # wherever the file lies
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_experiment(path: Path) -> Experiment:
    """Read an experiment file; raises ScenarioError with one clear line."""
    experiment = build(Experiment, read_toml(path, ScenarioError), str(path), ScenarioError)
    try:
        validate_experiment(experiment)
    except ScenarioError as error:
        raise ScenarioError(f"{path} {error}") from None
    return experiment


def validate_experiment(experiment: Experiment) -> None:
    """Raise ScenarioError for the first error, such as a name that is unknown or given twice."""
    _expect_printable(experiment)
    if not is_file_name(experiment.name):
        raise ScenarioError(f"name is {experiment.name!r}, it must be the name of a folder")
    if not experiment.seeds:
        raise ScenarioError("seeds is empty, it must hold at least one number")
    cells, variants, columns = (
        [item.name for item in items] for items in (experiment.cells, experiment.variants, experiment.columns)
    )
    for names, what in ((cells, "cell"), (variants, "variant"), (columns, "column")):
        if len(set(names)) < len(names):
            raise ScenarioError(f"has two {what}s of one name among {', '.join(map(repr, names))}")
    if not isinstance(settings := experiment.scenario.get("hyperparameters", {}), Mapping):
        raise ScenarioError(f"scenario hyperparameters is {settings!r}, it must be a table")
    several: Sequence[Cell | Variant] = (*experiment.cells, *experiment.variants)
    for item in several:
        if "hyperparameters" in item.scenario:
            raise ScenarioError(f"{item.name} has hyperparameters in its scenario, they stand beside it")
    for metric in experiment.curves:
        _expect_known("curves", metric, METRICS)
    if experiment.reference:
        _expect_known("reference", experiment.reference, cells)
    for cell in experiment.expected:
        _expect_known("expected", cell, cells)
    for column in experiment.columns:
        column.validate(variants)
    for variant in experiment.variants:
        variant.validate(cells, len(experiment.columns))


def _expect_printable(experiment: Experiment) -> None:
    """Refuse what would disturb the terminal, or the tables and files around it: a stranger may have written the file.

    Sentences may have several lines, and names may have other blanks than the usual one.
    """
    kinds: Mapping[str, Sequence[Cell | Variant | Column]]
    kinds = {"cell": experiment.cells, "variant": experiment.variants, "column": experiment.columns}
    names = [(f"name of a {kind}", item.name) for kind, items in kinds.items() for item in items]
    for what, text in (("name", experiment.name), ("title", experiment.title), *names):
        if not _is_printable(text):
            raise ScenarioError(f"{what} is {text!r}, it must be printable and of one line")
    for what, text in (("source", experiment.source), ("scale", experiment.scale), ("note", experiment.note)):
        if not all(map(_is_printable, re.split(r"[\n\t]", text))):
            raise ScenarioError(f"{what} is {text!r}, it must be printable")


def _is_printable(text: str) -> bool:
    return all(letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in text)


def _expect_known(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ScenarioError(f"{name} is {value!r}{nearest(str(value), known)}")
