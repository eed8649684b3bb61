"""FedCurv against its formulas."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fedchain.learning.methods.fedcurv import FedCurv
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.vectors import gradient_vector, read_vector
from fedchain.learning.payload.codec import settle
from fedchain.learning.round import Round
from tests.support.learning.federation import (
    Federation,
    aggregate,
    common_model,
    config,
    examples,
    fedavg_on,
    gradient_at,
    model_of,
    new_client,
)


def test_fedcurv_pulls_towards_the_last_rounds_models() -> None:
    method = FedCurv(curvature_weight=0.05, local_steps=1, batch_size=12)
    client = new_client()
    size = client.info.parameter_count
    fisher, anchor = torch.rand(size, generator=torch.Generator().manual_seed(5)), torch.linspace(-1, 1, size)
    known = Round(2, {"fisher": fisher.numpy(), "fisher_parameters": (fisher * anchor).numpy()}, clients=3)
    start = read_vector(client.model).requires_grad_()
    elastic = 0.05 * (fisher * start.square() - 2 * start * fisher * anchor).sum()
    (pull,) = torch.autograd.grad(elastic, start)
    method.update(client, known)
    expected = start.detach() - 0.1 * (gradient_at(start.detach(), torch.arange(12)) + pull)
    torch.testing.assert_close(read_vector(client.model), expected, atol=1e-6, rtol=1e-5)


def test_fedcurvs_fisher_information_is_the_mean_of_single_examples_squared_gradients() -> None:
    client = new_client(5)
    found = FedCurv().fisher_information(client)
    gradients = []
    for place in range(5):
        _, logits = client.model(client.train_images[place : place + 1])
        gradients.append(gradient_vector(F.cross_entropy(logits, client.train_labels[place : place + 1]), client.model))
    torch.testing.assert_close(found, torch.stack(gradients).square().mean(0))
    whole = gradient_vector(F.cross_entropy(client.model(client.train_images)[1], client.train_labels), client.model)
    assert not torch.allclose(found, whole.square())


def test_fedcurvs_fisher_information_is_that_of_the_model_in_evaluation_mode() -> None:
    """In training mode batch normalization takes no single example."""
    client = new_client(5, "digits-mlp-bn")
    client.model.train()
    found, expected = FedCurv().fisher_information(client), torch.zeros(client.info.parameter_count)
    for place in range(5):
        _, logits = client.model.eval()(client.train_images[place : place + 1])
        loss = F.cross_entropy(logits, client.train_labels[place : place + 1])
        expected += gradient_vector(loss, client.model).square() / 5
    torch.testing.assert_close(found, expected)


def curved(value: float, f: float) -> dict[str, Any]:
    """A post of one parameter with its Fisher information."""
    sums = {"fisher": np.array([f], np.float32), "fisher_parameters": np.array([f * value], np.float32)}
    return model_of([value]) | examples(1) | sums


def test_fedcurv_sums_what_the_clients_of_the_round_post() -> None:
    payloads = [curved(2.0, 1.0), curved(4.0, 3.0)]
    found = aggregate(FedCurv(), payloads)
    assert (found["fisher"].tolist(), found["fisher_parameters"].tolist()) == ([4.0], [14.0])


def test_fedcurv_is_fedavg_in_the_first_round() -> None:
    task = config("fedcurv", curvature_weight=1.0)
    curv, fedavg = Federation(task), Federation(fedavg_on(task))
    curv.play()
    fedavg.play()
    assert common_model(curv.known()) == common_model(fedavg.known())


def test_a_robust_rule_gives_the_clients_mean_which_stands_for_each_of_them() -> None:
    payloads = [curved(2.0, 1.0), curved(4.0, 3.0), curved(1.0, 1000.0)]
    found = aggregate(FedCurv(aggregation_rule="median"), payloads)
    assert (found["fisher"].tolist(), found["fisher_parameters"].tolist()) == ([3 * 3.0], [3 * 12.0])


def test_a_sum_over_clients_has_room_for_the_largest_number_of_each() -> None:
    method = FedCurv()
    info = ModelInfo((("w", (1,)),), 1, 2, trainable=frozenset({"w"}), normalization=frozenset())
    found = settle(aggregate(method, [curved(1.0, 1e6)] * 3), method.knowledge_spec(method.phases[-1], info))
    assert (found["fisher"].tolist(), found["fisher_parameters"].tolist()) == ([3e6], [3e6])
