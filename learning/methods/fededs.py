"""FedEDS: Li et al., "Efficient Federated Learning with Encrypted Data Sharing for Data-Heterogeneous Edge Devices",
2025 (arXiv:2506.20644).

Before the first round each client makes its images unreadable and shows them to everybody, with its model's output for
them; in the first rounds the others train on them beside their own data. Where the paper is silent, a field names the
source of its default, and docs/methods.md the reason. Equation numbers are the paper's.

B batch, C classes, K clients, n_k training examples of client k, g extractor, c classifier, l_k stochastic layer.

A newcomer starts from the common model and learns from the others' encrypted data; it shows none of its own, as the
setup is over. A leaver's encrypted data stay on the chain and are drawn from until lambda_dis is 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedchain.files.effects import Needs
from fedchain.learning.aggregation.mean import round_once, weighted_sum
from fedchain.learning.exceptions import ConfigurationError, TrainingDiverged
from fedchain.learning.families.encrypted_data import Draws, encrypted_spec
from fedchain.learning.families.encryptor import encrypt_images
from fedchain.learning.method import Lifetime, Phase, validate_range
from fedchain.learning.methods.fedavg import INITIAL_MODEL, FedAvg
from fedchain.learning.methods.fednova import FedNova
from fedchain.learning.methods.fedprox import FedProx
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import EVERYBODY
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors, bulk_of, left_behind
from fedchain.learning.training.schedule import Schedule, adamw_schedule, batches_per_pass

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.models.base import Model
    from fedchain.learning.models.stochastic import StochasticLayer
    from fedchain.learning.training.loop import Given

ENCRYPT = Phase("encrypt", lifetime=Lifetime.FEDERATION)
"""Setup phase in which everybody shows its encrypted data."""


class Shared(NamedTuple):
    """The batch that a step learns from beside its own."""

    images: torch.Tensor
    """(B, c, h, w): encrypted images of client i*."""

    teacher: torch.Tensor
    """(B, C): client i*'s probabilities for them."""

    layer: StochasticLayer
    """l_i*."""

    local_weight: float
    """lambda_c."""

    shared_weight: float
    """lambda_dis."""


