"""Running a scenario: data, worker processes, simulation and run folder put together."""

import shlex
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import lru_cache, partial
from pathlib import Path

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.command import free_folder
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.threshold import open_share
from fedchain.files.layout import RECORD_FOLDER
from fedchain.learning.aggregation.threshold import SHARE
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import LearningError, NothingToPost
from fedchain.learning.learner import Learner
from fedchain.learning.secrets import Secrets
from fedchain.learning.task.choice import TaskFunction
from fedchain.node.dealing import deal_keys, share_bytes
from fedchain.node.task import with_shapes
from fedchain.simulator.adversaries.poisoners import FlippedLabels, Poisoner
from fedchain.simulator.adversaries.posters import PoisonPoster
from fedchain.simulator.adversaries.registry import find_behaviour
from fedchain.simulator.display import Display, round_table, summary
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.record import Record, read_timeline
from fedchain.simulator.engine.recording_pool import RecordingPool
from fedchain.simulator.engine.simulation import Outcome, Progress, Simulation, found_federation, simulation_keys
from fedchain.simulator.engine.training_pool import CLIENTS_MAX, TrainingPool
from fedchain.simulator.report import RunFolder
from fedchain.simulator.resume import identity
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.simulator.tracking import Tracker, open_tracker, validate_tracker
from fedchain.simulator.trained.origins import add_origins
from fedchain.terminal import Console, step
from fedchain.wording import counted

STARTING = threading.Lock()
"""Held while a run begins, if several may begin at once: processes that another thread forks meanwhile would keep the
lock of a store that is being made, and find other locks taken for ever."""

Watch = Callable[[Progress], AbstractContextManager[None]]


def run_scenario(
    scenario: Scenario,
    out: Path | None,
    *,
    keep_models: bool = False,
    track: Sequence[str] = (),
    is_resumed: bool = False,
    keeps_record: bool = True,
) -> bool:
    """Run a scenario, show it, and write its run folder, with the members' final models where these are kept.

    Args:
        scenario: validated.
        out: the folder; None: the first free one of the scenario's name.
        keep_models: whether the members' final models are written.
        track: trackers, as :func:`open_tracker` reads them; they hear of all rounds.
        is_resumed: whether the run in the folder goes on: see :func:`fedchain.simulator.resume.resumed_run`.
        keeps_record: whether a run that is interrupted can go on.

    Returns:
        Whether the checker found that something did not hold.
    """
    started = time.perf_counter()
    console = Console()
    for wanted in track:
        validate_tracker(wanted)
    with step(console, f"preparing {scenario.task or scenario.dataset} for {scenario.peers} peers"):
        learner = load_learner(scenario)
    if learner.config.material:
        console.print("keys of the encryption are dealt from the scenario's seed: here they keep nothing secret")
    for warning in (late_phase(scenario, learner), *cautions(learner, scenario)):
        if warning:
            console.print(warning, soft_wrap=True)
    display = Display(console, scenario)
    folder = RunFolder(out or free_folder(scenario.name), scenario, is_resumed=is_resumed)
    record = folder.open_record(identity(scenario), is_resumed=is_resumed) if is_resumed or keeps_record else None
    known = record.rounds_before if record is not None else 0
    console.print(f"{scenario.method}, {counted(scenario.rounds, 'round')}; the run folder is {folder.path}")
    if is_resumed:
        console.print(f"{counted(known, 'round')} were closed before; they come from the record")
    closed = 0

    def on_round(row: RoundMetrics) -> None:
        nonlocal closed
        closed = row.round
        if closed > known:
            display.on_round(row)

    try:
        outcome = run_in_folder(
            scenario,
            learner,
            folder,
            record,
            on_round,
            keep_models=keep_models,
            track=track,
            watch=display.watch,
            writing=step(console, "writing results and pictures"),
        )
    except (Exception, KeyboardInterrupt) as error:
        if not is_resumed and not folder.chain.exists():  # nothing was run: the same folder may be named again
            shutil.rmtree(folder.path)
            raise
        console.print(f"stopped after {counted(closed, 'round')}; what was measured so far is in {folder.path}")
        if record is not None and not isinstance(error, LearningError | ScenarioError):  # those would come again
            there = shlex.quote(str(folder.path))
            told = "".join(f" --track {shlex.quote(wanted)}" for wanted in track)
            console.print(f"go on: fedchain simulate --resume --out {there}{told}", soft_wrap=True)
            console.print(f"see what is there: fedchain simulate --draw --out {there}", soft_wrap=True)
        raise
    console.print(round_table(outcome.rows, scenario))
    console.print(summary(outcome, str(folder.path), started), crop=False)
    return bool(outcome.violations)


