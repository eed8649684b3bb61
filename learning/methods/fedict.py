"""FedICT: Wu et al., "FedICT: Federated Multi-task Distillation for Multi-access Edge Computing", IEEE Transactions on
Parallel and Distributed Systems 2024 (arXiv:2301.00389).

FedGKT with two more terms: clients learn more of the classes that they have much of (FPKD), and the aggregator adjusts
how it listens to each client (LKA). Equation numbers are the paper's. The published code calculates something else in
many places; `compat` has them, and docs/methods.md the list. B batch, C classes, K clients, n examples of one client.

A newcomer is what it is in FedGKT; its labels, which missed the setup, count in d^S where it is compared. A leaver's
d^k, stated once in the setup, stays part of d^S, as the aggregator's network stays what its examples made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedchain.files.effects import Needs
from fedchain.learning.aggregation.mean import WEIGHT_MAX
from fedchain.learning.config import CLIENTS_MAX
from fedchain.learning.families.distillation import Choose, Given
from fedchain.learning.families.distillation_parts import LABELS
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedgkt import FedGkt
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client

RANDOM_SPREAD = 3.0
"""Table VIII: the spread with which distributions that say nothing are drawn (see `distribution`)."""


@dataclass(slots=True)
class Stated:
    """A client's statement about its data."""

    distribution: torch.Tensor | None = None
    """d^k, (C,)."""


AS_PRINTED = Needs("compat", ("none",))
"""Settings need it that the published code does without."""


