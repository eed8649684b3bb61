"""``fedchain reproduce``: all runs of an experiment, in parallel and resumable, and the table that they make.

Every finished run leaves a JSON file named after its settings; a second start runs only missing ones, and goes on with
simulations that were interrupted.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedchain.files.layout import RESULTS_FOLDER
from fedchain.files.spool import write_whole
from fedchain.learning.config import OWN
from fedchain.learning.datasets.load import forget_datasets, load_dataset
from fedchain.learning.exceptions import DatasetError, LearningError, ReleaseRefused, TrainingDiverged
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.registry import agreed_name, build_method
from fedchain.simulator.choices import PROCESSES
from fedchain.simulator.reproduction.experiment import Experiment, Measure, Run, key_of
from fedchain.simulator.reproduction.forgetting import run_forgetting
from fedchain.simulator.reproduction.inversion import run_inversion
from fedchain.simulator.reproduction.latex import to_latex
from fedchain.simulator.reproduction.markdown import to_markdown
from fedchain.simulator.reproduction.parallel import (
    Begun,
    record_folder,
    require_usable,
    run_all,
    run_one,
    write_result,
)
from fedchain.simulator.reproduction.plots import draw
from fedchain.simulator.reproduction.run_workers import OnRound, Runner
from fedchain.simulator.reproduction.table import (
    PERCENT,
    Entry,
    best_of,
    read_result,
    scale_of,
    tabulate,
    wants_less,
    write_csv,
    write_rounds,
)
from fedchain.simulator.reproduction.timing import run_timing
from fedchain.simulator.resuming.record import RecordError, RecordInUse
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.terminal import Console
from fedchain.wording import counted


def reproduce(
    experiment: Experiment,
    folder: Path,
    jobs: int,
    overrides: Mapping[str, Any],
    only: str = "*",
    executor: str = PROCESSES,
) -> list[Entry]:
    """Run missing simulations, ``jobs`` at a time, and write tables and pictures.

    The files are ``table.md``, ``table.tex`` for a paper, ``table.csv`` with each seed's number, and ``rounds.csv``
    with all measurements. Runs whose data set is missing are left out, and the table says so.

    Args:
        experiment: the experiment to run.
        folder: folder of results and table.
        jobs: number of simulations at a time.
        overrides: scenario values that override the experiment's.
        only: pattern of the "cell/variant" to run; the table holds every run with a result.
        executor: where they run, each by a worker: see :func:`run_all`.

    Raises:
        DatasetError: the data sets of all runs are missing.
        LearningError: no run's data can be used; or runs fail, as by a user's own method, or since their data cannot be
            spread as they ask; the table of all others is written, and no result of those that failed is kept.
        ScenarioError: nothing fits ``only``, or finished runs are of other data than the user's task gives now.
        WorkerDiedError: a run's processes were killed again and again; the others' table is written.
    """
    runs = list(experiment.runs(overrides, only))
    if not runs:
        raise ScenarioError(f"no cell/variant of {experiment.name} fits {only!r}")
    results = folder / RESULTS_FOLDER
    if experiment.measure != "simulation":
        results /= experiment.measure  # a result's name is that of its scenario, whatever is measured
    results.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not (results / f"{run.key}.json").exists()]
    _require_same_data(experiment.runs(overrides), results)
    console = Console()
    for run in runs:
        if run not in missing:  # a process was killed after it wrote the result
            shutil.rmtree(record_folder(results, run.key), ignore_errors=True)
    begun = sum(record_folder(results, run.key).exists() for run in missing)
    goes_on = f", {begun} interrupted, which {'goes' if begun == 1 else 'go'} on" if begun else ""
    done = len(runs) - len(missing)
    console.print(f"{experiment.title}\n{counted(len(runs), 'run')}, {done} of them done already{goes_on}")
    lacking = find_lacking([run.scenario for run in missing])
    usable = [run for run in missing if run.scenario.dataset not in lacking]
    if len(usable) < len(missing) == len(runs) and not usable:
        raise next(iter(lacking.values()))
    for dataset, error in lacking.items():
        console.print(f"skipped: runs on {dataset}; {error}")
    if not done:
        require_usable([run.scenario for run in usable])
    failed: dict[str, str] = {}  # by key
    keep = partial(_keep, experiment, usable, results, failed)
    carry_out = partial(run_or_diverge, experiment.measure, results=results)
    lost: WorkerDiedError | None = None
    try:
        run_all([run.scenario for run in usable], jobs, keep, console, carry_out, executor)
    except WorkerDiedError as error:
        lost = error
    except KeyboardInterrupt:
        console.print(f"what was computed is in {folder}; the same command goes on from there", soft_wrap=True)
        raise
    entries = tabulate(experiment, results, overrides, lacking)
    changed = {name: value for name, value in overrides.items() if name != "data_dir"}
    why = _by_name([run for run in usable if not (results / f"{run.key}.json").exists()], failed)
    text = to_markdown(experiment, entries, changed, {dataset: str(error) for dataset, error in lacking.items()}, why)
    write_whole(text, folder / "table.md")
    write_whole(to_latex(experiment, entries), folder / "table.tex")
    write_csv(folder / "table.csv", experiment, entries)
    write_rounds(folder / "rounds.csv", experiment, results, overrides)
    draw(experiment, entries, results, overrides, folder)
    console.print(text, markup=False, soft_wrap=True)
    console.print(f"written to {folder}", soft_wrap=True)
    if lost is not None:
        raise lost
    if failed:
        raise LearningError("not in the table: " + "; ".join(f"{name}: {reason}" for name, reason in why.items()))
    return entries


def _require_same_data(runs: Iterable[Run], results: Path) -> None:
    """Raise ScenarioError if a finished run is of other data than its task gives now: one table would mix them.

    Data that cannot be read any more are no other ones.
    """
    now: dict[tuple[object, ...], str] = {}  # by what a task's data depend on
    for run in runs if any(results.glob("*.json")) else ():
        scenario = run.scenario
        found = read_result(results / f"{run.key}.json") if scenario.task else None
        if found is None or not found.data:
            continue
        method = build_method(agreed_name(scenario.method), scenario.hyperparameters)
        # Members that begin with one model draw their examples with one seed.
        of = scenario.task, scenario.seed, scenario.peers, scenario.aggregator_rule, method.shared_init
        if of not in now:
            with suppress(LearningError):
                now[of] = load_learner(scenario).hash_own()
        if now.setdefault(of, found.data) != found.data:
            raise ScenarioError(
                f"{results} holds results of other data than {scenario.task} gives now: name another folder with --out"
            )


def _by_name(unfinished: Sequence[Run], failed: Mapping[str, str]) -> dict[str, str]:
    """The runs without a result of each variant in a cell by name, and why the first one has none."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in unfinished:
        found.setdefault((run.variant, run.cell), []).append(run)
    return {
        f"{variant}, {cell}, seed{'s' if len(runs) > 1 else ''} {', '.join(str(run.seed) for run in runs)}": failed.get(
            runs[0].key, "its processes were killed"
        )
        for (variant, cell), runs in found.items()
    }


