"""Completion of the values of options: names of methods, data sets, models, partitions and experiments.

The modules that know the names are imported only when the shell asks for them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def methods() -> Iterable[str]:
    """All methods that are registered, here and by other packages."""
    from fedchain.learning.registry import METHODS, installed_methods

    return {*METHODS, *installed_methods()}


def datasets() -> Iterable[str]:
    """All data sets that can be read."""
    from fedchain.learning.datasets.catalogue import DATASETS

    return DATASETS


def models() -> Iterable[str]:
    """The models of all data sets."""
    from fedchain.learning.datasets.catalogue import DATASETS

    return {name for dataset in DATASETS.values() for name in dataset.models}


def partitions() -> Iterable[str]:
    """All ways to spread a data set."""
    from fedchain.learning.config import PARTITIONS

    return PARTITIONS


def aggregators() -> Iterable[str]:
    """All rules by which a federation has an aggregator."""
    from fedchain.node.founding.aggregator import AGGREGATOR_CHOICES

    return AGGREGATOR_CHOICES


def fault_models() -> Iterable[str]:
    """The faults that a federation may tolerate."""
    from fedchain.chain.genesis import FaultModel

    return [item.value for item in FaultModel]


def experiments() -> Iterable[str]:
    """The experiments that come with the program."""
    from fedchain.simulator.reproduction.library import experiment_files

    return experiment_files()


def settings_of(command: Any) -> Callable[[], Iterable[str]]:
    """The settings that ``--set`` of a command takes: those that its ``--settings`` lists, or else a scenario's."""

    def names() -> Iterable[str]:
        from fedchain.cli.simulate import scenario_rows

        listed = (item.callback.rows for item in command.params if item.name == "settings")
        return [name for name, *_ in next(listed, scenario_rows)()]

    return names


OPTIONS: Mapping[str, Callable[[], Iterable[str]]] = {
    "method": methods,
    "methods": methods,
    "dataset": datasets,
    "model": models,
    "partition": partitions,
    "aggregator": aggregators,
    "fault_model": fault_models,
}
"""Functions that know the names, by the name of the parameter, for all commands."""

ARGUMENTS: Mapping[tuple[str, str], Callable[[], Iterable[str]]] = {
    ("methods", "name"): methods,
    ("reproduce", "name"): experiments,
}
"""Functions that know the names, by command and parameter."""


def offer_names(command: Any) -> None:
    """Let a command, and those below it, offer names for the values of its parameters."""
    for below in getattr(command, "commands", {}).values():
        offer_names(below)
    for parameter in command.params:
        if "--set" in parameter.opts:
            parameter._custom_shell_complete = _offer_settings(settings_of(command))
            continue
        known = ARGUMENTS.get((command.name, parameter.name)) or OPTIONS.get(parameter.name)
        if known is not None and parameter.metavar != "FILE.py:Class":  # these take files alone
            # The attribute that `autocompletion=` of an option sets; these options are made in a dozen places.
            parameter._custom_shell_complete = _offer(known)


def _offer(known: Callable[[], Iterable[str]]) -> Callable[[Any, Any, str], list[str]]:
    def complete(ctx: Any, parameter: Any, incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")  # lists are names with commas between
        return [f"{before}{comma}{name}" for name in sorted(known()) if name.startswith(begun)]

    return complete


def _offer_settings(known: Callable[[], Iterable[str]]) -> Callable[[Any, Any, str], list[str]]:
    def complete(ctx: Any, parameter: Any, incomplete: str) -> list[str]:
        name, separator, begun = incomplete.partition("=")
        if separator:  # values, of a name that has known ones
            values = OPTIONS.get(name, tuple)()
            return [f"{name}={value}" for value in sorted(values) if value.startswith(begun)]
        return [f"{setting}=" for setting in sorted(known()) if setting.startswith(name)]

    return complete
