"""Running a scenario: connects data, worker processes, simulation and run folder."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.threshold import open_share
from fedchain.files.scratch import Scratch
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.device import DEVICE, describe_device
from fedchain.learning.exceptions import ConfigurationError, NothingToPost
from fedchain.learning.executors.executor import Foreseeing
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.outcomes import Counts
from fedchain.learning.executors.remembering import Answers, Remembering
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.part_folder import PARTS
from fedchain.learning.sums.ciphertexts import SHARE
from fedchain.learning.sums.secrets import Secrets
from fedchain.learning.task.choice import TaskFunction
from fedchain.learning.training.measured import Measurements
from fedchain.learning.worker.building import PlannedLearner, build_learner
from fedchain.learning.worker.plan import LearnerPlan, Named
from fedchain.node.custody.dealing import deal_keys, share_bytes
from fedchain.node.founding.task import with_shapes
from fedchain.simulator.adversaries.poisoners import FLIP_LABELS, Poisoner
from fedchain.simulator.adversaries.posters import PoisonPoster
from fedchain.simulator.adversaries.registry import find_behaviour
from fedchain.simulator.choices import HERE, NO_OPTIONS, RunOptions, Training
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import OnRound, Progress, Simulation, Supervision
from fedchain.simulator.engine.witness import Witness
from fedchain.simulator.executors import open_backend
from fedchain.simulator.founding import found_federation, simulation_keys
from fedchain.simulator.report import RunFolder
from fedchain.simulator.resuming.no_record import NO_RECORD, NoRecord
from fedchain.simulator.resuming.record import Record
from fedchain.simulator.resuming.recorded_answers import RecordedAnswers
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.simulator.tracking import Tracker, open_tracker
from fedchain.simulator.trained.origins import add_origins

STARTING = threading.Lock()
"""Held while a run begins, as several may begin at once: a process that another thread forks meanwhile would inherit
the lock of a store that is being made, and find other locks taken for ever."""

Watch = Callable[[Progress], AbstractContextManager[None]]
"""A context that is open while a simulation runs."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Callbacks and contexts of a run in a folder; by default they do nothing."""

    on_round: Callable[[RoundMetrics], None] = lambda row: None
    """Called with each round's row when the round is closed; a resumed run begins with the first round again."""
    watch: Watch = lambda progress: nullcontext()
    writing: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Open while results and pictures are written."""


def run_in_folder(
    scenario: Scenario,
    learner: PlannedLearner,
    folder: RunFolder,
    record: Record | NoRecord,
    audience: Audience,
    options: RunOptions = NO_OPTIONS,
) -> Outcome:
    """Simulate a scenario and write its run folder; raises as :func:`simulate`, and ScenarioError for trackers.

    Args:
        scenario: validated.
        learner: the result of :func:`load_learner`.
        folder: folder of the run, which begins or goes on.
        record: the run's open record; it is closed if the run is interrupted, and deleted when nothing is left to do.
            Until then no other process can open it, so this is the only one that writes into the folder.
        audience: callbacks for its progress.
        options: its trackers, whether it draws, and how its clients train; folder and record know the others.
    """
    begun_s, rows, trackers = time.perf_counter(), list[RoundMetrics](), list[Tracker]()

    def on_closed(row: RoundMetrics, witness: Witness) -> None:
        rows.append(row)
        folder.write_rows(rows, witness.blocks, may_wait=True)
        for tell in (*trackers, audience.on_round):
            tell(row)

    with closing(record):
        try:
            with ExitStack() as opened:
                for wanted in options.track:
                    tracker = open_tracker(wanted, scenario, folder.path, is_resumed=record.resumptions > 0)
                    trackers.append(opened.enter_context(tracker))
                run = opened.enter_context(Run(scenario, learner, record, options.training))
                outcome = run.play(on_closed, folder.chain, audience.watch)
                if folder.keeps_models:
                    run.write_models(folder.models, outcome)
        except BaseException as error:
            is_refused = isinstance(error, ConfigurationError) and not rows  # a file of weights that does not fit, say
            if not record.resumptions and (is_refused or not folder.chain.exists()):
                shutil.rmtree(folder.path)  # nothing was run: the folder's name is free again
                raise
            if isinstance(error, NothingToPost):
                record.delete()  # a resumed run would end in the same way
            with suppress(OSError):  # a full disk may be what ended the run
                folder.write_waiting()
            raise
        with audience.writing:
            folder.write_waiting()  # first: to draw takes a while, and may fail
            if options.draws:
                folder.draw(outcome.rows, outcome.timeline, learner.histogram())
            folder.write_outcome(outcome, time.perf_counter() - begun_s)
        record.delete()
    return outcome


def simulate(
    scenario: Scenario,
    learner: PlannedLearner,
    on_round: Callable[[RoundMetrics], None] = lambda row: None,
    chain_folder: Path | None = None,
    models_folder: Path | None = None,
    *,
    record: Record | NoRecord = NO_RECORD,
    training: Training = HERE,
) -> Outcome:
    """Simulate a scenario with real training.

    Args:
        scenario: validated.
        learner: the result of :func:`load_learner`.
        on_round: called with each round's row when the round is closed.
        chain_folder: folder of peer 0's chain; None: in memory.
        models_folder: folder of each client's final model (:func:`model_path`); None if they are not kept.
        record: see :class:`Run`.
        training: see :class:`Run`.
    """
    with Run(scenario, learner, record, training) as run:
        outcome = run.play(lambda row, witness: on_round(row), chain_folder)
        if models_folder is not None:
            run.write_models(models_folder, outcome)
        return outcome


class Run:
    """A run of a scenario: its federation and, while it is open, its executor and the chain of peer 0.

    Args:
        scenario: validated.
        learner: the result of :func:`load_learner`.
        record: keeps results until the run is finished, for the case that it is interrupted.
        training: how its clients train.
        shares_checks: see :class:`Supervision`.
    """

    def __init__(
        self,
        scenario: Scenario,
        learner: PlannedLearner,
        record: Record | NoRecord = NO_RECORD,
        training: Training = HERE,
        *,
        shares_checks: bool = True,
    ) -> None:
        self._scenario, self._learner, self._record, self._training = scenario, learner, record, training
        self._shares_checks = shares_checks
        self._keys, config = simulation_keys(scenario), learner.config
        self._rules = Application(config, [key.public_key for key in self._keys[: scenario.members]])
        _validate_behaviours(scenario, self._rules, is_encrypted=bool(config.material))
        self._genesis = found_federation(scenario, self._rules, self._keys, config)
        phases = (*self._rules.setup_phases, *self._rules.phases)
        if any(self._rules.lists_parts(name) for name, _, _ in phases):
            if scenario.degree:
                raise ScenarioError(
                    f"{scenario.method} posts by reference, which needs every peer connected to all others: no degree"
                )
            if scenario.idle_sleep:
                raise ScenarioError(
                    f"{scenario.method} posts by reference, and peers that sleep hand nothing out: no idle_sleep"
                )
        self._opened = ExitStack()
        self._simulation: Simulation | None = None

    def __enter__(self) -> Self:
        scenario, learner, chain_id = self._scenario, self._learner, self._genesis.chain_id
        self._rules.join(chain_id)
        folder = Path(self._opened.enter_context(Scratch()))
        self._parts = folder / PARTS
        parts = Named("fedchain.learning.payload.part_folder:parts_of_each", (str(self._parts),))
        plan = replace(learner.plan, chain_id=chain_id, parts=parts)
        with STARTING:
            backend = self._backend = open_backend(self._training, plan, scenario, learner.source)
        self._opened.callback(backend.close)
        answers: Answers
        if isinstance(self._record, NoRecord):
            answers = LastAnswers(folder)
        else:
            answers = RecordedAnswers(self._record, self._parts, together=scenario.vectorize_clients)
        self._executor = Remembering(backend, answers)
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    @property
    def forecasts(self) -> Counts | None:
        """Training ahead of the votes, by its outcome; None where the executor trains nothing ahead."""
        return self._backend.forecasts if isinstance(self._backend, Foreseeing) else None

    def play(
        self,
        on_round: OnRound,
        chain_folder: Path | None = None,
        watch: Watch = lambda progress: nullcontext(),
    ) -> Outcome:
        """Run the simulation to its end; see :meth:`Simulation.run`, and :func:`simulate` for the arguments."""
        simulation = self._simulation = Simulation(
            self._scenario,
            self._genesis,
            self._keys,
            self._rules,
            self._executor,
            self._parts,
            Supervision(on_round, self._training.stop, self._record, self._shares_checks),
        )
        if chain_folder is not None:
            simulation.keep_chain(self._open_chain(chain_folder))
        with watch(simulation.progress):
            outcome = simulation.run()
        if self._scenario.device != DEVICE:
            outcome.trained_on = describe_device(self._learner.device)
        return outcome

    def write_models(self, folder: Path, outcome: Outcome) -> None:
        """Write each client's current model to its :func:`model_path`, with its origin."""
        config = self._learner.config
        folder.mkdir(parents=True, exist_ok=True)
        files = {client: model_path(folder, client) for client in config.places_with_data}
        for job in [self._executor.save_model(client, path) for client, path in files.items()]:
            job.result()
        assert self._simulation is not None, "it has been played"
        self._simulation.note_under_way()  # each model was saved after all that its client was asked
        add_origins(files, config, self._genesis.chain_id, outcome)

    def _open_chain(self, folder: Path) -> Store:
        """Create the store of the chain; a resumed run replaces it, as it replays the chain from its first block.

        So it need not be durable before the end, as a node's is.
        """
        with STARTING:
            if self._record.resumptions:
                shutil.rmtree(folder, ignore_errors=True)
            store = Store.create(folder, self._genesis, is_durable=False)
        self._opened.callback(store.close)
        return store


