"""Models as files: the module's own names, whole, and the numbers that were measured."""

import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.registry import build_model
from fedchain.learning.worker.model_file import (
    read_model,
    state_of,
    state_of_checkpoint,
    state_of_knowledge,
    write_model,
)
from tests.support.learning.federation import Federation, config, with_norm


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
    state = state_of(module)
    read = read_model(write_model(state, {"round": "3"}))
    assert {name: (value.dtype, value.tolist()) for name, value in read.items()} == {
        name: (value.dtype, value.tolist()) for name, value in module.state_dict().items()
    }
    with torch.no_grad():
        first.weight.add_(1)
    assert not torch.equal(state["0.weight"], first.weight)
    with pytest.raises(ConfigurationError, match="4 bytes are no safetensors file"):
        read_model(b"what")
