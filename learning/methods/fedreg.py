"""FedReg: Xu et al., "Acceleration of Federated Learning with Alleviated Forgetting in Local Training", ICLR 2022
(arXiv:2203.02645).

B batch, C classes, P scalars of the model; o is the common model theta^(t-1). Equation numbers are the paper's.

A newcomer starts from the common model and makes its pseudo data with that. A leaver leaves nothing behind: generated
data last for a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from fedchain.files.effects import Needs
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training.schedule import batches_per_pass

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client
    from fedchain.learning.models.base import Model
    from fedchain.learning.training.loop import Step
    from fedchain.learning.training.schedule import Schedule

_LOG_FLOOR, _NORM_FLOOR = 1e-12, 1e-30
"""Numbers of the published code that keep the logarithm of a probability, and a division by a gradient, finite."""


class Generated(NamedTuple):
    """Data that stand for the common model's knowledge, generated from one batch."""

    pseudo_images: torch.Tensor
    """x^s, (B, ...)."""

    pseudo_labels: torch.Tensor
    """y^s = f_o(x^s), (B, C)."""

    perturbed_images: torch.Tensor
    """x^p, (B, ...)."""

    perturbed_labels: torch.Tensor
    """y^p = y, (B,)."""

    own_pseudo_images: torch.Tensor
    """The pseudo images of the step's own batch (MG)."""


