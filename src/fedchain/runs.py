"""Simulations from Python: in a script, in a notebook, in a thread, and awaited.

A simulation has an event loop of its own, in virtual time, so it runs in a thread of its own: the caller may have a
loop running already. The caller waits, and its callback is called for every round in the caller's own thread. An
interrupt of the caller ends the run.
"""

import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, SupportsIndex, cast, get_args

import numpy as np
import torch
from torch import nn

from fedchain.awaiting import wait, wait_in_loop
from fedchain.chains import Chain
from fedchain.files.layout import CHAIN_FOLDER, MEMBERS_FILE, MODELS_FOLDER
from fedchain.files.members import MemberAccuracy, members_text, read_members
from fedchain.files.scratch import Scratch
from fedchain.files.tables import read_toml
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.executor import Backend
from fedchain.learning.method import Method
from fedchain.learning.models.base import Model
from fedchain.learning.models.low_rank import keep_originals
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import find_residual, load_parameters
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.models.weights import load_weights, validate_file
from fedchain.learning.registry import (
    is_file_path,
    name_method,
    use_current_folder,
)
from fedchain.learning.round import Tensors
from fedchain.learning.task.choice import TaskFunction, name_task
from fedchain.learning.task.custom import build_own_module, load_task
from fedchain.learning.worker.building import PlannedLearner
from fedchain.learning.worker.model_file import ModelState, load_model, read_model, state_of, state_of_knowledge
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.node.founding.task import learning_from_genesis, require_weights
from fedchain.simulator.choices import PROCESSES, RunOptions, Training, installed, require_processes, validated
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.own_code import hashes_of_result
from fedchain.simulator.report import RunFolder, holds_finished, result_of
from fedchain.simulator.resuming.resume import (
    identity,
    read_finished,
    require_interrupted,
    require_new,
    require_same,
    require_same_code,
)
from fedchain.simulator.run import STARTING, Audience, load_learner, model_path, run_in_folder
from fedchain.simulator.run import simulate as run_simulation
from fedchain.simulator.scenario import Scenario, ScenarioError, method_of, misplaced, scenario_from_dict
from fedchain.simulator.tracking import validate_tracker
from fedchain.wording import counted

if TYPE_CHECKING:
    import pandas

_THIS_THREAD = threading.local()
"""`loads`: whether a run reads data, or imports a user's own modules, further up in this thread."""

OnRound = Callable[["RoundRecord"], object]
"""Called with each round when it is closed. The run goes on when it returns, and ends with any error that it raises.
`simulate_async` awaits its result if that is awaitable."""


class RoundRecord(RoundMetrics):
    """The measurements of one round: :class:`RoundMetrics` that cannot be changed any more.

    Accuracies are fractions, losses in nats, times in virtual seconds; None: not measured.
    """

    __slots__ = ()

    def __init__(self, row: RoundMetrics) -> None:
        for item in fields(row):
            object.__setattr__(self, item.name, getattr(row, item.name))

    def __reduce__(self) -> tuple[type["RoundRecord"], tuple[RoundMetrics]]:
        """Pickled and copied by way of the measurements, since its fields cannot be set."""
        return RoundRecord, (RoundMetrics(**{item.name: getattr(self, item.name) for item in fields(self)}),)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")


