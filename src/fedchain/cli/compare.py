"""``fedchain compare``: methods side by side, without a file to write. Nothing heavy is imported before it runs."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.learning_options import optional
from fedchain.cli.common.settings import divide
from fedchain.cli.data import DOWNLOAD_HELP, download_files
from fedchain.cli.simulate import SETTABLE, executor_option, exit_if_broken, scenario_options, under_headings
from fedchain.files.layout import EXPERIMENT_FILE, RESULTS_FOLDER, RUNS_FOLDER, SCENARIO_FILE
from fedchain.files.spool import write_whole
from fedchain.files.tables import read_toml
from fedchain.simulator.choices import JOBS_HELP, default_jobs, installed, validated
from fedchain.simulator.scenario import ScenarioError, require_placed, scenario_from_dict

if TYPE_CHECKING:
    from fedchain.simulator.reproduction.experiment import Experiment

_SEEDS = 3


def compare_command() -> Callable[..., None]:
    """Build the command: its own options, and most of a scenario's."""

    def compare(**options: Any) -> None:
        names = ("scenario_file", "methods", "seeds", "sweep", "setting", "metric", "jobs", "out", "download")
        scenario_file, methods, seeds, sweeps, settings, metrics, jobs, out, download = map(options.pop, names)
        executor = options.pop("executor")
        values = {name: value for name, value in options.items() if value is not None}
        with clear_errors(ScenarioError):
            where = installed(validated(executor))
            _require_once(sweeps or [], values, settings or [])
            stated = {} if scenario_file is None else read_toml(scenario_file, ScenarioError)
            given, hyperparameters = divide(settings or [], SETTABLE)
            experiment = _experiment(
                [name.strip() for name in (methods or "").split(",") if name.strip()],
                seeds or _SEEDS,
                {"workers": 1, **stated, **given, **values},
                hyperparameters,
                sweeps or [],
                metrics or ["taa"],
            )
            _run(experiment, jobs or default_jobs(where), out, where, download=bool(download))

    parameters = [
        optional("scenario_file", Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario that all runs share.")),
        optional(
            "methods",
            str,
            typer.Option(
                "--methods",
                metavar="A,B,…",
                help="Methods, separated by commas; FILE.py:Class or module:Class for one of your own.",
            ),
        ),
        optional("seeds", int, typer.Option("--seeds", min=1, help=f"Seeds, from the first on [default: {_SEEDS}].")),
        optional(
            "sweep",
            list[str],
            typer.Option("--sweep", metavar="NAME=A,B,…", help="Values of a setting or hyper-parameter; repeat it."),
        ),
        optional(
            "setting",
            list[str],
            typer.Option(
                "--set",
                metavar="[METHOD.]NAME=VALUE",
                help="Setting, as `fedchain simulate --settings` lists them, or hyper-parameter, of one method or of "
                "all that have it; repeat it.",
            ),
        ),
        optional(
            "metric",
            list[str],
            typer.Option("--metric", help="Metric of the last round that the table shows; repeat it [default: taa]."),
        ),
        optional("jobs", int, typer.Option("--jobs", min=1, help=JOBS_HELP)),
        executor_option(),
        optional("out", Path, typer.Option("--out", help="Folder for results and tables; default: runs/compare.")),
        optional("download", bool, typer.Option("--download", help=DOWNLOAD_HELP)),
    ]
    for item in parameters[1:]:  # but the scenario file, which is an argument
        item.annotation.__metadata__[0].rich_help_panel = "Comparison"
    parameters = [
        *parameters,
        *under_headings(scenario_options(without=("method", "seed", "task", "workers"))),
    ]
    compare.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    compare.__doc__ = """Run methods on the same data and seeds, and print what each reached: mean ± deviation.

    The folder gets the table, pictures, rounds.csv with all measurements, and a file for fedchain reproduce. The
    same command goes on where it was interrupted, also in the middle of a run, and a longer one adds to it. Exit code
    1: in a run of the table, a promise of the protocol did not hold, or a run's processes were killed.
    """
    return compare


def _experiment(
    methods: list[str],
    seeds: int,
    values: dict[str, Any],
    hyperparameters: dict[str, Any],
    sweeps: list[str],
    metrics: list[str],
) -> "Experiment":
    """The experiment that compares the methods, each of whose runs is possible.

    The values are those that all runs share, of a file, of settings and of options.
    """
    from fedchain.learning.registry import use_current_folder
    from fedchain.simulator.reproduction.compare import build_comparison
    from fedchain.simulator.reproduction.experiment import validate_experiment

    use_current_folder()
    require_placed({"method": methods[0], **values} if methods else values)
    scenario_from_dict(values)  # it raises an error for a value of the wrong type
    shared = {name: value for name, value in values.items() if name != "hyperparameters"}
    settings = {**values.get("hyperparameters", {}), **hyperparameters}
    experiment = build_comparison(methods, seeds, shared, settings, sweeps, metrics)
    validate_experiment(experiment)
    list(experiment.runs({}))  # it raises an error for a run that is impossible
    return experiment


def _require_once(sweeps: Iterable[str], options: Iterable[str], settings: Iterable[str]) -> None:
    """Raise ScenarioError for a swept setting that the command gives a value of its own, too: no cell would have it."""
    swept = {sweep.partition("=")[0].strip().replace("-", "_"): sweep for sweep in sweeps}
    given = {f"--{name.replace('_', '-')}": name for name in options}
    given |= {f"--set {setting}": setting.partition("=")[0].strip().rpartition(".")[2] for setting in settings}
    for words, name in given.items():
        if name in swept:
            raise ScenarioError(f"{words} and --sweep {swept[name]} name one setting; give one of them")


def _run(experiment: "Experiment", jobs: int, out: Path | None, executor: str, *, download: bool) -> None:
    """Run those of its runs that are missing."""
    from fedchain.simulator.reproduction.compare import write_experiment
    from fedchain.simulator.reproduction.reproduce import reproduce

    folder = out or RUNS_FOLDER / experiment.name
    _validate_folder(folder)
    if download:
        for dataset in sorted({run.scenario.dataset for run in experiment.runs({})}):
            download_files(dataset, experiment.scenario.get("data_dir", ""))
    (folder / RESULTS_FOLDER).mkdir(parents=True, exist_ok=True)
    write_whole(write_experiment(experiment), folder / EXPERIMENT_FILE)
    exit_if_broken(reproduce(experiment, folder, jobs, {}, executor=executor))


def _validate_folder(folder: Path) -> None:
    """Raise ScenarioError if files in the folder that no comparison wrote would be written over."""
    if (folder / SCENARIO_FILE).exists():
        raise ScenarioError(f"{folder} is the folder of a simulated run; name another one with --out")
    if (folder / EXPERIMENT_FILE).exists() and not (folder / RESULTS_FOLDER).is_dir():
        raise ScenarioError(
            f"{folder / EXPERIMENT_FILE} is there, and no comparison wrote it; name another folder with --out"
        )


compare = compare_command()
