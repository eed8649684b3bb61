"""Images from a post of parameters after one local step, as FedReg measures it (Xu et al., ICLR 2022, B.4).

The attacker is a member: it has the common model that the step began with, the post, the step size, and every seed
that follows from the genesis document, that of dropout included. It recovers the labels from the head's bias, and
looks for images whose step is the one that was posted. B batch, C classes, D embedding, P scalars of the parameters.

* cosine distance: Geiping et al., "Inverting Gradients: How Easy Is It to Break Privacy in Federated Learning?",
  NeurIPS 2020;
* L2 distance: Zhu et al., "Deep Leakage from Gradients", NeurIPS 2019;
* labels of one example: Zhao et al., "iDLG: Improved Deep Leakage from Gradients", arXiv:2001.02610; of several, as
  Wainakh et al., "User-Level Label Leakage from Gradients in Federated Learning", PoPETs 2022, take one after another;
* the closed form: Phong et al., "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption", IEEE TIFS
  2018.
"""

from collections.abc import Callable
from itertools import count
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from fedchain.learning.device import kept_generator
from fedchain.learning.leakage.descent import PixelRange, Search, descend
from fedchain.learning.methods.fedreg import FedReg, excess, projection, soft_cross_entropy
from fedchain.learning.models.base import Model
from fedchain.learning.models.parameters import wire_name
from fedchain.learning.models.vectors import flatten, read_vector, trained_parameters, unflatten
from fedchain.learning.round import Tensors
from fedchain.learning.training.schedule import Schedule

Objective = Literal["cosine", "l2", "closed-form"]
"""The quantity that is minimised: the angle to the step that was seen, or the squared distance; or none (division)."""

Expected = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""expected(images, labels) -> the gradient (P,) that a step on them would show, differentiable by the images."""


AWAY_EVERY = 10
"""Calls of an informed attack after which FedReg's pseudo images are made anew: they cost as much as these calls."""


def read_gradient(posted: Tensors, common: Model, schedule: Schedule) -> torch.Tensor:
    """Return the gradient (P,) behind a post of one step of SGD from the common model: (o - w) / eta, less decay."""
    before = read_vector(common)
    names = [name for name, value in common.named_parameters() if value.requires_grad]
    after = flatten(torch.from_numpy(np.array(posted[wire_name(name, True)])) for name in names)
    return (before - after) / schedule.learning_rate - schedule.weight_decay * before


def recover_labels(gradient: torch.Tensor, common: Model, batch_size: int) -> torch.Tensor:
    """Return the labels (B,) behind a gradient (P,), ascending.

    An example's cross-entropy has the gradient p - y with respect to the head's bias: its own label's is the one below
    zero. For a mean over B examples the lowest is taken, 1 / B is added to it, and so on.
    """
    left = head_gradient(gradient, common).clone()  # (C,)
    labels = []
    for _ in range(batch_size):
        lowest = int(left.argmin())
        left[lowest] += 1.0 / batch_size
        labels.append(lowest)
    return torch.tensor(sorted(labels))


def head_gradient(gradient: torch.Tensor, common: Model) -> torch.Tensor:
    """Return the part of a gradient (P,) that is the head's bias, (C,); without one, its weights' sums over D.

    After ReLU an embedding is not negative, so that such a sum has the sign of its bias' gradient.
    """
    parts = unflatten(gradient, trained_parameters(common))
    for part in reversed(parts):
        if part.shape[:1] == (common.classes,) and part.ndim <= 2:
            return part if part.ndim == 1 else part.sum(dim=1)
    raise ValueError(f"no tensor of the model has one row for each of {common.classes} classes")


def expect_plain_step(common: Model, dropout_seed: int) -> Expected:
    """Expect the gradient of cross-entropy at the common model: FedAvg's, and that of all whose first step is its."""
    parameters = trained_parameters(common)

    def expected(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with kept_generator():
            torch.default_generator.manual_seed(dropout_seed)
            _, logits = common.train()(images)
        return flatten(torch.autograd.grad(F.cross_entropy(logits, labels), parameters, create_graph=True))

    return expected


def expect_fedreg_step(method: FedReg, common: Model, dropout_seed: int) -> Expected:
    """Expect what FedReg's first step shows, its modified gradient and its projections included.

    Pseudo and perturbed images keep their distance to the images that are looked for, for signs have no gradient; it is
    worked out anew in every `AWAY_EVERY`-th call.
    """
    plain = expect_plain_step(common, dropout_seed)
    parameters = trained_parameters(common)
    names = [name for name, value in common.named_parameters() if value.requires_grad]
    before = read_vector(common).requires_grad_()  # o, (P,)
    calls, away = count(), dict[float, torch.Tensor]()

    rates = method.pseudo_rate, method.pseudo_rate * method.perturbed_ratio

    def logits(at: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        state = dict(zip(names, unflatten(at, parameters), strict=True))
        found: torch.Tensor = functional_call(common, state, (images,))[1]
        return found

    def gradient(loss: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, at, create_graph=True)[0]

    def expected(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        common.eval()
        if next(calls) % AWAY_EVERY == 0:
            now = images.detach()
            away.update({rate: method.ascend(common, now, labels, rate) - now for rate in rates})
        pseudo, perturbed = (images + away[rate] for rate in rates)
        pseudo_labels = torch.softmax(logits(before, pseudo), dim=1)
        step = plain(images, labels)  # leaves the model in training mode, in which a client takes its steps
        if method.modified_gradient:
            outputs = logits(before, pseudo)
            uniform = torch.full_like(outputs, 1.0 / common.classes)
            step = step - projection(step, gradient(soft_cross_entropy(outputs, uniform), before))
        change = -method.learning_rate * step
        half = before + 0.5 * change  # theta_beta
        g_s = gradient(soft_cross_entropy(logits(half, pseudo), pseudo_labels), half)
        g_p = gradient(F.cross_entropy(logits(half, perturbed), labels), half)
        w_s = excess(change, g_s)
        w_p = excess(change - w_s * g_s, g_p)
        return step + (w_s * g_s + w_p * g_p) / method.learning_rate

    return expected


def invert_gradient(
    gradient: torch.Tensor,
    labels: torch.Tensor,
    expected: Expected,
    objective: Objective,
    start: torch.Tensor,
    pixels: PixelRange,
    search: Search,
) -> torch.Tensor:
    """Return normalised images that would show the gradient (P,), one for each of the labels (B,), as the search finds
    them from `start`, (B, c, h, w)."""

    def distance(images: torch.Tensor) -> torch.Tensor:
        shown = expected(images, labels)
        if objective == "cosine":
            return 1 - F.cosine_similarity(shown, gradient, dim=0)
        return (shown - gradient).square().sum() / gradient.square().sum()

    return descend(distance, start, pixels, search)


def has_closed_form(common: Model, batch_size: int) -> bool:
    """Whether one example can be read off: the model's first layer is linear and has a bias."""
    layers = [module for module in common.modules() if len(list(module.parameters(recurse=False))) > 0]
    first = layers[0] if layers else None
    return batch_size == 1 and isinstance(first, nn.Linear) and first.bias is not None


def read_input(gradient: torch.Tensor, common: Model, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the one image (1, c, h, w) behind a gradient (P,) of a model that `has_closed_form`.

    Its row of the first layer is the bias' gradient times the input: over all rows, the input with the least squares.
    """
    weight, bias = unflatten(gradient, trained_parameters(common))[:2]  # (H, chw), (H,)
    return (bias @ weight / bias.square().sum().clamp(min=1e-30)).reshape(1, *shape)