class Run:
    """A finished simulation."""

    def __init__(
        self,
        scenario: Scenario,
        config: LearningConfig,
        task: TaskFunction | None,
        rows: Sequence[RoundMetrics],
        result: Mapping[str, Any],
        folder: Path,
        owner: Scratch | None,
    ) -> None:
        self.scenario = scenario
        """The scenario that was run."""
        self.folder = folder.absolute()
        """The run's folder, wherever the program works later: the chain, and the final models. A temporary one is
        deleted with this object."""
        self.rounds: Sequence[RoundRecord] = tuple(map(RoundRecord, rows))
        """Measurements, round by round."""
        self.tip: str = result["tip"]
        """Hash of the last block, in hexadecimal."""
        self.knowledge_root: str = result["knowledge_root"]
        """Hash of the final knowledge, in hexadecimal."""
        self.trace_hash: str = result["trace_hash"]
        """Hash over all events in order: equal for the same scenario on one kind of processor."""
        self.violations: Sequence[str] = tuple(result["violations"])
        """Guarantees of the protocol that did not hold; empty when all is well."""
        self._config, self._task, self._owner = config, task, owner
        if owner is not None:
            weakref.finalize(self, owner.cleanup)  # by itself it would warn that nobody asked for that

    def __repr__(self) -> str:
        scenario = self.scenario
        size = f"{counted(scenario.peers, 'peer')} × {counted(len(self.rounds), 'round')}"
        what = f"{scenario.method} on {scenario.dataset}, {size}"
        accuracy = next((row.taa for row in reversed(self.rounds) if row.taa is not None), None)
        measured = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        return f"<Run of {what}, seed {scenario.seed}{measured}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle; whoever reads them opens the chain anew.

        Raises TypeError where the folder is a temporary one, which is deleted with this object.
        """
        if self._owner is not None:
            raise TypeError(
                "a run in a temporary folder cannot be pickled: name its folder with out, or take run.rounds"
            )
        return {name: value for name, value in vars(self).items() if name != "chain"}

    def to_pandas(self) -> "pandas.DataFrame":
        """The rounds as a table with one row each, indexed by round. Raises ImportError if pandas is missing."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install 'fedchain[pandas]'") from None
        table = pandas.DataFrame([asdict(row) for row in self.rounds]).set_index("round")
        # A value that was not measured is None; with it pandas would make columns that cannot be calculated with.
        optional = [item.name for item in fields(RoundMetrics) if NoneType in get_args(item.type)]
        return table.astype(dict.fromkeys(optional, float))

    @cached_property
    def members(self) -> Sequence[MemberAccuracy]:
        """Accuracy of each member's model after its training of each round, by round and member."""
        return tuple(read_members(self.folder))

    @cached_property
    def chain(self) -> Chain:
        """The chain of the first peer, for the explorer's questions."""
        return Chain(self.folder)

    @cached_property
    def knowledge(self) -> Tensors:
        """The federation's final knowledge, as numpy arrays by name; {} if there is none."""
        return self.chain.tensors()

    def state(self, member: int | None = None) -> ModelState:
        """The parameters and buffers of :meth:`model`, by the names that the module gives them and in its order.

        Raises as :meth:`model` does.
        """
        if member is None and find_residual(self.knowledge):
            return state_of(self.model(), self._info_of(None))
        if member is None:
            shared = state_of_knowledge(self.knowledge, self._info_of(None))
            return {name: value.clone() for name, value in shared.items()}
        places = self._config.places_with_data
        if not isinstance(member, SupportsIndex) or member.__index__() not in places:
            raise ConfigurationError(f"member is {member!r}, it must be between 0 and {places[-1]}, and have data")
        path = model_path(self.folder / MODELS_FOLDER, member.__index__())
        if not path.exists():
            is_kept = self.folder.exists()
            why = "the run kept no models, see keep_models" if is_kept else "the run's folder was moved or deleted"
            raise ConfigurationError(f"{path} is not there: {why}")
        found = read_model(path.read_bytes())  # a safetensors file has no order of its own
        return {name: found[name] for name, _ in self._info_of(member).parameters if name in found}

    def model(self, member: int | None = None) -> nn.Module:
        """A member's torch module at the end, in evaluation mode; for own data, the task builds the module.

        Args:
            member: from 0; None: the model that all members share, for methods that exchange parameters.

        Raises:
            ConfigurationError: there is no such member, the run kept no models, the method shares no whole model, or
                the file of weights that models began with is not there any more, or another.
        """
        config, who = self._config, self._config.part_of(member or 0)
        state = None if member is None and find_residual(self.knowledge) else self.state(member)
        info = self._info_of(member)
        if config.dataset == OWN:
            module = build_own_module(config, self._task or load_task(config.task), who)
            if config.weights_hash and info.frozen:  # whose values are nowhere else
                require_weights(config)
                validate_file(Path(config.weights), config.weights_hash)
                load_weights(module, Path(config.weights), new_head=config.weights_head == "new")
        else:
            module = build_model(config.model_of(who), 0, **config.dataset_info.model_shape)
        if state is None:
            keep_originals(module, info)
            load_parameters(cast(Model, module), self.knowledge)
        else:
            load_model(module, state, f"member {member}'s", info.frozen)
        return module.eval()

    def _info_of(self, member: int | None) -> ModelInfo:
        """The shapes of a member's model; None: of the common one."""
        config, infos = self._config, infos_of(self._config)
        return infos[config.architecture_of(config.part_of(member or 0), len(infos))]