def model_path(folder: Path, member: int) -> Path:
    """File of a member's final model, among those that :func:`simulate` keeps, in safetensors format.

    Its tensors have the module's own names, so ``load_state_dict`` accepts them as they are.
    """
    return folder / f"member-{member}.safetensors"


def _validate_behaviours(scenario: Scenario, rules: Application, *, is_encrypted: bool) -> None:
    """Raise ScenarioError for traitors that change numbers in posts, where no post shows any."""
    method, info = rules.method, rules.info
    specs = (spec for phase in (*method.setup, *method.phases) for spec in method.payload_spec(phase, info))
    if is_encrypted:
        reason = "which encrypted posts do not show"
    elif not any(spec.dtype.startswith("float") for spec in specs):
        reason = f"and posts of {scenario.method} hold none themselves"
    else:
        return
    for row in scenario.adversaries:
        if issubclass(find_behaviour(row.behaviour), Poisoner | PoisonPoster):
            raise ScenarioError(f"behaviour {row.behaviour} changes numbers, {reason}")


def simulated_secrets(private_seed: int, seed: int, shares: Sequence[bytes], member: int) -> Secrets:
    """Return a simulated peer's secrets: they follow from the scenario's private seed, so that a run repeats.

    That seed is not in the genesis document, so the other peers could not compute them; the scenario's owner can.
    """
    name = f"fedchain simulation {private_seed} secrets of peer {member} under seed {seed}"
    return Secrets(member, sha256(name.encode()), {SHARE: shares[member]} if shares else {})


