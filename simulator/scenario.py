"""A scenario: one simulation, described by a TOML file. Each field's docstring is its help on the command line.

This module imports nothing heavy, so that ``fedchain --help`` answers at once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from fedchain.chain.membership.amendment import ADMISSION, AMENDABLE
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.files import effects
from fedchain.files.effects import Needs
from fedchain.files.field_texts import field_texts
from fedchain.files.tables import Range, build, nearest, read_toml, validate
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.registry import FILE_SUFFIX, agreed_name, build_method, hyperparameter_names, load_method
from fedchain.learning.task.choice import TaskFunction, validate_choice
from fedchain.node.founding.aggregator import choose_aggregator, count_members
from fedchain.node.founding.consensus import Blocks, Consensus, Timeout
from fedchain.node.founding.effects import validate_effects
from fedchain.simulator.adversaries.registry import BEHAVIOURS, validate_parameters
from fedchain.simulator.disturbances import Clock, Fault, MemberChange, Traitors

if TYPE_CHECKING:
    from fedchain.chain.genesis import AggregatorRule

_UNSAID = MappingProxyType(
    {"device": "cpu", "train_ahead": True, "hash_rates": (), "weights": "", "weights_head": "file"}
    | {"late_rounds": 0, "evaluate_every": 1, "changes": (), "churn": 0.0}
)
"""Settings that a file leaves out at these values, as before there were such settings."""

_LEARNING: Mapping[str, Any] = {item.name: item.default for item in fields(LearningConfig)}
"""Defaults of the learning fields, which a scenario has under the same names, with the same help."""

ROUNDS_MAX = 1_000_000
"""Most rounds of a run."""

CHAIN_KEEPER = 0
"""Number of the peer that a run keeps the chain of."""

LATER = ("admission", "sponsors", "away_after", "patience_percent", "late_rounds", "changes", "churn")
"""Settings that federations of version 2 do not have."""

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
class Scenario(Consensus):
    """A simulation of many peers: the settings of consensus, some with other defaults, and these."""

    name: str = "digits"
    """Name of the run; its folder is named after it."""
    peers: Annotated[int, Range(1, 10_000)] = 20
    """Number of peers with data, K; a dedicated aggregator is one more, the last."""
    rounds: Annotated[int, Range(1, ROUNDS_MAX)] = 10
    """Number of rounds, R."""
    seed: int = 0
    """Root of all randomness: keys, data, training, delays, mining."""
    private_seed: int = 0
    """Root of secret randomness: noise, masks, dealt keys. It is on no chain, unlike the seed of learning; but anybody
    with the scenario can repeat it, so a simulation protects nobody's data."""
    workers: Annotated[int, Range(1, 64)] = 2
    """Training processes; their number changes the speed and, but for the last bits of cohorts, nothing else."""

    method: str = _LEARNING["method"]
    hyperparameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Hyper-parameters of the method, as name=value; repeat the option for several."""
    dataset: str = _LEARNING["dataset"]
    data_dir: str = _LEARNING["data_dir"]
    task: str = _LEARNING["task"]
    model: str = _LEARNING["model"]
    weights: str = _LEARNING["weights"]
    weights_head: str = _LEARNING["weights_head"]
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
    device: str = "cpu"
    """Where models are trained: cpu, cuda, cuda:1 (a graphics card by its number) or auto (a card, if there is one)."""
    vectorize_clients: bool = False
    """Models of one architecture are trained as one batch of models, a cohort: same results to rounding, which workers
    and executor decide. On the processor that is done for small models without convolutions alone, which gain by it."""
    train_ahead: bool = True
    """Peers train on what will probably be final, from the last contribution to a phase, or from a candidate on; that
    changes the speed and nothing else."""
    evaluate_every: Annotated[int, Range(0, 1_000_000)] = 1
    """Rounds between measurements of models on their clients' own test sets; the last round always is. A measurement on
    the whole test set includes one. 0: none but those."""
    test_every: Annotated[int, Range(0, 1_000_000)] = 1
    """Rounds between measurements on the whole test set; the last round always is. 0: never."""
    test_local: Annotated[bool, Needs("test_every")] = True
    """Whether such a measurement includes every local model, besides the shared model."""

    iteration_s: Annotated[float, Range(0, 1e6)] = 0.05
    """Virtual seconds of one local step (DFPL: α)."""
    mining_attempts: Annotated[int, Range(2, 2**40)] = 32
    """Real hashes per block, on average; peers' virtual hash rates follow from it and from mining_s. The time of a
    block is drawn, so few of them make it no less random; more leave room for easy blocks beside unlike hash_rates."""
    inline_kib_max: Annotated[int, Range(0, 256)] = 256
    """Kibibytes up to which a post travels inside the message that announces it. A simulated peer sends each neighbour
    one copy either way; in a mesh (degree), 64, as real nodes have it, saves the copies that neighbours pass on."""
    hash_rates: tuple[float, ...] = ()
    """Hash rates of the peers by number, as multiples of the rate that each has otherwise; a missing one is 1."""
    idle_sleep: bool = False
    """Peers sleep while they are drawn neither to contribute nor to vote.

    Peer 0 stays awake. Many peers then cost no more than the few that are drawn. Sleeping peers follow
    the chain: a waking peer has nothing to catch up with, and no bytes are counted for it. It is not for
    methods that post by reference: peers that sleep hand nothing out.
    """
    phase_timeout_s: Timeout = 30.0
    retention_blocks: Blocks = 0
    """Blocks up to the head whose payloads are kept; 0: all, so that the whole run can be verified."""

    degree: int = 0
    """Neighbours in the gossip mesh; 0: every peer is connected to every other."""
    delay_min_ms: int = 10
    """Shortest one-way delay of a message, in milliseconds."""
    delay_max_ms: Annotated[int, Range(0, 3_600_000)] = 100
    """Longest one-way delay, in milliseconds."""
    loss: Annotated[float, Range(0, 0.99)] = 0.0
    """Probability that a message is lost."""
    replay: Annotated[float, Range(0, 1)] = 0.0
    """Probability that a message arrives twice."""
    bandwidth_mbit_s: Annotated[float, Range(0, 1e6)] = 0.0
    """Sending rate of a peer, in Mbit/s; 0: no limit."""
    max_virtual_s: Annotated[float, Range(1, 1e9)] = 100_000.0
    """The run fails if it has not ended by then, in virtual seconds."""
    faults: tuple[Fault, ...] = ()
    """Timed faults, as [[faults]] tables in the file."""
    clocks: tuple[Clock, ...] = ()
    """Wrong clocks, as [[clocks]] tables in the file."""
    adversaries: tuple[Traitors, ...] = ()
    """Peers that do not follow the protocol, as [[adversaries]] tables in the file."""

    changes: tuple[MemberChange, ...] = ()
    """Changes of the membership, as [[changes]] tables in the file. The data are dealt to all that ever take part."""
    churn: Annotated[float, Range(0, 0.25)] = 0.0
    """Share of the peers with data that leave in each round from the second on, drawn by the seed; as many join. Peer
    0, those that crash and adversaries stay. Beside it, changes may only amend."""

    def validate(self, task: TaskFunction | None = None, *, is_begun: bool = False) -> None:
        """Raise ScenarioError, or the learning package's ConfigurationError, for the first impossible value.

        Args:
            task: for own data, the function itself, if the scenario names none.
            is_begun: whether a run has it already, which may state what has no effect.
        """
        if not re.fullmatch(NAME, self.name):
            form = "up to 64 letters, digits, spaces, -, _, . or +, of which the first is a letter, a digit or _"
            raise ScenarioError(f"name is {self.name!r}, it must be {form}")
        validate(Scenario, self, "scenario", ScenarioError)
        _expect_range("last round that changes leave", self.last_round, 1, ROUNDS_MAX)  # before churn is drawn for all
        _expect_range("contributors_per_round", self.contributors_per_round, 0, self.peers)
        _expect_range("contribution_quorum", self.contribution_quorum, 0, self.contributors_per_round or self.peers)
        _expect_range("delay_min_ms", self.delay_min_ms, 0, self.delay_max_ms)
        if self.idle_sleep and not (self.contributors_per_round and self.committee_size and self.degree == 0):
            raise ScenarioError("idle_sleep needs contributors_per_round and committee_size, and no degree")
        config = self.learning_config()
        config.validate(is_described=False)
        validate_choice(config, task or self.task)
        members = self.members
        _expect_range("committee_size", self.committee_size, 0, members)
        _expect_range("degree", self.degree, 0, max(0, members - 1))
        _expect_range("length of hash_rates", len(self.hash_rates), 0, self.everybody)
        for rate in self.hash_rates:
            _expect_range("hash_rates", rate, 1e-6, 1e6)
        for table in ("faults", "clocks", "adversaries"):
            for place, row in enumerate(getattr(self, table)):
                if not row.peers and getattr(row, "kind", "") != "heal":
                    raise ScenarioError(f"{table}[{place}] names no peers")
                for number in row.peers:
                    _expect_range(f"{table}[{place}] peers", number, 0, self.everybody - 1)
        for place, traitors in enumerate(self.adversaries):
            _validate_traitors(f"adversaries[{place}]", traitors)
        named = [number for traitors in self.adversaries for number in traitors.peers]
        if len(set(named)) < len(named) or len(named) >= members:
            raise ScenarioError(f"adversaries names {len(named)} of {members} peers; each once, and not all")
        self._validate_version()
        self._validate_changes()
        if not is_begun:
            self._validate_order()
            self._validate_rows()
            validate_effects(config, self)

    def _validate_version(self) -> None:
        if self.version >= CHANGES_VERSION:
            return
        for item in fields(self):
            if item.name in LATER and getattr(self, item.name) != item.default:
                raise ScenarioError(f"version is {self.version}, {item.name} begins with version {CHANGES_VERSION}")

    def _validate_changes(self) -> None:
        if self.churn:
            self._validate_churn()
        if not self.all_changes:
            return
        if self.idle_sleep or self.degree:
            raise ScenarioError("changes need every peer connected to all others: no degree, no idle_sleep")
        for place, row in enumerate(self.changes):
            if bool(row.values) != (row.kind == "amend") or bool(row.peers) == (row.kind == "amend"):
                raise ScenarioError(f"changes[{place}]: amend has values, and every other kind has peers")
            if unknown := row.values.keys() - set(AMENDABLE):
                numbers = (name for name in AMENDABLE if name != ADMISSION)
                known = (*numbers, *sorted(load_method(agreed_name(self.method)).amendable))
                if unknown := unknown - set(known):
                    raise ScenarioError(f"changes[{place}]: {min(unknown)} is none of {', '.join(known)}")
            low, high = (self.members, self.everybody) if row.kind == "join" else (0, self.everybody)
            for number in row.peers:
                _expect_range(f"changes[{place}] peers", number, low, high - 1)
        rows = sorted(self.all_changes, key=_by_round)
        in_order = [number for row in rows if row.kind == "join" for number in row.peers]
        if in_order != list(range(self.members, self.everybody)):
            raise ScenarioError(f"peers {in_order} join, {self.members} and those after it in order are expected")
        if self.admission == "closed" and any(row.kind in ("join", "remove", "recover") for row in rows):
            raise ScenarioError("admission is closed: nobody joins, is removed or gets a lost place back")

    def _validate_order(self) -> None:
        """Refuse changes that would be lost without a word."""
        from fedchain.simulator.playable import validate_playable

        if not self.changes:
            return
        first = self._first_proposals()
        try:
            validate_playable(self.changes, self.members, self.fault_model, first, self.rounds, self.away_after)
        except ValueError as error:
            raise ScenarioError(str(error)) from None

    def _validate_rows(self) -> None:
        """Refuse what a table says without an effect."""
        for table in ("faults", "changes"):
            for place, row in enumerate(getattr(self, table)):
                _validate_row(f"{table}[{place}]", row)
        for place, clock in enumerate(self.clocks):
            if not (clock.offset_s or clock.drift):
                raise ScenarioError(f"clocks[{place}] has no effect: it needs offset_s or drift")
        slow = set[int]()
        for place, fault in sorted(enumerate(self.faults), key=lambda item: item[1].at_s):
            if fault.kind != "slow":
                continue
            if fault.factor != 1:
                slow |= {*fault.peers}
            elif slow.isdisjoint(fault.peers):
                raise ScenarioError(f"faults[{place}] has no effect: factor is 1, and none of its peers is slow then")
            else:
                slow -= {*fault.peers}

    def _validate_churn(self) -> None:
        from fedchain.simulator.churn import churn_in_round, churn_most

        if any(row.kind != "amend" for row in self.changes):
            raise ScenarioError("churn draws who joins and leaves: changes beside it may only amend")
        due, most = churn_in_round(self.churn, self.peers), churn_most(self.members, self.fault_model)
        if due > most:
            raise ScenarioError(f"churn is {self.churn}: {due} of {self.peers} members a round, at most {most} may go")

    @property
    def aggregator_rule(self) -> "AggregatorRule":
        """The rule of the designated aggregator; raises ConfigurationError if it contradicts the method."""
        return choose_aggregator(self._config(self.peers), self)

    @property
    def members(self) -> int:
        """Number of founders, with or without data."""
        return count_members(self._config(self.peers), self.aggregator_rule)

    @property
    def all_changes(self) -> tuple[MemberChange, ...]:
        """The changes that the file has, and those that churn draws."""
        if not self.churn:
            return self.changes
        from fedchain.simulator.churn import draw_churn

        down = {number for row in self.faults if row.kind in ("crash", "kill") for number in row.peers}
        liars = {number for row in self.adversaries for number in row.peers}
        staying = frozenset({CHAIN_KEEPER} | down | liars)
        return self.changes + draw_churn(self.churn, self.peers, self.members, self.last_round, self.seed, staying)

    @property
    def last_round(self) -> int:
        """The last round, with the amendments that move it; 0 where these leave none, as no validated scenario does.

        Raises ScenarioError for one that says no round.
        """
        if all("rounds" not in row.values for row in self.changes):
            return self.rounds
        from fedchain.simulator.playable import last_round

        first = self._first_proposals()
        changes = [replace(row, round=max(row.round, first)) for row in self.changes]
        try:
            return last_round(changes, self.rounds)
        except ValueError as error:
            raise ScenarioError(str(error)) from None

    def _first_proposals(self) -> int:
        """The round in which changes are proposed first: none is before the first block."""
        method = build_method(agreed_name(self.method), self.hyperparameters)
        return 1 if method.setup or len(method.phases) > 1 else 2

    @property
    def newcomers(self) -> int:
        """Number of peers that join later."""
        return sum(len(row.peers) for row in self.all_changes if row.kind == "join")

    @property
    def everybody(self) -> int:
        """Number of peers that ever take part."""
        return self.members + self.newcomers

    def learning_config(self) -> LearningConfig:
        """The settings of the learning package; for own data, those before the task's function is called."""
        newcomers = self.newcomers
        config = self._config(self.peers + newcomers)
        is_dedicated = newcomers and choose_aggregator(config, self).value == "dedicated"
        return replace(config, dataless=self.peers) if is_dedicated else config

    def _config(self, clients: int) -> LearningConfig:
        """The settings of the learning package for so many peers with data, as if there were no others."""
        shared = {item.name for item in fields(LearningConfig)} & {item.name for item in fields(self)}
        values = {name: getattr(self, name) for name in shared}
        return LearningConfig(**values | {"method": agreed_name(self.method), "clients": clients})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a scenario file holds them."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["hyperparameters"] = dict(self.hyperparameters)
        for name, usual in _UNSAID.items():
            if values[name] == usual:  # a file without it says the same
                del values[name]
        for name in ("faults", "clocks", "adversaries", "changes"):
            if name not in values:
                continue
            values[name] = [{item.name: getattr(row, item.name) for item in fields(row)} for row in values[name]]
        for row in values["adversaries"]:
            row["parameters"] = dict(row["parameters"])
        return values


