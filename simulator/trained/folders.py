"""Folders that hold trained models: a simulated run's, a node's, and a test network's, which holds its nodes' folders.

The common model is read from the chain in the folder. Local models are on no chain: a run keeps them if it was asked
to, and a node keeps its own, as of its last contribution.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedchain.chain.exceptions import InvalidGenesis, NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.names import find_member, read_number
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import CHAIN_FOLDER, MODELS_FOLDER, SCENARIO_FILE, TRAINING_FILE, read_metrics
from fedchain.files.places import chain_folder, place_at
from fedchain.files.spool import MAPPED_SIZE
from fedchain.files.tables import read_toml
from fedchain.learning.application import Application
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.parameters import find_residual
from fedchain.learning.payload.document import Buffer
from fedchain.learning.registry import is_file_path, use_current_folder
from fedchain.learning.round import Tensors
from fedchain.learning.task.choice import validate_choice
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.model_file import ModelState, state_of_checkpoint, state_of_knowledge
from fedchain.learning.worker.model_origin import Origin, validate_shared, write_origin
from fedchain.node.founding.task import (
    DERIVED_FIELDS,
    LOCAL_FIELDS,
    learning_from_genesis,
    use_method_file,
)
from fedchain.node.workers.frames import PipeBroken
from fedchain.node.workers.training_file import read_training
from fedchain.simulator.report import holds_finished
from fedchain.simulator.run import load_learner, model_path
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict
from fedchain.simulator.trained.origins import origin_of, read_file
from fedchain.simulator.trained.passport import write_passport
from fedchain.wording import printable

_OTHER_FIELDS = frozenset({"hyperparameters", "material", "method", "more_shapes"})
"""Fields of a task that say how members learn, or that follow from their models."""

DATA_FIELDS = tuple(
    sorted({item.name for item in fields(LearningConfig)} - LOCAL_FIELDS - DERIVED_FIELDS - _OTHER_FIELDS)
)
"""Fields of a task that say which examples each member has, and what its model is: a new one, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model, and its origin."""

    state: ModelState
    origin: Origin

    def pieces(self) -> Iterator[Buffer]:
        """The pieces of a safetensors file; the same model and origin give the same bytes."""
        return state_pieces(self.state, write_origin(self.origin))


class ModelFolder(ABC):
    """A folder with models of one federation.

    Args:
        folder: the folder.
        chain: the folder of a chain in it.
        data_dir: folder of the data set, if it is not the one that the folder names.
        task: the function that loads own data, likewise.

    Raises ChainError if the chain cannot be read.
    """

    def __init__(self, folder: Path, chain: Path, data_dir: str, task: str) -> None:
        self.folder, self._chain = folder, chain
        self._data_dir, self._task = data_dir, task
        with Store.open(chain, read_only=True) as store:
            self.genesis: Genesis = store.genesis
            self._roster = Explorer(store).state.roster

    @property
    @abstractmethod
    def config(self) -> LearningConfig:
        """The task, with the shapes of the models and this machine's own settings."""

    @property
    @abstractmethod
    def kept(self) -> tuple[int, ...]:
        """Members whose local models are here, ascending."""

    @property
    @abstractmethod
    def sites(self) -> tuple[int, ...]:
        """Members whose test sets are available here."""

    @abstractmethod
    def learner(self) -> Learner:
        """A learner that measures models on the members' data; raises LearningError if these are not available."""

    @abstractmethod
    def _local(self, member: int) -> TrainedModel:
        """The kept model of a member."""

    @abstractmethod
    def _why_none(self, member: int) -> str:
        """Message that a member's model is not here, with advice."""

    def reported(self, round_number: int) -> Mapping[str, Any]:
        """The run's measurements of the aggregate of a round, by field of `Origin`; {} if there are none."""
        return {}

    def find(self, name: str) -> int:
        """The place of a member, given as this number or as its address. Raises NotFound or InvalidAddress."""
        if not name.isdecimal():
            return self._roster.seats[find_member(name, self._roster.members)]
        number = read_number(name)
        if number is None or number >= len(self._roster.members):
            raise NotFound(f"member {name}: the members of this federation are 0 to {self._last_member}")
        return number

    def member(self, member: int, round_number: int | None = None) -> TrainedModel:
        """The local model of a member after its last contribution.

        Raises `ConfigurationError` if it is not here, or not as it was after ``round_number``.
        """
        if member not in self.config.places_with_data:
            raise ConfigurationError(f"member {member} is the aggregator, which has no data and no model of its own")
        if member not in self.kept:
            raise ConfigurationError(self._why_none(member))
        found = self._local(member)
        if round_number not in (None, found.origin.round):
            last = "its last round" if found.origin.round is None else f"round {found.origin.round}"
            raise ConfigurationError(
                f"member {member}'s model is kept as it was after {last}, not after {round_number}"
            )
        return found

    def aggregate(self, round_number: int | None = None) -> TrainedModel:
        """The common model after a round, by default the newest finished one.

        Where it is more than the chain holds, because members add to their frozen weights, it is built as a member
        builds it. Raises `ConfigurationError` if the method has none, or its weights are not here, and NotFound if the
        chain does not keep it.
        """
        config = self.config
        rules = Application(config, self.genesis.members, self.genesis.chain_id)
        validate_shared(config.method, rules.method)
        with Store.open(self._chain, read_only=True) as store:
            header, knowledge = Explorer(store).kept.left_behind(round_number)
        known = rules.read_knowledge(knowledge) or {}
        state = self._with_frozen(known) if find_residual(known) else state_of_knowledge(known, rules.info)
        origin = origin_of(
            config, self.genesis.chain_id, member=None, round=header.round, **self.reported(header.round)
        )
        return TrainedModel(state, origin)

    def passport(self, round_number: int | None, name: str, file: bytes) -> bytes:
        """The passport of the common model's file, of this name and these bytes; see :func:`write_passport`.

        Raises `ConfigurationError` for a model that is more than the chain holds.
        """
        rules = Application(self.config, self.genesis.members, self.genesis.chain_id)
        with Store.open(self._chain, read_only=True) as store:
            explorer = Explorer(store)
            _, knowledge = explorer.kept.left_behind(round_number)
            if frozen := find_residual(rules.read_knowledge(knowledge) or {}):
                raise ConfigurationError(
                    f"no passport proves this model: the chain holds what is added to {frozen}, not these weights"
                )
            return write_passport(explorer, round_number, name, file)

    def _with_frozen(self, known: Tensors) -> ModelState:
        """The common model where the knowledge holds what is added to frozen weights, which a member's task has."""
        if not self.sites:
            added = f"the chain holds what members add to their {find_residual(known)}"
            raise ConfigurationError(f"{added}, and {self._why_none(0)}")
        return self.learner().common_state(known, self.sites[0])

    @property
    def _last_member(self) -> int:
        return len(self._roster.members) - 1


