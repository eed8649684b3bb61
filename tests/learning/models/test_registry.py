import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.registry import build_model, describe_model


@pytest.mark.parametrize(("name", "parameters", "embedding"), [("cnn", 21_840, 50), ("digits-mlp", 6_570, 32)])
def test_the_number_of_parameters(name: str, parameters: int, embedding: int) -> None:
    info = describe_model(name)
    assert info.parameter_count == parameters
    assert sum(value.numel() for value in build_model(name, 0).parameters()) == parameters
    assert info.embedding_size == embedding


@pytest.mark.parametrize(("name", "side"), [("cnn", 28), ("digits-mlp", 8)])
def test_the_model_returns_a_nonnegative_embedding_and_logits(name: str, side: int) -> None:
    model = build_model(name, 0)
    embedding, logits = model(torch.randn(5, 1, side, side))
    assert embedding.shape == (5, model.embedding_size)
    assert logits.shape == (5, model.classes)
    assert (embedding >= 0).all()


def test_the_initial_model_depends_on_the_seed_alone() -> None:
    def parameters(seed: int) -> torch.Tensor:
        return torch.cat([value.flatten() for value in build_model("cnn", seed).parameters()])

    state = torch.get_rng_state()
    first = parameters(1)
    torch.rand(3)
    assert torch.equal(first, parameters(1))
    assert not torch.equal(first, parameters(2))
    torch.set_rng_state(state)
    build_model("cnn", 5)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'cnn'"):
        build_model("cnnn", 0)
