"""``fedchain simulate`` and ``fedchain reproduce``. Nothing heavy is imported before they run."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.node.command import EXIT_DIFFERENT, RUNS_FOLDER, clear_errors
from fedchain.node.data_cli import DOWNLOAD_HELP, download_files
from fedchain.simulator.scenario import Scenario, ScenarioError, field_help, load_scenario

_NOT_OPTIONS = ("faults", "hyperparameters")


def simulate_command() -> Callable[..., None]:
    """Build the command: one option for each field of :class:`Scenario`, with the field's docstring as help."""

    def simulate(**options: Any) -> None:
        scenario_file = options.pop("scenario_file")
        out, download = options.pop("out"), options.pop("download")
        values = {name: value for name, value in options.items() if value is not None}
        settings = values.pop("hyperparameters", [])
        run_command(scenario_file, values, settings, out, bool(download))

    texts = field_help(Scenario)
    parameters = [
        _parameter("scenario_file", Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario file.")),
        _parameter("out", Path, typer.Option("--out", help="Run folder to create; default: runs/NAME.")),
        _parameter("download", bool, typer.Option("--download", help=DOWNLOAD_HELP)),
        _parameter(
            "hyperparameters",
            list[str],
            typer.Option("--set", metavar="NAME=VALUE", help=texts["hyperparameters"]),
        ),
    ]
    for item in fields(Scenario):
        if item.name not in _NOT_OPTIONS:
            names = [f"--{item.name.replace('_', '-')}"]
            parameters.append(_parameter(item.name, item.type, typer.Option(*names, help=_help(item, texts))))
    simulate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    simulate.__doc__ = """Run a federation of many peers on this machine, in virtual time.

    Without a scenario file it is 20 peers × 10 rounds of DFPL on scikit-learn's handwritten digits. An option
    overrides the file.
    """
    return simulate


def run_command(
    scenario_file: Path | None, values: Mapping[str, Any], settings: list[str], out: Path | None, download: bool
) -> None:
    """Run one scenario, show it, and write its run folder; exits with 1 if the checker found something."""
    with clear_errors(ScenarioError):
        overrides = dict(values)
        if settings:
            from fedchain.node.task import read_settings

            overrides["hyperparameters"] = read_settings(settings)
        scenario = load_scenario(scenario_file, overrides)
        if download:
            download_files(scenario.dataset, scenario.data_dir)

        from fedchain.simulator.run import run_scenario

        if run_scenario(scenario, out):
            raise typer.Exit(EXIT_DIFFERENT)


def reproduce(
    experiment_file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="Experiment file.")],
    data_dir: Annotated[str, typer.Option(help="Folder of the data sets; default: FEDCHAIN_DATA.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Simulations at a time.")] = 2,
    seeds: Annotated[int | None, typer.Option(min=1, help="Only the first so many seeds.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer or more rounds than the experiment has.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results and table; default: runs/NAME.")] = None,
    download: Annotated[bool, typer.Option("--download", help=DOWNLOAD_HELP)] = False,
) -> None:
    """Run an experiment of a paper and print its table beside the paper's numbers.

    What is finished is kept: an interrupted experiment goes on where it was.
    """
    with clear_errors(ScenarioError):
        from fedchain.simulator.experiment import load_experiment

        experiment = load_experiment(experiment_file)
        if seeds is not None:
            experiment = replace(experiment, seeds=experiment.seeds[:seeds])
        overrides: dict[str, Any] = {"data_dir": data_dir} if data_dir else {}
        if rounds is not None:
            overrides["rounds"] = rounds
        first = next(experiment.runs(overrides))
        if download:
            for name in sorted({run.scenario.dataset for run in experiment.runs(overrides)}):
                download_files(name, data_dir)

        from fedchain.simulator.reproduce import reproduce as run_experiment
        from fedchain.simulator.run import load_learner

        load_learner(first.scenario)  # bad data shall be one line, not one per run
        run_experiment(experiment, out or RUNS_FOLDER / experiment.name, jobs, overrides)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """An optional parameter: None means that it was not given."""
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(item: Any, texts: Mapping[str, str]) -> str:
    return f"{texts[item.name]} [default: {item.default}]" if item.default != "" else texts[item.name]
