"""MOON against its formulas."""

import math

import pytest
import torch

from fedchain.learning.methods.moon import Moon, MoonState, Others
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.representations import training_embeddings, training_layers
from fedchain.learning.models.vectors import read_state
from fedchain.learning.round import Round
from tests.learning.methods.toy import COMMON, CROSS_ENTROPY, EMBEDDING, PREVIOUS, B, cosine, loss_of
from tests.support.learning.federation import Federation, common_model, config, new_client


def test_moons_loss_is_equations_3_and_4() -> None:
    contrast = 0.0
    for b in range(B):
        near = math.exp(cosine(EMBEDDING[b], COMMON[b]) / 0.2)
        far = math.exp(cosine(EMBEDDING[b], PREVIOUS[b]) / 0.2)
        contrast -= math.log(near / (near + far)) / B
    expected = CROSS_ENTROPY + 0.7 * contrast
    assert loss_of(Moon(temperature=0.2), Others(COMMON, PREVIOUS, 0.7)) == pytest.approx(expected, rel=1e-12)


def test_moon_has_no_contrast_without_a_previous_model() -> None:
    assert loss_of(Moon(), Others(COMMON, PREVIOUS, 0.0)) == pytest.approx(CROSS_ENTROPY, rel=1e-12)


def test_moon_contrasts_with_the_common_and_the_clients_last_model() -> None:
    client, method = new_client(), Moon(local_steps=2, contrast_weight=0.7)
    method.update(client, Round(1, None))
    last = read_state(client.model)
    kept = client.state(MoonState).previous
    assert kept is not None
    assert torch.equal(kept, last)
    common = build_model("digits-mlp", 9)
    client.model.load_state_dict(common.state_dict())
    seen = []

    def recording(forward, images, labels, given):  # type: ignore[no-untyped-def]
        seen.append((images, given))
        return Moon.loss(method, forward, images, labels, given)

    object.__setattr__(method, "loss", recording)
    method.update(client, Round(2, None))
    previous = build_model("digits-mlp", 0)
    torch.nn.utils.vector_to_parameters(last, previous.parameters())
    for images, given in seen:
        torch.testing.assert_close(given.common, common(images)[0])
        torch.testing.assert_close(given.previous, previous(images)[0])
        assert given.weight == 0.7
    kept = client.state(MoonState).previous
    assert kept is not None
    assert torch.equal(kept, read_state(client.model)), "of the newest round, and no more of the first"


@pytest.mark.parametrize("method", ["moon", "fedintr"])
def test_the_first_round_has_no_contrast(method: str) -> None:
    ours, fedavg = Federation(config(method, contrast_weight=5.0)), Federation(config("fedavg"))
    ours.play()
    fedavg.play()
    assert common_model(ours.known()) == common_model(fedavg.known())


@pytest.mark.parametrize("model", ["cnn", "digits-mlp"])
def test_another_state_leaves_the_clients_own_as_it_was(model: str) -> None:
    client = new_client()
    side = 28 if model == "cnn" else 8
    client.model, client.train_images = build_model(model, 1), torch.randn(5, 1, side, side)
    before, other = read_state(client.model), build_model(model, 2).eval()
    torch.testing.assert_close(training_embeddings(client, read_state(other)), other(client.train_images)[0])
    torch.testing.assert_close(training_layers(client, read_state(other)), other.layers(client.train_images)[0])
    torch.testing.assert_close(training_layers(client)[-1], training_embeddings(client))
    assert torch.equal(read_state(client.model), before)
