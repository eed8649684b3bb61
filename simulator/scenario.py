"""A scenario: one simulation, described by a TOML file. Each field's docstring is its help on the command line.

This module imports nothing heavy, so that ``fedchain --help`` answers at once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedchain.files.field_texts import field_texts
from fedchain.files.tables import build, nearest, read_toml
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.registry import FILE_SUFFIX, agreed_name
from fedchain.learning.task.choice import TaskFunction, validate_choice
from fedchain.node.founding.aggregator import AGGREGATOR_CHOICES, AUTO, choose_aggregator, count_members
from fedchain.simulator.adversaries.registry import BEHAVIOURS, validate_parameters
from fedchain.simulator.disturbances import FAULT_KINDS, Clock, Fault, Traitors

if TYPE_CHECKING:
    from fedchain.chain.genesis import AggregatorRule

_LEARNING: Mapping[str, Any] = {item.name: item.default for item in fields(LearningConfig)}
"""Defaults of the learning fields, which a scenario has under the same names, with the same help."""

NAME = r"\w[\w .+-]{0,63}"
"""Pattern of a scenario's name, which its run folder has, too."""

REMOVED = {
    "vote_quorum_percent": "fault_model decides how many votes make a block final",
    "inactive_after": "nobody loses its vote by being slow",
}
"""Keys of scenarios for version 1 of the protocol, and the reasons for their removal."""


