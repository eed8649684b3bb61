"""A federation without chain and network, whose clients post by the method's own code, and the others' view of it."""

import copy
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from fedchain.chain.genesis import AggregatorRule, Contributor
from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.models.base import Model
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.task.data_source import DataSource, Share
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.founding import simulation_keys
from fedchain.simulator.reproduction.forgetting import draw_clients
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario

PHASE = "update"
"""Name of the attacked phase, in which parameters or prototypes are posted."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A post as the other members see it, and the data behind it that they cannot see."""

    posted: Tensors
    """The decoded payload."""

    dropout_seed: int
    """Seed of the client's dropout; it follows from the seed that all know."""

    images: torch.Tensor
    """(n, c, h, w), normalised: the images behind the post."""

    labels: torch.Tensor
    """(n,), int64."""


class Federation:
    """Clients and rules of a scenario.

    Args:
        scenario: validated.
        narrow: wraps the source of the clients' examples.
    """

    def __init__(self, scenario: Scenario, narrow: Callable[[DataSource], DataSource] | None = None) -> None:
        self._scenario = scenario
        self._members = [key.public_key for key in simulation_keys(scenario)]
        self.rules = Application(scenario.learning_config(), self._members)
        self.learner = load_learner(scenario)
        if narrow is not None:
            self.learner.replace_source(narrow)

    def play(self, rounds: int) -> Iterator[tuple[int, bytes]]:
        """Train; yields the number and the knowledge of each round, beginning with round 0, which is the setup."""
        knowledge = b""
        for number in range(rounds + 1):
            drawn = draw_clients(self._scenario, number) if number else range(self._scenario.peers)
            for phase, by, _ in self.rules.phases if number else self.rules.setup_phases:
                working = drawn if by == Contributor.PARTICIPANT.value else [self._aggregator_of(number)]
                posts = self._posts(phase, number, knowledge, working)
                knowledge = self.rules.aggregate(OffChain(phase, number, self._members), knowledge, posts)
            yield number, knowledge

    def watch(self, client: int, number: int, knowledge: bytes) -> Seen:
        """Have a client contribute to a round, and return its post with the data behind it."""
        payload = self.learner.contribute(client, PHASE, number, knowledge).payload
        with self.learner.lend(client, number) as own:
            return Seen(
                read_post(self.rules, payload, knowledge), torch.initial_seed(), own.train_images, own.train_labels
            )

    def _aggregator_of(self, number: int) -> int:
        """The client that is the designated aggregator of a round, as on a chain."""
        turn = {AggregatorRule.ROTATING: number % len(self._members), AggregatorRule.DEDICATED: len(self._members) - 1}
        return turn.get(self._scenario.aggregator_rule, 0)

    def _posts(self, phase: str, number: int, knowledge: bytes, drawn: Collection[int]) -> list[tuple[bytes, bytes]]:
        made = [self.learner.contribute(client, phase, number, knowledge).payload for client in drawn]
        return sorted(zip((self._members[client] for client in drawn), made, strict=True))


def read_post(rules: Application, payload: bytes, knowledge: bytes) -> Tensors:
    """A decoded post of the attacked phase, made from the knowledge.

    Raises:
        ConfigurationError: the method has no such phase.
        InvalidPayload: the bytes are not such a post.
    """
    if all(phase.name != PHASE for phase in rules.method.phases):
        raise ConfigurationError(f"the method has no phase {PHASE!r}, whose posts could be attacked")
    return rules.forms[0].decode(PHASE, payload, rules.read_knowledge(knowledge))


def common_model(learner: Learner, rules: Application, member: int, number: int, knowledge: bytes) -> Model:
    """A copy of the model with which a member that has not contributed yet begins the round.

    Raises:
        ConfigurationError: the method has no model that all members begin with.
    """
    method = learner.method
    if not (method.shares_model and method.shared_init):
        raise ConfigurationError("the members have no common model that a post could be compared with")
    with learner.lend(member, number) as client:
        method.receive(client, Round(number, rules.read_knowledge(knowledge)))
        return copy.deepcopy(client.model)


def own_encoder(learner: Learner, client: int) -> Model:
    """A copy of a client's current model, with the embeddings that the method's prototypes are means of."""
    with learner.lend(client, 1) as own:
        model = copy.deepcopy(own.model)
    return _UnitEmbeddings(model) if isinstance(learner.method, FedPh) else model


class _UnitEmbeddings(Model):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings of length 1, and logits."""
        embedding, logits = self.model(images)
        return F.normalize(embedding, dim=1), logits


class Handful:
    """Gives some clients only the first few of their training examples; everything else is the source's.

    Args:
        source: source of the examples.
        examples: number that a client keeps, of each class if `of_each_class`.
        of_each_class: whether examples are counted class by class.
        clients: the clients that are limited; None if all are.
    """

    def __init__(
        self,
        source: DataSource,
        examples: int,
        *,
        of_each_class: bool = False,
        clients: Collection[int] | None = None,
    ) -> None:
        self._source, self._examples = source, examples
        self._of_each_class, self._clients = of_each_class, clients

    def share(self, client: int, seed: int) -> Share:
        """See :class:`DataSource`."""
        share = self._source.share(client, seed)
        kept = torch.from_numpy(self._kept(client, share.train_labels.numpy()))
        return replace(share, train_images=share.train_images[kept], train_labels=share.train_labels[kept])

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        """See :class:`DataSource`."""
        labels = self._source.train_labels(client, seed)
        return labels[self._kept(client, labels)]

    def hash_own(self, client: int, seed: int) -> str:
        """See :class:`DataSource`."""
        return self._source.hash_own(client, seed)

    def test_set(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """See :class:`DataSource`."""
        return self._source.test_set()

    def _kept(self, client: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the examples that the client keeps, ascending."""
        if self._clients is not None and client not in self._clients:
            return np.arange(len(labels))
        if not self._of_each_class:
            return np.arange(min(self._examples, len(labels)))
        return np.sort(
            np.concatenate([np.flatnonzero(labels == label)[: self._examples] for label in np.unique(labels)])
        )
