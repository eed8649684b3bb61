"""``fedchain simulate``, ``reproduce`` and ``plan``. Nothing heavy is imported before they run."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.exit_codes import EXIT_DIFFERENT
from fedchain.cli.common.learning_options import help_text, optional
from fedchain.cli.common.settings import (
    SET_HELP,
    Row,
    Set,
    divide,
    listing,
    rows_of,
    settings_offered,
    settings_option,
)
from fedchain.cli.data import DOWNLOAD_HELP, download_files
from fedchain.files.layout import EXPERIMENT_FILE, RESULTS_FOLDER, RUNS_FOLDER
from fedchain.files.tables import build, type_of
from fedchain.simulator.choices import (
    EXECUTOR_HELP,
    JOBS_HELP,
    RunOptions,
    Training,
    default_jobs,
    installed,
    validated,
)
from fedchain.simulator.planning.options import PlanOptions
from fedchain.simulator.scenario import Scenario, ScenarioError, field_help, load_scenario

if TYPE_CHECKING:
    from fedchain.simulator.reproduction.table import Entry

KEEP_MODELS_HELP = "Keep every member's final model in the run folder, for fedchain model."

TRACK_HELP = "Write rounds for tensorboard or mlflow, by default in the run folder; repeat it for both."

RESUME_HELP = "Go on with an interrupted run: the one in the folder that --out names, or the newest of the name."

REPRODUCED_HELP = "Folder for results and table; default: runs/NAME, or that of a comparison whose file is named."

OPEN_HELP = "Show the run in the browser while it runs, and then until Ctrl-C."

DRAW_HELP = """Draw pictures in the run's folder when it is over. If --out names the folder of an interrupted run, and
--resume is not given: show what is there, as its table and its pictures, and do not go on."""

RECORD_HELP = """Keep what is computed in the run's folder until the run is finished, so that it can go on if it is
interrupted: all posts, and the newest state of each peer. Without: nothing is kept.  [default: record]"""

NAMED = ("method", "peers", "rounds", "seed", "dataset", "task", "partition", "workers")
"""Fields of a scenario that have an option of their own; ``--set`` takes most of them, too."""

IN_FILE = ("hash_rates", "faults", "clocks", "adversaries", "changes")
"""Fields of a scenario that stand in its file alone: tables, or one value for each peer."""

OPTIONS_ALONE = ("method", "peers", "rounds")
"""Fields of a scenario that ``--set`` does not take, since methods have hyper-parameters of such names."""

SETTABLE = frozenset(item.name for item in fields(Scenario)).difference({"hyperparameters", *OPTIONS_ALONE, *IN_FILE})
"""Fields of a scenario that ``--set`` takes."""

PANELS = {
    "Federation": "peers rounds seed",
    "Learning": "method",
    "Data": "dataset task download partition",
    f"Settings (only in a file: {', '.join(IN_FILE)})": "hyperparameters settings",
    "Machine": "workers executor",
    "Output": "out open draw keep_models track resume record",
}
"""Headings of ``simulate --help``, and the options under each."""


def simulate_command() -> Callable[..., None]:
    """Build the command: options for some fields of :class:`Scenario`, with their docstrings as help, and ``--set``."""

    kept_names = ("keep_models", "track", "resume", "draw", "record", "executor", "open")

    def simulate(
        scenario_file: Path | None,
        hyperparameters: list[str] | None,
        out: Path | None,
        download: bool | None,
        **options: Any,
    ) -> None:
        keep_models, track, resume, draw, record, executor, opens_browser = map(options.pop, kept_names)
        del options["settings"]  # it ends the command by itself
        values = {name: value for name, value in options.items() if value is not None}
        with clear_errors(ScenarioError):
            kept = RunOptions(
                keep_models=bool(keep_models),
                track=track or (),
                is_resumed=bool(resume),
                draws=bool(draw),
                keeps_record=record is not False,
                training=Training(installed(validated(executor))),
            )
            overrides = with_settings(values, divide(hyperparameters or [], ())[1])
            with settings_offered(overrides.get("hyperparameters", ()), SETTABLE, OPTIONS_ALONE):
                if draw and not resume and out is not None and out.exists():
                    draw_interrupted(scenario_file, overrides, out)
                else:
                    run_command(
                        scenario_file, overrides, out, kept, download=bool(download), opens_browser=bool(opens_browser)
                    )

    parameters = [
        optional("scenario_file", Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario file.")),
        optional("out", Path, typer.Option("--out", help="Run folder to create; default: runs/NAME.")),
        optional("download", bool, typer.Option("--download", help=DOWNLOAD_HELP)),
        optional("keep_models", bool, typer.Option("--keep-models", help=KEEP_MODELS_HELP)),
        optional("track", list[str], typer.Option("--track", metavar="TRACKER[=PLACE]", help=TRACK_HELP)),
        optional("open", bool, typer.Option("--open", help=OPEN_HELP)),
        optional("resume", bool, typer.Option("--resume", help=RESUME_HELP)),
        optional("draw", bool, typer.Option("--draw", help=DRAW_HELP)),
        executor_option(),
        optional("record", bool, typer.Option("--record/--no-record", help=RECORD_HELP)),
        optional(
            "hyperparameters",
            list[str],
            typer.Option("--set", metavar="NAME=VALUE", help=SET_HELP),
        ),
        listing(scenario_rows),
    ]
    parameters = under_headings([*parameters, *scenario_options()])
    simulate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    simulate.__doc__ = """Run a federation of many peers on this machine, in virtual time.

    Without a scenario file it is 20 peers × 10 rounds of DFPL on scikit-learn's handwritten digits. An option
    overrides the file.
    """
    return simulate


def executor_option() -> inspect.Parameter:
    """The option that simulations and comparisons share."""
    return optional("executor", str, typer.Option("--executor", metavar="NAME", help=EXECUTOR_HELP))


def scenario_rows() -> Iterator[Row]:
    """The fields of a scenario that ``--set`` takes, as rows of ``--settings``."""
    return rows_of(Scenario, SETTABLE, field_help(Scenario))


def under_headings(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters in the order of ``PANELS``, each under its heading; those without a heading come first."""
    places = {name: (place, panel) for place, panel in enumerate(PANELS) for name in PANELS[panel].split()}
    for parameter in parameters:
        if parameter.name in places:
            parameter.annotation.__metadata__[0].rich_help_panel = places[parameter.name][1]
    order = [name for panel in PANELS.values() for name in panel.split()]
    return sorted(parameters, key=lambda item: order.index(item.name) if item.name in places else -1)