class ScenarioError(ValueError):
    """The scenario cannot be run; the message names the key and both values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A simulation of many peers."""

    name: str = "digits"
    """Name of the run; its folder is named after it."""
    peers: int = 20
    """Number of peers with data, K; a dedicated aggregator is one more, the last."""
    rounds: int = 10
    """Number of rounds, R."""
    seed: int = 0
    """Root of all randomness: keys, data, training, delays, mining."""
    private_seed: int = 0
    """Root of secret randomness: noise, masks, dealt keys. It is on no chain, unlike the seed of learning; but anybody
    with the scenario can repeat it, so a simulation protects nobody's data."""
    workers: int = 2
    """Training processes; their number changes the speed and nothing else."""

    method: str = _LEARNING["method"]
    hyperparameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Hyper-parameters of the method, as name=value; repeat the option for several."""
    dataset: str = _LEARNING["dataset"]
    data_dir: str = _LEARNING["data_dir"]
    task: str = _LEARNING["task"]
    model: str = _LEARNING["model"]
    classes: int = _LEARNING["classes"]
    partition: str = _LEARNING["partition"]
    classes_avg: int = _LEARNING["classes_avg"]
    classes_std: int = _LEARNING["classes_std"]
    shots: int = _LEARNING["shots"]
    test_shots: int = _LEARNING["test_shots"]
    dirichlet_alpha: float = _LEARNING["dirichlet_alpha"]
    classes_per_client: int = _LEARNING["classes_per_client"]
    train_examples: int = _LEARNING["train_examples"]
    scaling: str = _LEARNING["scaling"]
    augmentation: str = _LEARNING["augmentation"]
    feature_shift: str = _LEARNING["feature_shift"]
    vectorize_clients: bool = False
    """Logistic regressions of many peers are trained at once: same results to rounding, in a fraction of the time."""
    test_every: int = 1
    """Rounds between measurements on the whole test set; the last round always is. 0: never."""
    test_local: bool = True
    """Whether such a measurement includes every local model, besides the shared model."""

    iteration_s: float = 0.05
    """Virtual seconds of one local step (DFPL: α)."""
    mining_s: float = 4.0
    """Virtual seconds that mining a block takes, on average (DFPL: β)."""
    mining_attempts: int = 128
    """Real hashes per block, on average; peers' virtual hash rates follow from it and from mining_s."""
    proof_function: str = "scrypt"
    """Proof of work: scrypt or sha256d."""
    aggregator: str = AUTO
    """Designated aggregator: none, fixed (the first member), rotating (each in turn), dedicated (one more peer, which
    has no data) or auto (what the method wants)."""
    centralized: bool = False
    """Only the designated aggregator produces blocks."""
    fault_model: str = "byzantine"
    """Faults of members to tolerate: byzantine (fewer than a third, any fault) or crash (fewer than half stop)."""
    contribution_quorum: int = 0
    """Fewest posts that close a phase; 0: a quorum of the phase's contributors."""
    committee_size: int = 0
    """Members that vote on a block; 0: all active ones."""
    contributors_per_round: int = 0
    """Members that contribute in a round; 0: all."""
    idle_sleep: bool = False
    """Peers that are drawn neither to contribute nor to vote sleep, and catch up when they are drawn.

    Peer 0 stays awake. Many peers then cost no more than the few that are drawn. With ``shared_verification`` sleeping
    peers follow the chain: a waking peer has nothing to catch up with, and no bytes are counted for it.
    """
    round_interval_s: float = 0.0
    """Virtual seconds from the end of a round to the beginning of the next one, at least."""
    phase_timeout_s: float = 30.0
    """Virtual seconds that a phase waits for expected posts, at most."""
    phase_floor_s: float = 5.0
    """Virtual seconds that it waits at least, however fast earlier rounds were."""
    vote_timeout_s: float = 1.0
    """Virtual seconds that the first attempt to decide a height waits for votes."""
    retention_blocks: int = 0
    """Blocks up to the head whose payloads are kept; 0: all, so that the whole run can be verified."""

    degree: int = 0
    """Neighbours in the gossip mesh; 0: every peer is connected to every other."""
    delay_min_ms: int = 10
    """Shortest one-way delay of a message, in milliseconds."""
    delay_max_ms: int = 100
    """Longest one-way delay, in milliseconds."""
    loss: float = 0.0
    """Probability that a message is lost."""
    replay: float = 0.0
    """Probability that a message arrives twice."""
    bandwidth_mbit_s: float = 0.0
    """Sending rate of a peer, in Mbit/s; 0: no limit."""
    shared_verification: bool = False
    """Peers share one cache of signature checks and recomputed aggregates: less work, same results."""
    max_virtual_s: float = 100_000.0
    """The run fails if it has not ended by then, in virtual seconds."""
    faults: tuple[Fault, ...] = ()
    """Timed faults, as [[faults]] tables in the file."""
    clocks: tuple[Clock, ...] = ()
    """Wrong clocks, as [[clocks]] tables in the file."""
    adversaries: tuple[Traitors, ...] = ()
    """Peers that do not follow the protocol, as [[adversaries]] tables in the file."""

    def validate(self, task: TaskFunction | None = None) -> None:
        """Raise ScenarioError, or the learning package's ConfigurationError, for the first impossible value.

        Args:
            task: for own data, the function itself, if the scenario names none.
        """
        if not re.fullmatch(NAME, self.name):
            raise ScenarioError(f"name is {self.name!r}, it must be up to 64 letters, digits, spaces, -, _, . or +")
        _expect_range("peers", self.peers, 1, 10_000)
        _expect_range("rounds", self.rounds, 1, 1_000_000)
        _expect_range("workers", self.workers, 1, 64)
        _expect_range("test_every", self.test_every, 0, 1_000_000)
        _expect_range("iteration_s", self.iteration_s, 0, 1e6)
        _expect_range("mining_s", self.mining_s, 0.004, 1e6)
        _expect_range("mining_attempts", self.mining_attempts, 2, 2**40)
        _expect_choice("proof_function", self.proof_function, ("scrypt", "sha256d"))
        _expect_choice("aggregator", self.aggregator, AGGREGATOR_CHOICES)
        _expect_choice("fault_model", self.fault_model, ("byzantine", "crash"))
        _expect_range("contributors_per_round", self.contributors_per_round, 0, self.peers)
        _expect_range("contribution_quorum", self.contribution_quorum, 0, self.contributors_per_round or self.peers)
        _expect_range("round_interval_s", self.round_interval_s, 0, 1e9)
        _expect_range("phase_timeout_s", self.phase_timeout_s, 0.001, 1e9)
        _expect_range("phase_floor_s", self.phase_floor_s, 0.001, 1e9)
        _expect_range("vote_timeout_s", self.vote_timeout_s, 0.001, 60.0)
        _expect_range("retention_blocks", self.retention_blocks, 0, 1_000_000)
        _expect_range("delay_min_ms", self.delay_min_ms, 0, self.delay_max_ms)
        _expect_range("delay_max_ms", self.delay_max_ms, 0, 3_600_000)
        _expect_range("loss", self.loss, 0, 0.99)
        _expect_range("replay", self.replay, 0, 1)
        _expect_range("bandwidth_mbit_s", self.bandwidth_mbit_s, 0, 1e6)
        _expect_range("max_virtual_s", self.max_virtual_s, 1, 1e9)
        if self.idle_sleep and not (self.contributors_per_round and self.committee_size and self.degree == 0):
            raise ScenarioError("idle_sleep needs contributors_per_round and committee_size, and no degree")
        config = self.learning_config()
        config.validate(is_described=False)
        validate_choice(config, task or self.task)
        members = self.members
        _expect_range("committee_size", self.committee_size, 0, members)
        _expect_range("degree", self.degree, 0, max(0, members - 1))
        for place, fault in enumerate(self.faults):
            _validate_fault(f"faults[{place}]", fault, members)
        for place, clock in enumerate(self.clocks):
            _validate_clock(f"clocks[{place}]", clock, members)
        for place, traitors in enumerate(self.adversaries):
            _validate_traitors(f"adversaries[{place}]", traitors, members)
        named = [number for traitors in self.adversaries for number in traitors.peers]
        if len(set(named)) < len(named) or len(named) >= members:
            raise ScenarioError(f"adversaries names {len(named)} of {members} peers; each once, and not all")

    @property
    def aggregator_rule(self) -> "AggregatorRule":
        """The rule of the designated aggregator; raises ConfigurationError if it contradicts the method."""
        return choose_aggregator(self.learning_config(), self.aggregator, centralized=self.centralized)

    @property
    def members(self) -> int:
        """Number of peers, with or without data."""
        return count_members(self.learning_config(), self.aggregator_rule)

    def learning_config(self) -> LearningConfig:
        """The settings of the learning package; for own data, those before the task's function is called."""
        shared = {item.name for item in fields(LearningConfig)} & {item.name for item in fields(self)}
        values = {name: getattr(self, name) for name in shared}
        return LearningConfig(clients=self.peers, **(values | {"method": agreed_name(self.method)}))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a scenario file holds them."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["hyperparameters"] = dict(self.hyperparameters)
        for name in ("faults", "clocks", "adversaries"):
            values[name] = [{item.name: getattr(row, item.name) for item in fields(row)} for row in values[name]]
        for row in values["adversaries"]:
            row["parameters"] = dict(row["parameters"])
        return values