def load_scenario(path: Path | None, overrides: Mapping[str, Any], task: TaskFunction | None = None) -> Scenario:
    """Read a scenario file (none: the defaults), put ``overrides`` over it, and check the result.

    ``task`` is the function for own data, if the scenario names none.

    Raises:
        ScenarioError: the file cannot be read, or holds an unknown key or an impossible value.
        ConfigurationError: the learning task is impossible.
    """
    if path is not None and path.is_dir():
        raise ScenarioError(f"{path} is a folder, not a scenario's file; --out names the folder of a run")
    values: dict[str, Any] = {} if path is None else read_toml(path, ScenarioError)
    values |= overrides
    require_placed(values)
    scenario = scenario_from_dict(values)
    scenario.validate(task)
    return scenario


def require_placed(values: Mapping[str, Any]) -> None:
    """Raise ScenarioError for a hyper-parameter among the settings of a file."""
    if (key := misplaced(values)) is not None:
        raise ScenarioError(f"{key} is a hyper-parameter of {method_of(values)}: it stands below [hyperparameters]")


def misplaced(values: Mapping[str, Any]) -> str | None:
    """A hyper-parameter that is given as a field of the scenario, an easy mistake."""
    unknown = {*values} - {item.name for item in fields(Scenario)}
    if not unknown or not isinstance(method := method_of(values), str):
        return None
    return min(unknown & {*hyperparameter_names(load_method(agreed_name(method)))}, default=None)


