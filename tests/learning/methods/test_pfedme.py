"""pFedMe against its formulas."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.pfedme import PFedMe, PFedMeState
from fedchain.learning.models.vectors import read_vector, write_vector
from fedchain.learning.registry import build_method
from fedchain.learning.round import Round
from fedchain.learning.training.loop import draw_batches
from tests.support.learning.federation import aggregate, examples, gradient_at, model_of, new_client, vector_of

FIRST = Round(1, None, clients=3)


def test_pfedme_follows_algorithm_1() -> None:
    method = PFedMe(learning_rate=0.01, personal_learning_rate=0.05, personal_steps=3, local_steps=2, batch_size=4)
    client = new_client()
    w = read_vector(client.model)
    posted = method.update(client, FIRST)
    batches = draw_batches(12, 4, torch.Generator().manual_seed(2))
    theta = w.clone()
    for _ in range(2):
        batch = next(batches)
        for _ in range(3):
            theta = theta - 0.05 * (gradient_at(theta, batch) + 15 * (theta - w) + 0.001 * theta)
        w = w - 15 * 0.01 * (w - theta)
    np.testing.assert_allclose(vector_of(posted), w.numpy(), atol=1e-6)
    torch.testing.assert_close(read_vector(client.model), theta)  # what is measured is the personal model
    assert client.steps == 2


def test_a_schedule_lowers_the_step_of_the_common_copy() -> None:
    """Both step sizes are Algorithm 1's; eta alone is `learning_rate`, and falls."""
    plain = PFedMe(learning_rate=0.01, personal_steps=1, local_steps=1)
    falling = replace(plain, schedule="step", schedule_rounds=1, schedule_decay=0.5)
    ways = []
    for method in (plain, falling):
        client = new_client()
        w = read_vector(client.model)
        posted = method.update(client, Round(3, None))
        ways.append(vector_of(posted) - w.numpy())
        torch.testing.assert_close(client.state(PFedMeState).personal, read_vector(client.model))
    np.testing.assert_allclose(ways[1], 0.25 * ways[0], atol=1e-7)
    assert np.abs(ways[0]).max() > 1e-4


def test_pfedme_may_go_on_from_the_personal_model() -> None:
    method = PFedMe(start="personal", local_steps=1, personal_steps=1)
    client = new_client()
    method.update(client, FIRST)
    theta, w = client.state(PFedMeState).personal, torch.zeros(client.info.parameter_count)
    assert theta is not None
    write_vector(client.model, w)  # the next common model
    client.generator.manual_seed(7)
    method.update(client, Round(2, None))
    batch = next(draw_batches(12, 32, torch.Generator().manual_seed(7)))
    expected = theta - 0.09 * (gradient_at(theta, batch) + 15 * (theta - w) + 0.001 * theta)
    torch.testing.assert_close(read_vector(client.model), expected)


@pytest.mark.parametrize(("mixing", "expected"), [(1.0, 3.0), (0.25, 1.5), (2.0, 5.0)])
def test_pfedme_mixes_the_mean_into_the_common_model(mixing: float, expected: float) -> None:
    payloads = [model_of([value]) | examples(1) for value in (2.0, 4.0)]
    assert aggregate(PFedMe(mixing=mixing), payloads, model_of([1.0]))["model.w"].tolist() == [expected]
    assert aggregate(PFedMe(mixing=mixing), payloads)["model.w"].tolist() == [3.0]


def test_the_mean_that_pfedme_mixes_in_is_weighted_by_examples() -> None:
    payloads = [model_of([value]) | examples(count) for value, count in ((2.0, 1), (4.0, 3))]
    assert aggregate(PFedMe(mixing=0.5), payloads, model_of([1.0]))["model.w"].tolist() == [2.25]
    equal = PFedMe(mixing=0.5, weighting="clients")
    assert aggregate(equal, payloads, model_of([1.0]))["model.w"].tolist() == [2.0]


def test_pfedme_starts_from_the_common_model_in_every_round() -> None:
    method = PFedMe(local_steps=1, personal_steps=1)
    client = new_client()
    method.update(client, FIRST)
    w = torch.zeros(client.info.parameter_count)
    write_vector(client.model, w)  # the next common model
    client.generator.manual_seed(7)
    method.update(client, Round(2, None))
    batch = next(draw_batches(12, 32, torch.Generator().manual_seed(7)))
    torch.testing.assert_close(read_vector(client.model), -0.09 * gradient_at(w, batch))


def test_momentum_is_refused_since_neither_step_of_algorithm_1_has_any() -> None:
    with pytest.raises(ConfigurationError, match="momentum must lie in"):
        build_method("pfedme", {"momentum": 0.5})