def scenario_options(without: Collection[str] = ()) -> list[inspect.Parameter]:
    """An option for each field of :class:`Scenario` that has one."""
    texts, parameters = field_help(Scenario), list[inspect.Parameter]()
    for item in fields(Scenario):
        if item.name in NAMED and item.name not in without:
            option = item.name.replace("_", "-")
            name = f"--{option}/--no-{option}" if item.type is bool else f"--{option}"
            parameters.append(optional(item.name, type_of(item.type), typer.Option(name, help=help_text(item, texts))))
    return parameters


def with_settings(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values that options give, over those of ``--set``; what is no field of a scenario is a hyper-parameter.

    Raises ScenarioError for a field that stands in a file alone.
    """
    if misplaced := [name for name in IN_FILE if name in settings]:
        raise ScenarioError(f"--set {misplaced[0]}: it stands in a scenario's file alone, fedchain simulate FILE.toml")
    given = {name: value for name, value in settings.items() if name in SETTABLE}
    others = {name: value for name, value in settings.items() if name not in SETTABLE}
    return given | dict(values) | ({"hyperparameters": others} if others else {})


def run_command(
    scenario_file: Path | None,
    overrides: Mapping[str, Any],
    out: Path | None,
    kept: RunOptions,
    *,
    download: bool,
    opens_browser: bool,
) -> None:
    """Run one scenario, show it, and write its run folder; exits with 1 if the checker found a violation."""
    if kept.is_resumed:
        from fedchain.simulator.resuming.resume import resumed_run

        scenario, out = resumed_run(scenario_file, overrides, out)
    else:
        scenario = load_scenario(scenario_file, overrides)
        if out is not None:
            from fedchain.simulator.resuming.resume import require_new

            require_new(out)
    if download:
        download_files(scenario.dataset, scenario.data_dir)

    from fedchain.cli.browser import shown_in_browser
    from fedchain.collector import importing
    from fedchain.terminal import Console

    with Console().status("loading PyTorch"), importing(keeps=True):  # some seconds; only a terminal shows it
        from fedchain.simulator.console import run_scenario

    def shown(folder: Path) -> AbstractContextManager[None]:
        return shown_in_browser(folder, scenario.method) if opens_browser else nullcontext()

    if run_scenario(scenario, out, kept, shown=shown):
        raise typer.Exit(EXIT_DIFFERENT)


def draw_interrupted(scenario_file: Path | None, values: Mapping[str, Any], out: Path) -> None:
    """Show the finished part of an interrupted run."""
    from fedchain.simulator.console import draw_scenario
    from fedchain.simulator.resuming.resume import interrupted_run

    draw_scenario(*interrupted_run(scenario_file, values, out))


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Experiment, or a file of one; without: list them.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help=JOBS_HELP)] = None,
    executor: Annotated[str | None, typer.Option(metavar="NAME", help=EXECUTOR_HELP)] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fewer or more seeds than the experiment has.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Other rounds than the experiment's.")] = None,
    only: Annotated[str, typer.Option(metavar="CELL/VARIANT", help="Pattern of what to run: '*/DFPL*'.")] = "*",
    out: Annotated[Path | None, typer.Option(help=REPRODUCED_HELP)] = None,
    download: Annotated[bool, typer.Option("--download", help=DOWNLOAD_HELP)] = False,
) -> None:
    """Run an experiment of a paper and print its table beside the paper's numbers.

    An interrupted experiment goes on where it was, also in the middle of a simulation. Exit code 1: in a run of the
    table, a promise of the protocol did not hold, or a run's processes were killed.
    """
    from fedchain.simulator.reproduction.library import find_experiment, list_experiments

    with clear_errors(ScenarioError):
        if name is None:
            for known, title in list_experiments():
                typer.echo(f"{known:26}  {title}")
            return
        where = installed(validated(executor))
        path = find_experiment(name)
        overrides = dict[str, Any]()
        from fedchain.simulator.reproduction.experiment import first_seeds, load_experiment

        experiment = load_experiment(path)
        experiment = replace(experiment, seeds=first_seeds(experiment.seeds, seeds))
        if rounds is not None:
            if experiment.is_search:
                some = f"--only {f'{experiment.cells[0].name}/*'!r}"
                raise ScenarioError(f"--rounds is {rounds}, but the cells of {name} are numbers of rounds; try {some}")
            overrides["rounds"] = rounds
        if download:
            wanted = {(run.scenario.dataset, run.scenario.data_dir) for run in experiment.runs(overrides, only)}
            for dataset, data_dir in sorted(wanted):
                download_files(dataset, data_dir)

        from fedchain.simulator.reproduction.reproduce import reproduce as run_experiment

        is_compared = path.name == EXPERIMENT_FILE and (path.parent / RESULTS_FOLDER).is_dir()
        folder = out or (path.parent if is_compared else RUNS_FOLDER / experiment.name)
        exit_if_broken(run_experiment(experiment, folder, jobs or default_jobs(where), overrides, only, where))


def exit_if_broken(entries: Iterable["Entry"]) -> None:
    """Exit with code 1 if the entries of a table are of runs in which a promise of the protocol did not hold."""
    if any(entry.broken for entry in entries):
        raise typer.Exit(EXIT_DIFFERENT)


PLANNED = frozenset({item.name for item in fields(PlanOptions)} - {"total_s", "out"})
"""Settings of a plan that ``--set`` takes."""


def _plan_rows() -> Iterator[Row]:
    yield from rows_of(PlanOptions, PLANNED)
    yield from scenario_rows()


def plan(
    scenario_file: Annotated[Path | None, typer.Argument(metavar="SCENARIO.toml", help="Scenario file.")] = None,
    t_sum: Annotated[float, typer.Option(help="Seconds that all rounds have together.")] = 100.0,
    setting: Set = None,
    settings: Annotated[bool, settings_option(_plan_rows)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Experiment to write, which simulates every R.")
    ] = None,
) -> None:
    """Divide a time budget between training and mining: local steps E for each number of rounds R, and what follows.

    DFPL's resource model: E = floor((t_sum / R − beta) / alpha). Alpha and beta are measured on this machine unless
    they are given. The bounds of DFPL's corollaries are evaluated with constants estimated on the scenario's data.
    fedchain reproduce FILE.toml finds the R that ends with the lowest loss.
    """
    with clear_errors(ScenarioError):
        given, others = divide(setting or [], PLANNED)
        options = replace(build(PlanOptions, given, "plan", ScenarioError), total_s=t_sum, out=out)
        with settings_offered(others, {*SETTABLE, *PLANNED}, in_file=("method", "peers")):
            scenario = load_scenario(scenario_file, with_settings({}, others))
        if options.chi is not None and not 0 < options.chi < float("inf"):
            raise ScenarioError(f"chi is {options.chi}, it must be above 0")
        if out is not None and out.suffix != ".toml":
            raise ScenarioError(f"--out is {str(out)!r}, it must be the file of an experiment, which ends in .toml")

        from fedchain.simulator.planning.plan_report import run_plan

        run_plan(scenario, options, as_json=as_json)


simulate = simulate_command()
