"""The encryptor: images that nobody knows, but the classifier that it was trained with."""

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.families.encryptor import encrypt_images
from fedchain.learning.methods.fededs import FedEds
from fedchain.learning.models.plain import PooledModel
from fedchain.learning.models.stochastic import stochastic_layer
from fedchain.learning.models.vectors import read_state
from fedchain.learning.payload.pixels import unpack_images
from fedchain.learning.training.loop import Training, train
from fedchain.learning.training.schedule import Schedule, adamw_schedule
from tests.support.learning.federation import new_client

LAYER = stochastic_layer(0, 64)


def test_the_teacher_says_what_the_model_says_of_the_images_that_are_sent() -> None:
    client = new_client(40, "plain-cnn")
    client.train_images = 0.3 * client.train_images + 2 * client.train_labels.float()[:, None, None, None] - 2
    train(Training(client, FedEds().loss, Schedule(learning_rate=0.05, batch_size=8, epochs=5, momentum=0.9), 0))
    before, client.steps = read_state(client.model), 0
    (part,) = encrypt_images(client, LAYER, 2, adamw_schedule(0.01, 3, 8), "uint8", 0)
    assert torch.equal(read_state(client.model), before)
    assert client.steps == 3 * 5
    images = torch.from_numpy(unpack_images(part, (1, 8, 8)))
    assert isinstance(client.model, PooledModel)
    with torch.no_grad():
        said = torch.softmax(client.model.forward_through(LAYER, images), dim=1)
    assert float(said.std(dim=0).max()) > 1e-3, "images differ to the model"
    assert torch.equal(torch.from_numpy(part["teacher"]), said), "to the bit: of what is left when a pixel is a byte"


def test_large_sets_are_shown_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.learning.families.encryptor.images_in_part", lambda pixels, classes: 16)
    parts = [*encrypt_images(new_client(40, "plain-cnn"), LAYER, 2, adamw_schedule(0.001, 1, 8), "float16", 0)]
    assert [len(part["teacher"]) for part in parts] == [16, 16, 8]
    monkeypatch.undo()
    (whole,) = encrypt_images(new_client(40, "plain-cnn"), LAYER, 2, adamw_schedule(0.001, 1, 8), "float16", 0)
    cut = np.concatenate([unpack_images(part, (1, 8, 8)) for part in parts])
    np.testing.assert_allclose(cut, unpack_images(whole, (1, 8, 8)), rtol=1e-3, atol=1e-3)


def test_a_model_that_sees_no_numbers_shows_nothing() -> None:
    client = new_client(12, "plain-cnn")
    schedule = adamw_schedule(0.001, 1, 12)
    model = client.model
    assert isinstance(model, PooledModel)
    through = model.forward_through
    model.forward_through = lambda layer, images: (  # type: ignore[method-assign]
        through(layer, images) * (np.nan if torch.is_inference_mode_enabled() else 1)
    )
    with pytest.raises(TrainingDiverged):
        list(encrypt_images(client, LAYER, 2, schedule, "uint8", 0))


def test_an_encryptor_learns_to_say_the_label_through_the_layer() -> None:
    """Eq. 3: what the frozen model says of encrypted images gets likelier to be the label."""
    found = []
    for passes in (1, 8):
        client = new_client(48, "plain-cnn")
        client.train_images = 0.3 * client.train_images + 2 * client.train_labels.float()[:, None, None, None] - 2
        train(Training(client, FedEds().loss, Schedule(learning_rate=0.05, batch_size=8, epochs=5, momentum=0.9), 0))
        layer = stochastic_layer(0, 64, "linear")
        (part,) = encrypt_images(client, layer, 2, adamw_schedule(0.01, passes, 8), "uint8", 0)
        found.append(float(np.log(part["teacher"][np.arange(48), client.train_labels.numpy()]).mean()))
    assert found[1] > found[0] + 0.2
