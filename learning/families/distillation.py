"""Methods in which clients and an aggregator teach each other example by example, and nobody averages parameters.

A client sends its first layers' features of each example and the logits; the aggregator trains a larger network on
that, client after client, and answers with its own logits. All of it goes by reference, in parts of bounded size, and
in the order of the client's data, so that everything about one example is found by its position. The objective of
either side is the method's own.

B batch, C classes, n examples of one client, H shape of an example's features.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from fedchain.learning.exceptions import (
    ConfigurationError,
    NothingToPost,
    PartMissing,
    TrainingDiverged,
    UnsoundNumbers,
)
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.method import Contributor, Lifetime, Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import AGGREGATOR, NEXT_AGGREGATOR, PART_SIZE_MAX, PartRef
from fedchain.learning.payload.spec import WIRE_DTYPES, TensorSpec
from fedchain.learning.round import Bulk, Round, Tensors, left_behind

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.families.server import Server

LABELS = Phase("labels", lifetime=Lifetime.FEDERATION)
"""Runs once: each client sends its labels."""

UPDATE = Phase("update", lifetime=Lifetime.ROUND, trains=True)
"""Clients train, then send features and logits; their labels again, where the setup has not got them."""

DISTILL = Phase("distill", by=Contributor.AGGREGATOR)
"""The aggregator trains its network, then sends each client logits."""

ROWS_MAX = 1 << 16
"""Most examples in a part, however small each is."""

REASONS_MAX = 3
"""Clients for which the message says why their posts are of no use, if no client's post is."""

FLOAT16_MAX = 6e4
"""Numbers are moved to at most this magnitude before they become float16."""

STATE_MAX = 1 << 20
"""Numbers of the state of the aggregator's network; one part holds them and their momentum."""

_HEADER_BYTES = 1 << 12
"""Room in a part for everything but the numbers."""