def open_run(folder: str | os.PathLike[str], *, task: TaskFunction | None = None) -> Run:
    """Read a finished run from its folder, as :func:`simulate` returned it.

    Args:
        folder: the run's folder, made by ``simulate(out=…)`` or by ``fedchain simulate``.
        task: the function for own data, if the scenario in the folder cannot name it.

    Raises:
        ScenarioError: the folder holds no finished run, or one that cannot be read.
        ChainError: its chain cannot be read.
    """
    use_current_folder()
    path = Path(folder)
    scenario, rows, result = read_finished(path, task)
    with Chain(path) as chain:
        config = learning_from_genesis(chain.genesis, scenario.data_dir, scenario.task, scenario.weights)
    return Run(scenario, _with_whole_paths(config), task, rows, result, path, None)


def simulate(
    method: str | type[Method] | Method | None = None,
    task: TaskFunction | str | None = None,
    *,
    scenario: Scenario | str | os.PathLike[str] | None = None,
    peers: int | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    on_round: OnRound | None = None,
    out: str | os.PathLike[str] | None = None,
    keep_models: bool = True,
    draw: bool = False,
    track: Sequence[str] = (),
    resume: bool = False,
    executor: str | Callable[[LearnerPlan], Backend] | None = PROCESSES,
    **settings: Any,
) -> Run:
    """Run a federation on this machine, in virtual time, and wait for its end.

    It runs in a thread of its own, with training processes, so it works in a notebook and in any thread. Ctrl-C, or
    "interrupt kernel", ends all of them, and so does an error that ``on_round`` raises.

    Args:
        method: name of a learning method, ``"FILE.py:Class"``, or a class or an instance of one. Default: ``"dfpl"``.
        task: for own data, a function that returns (model, train set, test set), or ``"FILE.py:function"``.
        scenario: a scenario, or its file, whose fields the other arguments override. Default: the defaults.
        peers: members with data. Default: 20.
        rounds: default 10.
        seed: root of all randomness. Default: 0.
        on_round: called in this thread with each round's record when it is closed; a resumed run repeats earlier ones.
        out: run folder to create, with all its files. Default: a temporary one, deleted with the run.
        keep_models: whether every member's final model is kept, for :meth:`Run.model`.
        draw: whether pictures are drawn in ``out`` when the run is over.
        track: trackers beside ``out``: ``"tensorboard"`` or ``"mlflow"``, ``"tensorboard=FOLDER"`` or ``"mlflow=URI"``.
        resume: whether an interrupted run in ``out`` goes on, and a finished one is opened; if there is none, a new one
            begins.
        executor: where clients train: ``"processes"`` of this machine, ``"ray"`` or ``"ray:ADDRESS"`` for a Ray cluster
            (``fedchain[ray]``), or one of your own, which :func:`fedchain.testing.check_executor` checks.
        settings: any other field of ``Scenario``, such as ``hyperparameters={"local_steps": 5}``.

    Raises:
        ScenarioError: the scenario cannot be run.
        LearningError: the data or the model cannot be used, or training diverged.
    """
    given = {"method": method, "peers": peers, "rounds": rounds, "seed": seed} | settings
    listener = _listener(on_round)
    if inspect.iscoroutinefunction(on_round):
        raise ScenarioError("on_round is a coroutine function, which only simulate_async awaits")
    kept: dict[str, Any] = {"keep_models": keep_models, "draw": draw, "track": track}
    order = _Order.of(scenario, task, given, out, **kept, resume=resume, executor=executor)
    with _threads_kept():
        learner = order.load()
        return wait(lambda told, stop: order.run(learner, told, stop), listener)


