"""Methods that post whole models: a round begins from the common model, and the post is the model as it ended."""

import numpy as np
import torch
import torch.nn.functional as F

from fedchain.learning.families.parameters import ParametersMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.parameters import read_parameters
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.registry import build_method
from fedchain.learning.round import Round
from tests.support.learning.federation import new_client


def blade_fl() -> ParametersMethod:
    method = build_method("blade-fl", {"local_steps": 2, "local_epochs": 0})
    assert isinstance(method, ParametersMethod)
    return method


def test_a_client_starts_the_round_from_the_common_model_if_there_is_one() -> None:
    client, common = new_client(), read_parameters(build_model("digits-mlp", 7))
    initial = read_parameters(client.model)
    blade_fl().receive(client, Round(1, None))
    assert all(np.array_equal(initial[name], value) for name, value in read_parameters(client.model).items())
    blade_fl().receive(client, Round(1, common))
    assert all(np.array_equal(common[name], value) for name, value in read_parameters(client.model).items())
    assert any(not np.array_equal(initial[name], common[name]) for name in common)


def test_the_post_is_the_trained_model_and_fits_its_spec() -> None:
    method, client = blade_fl(), new_client()
    before = read_parameters(client.model)
    posted = method.update(client, Round(1, None))
    after = read_parameters(client.model)
    assert posted.keys() == after.keys()
    assert all(np.array_equal(posted[name], after[name]) for name in after)
    assert any(not np.array_equal(before[name], after[name]) for name in after)
    info, phase = describe_model("digits-mlp"), Phase("update")
    assert [(spec.name, spec.shape) for spec in method.payload_spec(phase, info)] == [
        (name, value.shape) for name, value in posted.items()
    ]
    assert method.knowledge_spec(phase, info) == method.payload_spec(phase, info)


def test_the_loss_is_cross_entropy_alone() -> None:
    client = new_client()
    _, logits = client.model(client.train_images)
    found = blade_fl().loss(client.model, client.train_images, client.train_labels, None)
    assert torch.equal(found, F.cross_entropy(logits, client.train_labels))