_SERVER_SPEC = (
    TensorSpec("round", (1,), "int64", minimum=1),
    TensorSpec("values", (-1,), free_max=STATE_MAX, magnitude_max=1e12),
    TensorSpec("velocity", (-1,), free_max=STATE_MAX, magnitude_max=1e12),
)


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
        if self._rows_max(info) < 1:
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
        """Labels; features and logits; answers, and the network's state for the next aggregator."""
        rows, classes = self._rows_max(info), info.classes
        labels = TensorSpec("labels", (-1,), "int64", ROWS_MAX, minimum=0, maximum=classes - 1)
        logits = TensorSpec("logits", (-1, classes), self.precision, rows)
        if phase == LABELS:
            return {"labels": (labels,)}
        if phase == UPDATE:
            assert info.feature_shape is not None, "a validated model has one"
            features = TensorSpec("features", (-1, *info.feature_shape), self.precision, rows)
            return {"examples": (features, logits), "late labels": (labels,)}
        return {"answers": (logits,), "server": _SERVER_SPEC}

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
        _send_labels(client, round, "labels")
        return bulk_of(round).manifest()

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the aggregator's last answer, then send features and logits of all examples: in their order, in
        evaluation mode, and not augmented.

        A client that missed the setup, which runs once, also sends its labels; without them none of its posts could
        ever be used.
        """
        import torch

        answer = self._answer_to(client, round)  # (n, C)
        choose = None if answer is None else self.given_to_client(client, round, answer)
        self.train(client, round, given=choose)
        bulk = bulk_of(round)
        client.model.eval()
        with torch.inference_mode():
            for images in _cut(client.train_images, self._rows_max(client.info)):
                features, _, logits = client.model.split(images)
                self._send(client, round, "examples", {"features": features, "logits": logits}, AGGREGATOR)
        if not any(ref.sender == client.index for ref in bulk.parts(LABELS.name)):
            _send_labels(client, round, "late labels")
        return bulk.manifest()

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
        skipped. Raises `NothingToPost` if no client is left, which says why of the first few.
        """
        from fedchain.learning.families.server import open_server, save_server

        bulk, server = bulk_of(round), open_server(client, round, self.schedule, self.stage_blocks)
        answers = list[PartRef]()
        for sender, refs in _by_sender(bulk.parts(UPDATE.name), "examples").items():
            before, drawn = server.copy(), client.generator.get_state()
            try:
                answer = self._teach(server, client, round, sender, refs)  # (n, C)
            except (PartMissing, TrainingDiverged) as error:
                client.skipped[sender] = (
                    str(error) if isinstance(error, PartMissing) else f"the network diverges with it: {error.what}"
                )
                server.restore(before)
                client.generator.set_state(drawn)
                continue
            rows = self._rows_max(client.info)
            answers += [self._send(client, round, "answers", {"logits": part}, sender) for part in _cut(answer, rows)]
        if not answers:
            reasons = "".join(
                f"; peer {sender}: {client.skipped[sender]}" for sender in [*client.skipped][:REASONS_MAX]
            )
            nothing = f"member {client.index}, round {round.number}: no client's examples are of use here"
            raise NothingToPost(nothing + reasons)
        state = save_server(server, client, round)
        return bulk.manifest([*answers, self._send(client, round, "server", state, NEXT_AGGREGATOR)])

    def _teach(
        self, server: Server, client: Client, round: Round, sender: int, refs: Sequence[PartRef]
    ) -> torch.Tensor:
        """Train on a client's examples, and return the network's logits for them, (n, C).

        Raises `PartMissing`, and `TrainingDiverged` where the answer has numbers that nobody would take.
        """
        import torch

        bulk = bulk_of(round)
        labels = _read_labels(bulk, sender)  # (n,)
        places = torch.arange(len(labels)).tensor_split(len(refs))
        answer = torch.empty(len(labels), client.info.classes)
        given = self.given_to_server(sender, labels, round)

        def objective(logits: torch.Tensor, labels: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
            return self.server_objective(logits, labels, given._replace(logits=theirs))

        for _ in range(self.server_epochs):
            for part in torch.randperm(len(refs), generator=client.generator).tolist():
                features, theirs = _read_examples(bulk, refs[part], len(places[part]))
                said = server.train(features, theirs, labels[places[part]], objective)  # (rows, C)
                answer[places[part]] = said
        if not self.answers_while_training:
            for place, ref in zip(places, refs, strict=True):
                answer[place] = server.predict(_read_examples(bulk, ref, len(place))[0])
        server.validate(answer)
        return answer

    def _answer_to(self, client: Client, round: Round) -> torch.Tensor | None:
        """Return the aggregator's last logits for the client's examples, (n, C); None where there are none."""
        import torch

        bulk, shape = bulk_of(round), (len(client.train_labels), client.info.classes)
        refs = [ref for ref in bulk.parts(DISTILL.name) if ref.kind == "answers" and ref.reader == client.index]
        try:
            logits = [_tensor(bulk.read(ref)["logits"]) for ref in refs]
        except PartMissing as error:
            client.skipped[refs[0].sender] = str(error)
            logits = []
        if logits and sum(map(len, logits)) == shape[0]:
            return torch.cat(logits)
        return torch.zeros(shape) if self.starts_from_zeros else None

    def _send(
        self, client: Client, round: Round, kind: str, tensors: Mapping[str, torch.Tensor], reader: int
    ) -> PartRef:
        """Write a part; features and logits in the type in which they are sent. Raises `TrainingDiverged` for numbers
        that nobody would take."""
        import torch

        half = self.precision == "float16" and kind != "server"
        written = {
            name: (value.clamp(-FLOAT16_MAX, FLOAT16_MAX).to(torch.float16) if half else value).numpy()
            for name, value in tensors.items()
        }
        try:
            return bulk_of(round).write(kind, written, reader)
        except UnsoundNumbers as error:
            raise TrainingDiverged(client.index, round.number, client.steps, math.nan, str(error)) from None

    def _rows_max(self, info: ModelInfo) -> int:
        """How many examples a part holds at most; 0 if not even one fits."""
        numbers = math.prod(info.feature_shape or ()) + info.classes
        return min(ROWS_MAX, (PART_SIZE_MAX - _HEADER_BYTES) // (numbers * WIRE_DTYPES[self.precision].itemsize))


def bulk_of(round: Round) -> Bulk:
    """Return the access to parts that a contributor has."""
    assert round.bulk is not None, "contributors are given one"
    return round.bulk


def _by_sender(refs: Sequence[PartRef], kind: str) -> dict[int, list[PartRef]]:
    """The parts of a kind by the place of their sender, ascending, each sender's in their order."""
    found: dict[int, list[PartRef]] = {}
    for ref in refs:
        if ref.kind == kind:
            found.setdefault(ref.sender, []).append(ref)
    return dict(sorted(found.items()))


def _send_labels(client: Client, round: Round, kind: str) -> None:
    for part in _cut(client.train_labels, ROWS_MAX):
        bulk_of(round).write(kind, {"labels": part.numpy()}, AGGREGATOR)


def _read_labels(bulk: Bulk, sender: int) -> torch.Tensor:
    """Return a client's labels, (n,): those of the setup, or else the late ones. Raises `PartMissing`."""
    import torch

    refs = _by_sender(bulk.parts(LABELS.name), "labels").get(sender)
    refs = refs or _by_sender(bulk.parts(UPDATE.name), "late labels").get(sender)
    if not refs:
        raise PartMissing(f"member {sender} has posted no labels")
    return torch.cat([_tensor(bulk.read(ref)["labels"]) for ref in refs])


def _read_examples(bulk: Bulk, ref: PartRef, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (rows, *H) and logits (rows, C) of a part. Raises `PartMissing`, also for other numbers of rows:
    a client's parts are equally large, to one row, and hold as many examples together as it has labels."""
    tensors = bulk.read(ref)
    features, logits = _tensor(tensors["features"]), _tensor(tensors["logits"])
    if not len(features) == len(logits) == rows:
        found = f"{len(features)} features and {len(logits)} logits"
        raise PartMissing(f"part {ref.hash.hex()} of member {ref.sender} must have {rows} examples, found {found}")
    return features, logits


def _cut(rows: torch.Tensor, rows_max: int) -> Iterator[torch.Tensor]:
    """Cut (n, ...) into as few parts as the bound allows, equally large to one row."""
    yield from rows.tensor_split(max(1, -(-len(rows) // rows_max)))


def _tensor(values: np.ndarray) -> torch.Tensor:
    """Return a copy, floats as float32."""
    import torch

    read = torch.from_numpy(np.array(values))
    return read.float() if read.is_floating_point() else read