async def simulate_async(
    method: str | type[Method] | Method | None = None,
    task: TaskFunction | str | None = None,
    *,
    scenario: Scenario | str | os.PathLike[str] | None = None,
    peers: int | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    on_round: OnRound | None = None,
    out: str | os.PathLike[str] | None = None,
    keep_models: bool = True,
    draw: bool = False,
    track: Sequence[str] = (),
    resume: bool = False,
    executor: str | Callable[[LearnerPlan], Backend] | None = PROCESSES,
    **settings: Any,
) -> Run:
    """Like :func:`simulate`, for code in an asyncio loop, which goes on meanwhile; cancelling ends the run.

    ``on_round`` is called in the loop's thread. It may be a coroutine function: the run goes on when it has returned.
    """
    given = {"method": method, "peers": peers, "rounds": rounds, "seed": seed} | settings
    listener = _listener(on_round)
    kept: dict[str, Any] = {"keep_models": keep_models, "draw": draw, "track": track}
    order = _Order.of(scenario, task, given, out, **kept, resume=resume, executor=executor)
    with _threads_kept():
        return await wait_in_loop(lambda told, stop: order.run(order.load(), told, stop), listener)


def _in_python(value: Any) -> Any:
    """A setting with NumPy's numbers and arrays, as `np.arange` and `np.linspace` give them, as Python's."""
    if isinstance(value, Mapping):
        return {name: _in_python(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return (tuple if isinstance(value, tuple) else list)(map(_in_python, value))  # a named tuple takes no iterable
    if is_dataclass(value) and not isinstance(value, type):  # a row, such as a fault
        return replace(value, **{field.name: _in_python(getattr(value, field.name)) for field in fields(value)})
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A run that was asked for."""

    scenario: Scenario
    function: TaskFunction | None
    out: Path | None
    keep_models: bool
    draw: bool
    track: Sequence[str]
    resume: bool
    executor: str | Callable[[LearnerPlan], Backend]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.resume and self.out is not None and holds_finished(self.out)

    @classmethod
    def of(
        cls,
        scenario: Scenario | str | os.PathLike[str] | None,
        task: TaskFunction | str | None,
        given: Mapping[str, Any],
        out: str | os.PathLike[str] | None,
        *,
        track: Sequence[str],
        executor: str | Callable[[LearnerPlan], Backend] | None,
        **others: Any,
    ) -> "_Order":
        """Combine the arguments of a call, and check them."""
        if not isinstance(scenario, Scenario | str | os.PathLike | None):
            raise ScenarioError(f"scenario is {scenario!r}, it must be a Scenario or a path")
        if not isinstance(out, str | os.PathLike | None):
            raise ScenarioError(f"out is {out!r}, it must be a path")
        place = None if out is None else Path(out).absolute()  # wherever the program works meanwhile
        trackers = (track,) if isinstance(track, str) else track
        if not isinstance(trackers, Sequence) or not all(isinstance(wanted, str) for wanted in trackers):
            raise ScenarioError(f"track is {track!r}, it must be names of trackers")
        use_current_folder()
        values = {name: value for name, value in given.items() if value is not None}
        begun, function = _values_of(scenario), None
        if isinstance(task, str):
            values["task"] = task
        elif task is not None:
            if not callable(task):
                raise ScenarioError(f"task is {task!r}, it must be a function or FILE.py:function")
            function = task
            values = {"dataset": OWN, "task": name_task(task)} | values
            if begun.get("name", Scenario().name) == Scenario().name:  # it is another simulation than the default one
                values = {"name": OWN} | values
        method = values.get("method", "")
        if not isinstance(method, str):
            values["method"], differing = name_method(method)
            if not isinstance(method, type):
                values["hyperparameters"] = differing | dict(values.get("hyperparameters", {}))
        values = {name: _in_python(value) for name, value in (begun | values).items()}
        if (key := misplaced(values)) is not None:
            form = f"hyperparameters={{{key!r}: {values[key]!r}}}"
            raise ScenarioError(f"{key} is a hyper-parameter of {method_of(values)}: {form}")
        chosen = scenario_from_dict(values)
        chosen.validate(function)
        backend = executor if callable(executor) else installed(validated(executor))
        order = cls(scenario=chosen, function=function, out=place, track=trackers, executor=backend, **others)
        order._validate_folder()
        if order.is_finished:
            return order
        # It would wait for itself; where its data are read in another thread, this one would wait for that one.
        if getattr(_THIS_THREAD, "loads", False):
            raise ScenarioError(
                "simulate is called while another run reads its data or own code: let neither the task's function nor "
                'the import of its file call it, but below if __name__ == "__main__"'
            )
        if backend == PROCESSES:
            require_processes()
        return order

    def _validate_folder(self) -> None:
        """Raise ScenarioError, before anything is loaded, if the folder is missing or holds something else."""
        for wanted in self.track:
            validate_tracker(wanted)
        if self.out is None:
            for name in ("resume", "draw", "track"):
                if getattr(self, name):
                    raise ScenarioError(f"{name} needs the run's folder: name it with out")
        elif self.is_finished:
            require_same(self.out, self.scenario)
            require_same_code(self.out, self.scenario, self.function)
        elif self.resume and self.out.exists():
            require_interrupted(self.out, self.scenario)
        else:
            require_new(self.out)

    def load(self) -> PlannedLearner | None:
        """Read the data and import modules, while no other run forks its processes; None if the run is finished."""
        if self.is_finished:
            return None
        with STARTING:
            _THIS_THREAD.loads = True
            try:
                return load_learner(self.scenario, self.function)
            finally:
                _THIS_THREAD.loads = False

    def run(self, learner: PlannedLearner | None, told: Callable[["RoundRecord"], None], stop: threading.Event) -> Run:
        """Simulate, or open the finished run."""
        if learner is None:
            assert self.out is not None, "only what is in a folder is finished"
            finished = open_run(self.out, task=self.function)
            for row in finished.rounds:
                told(row)
            return finished

        def on_round(row: RoundMetrics) -> None:
            told(RoundRecord(row))

        scenario, function, training = self.scenario, self.function, Training(self.executor, stop)
        config = _with_whole_paths(learner.config)
        if self.out is not None:
            goes_on = self.resume and self.out.exists()
            own_code = hashes_of_result(scenario, function)
            known = identity(scenario, function, learner.hash_own())  # before the folder: large data take a while
            folder = RunFolder(self.out, scenario, is_resumed=goes_on, own_code=own_code)
            record = folder.open_record(known, is_resumed=goes_on)
            if self.keep_models:
                folder.keep_models()
            options = RunOptions(track=self.track, draws=self.draw, training=training)
            outcome = run_in_folder(scenario, learner, folder, record, Audience(on_round), options)
            return Run(scenario, config, function, outcome.rows, result_of(outcome), self.out, None)
        owner = Scratch()
        place = Path(owner.name)
        models = place / MODELS_FOLDER if self.keep_models else None
        try:
            outcome = run_simulation(scenario, learner, on_round, place / CHAIN_FOLDER, models, training=training)
        except BaseException:
            owner.cleanup()
            raise
        (place / MEMBERS_FILE).write_text(members_text(outcome.members), encoding="utf-8")
        return Run(scenario, config, function, outcome.rows, result_of(outcome), place, owner)


def _values_of(scenario: Scenario | str | os.PathLike[str] | None) -> dict[str, Any]:
    if scenario is None:
        return {}
    return scenario.to_dict() if isinstance(scenario, Scenario) else read_toml(Path(scenario), ScenarioError)


def _with_whole_paths(config: LearningConfig) -> LearningConfig:
    """A task that finds its own files wherever the program works later."""
    file_name, _, function_name = config.task.rpartition(":")
    task = f"{Path(file_name).absolute()}:{function_name}" if is_file_path(config.task) else config.task
    return replace(config, task=task, weights=str(Path(config.weights).absolute()) if config.weights else "")


def _listener(on_round: OnRound | None) -> OnRound:
    if on_round is not None and not callable(on_round):
        raise ScenarioError(f"on_round is {on_round!r}, it must be a function")
    return on_round or _nothing


def _nothing(row: RoundRecord) -> None:
    """Ignore a round, if no listener is given."""


@contextlib.contextmanager
def _threads_kept() -> Iterator[None]:
    """Restore the caller's number of torch threads: training processes are forked from a process with one."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
