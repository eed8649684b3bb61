"""Simulations from Python: in a script, in a notebook, in a thread, and awaited.

A simulation has an event loop of its own, in virtual time, so it runs in a thread of its own: whoever calls may have a
loop running already. The caller waits, is told of every round in its own thread, and an interrupt of it ends the run.
"""

import asyncio
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from fedchain.chains import Chain
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.learner import Learner
from fedchain.learning.method import Method
from fedchain.learning.model_file import ModelState, read_model, state_of_knowledge
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.registry import load_method, name_method, use_current_folder
from fedchain.learning.round import Tensors
from fedchain.learning.task.choice import TaskFunction
from fedchain.learning.task.custom import build_own_module, load_task
from fedchain.node.layout import CHAIN_FOLDER, MODELS_FOLDER
from fedchain.node.tables import read_toml
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.simulation import Outcome
from fedchain.simulator.report import RunFolder
from fedchain.simulator.run import STARTING, load_learner, model_path
from fedchain.simulator.run import simulate as run_simulation
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict

if TYPE_CHECKING:
    import pandas

POLL_S = 0.5
"""How often the simulation, while the caller looks at a round, looks whether it is to end."""

JOIN_S = 0.02
"""How often an awaited run that is ending is looked at."""

OnRound = Callable[["RoundRecord"], object]
"""Told of each round when it is closed; the run goes on when it returns, and ends with what it raises."""

Result = TypeVar("Result")


class RoundRecord(RoundMetrics):
    """What was measured of one round: :class:`RoundMetrics` that nobody changes any more.

    Accuracies are fractions, losses in nats, times in virtual seconds; None: not measured.
    """

    __slots__ = ()

    def __init__(self, row: RoundMetrics) -> None:
        for item in fields(row):
            object.__setattr__(self, item.name, getattr(row, item.name))

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")