class RunFolderModels(ModelFolder):
    """The folder of a simulated run.

    The folder may be somebody else's. A file that its scenario names is run where models are measured, since a run did
    that with it, and otherwise only if it is given.
    """

    def __init__(self, folder: Path, data_dir: str, task: str, method: str, weights: str, *, measures: bool) -> None:
        super().__init__(folder, folder / CHAIN_FOLDER, data_dir, task)
        given = {"data_dir": data_dir, "task": task, "method": method, "weights": weights}
        overrides = {name: value for name, value in given.items() if value}
        self._models, self._given, self._measures = folder / MODELS_FOLDER, overrides.keys(), measures
        self._scenario: Scenario = scenario_from_dict(read_toml(folder / SCENARIO_FILE, ScenarioError) | overrides)
        if measures:
            self._scenario.validate(is_begun=True)  # which imports the code

    @property
    def config(self) -> LearningConfig:
        """As the chain states it."""
        try:
            return learning_from_genesis(self.genesis, self._scenario.data_dir, self._scenario.task)
        except InvalidGenesis as error:
            name = self._scenario.method
            hint = f"; the run names {printable(name)}: --method runs it" if is_file_path(name) else ""
            raise InvalidGenesis(f"{error}{hint}") from None

    @property
    def kept(self) -> tuple[int, ...]:
        """Members whose final models the run kept."""
        places = self.config.places_with_data
        return tuple(member for member in places if model_path(self._models, member).exists())

    @property
    def sites(self) -> tuple[int, ...]:
        """All members: a simulation has all data."""
        return self.config.places_with_data

    def learner(self) -> Learner:
        """The run's own learner.

        Raises `ConfigurationError` for code that nobody said is to be run, and for a scenario that is not the chain's.
        """
        if not self._measures:
            for option in ("method", "task"):
                name = getattr(self._scenario, option)
                if option not in self._given and is_file_path(name):
                    named = f"--{option} {printable(name)} runs it"
                    raise ConfigurationError(f"the run's own code builds this model: {named}")
            self._scenario.validate(is_begun=True)
        learner = load_learner(self._scenario)
        self._require_same_data(learner.config)
        return few_in_memory(learner)

    def reported(self, round_number: int) -> Mapping[str, Any]:
        """See :class:`ModelFolder`: from the row of the round. Its means are of the same members, or are left out."""
        for row in read_metrics(self.folder):
            if row.get("round") == round_number:
                numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
                found = {"test_accuracy": numbers.get("test_accuracy_received")}
                if row.get("receivers", len(self.sites)) == len(self.sites):  # older runs did not count them
                    found |= {"accuracy": numbers.get("taa_received"), "loss": numbers.get("tal_received")}
                return found
        return {}

    def _require_same_data(self, found: LearningConfig) -> None:
        """Its file may be changed: models would be measured on examples that the run trained on, or never saw."""
        stated, file = self.config, self.folder / SCENARIO_FILE
        for name in DATA_FIELDS:
            if getattr(found, name) != getattr(stated, name):
                why = f"{getattr(found, name)!r}, not {getattr(stated, name)!r}"
                raise ConfigurationError(f"{file} is another scenario than the chain's: its {name} is {why}")

    def _local(self, member: int) -> TrainedModel:
        model = read_file(model_path(self._models, member))
        unknown = origin_of(self.config, self.genesis.chain_id, member=member, round=None)
        return TrainedModel(model.state, model.origin or unknown)

    def _why_none(self, member: int) -> str:
        if self.kept:
            return f"{self._models} has no file of member {member}"
        if self.keeps_later:
            return f"{self.folder} has local models when finished; {self.how_to_go_on}, or ask for the --aggregate"
        return f"{self.folder} keeps no local models; simulate with --keep-models, or ask for the --aggregate"

    @property
    def keeps_later(self) -> bool:
        """Whether the run was interrupted, and writes its members' models when it goes on and is finished."""
        return self._models.is_dir() and not holds_finished(self.folder)

    @property
    def how_to_go_on(self) -> str:
        """The command that finishes an interrupted run, in a sentence."""
        return f"fedchain simulate --resume --out {self.folder} goes on"


