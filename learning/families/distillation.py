"""Methods in which clients and an aggregator teach each other example by example, and nobody averages parameters.

A client sends its first layers' features of each example and the logits; the aggregator trains a larger network on
that, client after client, and answers with its own logits. All of it goes by reference (`distillation_parts.py`). The
objective of either side is the method's own.

B batch, C classes, n examples of one client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from fedchain.learning.exceptions import ConfigurationError, NothingToPost, PartMissing, TrainingDiverged
from fedchain.learning.families.distillation_parts import (
    DISTILL,
    LABELS,
    UPDATE,
    ExampleParts,
    examples_by_sender,
    oversized_posts,
    read_answer,
    read_examples,
    read_labels,
    send_labels,
)
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import AGGREGATOR, NEXT_AGGREGATOR, PartRef
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors, bulk_of, left_behind

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.families.server import Server

REASONS_MAX = 3
"""Clients for which the message says why their posts are of no use, if no client's post is."""


class Given(NamedTuple):
    """Inputs of an objective for a batch, besides images and labels."""

    logits: torch.Tensor
    """(B, C): the other side's."""

    own: torch.Tensor | None = None
    """d^k, (C,): shares of the classes among the client's examples, for methods that look at them."""

    common: torch.Tensor | None = None
    """d^S, (C,): the same among all clients' examples, which the aggregator knows."""


Choose = Callable[["torch.Tensor"], Given]
"""choose(batch) -> the objective's inputs for the examples at these positions (B,)."""


