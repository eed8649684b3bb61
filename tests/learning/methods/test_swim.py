"""SWIM against its formulas."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.swim import Swim, SwimState, Window
from fedchain.learning.models.representations import training_embeddings
from fedchain.learning.round import Round
from tests.learning.methods.toy import COMMON, CROSS_ENTROPY, EMBEDDING, PREVIOUS, W, loss_of
from tests.support.learning.federation import new_client


def swim_loss(window: torch.Tensor, filled: int, mu: float) -> float:
    """The published formula, one representation after another."""
    near, far = math.exp(float(F.cosine_similarity(EMBEDDING, COMMON).mean()) / 0.5), 0.0
    for place in range(filled):
        similarity = float(F.cosine_similarity(EMBEDDING, window[place]).mean())
        term = math.exp(similarity / 0.5)
        near, far = (near + term, far) if similarity >= 0.5 else (near, far + term)
    return (1 - mu) * CROSS_ENTROPY - mu * math.log(near / (near + far))


@pytest.mark.parametrize("filled", [0, 1, 3])
def test_swims_loss_sums_near_and_far_representations(filled: int) -> None:
    window = torch.stack([PREVIOUS, EMBEDDING + 0.1 * PREVIOUS, -EMBEDDING])  # (W, B, D): far, near, far
    given = Window(COMMON, window, torch.arange(W) < filled, torch.tensor(0.3, dtype=torch.float64))
    assert loss_of(Swim(window=W), given) == pytest.approx(swim_loss(window, filled, 0.3), rel=1e-12)


@pytest.mark.parametrize("similarity", [0.3, 0.4, 0.6])
def test_near_is_a_cosine_of_a_half_and_more_before_it_is_divided_by_the_temperature(similarity: float) -> None:
    units = F.normalize(EMBEDDING, dim=1)
    across = F.normalize(torch.linalg.cross(units, COMMON), dim=1)
    window = (similarity * units + math.sqrt(1 - similarity**2) * across).unsqueeze(0)  # (1, B, D)
    given = Window(COMMON, window, torch.tensor([True]), torch.tensor(0.3, dtype=torch.float64))
    assert loss_of(Swim(window=1), given) == pytest.approx(swim_loss(window, 1, 0.3), rel=1e-12)


def test_the_lowest_temperature_is_finite_in_the_models_precision() -> None:
    with pytest.raises(ConfigurationError, match="temperature must lie in"):
        Swim(temperature=0.01)
    lowest = torch.tensor(1.0 / 0.02, dtype=torch.float32)
    assert torch.isfinite(64 * lowest.exp()), "the largest window, all of it alike"


def test_swims_weight_falls_from_a_half_to_zero() -> None:
    assert [Swim(rounds=4).mu(number) for number in range(1, 7)] == [0.375, 0.25, 0.125, 0.0, 0.0, 0.0]


def test_swims_window_holds_the_last_local_models() -> None:
    client, method, made = new_client(), Swim(window=2, local_steps=1), []
    for number in range(1, 5):
        client.generator.manual_seed(number)
        method.update(client, Round(number, None))
        made.append(training_embeddings(client))
        assert all(map(torch.equal, client.state(SwimState).earlier, made[-2:]))
        assert len(client.state(SwimState).earlier) == min(number, 2)


def test_swims_published_window_slides_over_batches() -> None:
    client, method = new_client(), Swim(window=2, window_of="batches", local_steps=3, batch_size=4)
    method.update(client, Round(1, None))
    last = training_embeddings(client)
    seen = []

    def recording(forward, images, labels, given):  # type: ignore[no-untyped-def]
        places = [int((client.train_images == image).flatten(1).all(1).nonzero()) for image in images]
        seen.append((torch.tensor(places), given))
        return Swim.loss(method, forward, images, labels, given)

    object.__setattr__(method, "loss", recording)
    method.update(client, Round(2, None))
    filled = [given.is_filled.tolist() for _, given in seen]
    assert filled == [[True, False], [True, True], [True, True]]
    for step in (1, 2):
        expected = torch.stack([last[seen[step - 1][0]], last[seen[step][0]]])
        torch.testing.assert_close(seen[step][1].earlier, expected)
    assert [kept.shape for kept in client.state(SwimState).earlier] == [last.shape]