def simulated_dealing(scenario: Scenario, task: TaskFunction | None = None) -> tuple[LearningConfig, tuple[bytes, ...]]:
    """Return the task with the public key that was dealt for it, and the shares by peer; no shares if no key was dealt.

    Own data are described by calling their function, which is ``task`` or the one that the scenario names. The
    dealer's randomness follows from the private seed, as members' secrets do, so the chain does not reveal the shares.
    """
    keys = simulation_keys(scenario)
    name = f"fedchain simulation {scenario.private_seed} dealer under seed {scenario.seed}"
    config = with_shapes(scenario.learning_config(), task)
    return _deal(config, tuple(keys), scenario.members, sha256(name.encode()))


@lru_cache(maxsize=2)
def _deal(
    config: LearningConfig, keys: tuple[PrivateKey, ...], founders: int, root: bytes
) -> tuple[LearningConfig, tuple[bytes, ...]]:
    drawn = Secrets(-1, root).stream("dealer")
    members = [key.public_key for key in keys]
    config, dealing = deal_keys(config, members[:founders], drawn, members[founders:])
    if dealing is None:
        return config, ()
    public_key, sealed = dealing.public_key, dealing.sealed_shares
    shares = [open_share(public_key, sealed[place], place + 1, key) for place, key in enumerate(keys)]
    return config, tuple(share_bytes(share, public_key) for share in shares)


def load_learner(scenario: Scenario, task: TaskFunction | None = None) -> PlannedLearner:
    """Read the scenario's data and distribute them over the peers; raises LearningError if that is impossible.

    Args:
        scenario: validated, except for a task that is given here and not named there.
        task: for own data, the function itself; None: the one that the scenario names.
    """
    config, shares = simulated_dealing(scenario, task)
    secrets = scenario.private_seed, scenario.seed, shares
    liars = {peer for row in scenario.adversaries if row.behaviour == "label-flipper" for peer in row.peers}
    flippers = sorted(map(config.part_of, liars))  # behind an aggregator without data, parts and places differ
    plan = LearnerPlan(
        config=config,
        measurements=Measurements(scenario.evaluate_every, scenario.last_round, scenario.test_local),
        device=scenario.device,
        vectorize_clients=scenario.vectorize_clients,
        members=tuple(key.public_key for key in simulation_keys(scenario)),
        secrets=Named("fedchain.simulator.run:simulated_secrets", secrets),
        source=Named(FLIP_LABELS, (infos_of(config)[0].classes, flippers)) if flippers else None,
    )
    learner = build_learner(plan, task)
    learner.histogram()
    return learner