@dataclass(frozen=True, kw_only=True)
class DistillationMethod(LocalSgdMethod):
    """Small networks of the clients and a larger one of the aggregator teach each other."""

    learning_rate: float = 0.01
    """Step size eta of SGD, of the clients and of the aggregator."""

    batch_size: int = 256
    """Examples per minibatch, B, of both."""

    local_epochs: int = 1
    """Passes over the client's data per round; if 0, local_steps minibatch steps."""

    momentum: float = 0.9
    """Momentum of SGD. A client's buffer starts empty in every round, the aggregator's goes on."""

    weight_decay: float = 5e-4
    """L2 penalty of both."""

    shared_init: bool = False
    """Whether all clients of one network start from the same random model; otherwise each draws its own."""

    server_epochs: int = 1
    """Passes of the aggregator over each client's examples in a round."""

    stage_blocks: int = 6
    """Bottlenecks of each of the three stages of the aggregator's network for images; 6 is the papers' ResNet-56."""

    precision: Literal["float32", "float16"] = "float32"
    """Type in which features and logits are sent; float16 halves the bytes."""

    initial_logits: Literal["none", "zeros"] = "none"
    """The aggregator's logits for a client that it has not answered in the last round: none (the client minimises
    cross-entropy alone, as FedGKT's published code in round 1) or zeros (a uniform teacher)."""

    mixes_models: ClassVar[bool] = True
    needs_split: ClassVar[bool] = True
    beyond_dp_sgd: ClassVar[str] = "features and logits of every example are posted"
    sgd_alone: ClassVar[str] = "the aggregator's network takes the same steps, and hands its momentum on"

    aggregator: ClassVar[str] = "dedicated"
    """How the aggregator is chosen, unless the federation says otherwise."""

    @abstractmethod
    def client_objective(self, logits: torch.Tensor, labels: torch.Tensor, given: Given) -> torch.Tensor:
        """A client's loss, from its logits (B, C) and labels (B,); `given` has the aggregator's logits."""

    @abstractmethod
    def server_objective(self, logits: torch.Tensor, labels: torch.Tensor, given: Given) -> torch.Tensor:
        """The aggregator's loss, from its logits (B, C) and labels (B,); `given` has the client's logits."""

    def given_to_client(self, client: Client, round: Round, logits: torch.Tensor) -> Choose:
        """Return how a batch's inputs of the client's objective follow from the aggregator's answer, logits (n, C)."""
        return lambda batch: Given(logits[batch])

    def given_to_server(self, sender: int, labels: torch.Tensor, round: Round) -> Given:
        """Return the inputs of the aggregator's objective for a client with labels (n,); the client's logits take the
        place of those returned here."""
        import torch

        return Given(torch.empty(0))

    @property
    def starts_from_zeros(self) -> bool:
        """Whether zeros replace answers that a client has not got."""
        return self.initial_logits == "zeros"

    @property
    def answers_while_training(self) -> bool:
        """Whether the aggregator's answer for a batch is its network's output just before it learned from it."""
        return False

    @classmethod
    def validate_together(cls, infos: Mapping[str, ModelInfo]) -> None:
        """Raise `ConfigurationError` unless all features have one shape: one network learns from them."""
        if len({info.feature_shape for info in infos.values()}) > 1:
            shapes = ", ".join(f"{name} has {info.feature_shape}" for name, info in infos.items())
            raise ConfigurationError(f"models whose features are sent need features of one shape, but {shapes}")

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("server_epochs", self.server_epochs, 1, 1 << 10)
        validate_range("stage_blocks", self.stage_blocks, 1, 6)

    def validate_model(self, info: ModelInfo) -> None:
        """Raise `ConfigurationError` for a model that cannot be split, or whose features of one example fill a part."""
        super().validate_model(info)
        if info.feature_shape is None:
            raise ConfigurationError(
                "the method sends features: take a model that can be split, such as resnet8-56 for images or "
                "split-mlp-1 for 64 numbers, or give your own a method `split`"
            )
        if self._parts.rows_max(info) < 1:
            raise ConfigurationError(f"features of shape {info.feature_shape} do not fit into a part")

    @property
    def setup(self) -> tuple[Phase, ...]:
        """The labels, once."""
        return (LABELS,)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Two: the clients', then the aggregator's."""
        return UPDATE, DISTILL

    def parts(self, phase: Phase, info: ModelInfo) -> Mapping[str, tuple[TensorSpec, ...]]:
        """See `ExampleParts.specs`."""
        return self._parts.specs(phase, info)

    def may_read(self, kind: str, reader: int) -> bool:
        """Clients' parts are for the aggregator, its answers are for one client each."""
        if kind == "server":
            return reader == NEXT_AGGREGATOR
        return reader >= 0 if kind == "answers" else reader == AGGREGATOR

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """Nothing but lists of parts."""
        return ()

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """Nothing but lists of parts."""
        return ()

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """List all parts."""
        return left_behind(round)

    def labels(self, client: Client, round: Round) -> Tensors:
        """Send the labels of the client's examples."""
        send_labels(client, round, "labels")
        return bulk_of(round).manifest()

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the aggregator's last answer, then send features and logits of all examples."""
        import torch

        answer = read_answer(client, round)  # (n, C)
        if answer is None and self.starts_from_zeros:
            answer = torch.zeros(len(client.train_labels), client.info.classes)
        self.train(client, round, given=None if answer is None else self.given_to_client(client, round, answer))
        self._parts.send_examples(client, round)
        return bulk_of(round).manifest()

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Given | None) -> torch.Tensor:
        """The client's objective; cross-entropy alone where the aggregator has not answered."""
        import torch.nn.functional as F

        _, logits = forward(images)
        return F.cross_entropy(logits, labels) if given is None else self.client_objective(logits, labels, given)

    def distill(self, client: Client, round: Round) -> Tensors:
        """Client after client: train on its examples, then answer with the network's logits for them (FedICT, Algorithm
        2, lines 14 to 18).

        A client whose labels or examples are not all here, or do not fit each other, counts as not having posted, and
        so does one on whose examples the network diverges: no client may be able to stop it for all. They are noted as
        skipped. A network that diverges with all of them is given up for an older one, or a new one: no aggregator may
        be able to stop it for all that follow. Raises `NothingToPost` if no client is left, which says why of the first
        few.
        """
        from fedchain.learning.families.server import open_servers, save_server

        bulk, noted = bulk_of(round), client.skipped
        for server in open_servers(client, round, self.schedule_in(round.number), self.stage_blocks):
            client.skipped = dict(noted)
            answers, has_diverged = self._teach_all(server, client, round)
            if answers or not has_diverged:
                break
        if not answers:
            reasons = "".join(
                f"; peer {sender}: {client.skipped[sender]}" for sender in [*client.skipped][:REASONS_MAX]
            )
            nothing = f"member {client.index}, round {round.number}: no client's examples are of use here"
            raise NothingToPost(nothing + reasons)
        state = self._parts.send_server(client, round, save_server(server, client, round))
        return bulk.manifest([*answers, state])

    def _teach_all(self, server: Server, client: Client, round: Round) -> tuple[list[PartRef], bool]:
        """Train on all clients' examples; return the answers, and whether the network diverged with any client's."""
        answers, has_diverged, unread = list[PartRef](), False, oversized_posts(bulk_of(round))
        client.skipped |= unread
        for sender, refs in examples_by_sender(bulk_of(round)).items():
            if sender in unread:
                continue
            before, drawn = server.copy(), client.generator.get_state()
            try:
                answer = self._teach(server, client, round, sender, refs)  # (n, C)
            except (PartMissing, TrainingDiverged) as error:
                has_diverged = has_diverged or isinstance(error, TrainingDiverged)
                client.skipped[sender] = (
                    str(error) if isinstance(error, PartMissing) else f"the network diverges with it: {error.what}"
                )
                server.restore(before)
                client.generator.set_state(drawn)
                continue
            answers += self._parts.send_answer(client, round, answer, sender)
        return answers, has_diverged

    def _teach(
        self, server: Server, client: Client, round: Round, sender: int, refs: Sequence[PartRef]
    ) -> torch.Tensor:
        """Train on a client's examples, and return the network's logits for them, (n, C).

        Raises `PartMissing`, and `TrainingDiverged` where the answer has numbers that nobody would take.
        """
        import torch

        bulk = bulk_of(round)
        labels = read_labels(bulk, sender)  # (n,)
        places = torch.arange(len(labels)).tensor_split(len(refs))
        answer = torch.empty(len(labels), client.info.classes)
        given = self.given_to_server(sender, labels, round)

        def objective(logits: torch.Tensor, labels: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
            return self.server_objective(logits, labels, given._replace(logits=theirs))

        for _ in range(self.server_epochs):
            for part in torch.randperm(len(refs), generator=client.generator).tolist():
                features, theirs = read_examples(bulk, refs[part], len(places[part]))
                said = server.train(features, theirs, labels[places[part]], objective)  # (rows, C)
                answer[places[part]] = said
        if not self.answers_while_training:
            for place, ref in zip(places, refs, strict=True):
                answer[place] = server.predict(read_examples(bulk, ref, len(place))[0])
        server.validate(answer)
        return answer

    @property
    def _parts(self) -> ExampleParts:
        """How examples are sent."""
        return ExampleParts(self.precision)