@dataclass(frozen=True, kw_only=True)
class FedEds(FedAvg):
    """A base method whose clients also learn, in the first rounds, from each other's encrypted data."""

    base: Literal["fedavg", "fedprox", "fednova"] = "fedavg"
    """The method that clients' posts and their aggregation follow; fedprox also keeps clients near the common model."""

    proximal_weight: Annotated[float, Needs("base", ("fedprox",))] = 0.1
    """fedprox: weight mu of the squared distance to the common model."""

    nova_step: Literal["correct", "printed"] = "correct"
    """fednova: its rule, or the step that Algorithm 4 prints, which climbs, forgets the learning rate and counts passes
    for steps."""

    learning_rate: float = 0.01
    """Step size eta of local SGD."""

    batch_size: int = 64
    """Examples per minibatch, B, of each of the two data sets; the paper does not say."""

    local_epochs: int = 1
    """The unit of E_t: so many passes over the data or, if 0, local_steps minibatch steps."""

    momentum: float = 0.9
    """Momentum of local SGD; its buffer starts empty in every round."""

    weight_decay: float = 1e-4
    """L2 penalty of local SGD."""

    annealing: bool = True
    """S1: whether local training is longer in the first rounds (Eq. 5); otherwise E_t is epochs_min."""

    epochs_max: Annotated[int, Needs("annealing")] = 5
    """E_max: E_t up to round annealing_start."""

    epochs_min: int = 1
    """E_min: E_t after round annealing_end."""

    annealing_start: Annotated[int, Needs("annealing")] = 1
    """T_alpha: last round of E_max."""

    annealing_end: Annotated[int, Needs("annealing")] = 3
    """T_beta: last round in which E_t falls."""

    sharing: bool = True
    """S2: whether encrypted data are shared and learned from."""

    weight_slope: Annotated[float, Needs("sharing")] = 3.0
    """m: how fast lambda_dis falls from round to round (Eqs. 9 and 10)."""

    weight_floor: Annotated[float, Needs("sharing")] = 0.01
    """epsilon: a lambda_dis below it is 0."""

    extractor_epochs: Annotated[int, Needs("sharing")] = 5
    """E_c: passes of the setup in which a client trains its model; the paper does not say."""

    encryptor_epochs: Annotated[int, Needs("sharing")] = 20
    """E_g: passes of the setup in which it trains its encryptor."""

    encryptor_rate: Annotated[float, Needs("sharing")] = 0.001
    """Learning rate of the encryptor's AdamW."""

    encryptor_width: Annotated[int, Needs("sharing")] = 32
    """Channels of the encryptor's first level; the paper does not say."""

    stochastic_layer: Annotated[Literal["conv", "linear"], Needs("sharing")] = "conv"
    """Each client's frozen random layer: a 3x3 convolution before the pooling or a matrix behind it; the paper does not
    say."""

    pixel_type: Annotated[Literal["uint8", "float16"], Needs("sharing")] = "uint8"
    """How encrypted pixels are sent."""

    needs_pooling: ClassVar[bool] = True
    beyond_dp_sgd: ClassVar[str] = "it shows encrypted images, and learns from those of others"
    beyond_rules: ClassVar[str] = ""
    alone: ClassVar[str] = "each client learns through layers of its own"
    amendable: ClassVar[frozenset[str]] = frozenset()  # Algorithm 4's step has the step size in the aggregate
    sgd_alone: ClassVar[str] = "its two phases train one model on different losses, each from an empty memory"

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("epochs_min", self.epochs_min, 1, 1 << 10)
        validate_range("epochs_max", self.epochs_max, self.epochs_min, 1 << 10)
        validate_range("annealing_start", self.annealing_start, 0, 1 << 20)
        validate_range("annealing_end", self.annealing_end, self.annealing_start + 1, 1 << 21)
        validate_range("weight_slope", self.weight_slope, 0.0, 1e3)
        validate_range("weight_floor", self.weight_floor, 0.0, 1.0)
        validate_range("extractor_epochs", self.extractor_epochs, 1, 1 << 16)
        validate_range("encryptor_epochs", self.encryptor_epochs, 1, 1 << 16)
        validate_range("encryptor_rate", self.encryptor_rate, 0.0, 1e3, low_open=True)
        validate_range("encryptor_width", self.encryptor_width, 1, 1 << 10)
        if self.nova_step == "printed" and self.base != "fednova":
            raise ConfigurationError(f"nova_step printed is of the base fednova, not of {self.base}")
        if self.nova_step == "printed" and self.schedule in ("cosine", "step"):
            raise ConfigurationError(
                f"nova_step printed divides by the learning rate, which a {self.schedule} schedule rounds otherwise on "
                "another machine; take constant or linear"
            )
        _ = self.rule

    @property
    def weighs_posts(self) -> bool:
        """Algorithm 4's step counts all clients alike."""
        return super().weighs_posts and self.nova_step != "printed"

    @cached_property
    def rule(self) -> FedAvg:
        """The base method: its correction of the gradient, its posts, its aggregation."""
        shared: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(FedAvg)}
        if self.base == "fedprox":
            return FedProx(**shared, proximal_weight=self.proximal_weight)
        return FedNova(**shared) if self.base == "fednova" else FedAvg(**shared)

    @property
    def setup(self) -> tuple[Phase, ...]:
        """The first common model, where the base needs it on the chain, and the encrypted data."""
        first = (INITIAL_MODEL,) if self.base == "fednova" else ()
        return (*first, ENCRYPT) if self.sharing else first

    def encrypt(self, client: Client, round: Round) -> Tensors:
        """Algorithm 1: train g and c, freeze them, train the encryptor, post its images with the model's output for
        them, and put g and c back to the common model."""
        from fedchain.learning.models.vectors import read_state, write_state
        from fedchain.learning.training.loop import Training, train

        bulk, common = bulk_of(round), read_state(client.model)
        schedule = replace(self.schedule_in(round.number), epochs=self.extractor_epochs)
        train(Training(client, super().loss, schedule, round.number))  # Eq. 2
        layer = self._layer_of(client.index, client.model)
        longer = adamw_schedule(self.encryptor_rate, self.encryptor_epochs, self.batch_size)
        for rows in encrypt_images(client, layer, self.encryptor_width, longer, self.pixel_type, round.number):
            bulk.write("encrypted", rows, EVERYBODY)
        write_state(client.model, common)
        return bulk.manifest()

    def update(self, client: Client, round: Round) -> Tensors:
        """Algorithm 2: take E_t times the base's steps from the common model, and post as the base does.

        Where the steps diverge with others' encrypted data, which anybody can make up, they are taken again without.
        """
        from fedchain.learning.models.vectors import read_state, write_state
        from fedchain.learning.training.loop import Training, train

        correct = self.rule.correction(client)
        times = self.epochs_in(round.number)
        learned_from = list[int]()
        schedule, others = _longer(self.schedule_in(round.number), times), self._others(client, round, learned_from)
        before, drawn, steps = read_state(client.model), client.generator.get_state(), client.steps
        try:
            train(Training(client, self.loss, schedule, round.number, correct, others))
        except TrainingDiverged as error:
            if others is None:
                raise
            passes = error.step // batches_per_pass(len(client.train_labels), self.batch_size)
            for place in learned_from[: passes + 1]:  # whoever was drawn later has no part in it
                client.skipped[place] = "the steps diverge with its encrypted data; all go without any"
            write_state(client.model, before)
            client.generator.set_state(drawn)
            client.steps = steps
            train(Training(client, self.loss, schedule, round.number, correct))
        posted = self.rule.post_model(client)
        if self.nova_step == "printed":
            assert isinstance(self.rule, FedNova)
            posted["normalizer"] = np.array([self.rule.normalizer(times)], np.float32)  # Eq. 12, with E_t for tau
        return posted

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Shared | None) -> torch.Tensor:
        """lambda_c L_c + lambda_dis L_dis (Eq. 8); cross-entropy where nothing is shared. FedProx's term (Eq. 11) is
        added to its gradient."""
        local = super().loss(forward, images, labels, None)  # L_c
        if given is None:
            return local
        from fedchain.learning.families.distillation_terms import divergence
        from fedchain.learning.models.plain import PooledModel

        assert isinstance(forward, PooledModel), "the configuration was validated"
        student = forward.forward_through(given.layer, given.images)  # f(x; g, c, l_i*), (B, C)
        return given.local_weight * local + given.shared_weight * divergence(given.teacher, student)  # L_dis (Eq. 6)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """As the base does; of the setup, the lists of everybody's encrypted data."""
        if phase == ENCRYPT:
            return left_behind(round)
        if phase != INITIAL_MODEL and self.nova_step == "printed" and round.knowledge is not None:
            return printed_nova_step(round, round.knowledge, self.schedule_in(round.number).learning_rate)
        return self.rule.aggregate(phase, round)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """As the base; encrypted data are parts."""
        return () if phase == ENCRYPT else self.rule.payload_spec(phase, info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors; of the setup's encrypted data nothing beside the parts."""
        return () if phase == ENCRYPT else self.rule.knowledge_spec(phase, info)

    def parts(self, phase: Phase, info: ModelInfo) -> Mapping[str, tuple[TensorSpec, ...]]:
        """D_k^F (Eq. 4), in parts of so many images as fit: encrypted images, and the teacher's probabilities."""
        if phase != ENCRYPT:
            return {}
        return {"encrypted": encrypted_spec(info.classes, self.pixel_type)}

    def may_read(self, kind: str, reader: int) -> bool:
        """Encrypted data are for everybody."""
        return reader == EVERYBODY

    def epochs_in(self, number: int) -> int:
        """Return E_t of a round."""
        if not self.annealing:
            return self.epochs_min
        return annealed_epochs(number, self.epochs_max, self.epochs_min, self.annealing_start, self.annealing_end)

    def weights_in(self, number: int) -> tuple[float, float]:
        """Return lambda_c and lambda_dis of a round."""
        return loss_weights(number, self.weight_slope, self.weight_floor) if self.sharing else (1.0, 0.0)

    def planned_steps(self, phase: Phase, examples: int, round_number: int) -> int:
        """E_t times the base's steps; of the setup, those of both trainings."""
        if phase == ENCRYPT:
            return (self.extractor_epochs + self.encryptor_epochs) * batches_per_pass(examples, self.batch_size)
        return self.epochs_in(round_number) * super().planned_steps(phase, examples, round_number)

    def _others(self, client: Client, round: Round, learned_from: list[int]) -> Given | None:
        """Return what gives each step a batch of client i*'s encrypted data, drawn anew for every local epoch.

        None if nothing is to be learned from others. A client whose parts are not here is noted as skipped instead of
        drawn; if no client is left, steps are those of the base. Local batches are drawn as the base draws them. The
        clients that are drawn are added to `learned_from`.
        """
        import torch

        from fedchain.learning.seeding import derive
        from fedchain.learning.training.loop import draw_batches

        local_weight, shared_weight = self.weights_in(round.number)
        if shared_weight == 0 or round.bulk is None:
            return None
        generator = torch.Generator().manual_seed(derive(client.generator.initial_seed(), "encrypted data"))
        draws = Draws(client, round.bulk, ENCRYPT.name, generator)

        def steps() -> Iterator[Shared | None]:
            while (drawn := draws.draw()) is not None:
                place, data = drawn
                learned_from.append(place)
                layer = self._layer_of(place, client.model)
                batches = draw_batches(len(data), self.batch_size, generator)
                for _ in range(batches_per_pass(len(client.train_labels), self.batch_size)):
                    yield Shared(*data.rows(next(batches)), layer, local_weight, shared_weight)
            yield from itertools.repeat(None)

        in_order = steps()
        return lambda batch: next(in_order)

    def _layer_of(self, place: int, model: Model) -> StochasticLayer:
        from fedchain.learning.models.stochastic import stochastic_layer

        return stochastic_layer(place, model.embedding_size, self.stochastic_layer)


def annealed_epochs(number: int, most: int, least: int, start: int, end: int) -> int:
    """Return E_t of round t, the piecewise annealing from E_max to E_min between T_alpha and T_beta (Eq. 5)."""
    if number <= start:
        return most
    return most - (most - least) * (number - start) // (end - start) if number <= end else least


def loss_weights(number: int, slope: float, floor: float) -> tuple[float, float]:
    """Return lambda_c and lambda_dis of round t, a sigmoid of m (t - 1) and the rest to 1 (Eqs. 9 and 10)."""
    decay = math.exp(-slope * (number - 1))
    shared = decay / (1.0 + decay)
    return (1.0, 0.0) if shared < floor else (1.0 / (1.0 + decay), shared)


def printed_nova_step(round: Round, before: Tensors, rate: float) -> Tensors:
    """w <- w - (1/K sum_k ||a_k||) 1/K sum_k (w_k - w) / (eta ||a_k||), as Algorithm 4 prints it (lines 17 to 22)."""
    norms = [float(post.payload["normalizer"][0]) for post in round.posts]  # (K,)
    effective = math.fsum(norms) / len(norms)
    shares = [-effective / (rate * norm * len(norms)) for norm in norms]  # (K,)
    rest = 1.0 - math.fsum(shares)

    def move(name: str) -> NDArray[Any]:
        moved = weighted_sum([post.payload[name] for post in round.posts], shares)
        return round_once(moved + rest * before[name].astype(np.float64))

    return {name: move(name) for name in before}


def _longer(schedule: Schedule, times: int) -> Schedule:
    """Return the schedule of so many times the steps."""
    return replace(schedule, steps=times * schedule.steps, epochs=times * schedule.epochs)