def run_in_folder(
    scenario: Scenario,
    learner: Learner,
    folder: RunFolder,
    record: Record | None,
    on_round: Callable[[RoundMetrics], None],
    *,
    keep_models: bool = False,
    track: Sequence[str] = (),
    watch: Watch = lambda progress: nullcontext(),
    writing: AbstractContextManager[object] | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Simulate a scenario and write its run folder; raises as :func:`simulate`, and ScenarioError for trackers.

    Args:
        scenario: validated.
        learner: of :func:`load_learner`.
        folder: of the run, which begins or goes on.
        record: of this run, open; it is closed when the run is interrupted, and deleted when nothing is left to do.
        on_round: told about each round when it is closed; of a run that goes on, from the first again.
        keep_models: whether the members' final models are written, as they are where a run began with that.
        track: trackers, as :func:`open_tracker` reads them; of a run that goes on, they hear of all rounds again.
        watch: a context that is open while the simulation runs.
        writing: a context that is open while results and pictures are written; None: nobody wants to know.
        stop: set by another thread, it ends the run with Interrupted.
    """
    begun_s, rows, trackers = time.perf_counter(), list[RoundMetrics](), list[Tracker]()

    def on_closed(row: RoundMetrics) -> None:
        rows.append(row)
        folder.write_rows(rows)
        for tell in trackers:
            tell(row)
        on_round(row)

    is_resumed = record is not None and record.resumptions > 0
    try:
        with ExitStack() as opened:
            for wanted in track:
                tracker = open_tracker(wanted, scenario, folder.path, is_resumed=is_resumed)
                trackers.append(opened.enter_context(tracker))
            if keep_models:
                folder.models.mkdir(exist_ok=True)
            models = folder.models if folder.models.exists() else None
            outcome = simulate(scenario, learner, on_closed, folder.chain, watch, models, stop, record)
    except NothingToPost:
        if record is not None:
            record.delete()  # it would end there again
        raise
    finally:
        if record is not None:
            record.close()
    with writing or nullcontext():
        folder.write_outcome(outcome, learner.histogram(), time.perf_counter() - begun_s)
    if record is not None:
        record.delete()
    return outcome


def cautions(learner: Learner, scenario: Scenario) -> Sequence[str]:
    """Say what nobody may expect of the method as it is set, such as a privacy budget that lasts to the end."""
    return learner.method.cautions(None if scenario.contributors_per_round else scenario.rounds)


def late_phase(scenario: Scenario, learner: Learner) -> str:
    """Say which phase trains beyond the time that it waits for posts, the worst of all; nothing where all fit."""
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


def draw_scenario(scenario: Scenario, path: Path) -> None:
    """Show what is there of an interrupted run: its table, and pictures in its folder."""
    learner, folder = load_learner(scenario), RunFolder(path, scenario, is_resumed=True)
    rows = folder.read_rows()
    folder.draw(rows, read_timeline(path / RECORD_FOLDER), learner.histogram())
    console = Console()
    console.print(round_table(rows, scenario))
    console.print(f"{len(rows)} of {scenario.rounds} rounds; pictures are in {path}", soft_wrap=True)


def simulate(
    scenario: Scenario,
    learner: Learner,
    on_round: Callable[[RoundMetrics], None] = lambda row: None,
    chain_folder: Path | None = None,
    watch: Watch = lambda progress: nullcontext(),
    models_folder: Path | None = None,
    stop: threading.Event | None = None,
    record: Record | None = None,
) -> Outcome:
    """Simulate a scenario with real training.

    Args:
        scenario: validated.
        learner: of :func:`load_learner`.
        on_round: told about each round when it is closed.
        chain_folder: where peer 0 keeps its chain; None: in memory.
        watch: a context that is open while the simulation runs.
        models_folder: where each client's final model is written (:func:`model_path`); None: they are lost.
        stop: set by another thread, it ends the run with Interrupted, as Ctrl-C would in this one.
        record: where what is computed is kept until the run is finished, and found again if it was interrupted; None:
            nowhere.
    """
    keys, config = simulation_keys(scenario), learner.config
    if config.material:
        _validate_behaviours(scenario)
    rules = Application(config, [key.public_key for key in keys])
    genesis = found_federation(scenario, rules, keys, config)
    if scenario.degree and any(rules.lists_parts(name) for name, _, _ in (*rules.setup_phases, *rules.phases)):
        raise ScenarioError(f"{scenario.method} posts by reference, which needs everybody connected to all: no degree")
    rules.join(genesis.chain_id)
    learner.join(genesis.chain_id)
    clients_max = CLIENTS_MAX if scenario.idle_sleep else None
    workers = min(scenario.workers, len(keys))
    drawn = scenario.contributors_per_round or config.clients
    together = drawn if scenario.vectorize_clients else 0
    with STARTING:
        if record is None:
            pool = TrainingPool(learner, workers, clients_max, together=together, stop=stop)
        else:
            pool = RecordingPool(learner, workers, record, clients_max, together=together, stop=stop)
    store: Store | None = None
    try:
        simulation = Simulation(scenario, genesis, keys, rules, pool, on_round, pool.parts, stop, record)
        if chain_folder is not None:
            with STARTING:
                if record is not None and record.resumptions:
                    shutil.rmtree(chain_folder, ignore_errors=True)  # it is repeated from its first block
                store = Store.create(chain_folder, genesis)
            simulation.keep_chain(store)
        with watch(simulation.progress):
            outcome = simulation.run()
        if models_folder is not None:
            models_folder.mkdir(parents=True, exist_ok=True)
            files = {client: model_path(models_folder, client) for client in range(config.clients)}
            for job in [pool.save_model(client, path) for client, path in files.items()]:
                job.result()
            add_origins(files, config, genesis.chain_id, outcome)
        return outcome
    finally:
        pool.close()
        if store is not None:
            store.close()


def model_path(folder: Path, member: int) -> Path:
    """Where a member's final model is, among those that :func:`simulate` keeps: a safetensors file.

    Its tensors have the names that the module itself gives them: ``load_state_dict`` takes them as they are.
    """
    return folder / f"member-{member}.safetensors"


def _validate_behaviours(scenario: Scenario) -> None:
    """Raise ScenarioError for traitors that change numbers in posts: in ciphertexts there are none to change."""
    for row in scenario.adversaries:
        if issubclass(find_behaviour(row.behaviour), Poisoner | PoisonPoster):
            raise ScenarioError(f"behaviour {row.behaviour} changes numbers, which encrypted posts do not show")


def simulated_secrets(scenario: Scenario, shares: Sequence[bytes], member: int) -> Secrets:
    """Return a simulated peer's secrets: they follow from the scenario's private seed, so that a run repeats.

    That seed is not in the genesis document, so the other peers could not compute them; who has the scenario can.
    """
    name = f"fedchain simulation {scenario.private_seed} secrets of peer {member} under seed {scenario.seed}"
    return Secrets(member, sha256(name.encode()), {SHARE: shares[member]} if shares else {})


def simulated_dealing(scenario: Scenario, task: TaskFunction | None = None) -> tuple[LearningConfig, tuple[bytes, ...]]:
    """Return the task with the public key that was dealt for it, and each peer's share, by peer; no shares if none was.

    Own data are described by calling their function, which is ``task`` or the one that the scenario names. What the
    dealer draws follows from the private seed, as members' secrets do: who has the chain cannot compute the shares.
    """
    keys = simulation_keys(scenario)
    name = f"fedchain simulation {scenario.private_seed} dealer under seed {scenario.seed}"
    return _deal(with_shapes(scenario.learning_config(), task), tuple(keys), sha256(name.encode()))


@lru_cache(maxsize=2)
def _deal(
    config: LearningConfig, keys: tuple[PrivateKey, ...], root: bytes
) -> tuple[LearningConfig, tuple[bytes, ...]]:
    drawn = Secrets(-1, root).stream("dealer")
    config, dealing = deal_keys(config, [key.public_key for key in keys], drawn)
    if dealing is None:
        return config, ()
    public_key, sealed = dealing.public_key, dealing.sealed_shares
    shares = [open_share(public_key, sealed[place], place + 1, key) for place, key in enumerate(keys)]
    return config, tuple(share_bytes(share, public_key) for share in shares)


def load_learner(scenario: Scenario, task: TaskFunction | None = None) -> Learner:
    """The scenario's data, read and spread over the peers; raises LearningError where that is impossible.

    Args:
        scenario: validated, but for a task that is given here and not named there.
        task: for own data, the function itself; without it, the one that the scenario names.
    """
    config, shares = simulated_dealing(scenario, task)
    learner = Learner(
        config,
        task,
        test_local=scenario.test_local,
        members=[key.public_key for key in simulation_keys(scenario)],
        secrets_of=partial(simulated_secrets, scenario, shares),
    )
    learner.histogram()
    flippers = {number for row in scenario.adversaries if row.behaviour == "label-flipper" for number in row.peers}
    if flippers:
        classes = learner.info.classes
        learner.replace_source(lambda source: FlippedLabels(source, frozenset(flippers), classes))
    return learner
