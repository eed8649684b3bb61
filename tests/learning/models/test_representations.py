"""A client's images under another state of its model: what is computed, and the model that is left as it was."""

import torch

from fedchain.learning.models.registry import build_model
from fedchain.learning.models.representations import training_embeddings, training_layers
from fedchain.learning.models.vectors import read_state
from tests.support.learning.federation import new_client


def test_another_state_s_embeddings_are_those_of_a_model_in_that_state() -> None:
    client, other = new_client(), build_model("digits-mlp", 5).eval()
    before = read_state(client.model)
    with torch.inference_mode():
        expected, _ = other(client.train_images)
    found = training_embeddings(client, read_state(other))
    assert torch.equal(found, expected)
    assert not torch.equal(found, training_embeddings(client))
    assert torch.equal(read_state(client.model), before)


def test_layers_have_a_row_for_each_example_and_the_model_is_left_as_it_was() -> None:
    client, other = new_client(examples=7), build_model("digits-mlp", 5)
    before = read_state(client.model)
    layers = training_layers(client, read_state(other))
    assert all(layer.shape[0] == 7 for layer in layers)
    assert len(layers) == len(training_layers(client))
    assert not torch.equal(layers[-1], training_layers(client)[-1])
    assert torch.equal(read_state(client.model), before)


def test_layers_are_without_dropout_though_the_client_has_just_trained() -> None:
    client = new_client()
    client.model = build_model("cnn", 0)
    client.train_images = torch.randn(5, 1, 28, 28)
    client.model.train()
    found = training_layers(client)
    with torch.inference_mode():
        expected, _ = client.model.eval().layers(client.train_images)
    assert all(map(torch.equal, found, expected))
