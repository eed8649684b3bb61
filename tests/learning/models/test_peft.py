"""peft's layers: the adapters that are found are those that peft applies. Without peft: skipped."""

from typing import Any

import pytest
import torch
from torch import nn

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.low_rank import find_low_rank
from fedchain.learning.round import Round
from tests.support.learning.federation import Federation
from tests.support.learning.own_task import config

WHY = "peft and transformers are extras of the package, for which there is make adapters-test"
peft = pytest.importorskip("peft", reason=WHY)
transformers = pytest.importorskip("transformers", reason=WHY)

SIZE = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


def llama(**lora: Any) -> nn.Module:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(intermediate_size=12, **SIZE))
    return adapted(model, **{"target_modules": ["q_proj", "down_proj"], **lora})


def gpt2(**lora: Any) -> nn.Module:
    """Weights are stored as (in, out), and the output layer is the embedding's."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2))
    return adapted(model, **{"target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True, **lora})


def adapted(model: nn.Module, **lora: Any) -> nn.Module:
    found: nn.Module = peft.get_peft_model(model, peft.LoraConfig(**{"r": 2, "lora_alpha": 3, **lora}))
    for name, value in found.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(value)
    return found


@pytest.mark.parametrize("lora", [{}, {"use_rslora": True}, {"rank_pattern": {"down_proj": 3}}], ids=str)
@pytest.mark.parametrize("build", [llama, gpt2])
def test_adapters_are_those_that_peft_adds_to_its_weights(build: Any, lora: dict[str, Any]) -> None:
    model = build(**lora)
    layers, state = find_low_rank(model), model.state_dict()
    assert len(layers) == 2
    for layer in layers:
        place = model.get_submodule(layer.base.removesuffix(".base_layer.weight"))
        product = layer.scale * state[layer.up] @ state[layer.down]
        assert torch.allclose(
            place.get_delta_weight("default"), product.T if layer.is_transposed else product, atol=1e-6
        )
        assert state[layer.base].shape == place.get_delta_weight("default").shape


@pytest.mark.parametrize(
    "lora", [{"use_dora": True}, {"lora_bias": True}, {"target_modules": ["embed_tokens"]}], ids=str
)
def test_adapters_that_are_no_product_alone_are_refused(lora: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="an adapter"):
        find_low_rank(llama(**lora))


class Next(nn.Module):
    """The logits of the token behind a row."""

    def __init__(self, build: Any) -> None:
        super().__init__()
        self.lm = build()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.lm(tokens).logits[:, -1]
        return found


def task(build: Any) -> Any:
    def load(member: int) -> Any:
        generator = torch.Generator().manual_seed(member)
        rows = torch.randint(3 * member, 3 * member + 8, (40, 6), generator=generator)
        return lambda: Next(build), (rows[:, :-1], rows[:, -1]), (rows[:10, :-1], rows[:10, -1])

    return load


def dense(model: Any) -> dict[str, torch.Tensor]:
    """The adapted weights, whole."""
    state, found = model.state_dict(), {}
    for layer in find_low_rank(model):
        product = layer.scale * state[layer.up].double() @ state[layer.down].double()
        found[layer.base] = state[layer.base].double() + (product.T if layer.is_transposed else product)
    return found


@pytest.mark.parametrize("build", [llama, gpt2])
def test_fedex_is_the_dense_mean(build: Any) -> None:
    settings = {"local_steps": 6, "learning_rate": 0.3, "adapters": "fedex", "weighting": "clients"}
    federation = Federation(config("fedavg", hyperparameters=settings), task=task(build))
    made = federation.play(2)
    trained = [dense(federation.client(client).model) for client in range(3)]
    newcomer = federation.new_learner().client(0)
    federation.rules.method.receive(newcomer, Round(3, federation.known()))
    for name, value in dense(newcomer.model).items():
        assert float((value - sum(one[name] for one in trained) / 3).abs().max()) < 1e-6
    assert len(made[0].payload) < 4000, "adapters alone"


@pytest.mark.parametrize("build", [llama, gpt2])
def test_dp_sgd_trains_b_alone(build: Any) -> None:
    settings = {"local_steps": 2, "adapters": "ffa", "gradient_noise": 1.0, "batch_size": 4}
    federation = Federation(config("fedavg", hyperparameters=settings), task=task(build))
    federation.play()
    before, after = federation.new_learner().client(1).model.state_dict(), federation.client(1).model.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {layer.up for layer in find_low_rank(federation.client(1).model)}