class NodeModels(ModelFolder):
    """The data folders of nodes of one federation.

    Args:
        folder: the folder that was asked for.
        nodes: the nodes' data folders, with their own models.
        data_dir: folder of the data set.
        task: the function that loads own data.
        weights: the file of the weights that models begin with.

    Raises `ConfigurationError` for weights where models begin with no file.
    """

    def __init__(self, folder: Path, nodes: Sequence[Path], data_dir: str, task: str, weights: str) -> None:
        super().__init__(folder, chain_folder(nodes[0]), data_dir, task)
        self._is_one, self._weights = len(nodes) == 1, weights
        if weights and not self.config.weights_hash:
            raise ConfigurationError(f"weights {weights}: the models of this federation begin with no file")
        self._files = {}
        for path in (node / TRAINING_FILE for node in nodes):
            if path.exists():
                try:
                    kept = read_training(path)
                except PipeBroken as error:
                    raise ConfigurationError(str(error)) from None
                if kept.chain_id == self.genesis.chain_id and kept.member in self.config.places_with_data:
                    self._files[kept.member] = kept

    @property
    def config(self) -> LearningConfig:
        """As the chain states it."""
        return learning_from_genesis(self.genesis, self._data_dir, self._task, self._weights)

    @property
    def kept(self) -> tuple[int, ...]:
        """Members of the nodes whose models are here."""
        return tuple(sorted(self._files))

    @property
    def sites(self) -> tuple[int, ...]:
        """All members; if data are the members' own and the folder is a single node's, members with a model here."""
        is_elsewhere = self.config.dataset == OWN and self._is_one
        return self.kept if is_elsewhere else self.config.places_with_data

    def learner(self) -> Learner:
        """A learner with the members' data, and none of their secrets."""
        use_current_folder()
        config = self.config
        validate_choice(config, config.task)
        return few_in_memory(Learner(config, members=self.genesis.members, chain_id=self.genesis.chain_id))

    def _local(self, member: int) -> TrainedModel:
        kept = self._files[member]
        measured = kept.measured
        origin = origin_of(
            self.config,
            self.genesis.chain_id,
            member=member,
            round=kept.round,
            accuracy=measured.get("local_accuracy"),
            loss=measured.get("local_loss"),
            test_accuracy=measured.get("test_accuracy"),
        )
        return TrainedModel(state_of_checkpoint(kept.checkpoint), origin)

    def _why_none(self, member: int) -> str:
        if not self.kept:
            return f"{self.folder} holds no local model: its member has not trained yet"
        held = ", ".join(map(str, self.kept))
        return f"{self.folder} holds the local model of member {held}; member {member}'s is on its own machine"


def few_in_memory(learner: Learner) -> Learner:
    """The learner; where models are large, it holds one client whose test set is measured on, and builds others anew.

    None of them is trained here, so none has to be written to a file before it goes.
    """
    if 4 * sum(math.prod(shape) for _, shape in learner.info.parameters) > MAPPED_SIZE:
        learner.limit_clients(1, Path(os.devnull))
    return learner


def open_models(
    folder: Path, data_dir: str = "", task: str = "", method: str = "", *, weights: str = "", measures: bool = False
) -> ModelFolder:
    """Open a folder by its kind.

    Args:
        folder: folder of a simulated run, a node, or a test network.
        data_dir: folder of the data set; empty: the run's own, or the environment's.
        task: the function that loads own data, as module:function.
        method: the file of the learning method, as FILE.py:Class, if Python does not find it by itself.
        weights: the file of the weights that models begin with; empty: the one that a run's scenario names.
        measures: whether its models are to be measured, as a run did with the code that its scenario names.

    Raises:
        NotFound: it is none of these.
        ChainError: its chain cannot be read.
        ConfigurationError: the method's file cannot be used, or weights are named that no model begins with.
    """
    if not folder.is_dir():
        raise NotFound(f"{folder} is not a folder")
    if method:
        use_method_file(method)
    place = place_at(folder)
    if place is None:
        raise NotFound(f"{folder} is no folder of a run, a node or a test network: it holds no chain")
    if place.kind == "simulation":
        return RunFolderModels(folder, data_dir, task, method, weights, measures=measures)
    return NodeModels(folder, place.nodes, data_dir, task, weights)