def find_lacking(scenarios: Sequence[Scenario]) -> dict[str, DatasetError]:
    """The scenarios' built-in data sets that cannot be read here, with the errors."""
    found: dict[str, DatasetError] = {}
    for dataset, scenario in {scenario.dataset: scenario for scenario in scenarios}.items():
        if dataset != OWN:
            try:
                load_dataset(dataset, scenario.data_dir)
            except DatasetError as error:
                found[dataset] = error
            finally:
                forget_datasets()  # each simulation reads its own; all at once may need much memory
    return found


def run_or_diverge(
    measure: Measure, scenario: Scenario, on_round: OnRound, results: Path | None = None
) -> dict[str, Any]:
    """Run a scenario for a measure; if training diverges, the measurements until then are a result, too.

    The same holds if the peers' privacy budgets end before the rounds do. A run that fails, as by a user's own method,
    or that is found to be impossible, leaves only the reason.

    A simulation's record is kept among the ``results``. If the simulation cannot go on from it, it begins anew, and the
    result says why under "anew". Raises RecordInUse if another process runs it.
    """
    kept = None if results is None else record_folder(results, key_of(scenario))
    try:
        return _outcome_of(measure, scenario, on_round, kept)
    except RecordInUse:
        raise
    except RecordError as error:
        assert kept is not None, "without a record nothing is replayed"
        shutil.rmtree(kept)
        return _outcome_of(measure, scenario, on_round, kept) | {"anew": str(error)}


def _outcome_of(measure: Measure, scenario: Scenario, on_round: OnRound, kept: Path | None) -> dict[str, Any]:
    begun = Begun(scenario)
    runners: Mapping[Measure, Runner] = {
        "simulation": partial(run_one, begun=begun, record_folder=kept),
        "forgetting": run_forgetting,
        "inversion": run_inversion,
        "timing": run_timing,
    }
    try:
        return runners[measure](scenario, on_round)
    except (TrainingDiverged, ReleaseRefused) as error:
        ended = {"diverged": str(error)} | ({"spent": True} if isinstance(error, ReleaseRefused) else {})
        return begun.result() | ended
    except (WorkerDiedError, RecordError):
        raise
    except (LearningError, ScenarioError) as error:
        return {"failed": str(error)}


def _keep(
    experiment: Experiment,
    runs: Sequence[Run],
    results: Path,
    failed: dict[str, str],
    place: int,
    result: dict[str, Any],
) -> str:
    """Keep the result of a run, or the reason why it ``failed``; returns a line about it."""
    run = runs[place]
    anew = f"; begun anew: {reason}" if (reason := result.pop("anew", "")) else ""
    if "failed" not in result:
        write_result(results, run.key, result)
    shutil.rmtree(record_folder(results, run.key), ignore_errors=True)
    if "failed" in result:
        failed[run.key] = result["failed"]
        return f"{run.variant}  {run.cell}  seed {run.seed}: {result['failed']}{anew}"
    metric = experiment.variant(run.variant).metric
    best = best_of(result["rows"], metric)
    percent = " %" if scale_of(metric) == PERCENT else ""
    which = "lowest" if wants_less(metric) else "highest"
    reached = "" if best is None else f"{which} {metric} {scale_of(metric) * best:.4g}{percent}"
    outcome = result.get("diverged") or reached or "done"
    found = result.get("violations")
    broken = f"; {counted(len(found), 'promise')} broken: {found[0]}" if found else ""
    return f"{run.variant}  {run.cell}  seed {run.seed}: {outcome}{broken}{anew}"