class Run:
    """A finished simulation."""

    def __init__(
        self,
        scenario: Scenario,
        config: LearningConfig,
        task: TaskFunction | None,
        outcome: Outcome,
        folder: Path,
        owner: "tempfile.TemporaryDirectory[str] | None",
    ) -> None:
        self.scenario = scenario
        """What was run."""
        self.folder = folder
        """The run's folder: the chain, and the final models; a temporary one goes when the run is forgotten."""
        self.rounds: Sequence[RoundRecord] = tuple(map(RoundRecord, outcome.rows))
        """What was measured, round by round."""
        self.tip = outcome.tip
        """Hash of the last block, in hexadecimal."""
        self.knowledge_root = outcome.knowledge_root
        """Hash of the final knowledge, in hexadecimal."""
        self.trace_hash = outcome.trace_hash
        """Hash over all that happened, in order: the same scenario has the same, on any machine."""
        self.violations: Sequence[str] = tuple(outcome.violations)
        """What did not hold of what the protocol promises; empty when all is well."""
        self._config, self._task, self._outcome, self._owner = config, task, outcome, owner

    def __repr__(self) -> str:
        scenario = self.scenario
        what = f"{scenario.method} on {scenario.dataset}, {scenario.peers} peers × {len(self.rounds)} rounds"
        accuracy = next((row.taa for row in reversed(self.rounds) if row.taa is not None), None)
        measured = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        return f"<Run of {what}, seed {scenario.seed}{measured}>"

    def to_pandas(self) -> "pandas.DataFrame":
        """The rounds as a table with one row each, indexed by round. Raises ImportError where pandas is missing."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install 'fedchain[pandas]'") from None
        return pandas.DataFrame([asdict(row) for row in self.rounds]).set_index("round")

    @cached_property
    def chain(self) -> Chain:
        """The chain of the first peer, as the explorer sees it."""
        return Chain(self.folder)

    @cached_property
    def knowledge(self) -> Tensors:
        """What the federation knows in the end, as numpy arrays by name; {} if it knows nothing."""
        return self.chain.rules.read_knowledge(self._outcome.knowledge) or {}

    def state(self, member: int | None = None) -> ModelState:
        """The parameters and buffers of :meth:`model`, as tensors by the names that the module gives them."""
        if member is None:
            return state_of_knowledge(self.knowledge, infos_of(self._config)[0])
        if not 0 <= member < self._config.clients:
            raise ConfigurationError(f"member is {member}, it must be between 0 and {self._config.clients - 1}")
        path = model_path(self.folder / MODELS_FOLDER, member)
        if not path.exists():
            raise ConfigurationError(f"{path} is not there: the run kept no models, see keep_models")
        return read_model(path.read_bytes())

    def model(self, member: int | None = None) -> nn.Module:
        """A torch module as a member has it at the end, in evaluation mode; of own data, one that the task builds.

        Args:
            member: from 0; None: the model that all members share, for methods that exchange parameters.

        Raises:
            ConfigurationError: there is no such member, or the method shares no whole model.
        """
        config, who = self._config, member or 0
        state = self.state(member)
        if config.dataset == OWN:
            module = build_own_module(config, self._task or load_task(config.task), who)
        else:
            module = build_model(config.model_of(who), 0, **config.dataset_info.model_shape)
        module.load_state_dict(state, strict=True)
        return module.eval()


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
    **settings: Any,
) -> Run:
    """Run a federation on this machine, in virtual time, and wait for its end.

    It runs in a thread of its own, with training processes, so it works in a notebook and in any thread. Ctrl-C, or
    "interrupt kernel", ends all of them.

    Args:
        method: name of a learning method, or a class or an instance of one. Default: ``"dfpl"``.
        task: for own data, a function that returns (model, train set, test set), or ``"FILE.py:function"``.
        scenario: what the other arguments change; a scenario file, or one that was built. Default: the defaults.
        peers: members with data. Default: 20.
        rounds: default 10.
        seed: root of all randomness. Default: 0.
        on_round: called in this thread with each round's record when it is closed. What it raises ends the run.
        out: run folder to create, with pictures and all. Default: a temporary one, which goes with the run.
        keep_models: whether every member's final model is kept, for :meth:`Run.model`.
        settings: any other field of ``Scenario``, such as ``hyperparameters={"local_steps": 5}``.

    Raises:
        ScenarioError: the scenario cannot be run.
        LearningError: the data or the model cannot be used, or training diverged.
    """
    given = {"method": method, "peers": peers, "rounds": rounds, "seed": seed} | settings
    order = _Order.of(scenario, task, given, out, keep_models)
    with _threads_kept():
        learner = order.load()
        return _in_a_thread(lambda told, stop: order.run(learner, told, stop), on_round or _nothing)


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
    **settings: Any,
) -> Run:
    """As :func:`simulate`, for code that runs in an asyncio loop, which goes on meanwhile; cancelling ends the run.

    ``on_round`` is called in the loop's thread.
    """
    given = {"method": method, "peers": peers, "rounds": rounds, "seed": seed} | settings
    order = _Order.of(scenario, task, given, out, keep_models)

    def work(told: Callable[[RoundMetrics], None], stop: threading.Event) -> Run:
        return order.run(order.load(), told, stop)

    with _threads_kept():
        return await _awaited(work, on_round or _nothing)


class _Order:
    """What is to be run."""

    def __init__(self, scenario: Scenario, function: TaskFunction | None, out: Path | None, keep_models: bool) -> None:
        self.scenario, self.function = scenario, function
        self._out, self._keep_models = out, keep_models

    @classmethod
    def of(
        cls,
        scenario: Scenario | str | os.PathLike[str] | None,
        task: TaskFunction | str | None,
        given: Mapping[str, Any],
        out: str | os.PathLike[str] | None,
        keep_models: bool,
    ) -> "_Order":
        """Put together what was asked for, and check it."""
        use_current_folder()
        values = {name: value for name, value in given.items() if value is not None}
        function = None
        if isinstance(task, str):
            values["task"] = task
        elif task is not None:
            function = task
            values = {"dataset": OWN, "name": OWN} | values
        method = values.get("method", "")
        if not isinstance(method, str):
            values["method"], differing = name_method(method)
            if not isinstance(method, type):
                values["hyperparameters"] = differing | dict(values.get("hyperparameters", {}))
        values = _values_of(scenario) | values
        _validate_names(values)
        chosen = scenario_from_dict(values)
        chosen.validate(function)
        return cls(chosen, function, None if out is None else Path(out), keep_models)

    def load(self) -> Learner:
        """Read the data and import what is needed, while no other run forks its processes."""
        with STARTING:
            return load_learner(self.scenario, self.function)

    def run(self, learner: Learner, told: Callable[[RoundMetrics], None], stop: threading.Event) -> Run:
        """Simulate."""
        begun_s, rows = time.perf_counter(), list[RoundMetrics]()
        owner, written = None, None
        if self._out is None:
            owner = tempfile.TemporaryDirectory(prefix="fedchain-run-", ignore_cleanup_errors=True)
            folder = Path(owner.name)
        else:
            written, folder = RunFolder(self._out, self.scenario), self._out

        def on_round(row: RoundMetrics) -> None:
            rows.append(row)
            if written is not None:
                written.write_rows(rows)
            told(row)

        try:
            outcome = run_simulation(
                self.scenario,
                learner,
                on_round,
                folder / CHAIN_FOLDER,
                models_folder=folder / MODELS_FOLDER if self._keep_models else None,
                stop=stop,
            )
            if written is not None:
                written.write_outcome(outcome, learner.histogram(), time.perf_counter() - begun_s)
        except BaseException:
            if owner is not None:
                owner.cleanup()
            raise
        return Run(self.scenario, learner.config, self.function, outcome, folder, owner)


def _values_of(scenario: Scenario | str | os.PathLike[str] | None) -> dict[str, Any]:
    if scenario is None:
        return {}
    return scenario.to_dict() if isinstance(scenario, Scenario) else read_toml(Path(scenario), ScenarioError)


def _validate_names(values: Mapping[str, Any]) -> None:
    """Raise ScenarioError for a hyper-parameter among the fields of a scenario, which is easily said so."""
    known = {item.name for item in fields(Scenario)}
    name = values.get("method", Scenario().method)
    for key in values:
        if key not in known and isinstance(name, str) and key in {item.name for item in fields(load_method(name))}:
            raise ScenarioError(f"{key} is a hyper-parameter of {name}: hyperparameters={{{key!r}: {values[key]!r}}}")


def _nothing(row: RoundRecord) -> None:
    """Nobody wants to be told."""


@contextlib.contextmanager
def _threads_kept() -> Iterator[None]:
    """Leave the caller as many threads for torch as it had: training processes are forked from a process with one."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


