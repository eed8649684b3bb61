"""Models as files: the module's own names, whole, and the numbers that were measured."""

import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.base import trainable_names
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.registry import build_model
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.learning.worker.model_file import (
    load_model,
    read_model,
    state_of,
    state_of_checkpoint,
    state_of_knowledge,
)
from tests.support.learning.federation import Federation, config, with_norm
from tests.support.learning.lora_task import load
from tests.support.learning.own_task import config as own_config


def test_a_checkpoint_holds_the_model_under_its_own_names() -> None:
    federation = Federation(config("dfpl"))
    federation.play()
    model = build_model("digits-mlp", 7)
    model.load_state_dict(state_of_checkpoint(federation.learner.checkpoint(1)), strict=True)
    for name, value in federation.client(1).model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_the_knowledge_of_methods_that_average_is_a_whole_model(method: str) -> None:
    federation = Federation(with_norm(method))
    federation.play()
    model = build_model("digits-mlp-bn", 7)
    model.load_state_dict(state_of_knowledge(federation.known(), federation.rules.info), strict=True)
    received = federation.learner.evaluate_received(0, 2, federation.knowledge)
    assert received is not None
    client = federation.client(0)
    with torch.inference_mode():
        right = int((model.eval()(client.test_images)[1].argmax(dim=1) == client.test_labels).sum())
    assert right / len(client.test_labels) == received.local_accuracy


@pytest.mark.parametrize(("method", "held"), [("dfpl", "0 of the model's 6"), ("mtfl", "6 of the model's 16")])
def test_other_knowledge_is_refused(method: str, held: str) -> None:
    federation = Federation(with_norm(method) if method == "mtfl" else config(method))
    federation.play()
    with pytest.raises(ConfigurationError, match=f"the knowledge holds {held} tensors, .*; ask for a member's"):
        state_of_knowledge(federation.known(), federation.rules.info)


def test_a_state_is_a_copy_and_survives_the_file() -> None:
    first, last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    last.weight = first.weight  # tied
    module = torch.nn.Sequential(first, torch.nn.BatchNorm1d(3), last)
    info = ModelInfo(
        tuple((name, tuple(value.shape)) for name, value in module.state_dict().items()),
        3,
        3,
        trainable_names(module),
        frozenset(),
    )
    state = state_of(module, info)
    read = read_model(b"".join(state_pieces(state, {"round": "3"})))
    assert {name: (value.dtype, value.tolist()) for name, value in read.items()} == {
        name: (value.dtype, value.tolist()) for name, value in module.state_dict().items()
    }
    with torch.no_grad():
        first.weight.add_(1)
    assert not torch.equal(state["0.weight"], first.weight)
    with pytest.raises(ConfigurationError, match="4 bytes are no safetensors file"):
        read_model(b"what")


def test_a_parameter_of_two_names_is_what_the_one_says_under_which_it_is_trained() -> None:
    first, last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    last.weight = first.weight
    module = torch.nn.Sequential(first, last)
    state = {name: torch.full_like(value, place) for place, (name, value) in enumerate(module.state_dict().items())}
    load_model(module, state, "a")
    assert first.weight is last.weight
    assert torch.equal(first.weight, state["0.weight"])


def test_a_module_that_takes_its_shapes_from_its_first_input_takes_a_state_without_one() -> None:
    state = torch.nn.Linear(4, 3).state_dict()
    lazy = torch.nn.LazyLinear(3)
    with pytest.raises(ConfigurationError, match="weight"):
        load_model(lazy, {"bias": state["bias"]}, "a")
    load_model(lazy, state, "a")
    assert torch.equal(lazy.weight, state["weight"])
    assert torch.equal(lazy(torch.ones(1, 4)), torch.nn.functional.linear(torch.ones(1, 4), **state))


@pytest.mark.parametrize("adapters", ["mean", "ffa", "fedex"])
def test_a_member_s_model_is_measured_without_the_frozen_tensors_that_all_have(adapters: str) -> None:
    federation = Federation(own_config("fedavg", hyperparameters={"local_steps": 5, "adapters": adapters}), task=load)
    made = federation.play(2)
    state, learner = state_of_checkpoint(federation.learner.checkpoint(1)), federation.new_learner()
    assert "first.base_layer.bias" not in state
    assert ("first.base_layer.weight" in state) == (adapters == "fedex"), "its residual is the run's own"
    assert made[1].trained is not None
    assert learner.measure(state, 1, [1])[0].local_accuracy == made[1].trained.local_accuracy
    whole = federation.client(1).model.state_dict()
    assert learner.measure(whole, 1, [1])[0].local_accuracy == made[1].trained.local_accuracy
    with pytest.raises(ConfigurationError, match=r"first.base_layer.bias of the model is frozen, .* other values"):
        learner.measure(whole | {"first.base_layer.bias": torch.zeros(6)}, 1, [1])
    del state["head.bias"]
    with pytest.raises(ConfigurationError, match=r"model: head.bias: \(3,\) expected"):
        learner.measure(state, 1, [1])


@pytest.mark.parametrize("adapters", ["mean", "ffa", "fedex"])
def test_the_common_adapters_are_measured_on_a_member_s_frozen_model(adapters: str) -> None:
    federation = Federation(own_config("fedavg", hyperparameters={"local_steps": 5, "adapters": adapters}), task=load)
    federation.play(2)
    received = federation.learner.evaluate_received(1, 3, federation.knowledge)
    assert received is not None
    known, learner = federation.known(), federation.new_learner()
    state = learner.common_state(known, 1)
    assert ("first.base_layer.weight" in state) == (adapters == "fedex")
    if adapters == "fedex":
        with pytest.raises(
            ConfigurationError, match=r"what members add to their first\.base_layer\.weight, and not the"
        ):
            state_of_knowledge(known, federation.rules.info)
    else:
        shared = state_of_knowledge(known, federation.rules.info)
        assert all(value.equal(state[name]) for name, value in shared.items())
    assert learner.measure(state, 1, [1])[0].local_loss == received.local_loss
    with pytest.raises(ConfigurationError, match="members share no whole model"):
        learner.common_state({name: value for name, value in known.items() if "head" not in name}, 1)
