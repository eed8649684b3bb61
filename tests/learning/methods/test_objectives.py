"""Terms on the parameters: three steps against autograd on the objective as it is written, in float64."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.client import Client
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.methods.demlearn import DemLearn
from fedchain.learning.methods.fedcurv import FedCurv
from fedchain.learning.methods.fednova import FedNova
from fedchain.learning.methods.fedprox import FedProx
from fedchain.learning.methods.pfedme import PFedMe
from fedchain.learning.methods.scaffold import Scaffold
from fedchain.learning.models.vectors import read_vector, trained_parameters, unflatten
from fedchain.learning.round import Round
from tests.support.learning.federation import new_client

STEPS, EXAMPLES, RATE = 3, 12, 0.1
SIZE = new_client().info.parameter_count
DRAW = torch.Generator().manual_seed(4)
FISHER = torch.rand(SIZE, generator=DRAW, dtype=torch.float64)
ANCHOR, OWN, SERVER = torch.randn(3, SIZE, generator=DRAW, dtype=torch.float64)

Term = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""term(w, w at the start of the round) -> what is added to cross-entropy."""


def double_client() -> Client:
    """A client whose model and images are float64; a batch is all of its examples."""
    client = new_client(EXAMPLES)
    client.model.double()
    client.train_images = client.train_images.double()
    return client


def cross_entropy(client: Client, parameters: torch.Tensor) -> torch.Tensor:
    """Mean loss of all examples, as a function of the parameters (P,)."""
    names = [name for name, value in client.model.named_parameters() if value.requires_grad]
    parts = dict(zip(names, unflatten(parameters, trained_parameters(client.model)), strict=True))
    _, logits = torch.func.functional_call(client.model, parts, (client.train_images,))
    return F.cross_entropy(logits, client.train_labels)


def descend(client: Client, term: Term, rate: float = RATE, steps: int = STEPS) -> torch.Tensor:
    """Gradient descent on cross-entropy + term, from the client's model."""
    start = read_vector(client.model)
    point = start.clone()
    for _ in range(steps):
        point = point.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(client, point) + term(point, start), point)
        point = point.detach() - rate * gradient
    return point.detach()


FEW = {"local_steps": STEPS, "batch_size": EXAMPLES, "learning_rate": RATE}

Given = dict[str, torch.Tensor]
"""Tensors of the knowledge, or of what the client remembers, by name."""

CASES: dict[str, tuple[LocalSgdMethod, Given, Given, Term]] = {
    "fedprox: mu/2 ||w - w^t||^2": (
        FedProx(proximal_weight=0.3, **FEW),  # type: ignore[arg-type]
        {},
        {},
        lambda w, start: 0.3 / 2 * (w - start).square().sum(),
    ),
    "fednova: the same": (
        FedNova(proximal_weight=0.3, **FEW),  # type: ignore[arg-type]
        {},
        {},
        lambda w, start: 0.3 / 2 * (w - start).square().sum(),
    ),
    "fedcurv: lambda sum_j (w - w_j)' F_j (w - w_j)": (
        FedCurv(curvature_weight=0.05, **FEW),  # type: ignore[arg-type]
        {"fisher": FISHER, "fisher_parameters": FISHER * ANCHOR},
        {},
        lambda w, start: 0.05 * (FISHER * (w - ANCHOR).square()).sum(),
    ),
    "scaffold: (c - c_i) w": (
        Scaffold(**FEW),  # type: ignore[arg-type]
        {"control": SERVER},
        {"control": OWN},
        lambda w, start: ((SERVER - OWN) * w).sum(),
    ),
    "demlearn: mu/2 ||w - w of the group||^2": (
        DemLearn(proximal_weight=0.3, **FEW),  # type: ignore[arg-type]
        {},
        {"group": ANCHOR},
        lambda w, start: 0.3 / 2 * (w - ANCHOR).square().sum(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_training_descends_the_written_objective(case: str) -> None:
    method, known, remembered, term = CASES[case]
    client, expected = double_client(), descend(double_client(), term)
    client.saved = {f"{type(method).__name__}State": remembered}
    knowledge = {name: value.numpy() for name, value in known.items()}
    method.update(client, Round(2, knowledge or None, clients=3))
    torch.testing.assert_close(read_vector(client.model), expected, atol=1e-12, rtol=1e-10)
    assert not torch.allclose(expected, descend(double_client(), lambda w, start: w.sum() * 0))


def test_pfedmes_personal_model_descends_the_moreau_envelope() -> None:
    client = double_client()
    method = PFedMe(
        personal_learning_rate=RATE, personal_steps=STEPS, proximal_weight=2.0, local_steps=1, batch_size=EXAMPLES
    )
    method.update(client, Round(1, None, clients=3))
    expected = descend(
        double_client(), lambda w, start: 2.0 / 2 * (w - start).square().sum() + 0.001 / 2 * w.square().sum()
    )
    torch.testing.assert_close(read_vector(client.model), expected, atol=1e-12, rtol=1e-10)