Work = Callable[[Callable[[RoundMetrics], None], threading.Event], Result]
"""work(told, stop) -> result: tells of each round, and ends with Interrupted soon after ``stop`` is set."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A round, on its way to the caller's thread."""

    row: RoundRecord
    is_taken: threading.Event
    """Set when the caller has looked at it."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the work ended."""

    result: Any = None
    error: BaseException | None = None


def _start(work: Work[Any], stop: threading.Event, put: Callable[[_Told | _Ended], None]) -> threading.Thread:
    """Start the work in a thread, which puts what happens."""

    def told(row: RoundMetrics) -> None:
        message = _Told(RoundRecord(row), threading.Event())
        put(message)
        while not message.is_taken.wait(POLL_S) and not stop.is_set():
            pass

    def run() -> None:
        try:
            ended = _Ended(result=work(told, stop))
        except BaseException as error:  # whatever it is, it is the caller's
            ended = _Ended(error=error)
        put(ended)

    thread = threading.Thread(target=run, name="fedchain-simulation", daemon=True)
    thread.start()
    return thread


def _in_a_thread(work: Work[Result], on_round: OnRound) -> Result:
    """Wait for the work, and end it if the waiting is interrupted."""
    stop, messages = threading.Event(), SimpleQueue[_Told | _Ended]()
    thread = _start(work, stop, messages.put)
    try:
        while True:
            match messages.get():
                case _Told(row, is_taken):
                    on_round(row)
                    is_taken.set()
                case _Ended(result, error):
                    if error is not None:
                        raise error
                    found: Result = result
                    return found
    finally:
        stop.set()
        thread.join()


async def _awaited(work: Work[Result], on_round: OnRound) -> Result:
    """The same in an asyncio loop."""
    loop, stop = asyncio.get_running_loop(), threading.Event()
    messages: asyncio.Queue[_Told | _Ended] = asyncio.Queue()

    def put(message: _Told | _Ended) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(messages.put_nowait, message)

    thread = _start(work, stop, put)
    try:
        while True:
            match await messages.get():
                case _Told(row, is_taken):
                    on_round(row)
                    is_taken.set()
                case _Ended(result, error):
                    if error is not None:
                        raise error
                    found: Result = result
                    return found
    finally:
        stop.set()
        while thread.is_alive():  # a cancelled task is not cancelled again while the processes end
            await asyncio.sleep(JOIN_S)
