"""``fedchain simulate`` on a terminal: prepare a run, show its progress, and sum it up."""

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fedchain.files.layout import RECORD_FOLDER, free_folder
from fedchain.learning.device import describe_device
from fedchain.learning.exceptions import LearningError, asking
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.registry import is_file_path, require_file
from fedchain.learning.worker.building import PlannedLearner
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.choices import NO_OPTIONS, RunOptions
from fedchain.simulator.display import Display, round_table, summary
from fedchain.simulator.pictures import not_held
from fedchain.simulator.report import RunFolder, require_unfinished
from fedchain.simulator.resuming.no_record import NO_RECORD, NoRecord
from fedchain.simulator.resuming.record import Record, reading_timeline
from fedchain.simulator.resuming.resume import identity
from fedchain.simulator.run import Audience, load_learner, run_in_folder
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.simulator.tracking import validate_tracker
from fedchain.terminal import Console, step
from fedchain.wording import counted


def run_scenario(
    scenario: Scenario,
    out: Path | None,
    options: RunOptions = NO_OPTIONS,
    *,
    shown: Callable[[Path], AbstractContextManager[None]] = lambda path: nullcontext(),
) -> bool:
    """Run a scenario, show it, and write its run folder, with the members' final models if these are kept.

    Args:
        scenario: validated.
        out: the folder; None: the first free one of the scenario's name.
        options: what the run keeps, and how it is carried out.
        shown: shows the run's folder elsewhere while the context is open.

    Returns:
        Whether the checker found a violation.
    """
    started, console = time.perf_counter(), Console()
    for wanted in options.track:
        validate_tracker(wanted)
    learner = _prepare(console, scenario)
    is_kept = options.is_resumed or options.keeps_record
    known = identity(scenario, data=learner.hash_own()) if is_kept else {}  # before the folder: large data take a while
    folder = RunFolder(out or free_folder(scenario.name), scenario, is_resumed=options.is_resumed)
    record: Record | NoRecord = NO_RECORD
    if is_kept:
        record = folder.open_record(known, is_resumed=options.is_resumed)
    if options.keep_models:
        folder.keep_models()
    display = Display(console, scenario, record.rounds_before)
    console.print(f"{scenario.method}, {counted(scenario.last_round, 'round')}; the run folder is {folder.path}")
    if options.is_resumed:
        console.print(f"{counted(record.rounds_before, 'round')} were closed before; they come from the record")
    writing = step(console, f"writing results{' and pictures' if options.draws else ''}")
    audience = Audience(display.on_round, display.watch, writing)
    with shown(folder.path):
        try:
            outcome = run_in_folder(scenario, learner, folder, record, audience, options)
        except (Exception, KeyboardInterrupt) as error:
            if not folder.path.exists():
                raise
            console.print(
                f"stopped after {counted(display.closed, 'round')}; what was measured so far is in {folder.path}"
            )
            recurs = isinstance(error, LearningError | ScenarioError) and not isinstance(error, WorkerDiedError)
            if is_kept and not recurs:
                _say_how_to_go_on(console, folder.path, options)
            raise
        console.print(round_table(outcome.rows, scenario))
        console.print(summary(outcome, str(folder.path), started), crop=False)
    return bool(outcome.violations)


def draw_scenario(scenario: Scenario, path: Path) -> None:
    """Show an interrupted run so far: print its table, and draw pictures in its folder."""
    learner, folder = load_learner(scenario), RunFolder(path, scenario, is_resumed=True)
    with reading_timeline(path / RECORD_FOLDER) as timeline:
        require_unfinished(path)
        rows = folder.read_rows()
        folder.draw(rows, timeline, learner.histogram())
    console = Console()
    console.print(round_table(rows, scenario))
    console.print(f"{len(rows)} of {scenario.last_round} rounds; pictures are in {path}", soft_wrap=True)


def _prepare(console: Console, scenario: Scenario) -> PlannedLearner:
    """Read the data, and print warnings about the run."""
    if is_file_path(scenario.task):
        require_file(f"task {scenario.task}", Path(scenario.task.rpartition(":")[0]))
    with step(console, f"preparing {scenario.task or scenario.dataset} for {counted(scenario.peers, 'peer')}"):
        learner = load_learner(scenario)
    if scenario.device == "auto":
        console.print(f"device auto: training on {', '.join(describe_device(learner.device).values())}")
    if learner.config.material:
        console.print("keys of the encryption are dealt from the scenario's seed: here they keep nothing secret")
    for warning in (not_held(learner.histogram()), late_phase(scenario, learner), *cautions(learner, scenario)):
        if warning:
            console.print(warning, soft_wrap=True)
    return learner


def _say_how_to_go_on(console: Console, folder: Path, options: RunOptions) -> None:
    there = shlex.quote(str(folder))
    told = "".join(f" --track {shlex.quote(wanted)}" for wanted in options.track) + " --draw" * options.draws
    console.print(f"go on: fedchain simulate --resume --out {there}{told}", soft_wrap=True)
    console.print(f"see what is there: fedchain simulate --draw --out {there}", soft_wrap=True)


def cautions(learner: Learner, scenario: Scenario) -> Sequence[str]:
    """Warnings about the method with its settings, such as a privacy budget that ends before the run does."""
    with asking("cautions", type(learner.method)):
        return tuple(learner.method.cautions(None if scenario.contributors_per_round else scenario.last_round))


def late_phase(scenario: Scenario, learner: Learner) -> str:
    """Warning about the phase that trains longest beyond the time that it waits for posts; empty if there is none."""
    method, worst_s, text = learner.method, scenario.phase_timeout_s, ""
    for phase in (*method.setup, *method.phases):
        first = 1 if phase in method.phases else 0
        steps = [learner.planned_steps(client, phase.name, first) for client in range(scenario.peers)]
        needed_s = scenario.iteration_s * max(steps)
        if needed_s > worst_s:
            worst_s = needed_s
            late = sum(scenario.iteration_s * count > scenario.phase_timeout_s for count in steps)
            text = (
                f"phase {phase.name} trains for up to {needed_s:.0f} virtual s ({max(steps):,} steps of "
                f"{scenario.iteration_s:g} s) and waits {scenario.phase_timeout_s:g} s: {late} of {scenario.peers} "
                f"peers may be too late to count; raise phase_timeout_s, or lower iteration_s"
            )
    return text