@dataclass(frozen=True, kw_only=True)
class FedReg(FedAvg):
    """Each step is followed by a projection that keeps the loss on generated data from rising above the common model's.

    Pseudo data stand for the common model's knowledge of other clients' data; perturbed data, for the client's own.
    """

    weighting: Literal["examples", "clients"] = "clients"
    """How much a client's model counts: as its examples (n_k / n), or as every other client's (1 / K)."""

    slowness: float = 0.5
    """gamma: the gradient is taken at gamma theta + (1 - gamma) o; 1 is at the local model, as FedAvg does."""

    pseudo_rate: float = 0.1
    """Step size eta_s that makes pseudo data, in units of the normalised pixels."""

    perturbed_ratio: Annotated[float, Needs("pseudo_rate")] = 0.01
    """eta_p / eta_s, the step size of perturbed data relative to that of pseudo data."""

    generation_steps: Annotated[int, Needs("pseudo_rate")] = 10
    """Steps that make pseudo and perturbed data, E."""

    modified_gradient: bool = False
    """Whether what the gradient shares with that of uniformly labelled pseudo data is removed (MG, section 3.3)."""

    beyond_dp_sgd: ClassVar[str] = "its steps are its own, on data that it makes of the examples"
    beyond_rules: ClassVar[str] = ""
    alone: ClassVar[str] = beyond_dp_sgd
    sgd_alone: ClassVar[str] = "each step is followed by a projection of the change that SGD made (Eq. 11)"

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("slowness", self.slowness, 0.0, 1.0)
        validate_range("pseudo_rate", self.pseudo_rate, 0.0, 1e3)
        validate_range("perturbed_ratio", self.perturbed_ratio, 0.0, 1.0)
        validate_range("generation_steps", self.generation_steps, 1, 1000)

    def validate_model(self, info: ModelInfo) -> None:
        """Raise `ConfigurationError` for inputs that are no numbers: pseudo data are those moved along a gradient."""
        super().validate_model(info)
        if {info.input_type, *(field.type for field in info.input_fields)} != {"float32"}:
            raise ConfigurationError("fedreg moves inputs along a gradient: they must be float32, not integers")

    def update(self, client: Client, round: Round) -> Tensors:
        """Generate data under the common model, take the regularised steps, post the parameters (Algorithm D.1)."""
        from fedchain.learning.training.loop import run_steps

        generated = cycle(list(self.generate(client)))
        own = self.generate_for_all(client) if self.modified_gradient else client.train_images  # rows as the examples

        def given(batch: torch.Tensor) -> Generated:
            return next(generated)._replace(own_pseudo_images=own[batch])

        schedule = self.schedule_in(round.number)
        run_steps(client, self.step(client, schedule), schedule, round.number, given=given)
        return self.post_model(client)

    def generate(self, client: Client) -> Iterator[Generated]:
        """Yield pseudo and perturbed data for each batch of one shuffled pass, under the common model."""
        import torch

        from fedchain.learning.training.loop import draw_batches

        generator = torch.Generator().manual_seed(client.generator.initial_seed())
        batches = draw_batches(len(client.train_labels), self.batch_size, generator)
        model = client.model.eval()
        for _ in range(batches_per_pass(len(client.train_labels), self.batch_size)):
            batch = next(batches)
            images, labels = client.train_images[batch], client.train_labels[batch]
            pseudo = self.ascend(model, images, labels, self.pseudo_rate)  # x^s
            yield Generated(
                pseudo_images=pseudo,
                pseudo_labels=torch.softmax(model(pseudo)[1], dim=1).detach(),
                perturbed_images=self.ascend(model, images, labels, self.pseudo_rate * self.perturbed_ratio),
                perturbed_labels=labels,
                own_pseudo_images=images,
            )

    def generate_for_all(self, client: Client) -> torch.Tensor:
        """Return each example's pseudo image; in evaluation mode it does not depend on the batch."""
        import torch

        parts = zip(torch.split(client.train_images, 256), torch.split(client.train_labels, 256), strict=True)
        model = client.model.eval()
        return torch.cat([self.ascend(model, images, labels, self.pseudo_rate) for images, labels in parts])

    def ascend(self, model: Model, images: torch.Tensor, labels: torch.Tensor, rate: float) -> torch.Tensor:
        """Repeat x <- x + eta sign(grad_x L_o(x, y)) E times, on a copy (section 3.1)."""
        import torch
        import torch.nn.functional as F

        moved = images.clone()
        for _ in range(self.generation_steps):
            moved.requires_grad_(True)
            (gradient,) = torch.autograd.grad(F.cross_entropy(model(moved)[1], labels), moved)
            moved = moved.detach() + rate * gradient.sign()
        return moved

    def step(self, client: Client, schedule: Schedule) -> Step:
        """Build the local step of Eq. 11 from the common model, which the client's model is now."""
        import torch
        import torch.nn.functional as F

        from fedchain.learning.models.vectors import (
            gradient_vector,
            read_vector,
            trained_parameters,
            unflatten,
            write_vector,
        )
        from fedchain.learning.training.optimizers import open_optimizer

        model, common = client.model, read_vector(client.model)  # o, (P,)
        parameters = trained_parameters(model)
        take_step = open_optimizer(client, parameters, schedule)

        def step(images: torch.Tensor, labels: torch.Tensor, given: Generated) -> torch.Tensor:
            theta = read_vector(model)
            write_vector(model, self.slowness * theta + (1 - self.slowness) * common)  # theta_gamma
            loss = self.loss(model, images, labels, None)
            gradient = gradient_vector(loss, model)  # g_gamma(D)
            if self.modified_gradient:
                _, logits = model(given.own_pseudo_images)
                uniform = torch.full_like(logits, 1.0 / client.info.classes)
                semantic = gradient_vector(soft_cross_entropy(logits, uniform), model)  # g_gamma(D^s'), section 3.3
                gradient = gradient - projection(gradient, semantic)
            write_vector(model, theta)
            take_step(unflatten(gradient, parameters))
            theta = read_vector(model)

            write_vector(model, 0.5 * (theta + common))  # theta_beta, of Eqs. 6 and 7
            _, logits = model(given.pseudo_images)
            pseudo = gradient_vector(soft_cross_entropy(logits, given.pseudo_labels), model)  # g_beta(D^s)
            _, logits = model(given.perturbed_images)
            perturbed = gradient_vector(F.cross_entropy(logits, given.perturbed_labels), model)  # g_beta(D^p)
            w_s = excess(theta - common, pseudo)  # Eq. 10
            w_p = excess(theta - w_s * pseudo - common, perturbed)
            write_vector(model, theta - w_s * pseudo - w_p * perturbed)
            return loss

        return step


def soft_cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return -sum_c q_c log p_c, averaged over the batch, of logits and probabilities q (B, C)."""
    return -(target * (logits.softmax(dim=1) + _LOG_FLOOR).log()).sum(dim=1).mean()


def excess(change: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return max(<theta - o, g> / <g, g>, 0): how far along g the change goes uphill (Eq. 10)."""
    return (change.dot(gradient) / (gradient.dot(gradient) + _NORM_FLOOR)).clamp(min=0.0)


def projection(vector: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Return v g' with v = <g, g'> / <g', g'>, the part of g along g' (section 3.3)."""
    return vector.dot(direction) / (direction.dot(direction) + _NORM_FLOOR) * direction
