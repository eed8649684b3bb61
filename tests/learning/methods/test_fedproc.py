"""FedProc against its formulas."""

import math

import numpy as np
import pytest
import torch

from fedchain.learning.methods.fedproc import Contrast, FedProc
from fedchain.learning.round import Round
from tests.learning.methods.toy import CROSS_ENTROPY, EMBEDDING, GENERATOR, LABELS, LOGITS, B, C, D, loss_of
from tests.support.learning.federation import Federation, aggregate, common_model, config, model_of

PROTOTYPES = torch.randn(C, D, generator=GENERATOR, dtype=torch.float64)


def fedproc_loss(known: list[int], alpha: float) -> float:
    contrast = 0.0
    for b in range(B):
        shares = {j: math.exp(float(EMBEDDING[b] @ PROTOTYPES[j] / PROTOTYPES[j].norm())) for j in known}
        own = int(LABELS[b])
        contrast -= math.log(shares[own] / sum(shares.values())) / B if own in known else 0.0
    return alpha * CROSS_ENTROPY + (1 - alpha) * contrast


@pytest.mark.parametrize("known", [[0, 1, 2, 3], [0, 2], [3]])
def test_fedprocs_loss_contrasts_with_unit_prototypes(known: list[int]) -> None:
    is_known = torch.tensor([label in known for label in range(C)])
    given = Contrast(torch.tensor(0.4, dtype=torch.float64), PROTOTYPES, is_known)
    assert loss_of(FedProc(), given) == pytest.approx(fedproc_loss(known, 0.4), rel=1e-9)


def test_fedprocs_gradient_is_finite_where_nothing_is_known() -> None:
    embedding = EMBEDDING.clone().requires_grad_()
    given = Contrast(torch.tensor(0.0), torch.zeros(C, D).double(), torch.zeros(C, dtype=torch.bool))
    loss = FedProc().loss(lambda _: (embedding, LOGITS), torch.zeros(B, 1), LABELS, given)
    assert torch.isfinite(torch.autograd.grad(loss, embedding)[0]).all()


def test_fedprocs_cross_entropy_takes_over() -> None:
    method = FedProc(contrast_rounds=4)
    assert method.alpha(Round(1, None)) == 1.0
    assert [method.alpha(Round(number, {})) for number in range(2, 8)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_fedprocs_first_round_is_fedavgs() -> None:
    ours, fedavg = Federation(config("fedproc")), Federation(config("fedavg"))
    ours.play()
    fedavg.play()
    assert common_model(ours.known()) == common_model(fedavg.known())


def test_fedproc_averages_models_and_prototypes() -> None:
    payloads = [
        {**model_of([value]), "examples": np.array([count]), "labels": np.array([1]), "counts": np.array([count])}
        | {"prototypes": np.array([[value]], np.float32)}
        for value, count in ((1.0, 3), (5.0, 1))
    ]
    found = aggregate(FedProc(), payloads)
    assert found["model.w"].tolist() == [2.0]
    assert found["prototypes"].tolist() == [[2.0]]
    assert (found["labels"].tolist(), found["holders"].tolist()) == ([1], [2])


def test_fedproc_shows_its_prototypes() -> None:
    federation = Federation(config("fedproc"))
    made = federation.play(2)
    assert federation.rules.summary(federation.knowledge) is not None
    assert made[0].trained is not None
    assert made[0].trained.prototype_accuracy is not None