def load_scenario(path: Path | None, overrides: Mapping[str, Any]) -> Scenario:
    """Read a scenario file (none: the defaults), put ``overrides`` over it, and check the result.

    Raises:
        ScenarioError: the file cannot be read, or holds an unknown key or an impossible value.
        ConfigurationError: the learning task is impossible.
    """
    values: dict[str, Any] = {} if path is None else read_toml(path, ScenarioError)
    scenario = scenario_from_dict(values | dict(overrides))
    scenario.validate()
    return scenario


def scenario_from_dict(values: Mapping[str, Any]) -> Scenario:
    """Build a scenario from plain values. Raises ScenarioError for unknown keys and values of the wrong type.

    If a task is named and no data set, the data are the members' own, and the run is named after the task's file.
    """
    for key, reason in REMOVED.items():
        if key in values:
            raise ScenarioError(f"scenario has no key {key!r} any more: {reason}")
    task = values.get("task")
    if isinstance(task, str) and task:
        values = {"dataset": OWN, "name": _name_of_task(task)} | dict(values)
    return build(Scenario, values, "scenario", ScenarioError)


def _name_of_task(task: str) -> str:
    """Default name of a run of a task: that of the task's file or module."""
    place = task.rpartition(":")[0]
    name = Path(place).stem if place.endswith(FILE_SUFFIX) else place.rpartition(".")[2]
    return name if re.fullmatch(NAME, name) else OWN


@cache
def field_help(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass; for a scenario's learning fields, that of LearningConfig."""
    texts = (field_texts(LearningConfig) if kind is Scenario else {}) | field_texts(kind)
    return {item.name: texts[item.name] for item in fields(kind)}


def _validate_clock(name: str, clock: Clock, peers: int) -> None:
    _expect_range(f"{name} at_s", clock.at_s, 0, 1e9)
    _expect_range(f"{name} offset_s", clock.offset_s, -1e8, 1e8)
    _expect_range(f"{name} drift", clock.drift, -1, 1e3)
    if not clock.peers:
        raise ScenarioError(f"{name} names no peers")
    for number in clock.peers:
        _expect_range(f"{name} peers", number, 0, peers - 1)


def _validate_traitors(name: str, traitors: Traitors, peers: int) -> None:
    _expect_choice(f"{name} behaviour", traitors.behaviour, tuple(BEHAVIOURS))
    if not traitors.peers:
        raise ScenarioError(f"{name} names no peers")
    for number in traitors.peers:
        _expect_range(f"{name} peers", number, 0, peers - 1)
    if traitors.parameters:
        try:
            validate_parameters(traitors.behaviour, traitors.parameters)
        except ValueError as error:
            raise ScenarioError(f"{name}: {error}") from None


def _validate_fault(name: str, fault: Fault, peers: int) -> None:
    _expect_choice(f"{name} kind", fault.kind, FAULT_KINDS)
    _expect_range(f"{name} at_s", fault.at_s, 0, 1e9)
    _expect_range(f"{name} factor", fault.factor, 0.001, 1e6)
    for number in fault.peers:
        _expect_range(f"{name} peers", number, 0, peers - 1)
    if fault.kind != "heal" and not fault.peers:
        raise ScenarioError(f"{name} is a {fault.kind} that names no peers")


def _expect_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ScenarioError(f"{name} is {value}, it must be between {low} and {high}")


def _expect_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ScenarioError(f"{name} is {value!r}{nearest(value, known)}")
