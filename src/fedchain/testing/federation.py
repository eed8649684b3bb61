"""A federation in this process: the rules aggregate the posts of the learner's clients, round after round.

There is no chain, no network and no clock, so a round costs no more than its training. The bytes are those of real
peers.
"""

from collections.abc import Sequence

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.method import Contributor, Method
from fedchain.learning.payload.part_folder import PartMemory
from fedchain.learning.registry import HyperparameterValue, agreed_name, build_method, name_method, use_current_folder
from fedchain.learning.round import OffChain, Tensors
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.task.choice import TaskFunction, validate_choice
from fedchain.learning.task.custom import load_task
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from fedchain.node.founding.task import with_shapes


class Federation:
    """Plays rounds; senders are in ascending order of client. Phases of the aggregator are those of a dedicated one.

    Args:
        config: the learning task, with a part of the data for each client that ever takes part.
        learner: serves the clients; without it, a new one.
        task: for own data, the function that returns (model, train set, test set).
        founders: number of clients that are members from the beginning, the first ones; 0: all.
    """

    def __init__(
        self,
        config: LearningConfig,
        learner: Learner | None = None,
        task: TaskFunction | None = None,
        founders: int = 0,
    ) -> None:
        config = with_shapes(config, task) if task is not None and config.shapes is None else config
        method = build_method(config.method, dict(config.hyperparameters))
        self._aggregates = {
            phase.name for phase in (*method.setup, *method.phases) if phase.by is Contributor.AGGREGATOR
        }
        self.members = [bytes([client]) for client in range(config.clients + bool(self._aggregates))]
        self.config, self.task, self.rules = config, task, Application(config, self.members)
        self.parts = PartMemory()
        self.learner = learner or self.new_learner()
        self.knowledge, self.round = b"", 0
        self.clients: Sequence[int] = range(founders or config.clients)
        """The clients that are members now, ascending. Another list takes effect with the next round."""
        for phase, _, _ in self.rules.setup_phases:
            self._phase(phase, self.clients)

    @classmethod
    def of(
        cls,
        method: str | type[Method] | Method,
        task: TaskFunction | str | None = None,
        clients: int = 3,
        **hyperparameters: HyperparameterValue,
    ) -> "Federation":
        """A small federation of a method, on handwritten digits or on a task of one's own."""
        function = None if task is None else function_of(task)
        return cls(small_config(method, function, clients, **hyperparameters), task=function)

    def play(self, rounds: int = 1, participants: Sequence[int] | None = None) -> list[Contribution]:
        """Play rounds with these clients, or with all that are members; return their contributions to the last."""
        made: list[Contribution] = []
        for _ in range(rounds):
            self.round += 1
            for phase, _, _ in self.rules.phases:
                found = self._phase(phase, self.clients if participants is None else participants)
                made = made if phase in self._aggregates else found
        return made

    def new_learner(self) -> Learner:
        """A learner of this federation that has done nothing yet."""
        return Learner(
            self.config,
            self.task,
            members=self.members,
            stores=Stores(secrets_of=secrets_of, parts_of=lambda client: self.parts),
        )

    def known(self) -> Tensors:
        """The knowledge, decoded."""
        tensors = self.rules.read_knowledge(self.knowledge)
        assert tensors is not None, "no round left anything behind yet"
        return tensors

    def client(self, client: int) -> Client:
        """A client as it is now."""
        return self.learner.client(client)

    def _phase(self, phase: str, participants: Sequence[int]) -> list[Contribution]:
        participants = [self.config.clients] if phase in self._aggregates else participants
        count = len(self.clients)
        made = [
            self.learner.contribute(client, phase, self.round, self.knowledge, clients_count=count)
            for client in participants
        ]
        posts = [(bytes([client]), one.payload) for client, one in zip(participants, made, strict=True)]
        for _, payload in posts:
            size, largest = len(payload), self.rules.payload_size_max(phase)
            assert size <= largest, f"a post of {phase} has {size} bytes, but its specs allow {largest}"
        occasion = OffChain(phase, self.round, self.members, count)
        self.knowledge = self.rules.aggregate(occasion, self.knowledge, posts)
        return made


def small_config(
    method: str | type[Method] | Method,
    task: TaskFunction | None = None,
    clients: int = 3,
    **hyperparameters: HyperparameterValue,
) -> LearningConfig:
    """A task for a few clients, on handwritten digits or, if a function is given, described by calling it."""
    name, given = name_method(method)
    name = agreed_name(name)
    settings = {**given, **hyperparameters}
    if task is None:
        return LearningConfig(method=name, clients=clients, hyperparameters=settings)
    return with_shapes(LearningConfig(method=name, clients=clients, dataset=OWN, hyperparameters=settings), task)


def function_of(task: TaskFunction | str) -> TaskFunction:
    """A task's function, which may be named as ``"FILE.py:function"`` or ``"module:function"``."""
    if not isinstance(task, str):
        return task
    validate_choice(LearningConfig(dataset=OWN), task)
    use_current_folder()
    return load_task(task)


def secrets_of(client: int) -> Secrets:
    """The secrets of each client."""
    return Secrets(client, bytes([client] * ROOT_SIZE), {"share": bytes([client, 7])})