def method_of(values: Mapping[str, Any]) -> Any:
    """The method that plain values of a scenario name."""
    return values.get("method", Scenario().method)


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


def _by_round(row: MemberChange) -> int:
    return row.round


@cache
def field_help(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass; for a scenario's learning fields, that of LearningConfig."""
    texts = (field_texts(LearningConfig) if kind is Scenario else {}) | field_texts(kind)
    return {item.name: texts[item.name] for item in fields(kind)}


def _validate_row(name: str, row: Fault | MemberChange) -> None:
    effects.validate_effects(row, (), lambda text: ScenarioError(f"{name} {text}"))
    if row.kind == "heal" and row.peers:
        raise ScenarioError(f"{name} names peers, which has no effect: heal is for all peers")


def _validate_traitors(name: str, traitors: Traitors) -> None:
    if traitors.behaviour not in BEHAVIOURS:
        raise ScenarioError(f"{name} behaviour is {traitors.behaviour!r}{nearest(traitors.behaviour, BEHAVIOURS)}")
    if traitors.parameters:
        try:
            validate_parameters(traitors.behaviour, traitors.parameters)
        except ValueError as error:
            raise ScenarioError(f"{name}: {error}") from None


def _expect_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ScenarioError(f"{name} is {value}, it must be between {low} and {high}")