@dataclass(frozen=True, kw_only=True)
class FedIct(FedGkt):
    """Distillation in both directions that knows how each client's classes are distributed."""

    adjustment: Literal["balance", "sim", "none"] = "balance"
    """LKA: balance (classes that a client has little of count more, Eq. 13), sim (clients count as their classes are
    distributed like everybody's, Eq. 12) or none."""

    prior_weight: Annotated[float, AS_PRINTED] = 1.5
    """Weight lambda of FPKD in the clients' objective."""

    adjustment_weight: Annotated[float, AS_PRINTED, Needs("adjustment", ("balance", "sim"))] = 1.5
    """Weight mu of LKA in the aggregator's objective."""

    prior_temperature: float = 3.0
    """T: the smaller, the more FPKD prefers frequent classes."""

    residual_temperature: Annotated[float, Needs("adjustment", ("balance",))] = 7.0
    """U: the smaller, the more balance prefers rare classes."""

    weight_scale: Annotated[float, AS_PRINTED] = 1.0
    """Factor of the weights w and v. Ours: they sum to 1, so that both terms are 1/C of a divergence and hardly matter;
    the number of classes gives them mean 1."""

    distribution: Literal["counted", "uniform", "normal", "exponential"] = "counted"
    """d^k: counted, or, for an ablation, the softmax of numbers drawn from U(0, 3), N(0, 3) with deviation 3, or an
    exponential distribution of mean 3."""

    compat: Literal["none", "released-code"] = "none"
    """released-code: the published code's weights f / T and (f^S - f^k) / U, its second softmax, its exchanged weights
    of cross-entropy and distillation at the aggregator, answers recorded in training before each step, and answers
    that meet other examples than those that they are about; prior_weight, adjustment_weight, weight_scale and
    initial_logits then mean nothing."""

    initial_logits: Annotated[Literal["none", "zeros"], AS_PRINTED] = "zeros"
    """The aggregator's logits for a client that it has not answered in the last round: none (the client minimises
    cross-entropy alone, as the published code in round 1) or zeros (a uniform teacher: Algorithm 2, line 10)."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("prior_weight", self.prior_weight, 0.0, 1e6)
        validate_range("adjustment_weight", self.adjustment_weight, 0.0, 1e6)
        validate_range("prior_temperature", self.prior_temperature, 0.0, 1e6, low_open=True)
        validate_range("residual_temperature", self.residual_temperature, 0.0, 1e6, low_open=True)
        validate_range("weight_scale", self.weight_scale, 0.0, 1e6, low_open=True)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """Once, d^k and N^k beside the labels."""
        if phase != LABELS:
            return ()
        return (
            TensorSpec("distribution", (info.classes,), minimum=0, maximum=1),
            TensorSpec("examples", (1,), "int64", minimum=1, maximum=WEIGHT_MAX),
        )

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The same of all clients, and their places."""
        if phase != LABELS:
            return ()
        most = CLIENTS_MAX + 1
        return (
            TensorSpec("clients", (-1,), "int64", most, minimum=0),
            TensorSpec("distributions", (-1, info.classes), free_max=most, minimum=0, maximum=1),
            TensorSpec("examples", (-1,), "int64", most, minimum=1, maximum=WEIGHT_MAX),
        )

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """List all parts; once, put the distributions beside."""
        left = super().aggregate(phase, round)
        if phase != LABELS:
            return left
        payloads = [post.payload for post in round.posts]
        return {
            **left,
            "clients": np.array([round.place_of(post.sender) for post in round.posts], np.int64),
            "distributions": np.stack([payload["distribution"] for payload in payloads]),
            "examples": np.concatenate([payload["examples"] for payload in payloads]),
        }

    def labels(self, client: Client, round: Round) -> Tensors:
        """Send d^k, N^k and Y^k (Algorithm 1, line 8)."""
        own, count = self._distribution_of(client), len(client.train_labels)
        return {
            **super().labels(client, round),
            "distribution": own.numpy(),
            "examples": np.array([count], dtype=np.int64),
        }

    def client_objective(self, logits: torch.Tensor, labels: torch.Tensor, given: Given) -> torch.Tensor:
        """J^k_ICT = CE + beta KL(p^S || p^k) + lambda FPKD (Eqs. 2 and 8); FPKD weights the classes by w (Eq. 10).

        Both divergences are one, with beta + lambda w_r before the term of class r.
        """
        import torch.nn.functional as F

        from fedchain.learning.families.distillation_terms import (
            divergence,
            frequency_weights,
            released_divergence,
            soften,
        )

        assert given.own is not None, "the client knows its own distribution"
        if self.compat == "released-code":
            linear = given.own / self.prior_temperature
            distance = released_divergence(given.logits, logits, self.temperature, linear)
            return F.cross_entropy(logits, labels) + self.distillation_weight * distance
        w = self.weight_scale * frequency_weights(given.own, self.prior_temperature)  # (C,)
        weights = self.distillation_weight + self.prior_weight * w
        teacher = soften(given.logits, self.temperature)
        return F.cross_entropy(logits, labels) + divergence(teacher, logits, self.temperature, weights)

    def server_objective(self, logits: torch.Tensor, labels: torch.Tensor, given: Given) -> torch.Tensor:
        """J^S_ICT = CE + beta KL(p^k || p^S) + mu LKA (Eqs. 4 and 9), LKA of Eq. 12 or Eq. 13, in the same way."""
        import torch.nn.functional as F

        from fedchain.learning.families.distillation_terms import divergence, released_divergence

        adjustment = self._adjustment_weights(given)  # (C,), or one number
        if self.compat == "released-code":
            distance = released_divergence(given.logits, logits, self.temperature, adjustment)
            return distance + self.distillation_weight * F.cross_entropy(logits, labels)
        weights = self.distillation_weight + self.adjustment_weight * adjustment
        return F.cross_entropy(logits, labels) + divergence(
            self.local_knowledge(given.logits), logits, self.temperature, weights
        )

    def _adjustment_weights(self, given: Given) -> torch.Tensor:
        """Return the factors of LKA for each class's term: v of Eq. 14, (C,), the one cosine of Eq. 12, or zero."""
        import torch

        from fedchain.learning.families.distillation_terms import residual_weights, similarity

        assert given.own is not None, "who posted labels posted its distribution"
        assert given.common is not None, "somebody did"
        if self.adjustment == "none":
            return torch.zeros(())
        if self.adjustment == "sim":
            return similarity(given.common, given.own)
        if self.compat == "released-code":
            return (given.common - given.own) / self.residual_temperature
        return self.weight_scale * residual_weights(given.common, given.own, self.residual_temperature)

    def given_to_client(self, client: Client, round: Round, logits: torch.Tensor) -> Choose:
        """The aggregator's logits of each example and d^k. In `compat`, those that stand where the batch would, had the
        examples not been shuffled."""
        own = self._distribution_of(client)
        if self.compat == "none":
            return lambda batch: Given(logits[batch], own)
        position = 0

        def by_batch_index(batch: torch.Tensor) -> Given:
            nonlocal position
            position = position if position + len(batch) <= len(logits) else 0  # the next pass
            rows = logits[position : position + len(batch)]
            position += len(batch)
            return Given(rows, own)

        return by_batch_index

    def given_to_server(self, sender: int, labels: torch.Tensor, round: Round) -> Given:
        """d^k of the client and d^S = sum_k N^k d^k / sum_k N^k (Algorithm 2, line 8).

        For a client whose labels missed the setup, d^k is counted from the labels in this post, and d^S covers the
        clients of the setup plus this one.
        """
        import torch

        assert round.info is not None, "a round of a federation has shapes"
        known: Mapping[str, np.ndarray] = round.beside.get(LABELS.name, {})
        heard = {place: index for index, place in enumerate(known["clients"].tolist())} if known else {}
        counts = known["examples"].astype(np.float64) if known else np.empty(0)  # (k,)
        classes = round.info.classes
        distributions = known["distributions"].astype(np.float64) if known else np.empty((0, classes))  # (k, C)
        if sender not in heard:
            heard[sender] = len(counts)
            own = np.bincount(labels.numpy(), minlength=classes) / len(labels)  # (C,)
            counts, distributions = np.append(counts, len(labels)), np.vstack([distributions, own])
        common = (counts[:, None] * distributions).sum(axis=0) / counts.sum()  # (C,)
        own = distributions[heard[sender]]
        return Given(torch.empty(0), torch.from_numpy(own).float(), torch.from_numpy(common).float())

    @property
    def starts_from_zeros(self) -> bool:
        """The published code does not."""
        return super().starts_from_zeros and self.compat == "none"

    @property
    def answers_while_training(self) -> bool:
        """The published code does."""
        return self.compat == "released-code"

    def _distribution_of(self, client: Client) -> torch.Tensor:
        """d^k, (C,): the shares of the classes (Eq. 7), or the distribution that was drawn once in its place."""
        import torch

        stated = client.state(Stated)
        if stated.distribution is None:
            stated.distribution = self._draw(client) if self.distribution != "counted" else _count(client)
        assert isinstance(stated.distribution, torch.Tensor)
        return stated.distribution

    def _draw(self, client: Client) -> torch.Tensor:
        """Draw numbers and take their softmax (Table VIII)."""
        import torch

        drawn = torch.empty(client.info.classes)
        if self.distribution == "uniform":
            drawn.uniform_(0.0, RANDOM_SPREAD, generator=client.generator)
        elif self.distribution == "normal":
            drawn.normal_(0.0, RANDOM_SPREAD, generator=client.generator)
        else:
            drawn.exponential_(1 / RANDOM_SPREAD, generator=client.generator)
        return torch.softmax(drawn, dim=0)


def _count(client: Client) -> torch.Tensor:
    """Return the shares of the classes among the client's examples, (C,) (Eq. 7)."""
    import torch

    counts = torch.bincount(client.train_labels, minlength=client.info.classes)
    return counts.float() / len(client.train_labels)
