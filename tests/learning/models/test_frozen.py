"""A backbone that stands still: the same everywhere, looked through once, and in no post and no checkpoint."""

import pytest
import torch

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.frozen import FEATURES, FrozenHead, build_backbone
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import Federation

MIXED = LearningConfig(method="dfpl", model="frozen-2+frozen-3", clients=3, hyperparameters={"local_steps": 2})


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 32)])
def test_the_backbone_is_the_same_in_every_process_and_draws_nothing(channels: int, size: int) -> None:
    images, state = torch.randn(3, channels, size, size), torch.random.get_rng_state()
    build_backbone.cache_clear()
    first = FrozenHead(channels=channels, size=size).features(images)
    build_backbone.cache_clear()
    assert torch.equal(FrozenHead(channels=channels, size=size).features(images), first)
    assert first.shape == (3, FEATURES)
    assert not first.requires_grad
    build_backbone.cache_clear()
    torch.random.set_rng_state(state)
    build_backbone(channels, size)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_embeddings_are_unit_vectors_and_features_stand_for_images() -> None:
    model, images = build_model("frozen-2", 0, classes=10, channels=1, size=8), torch.randn(5, 1, 8, 8)
    embedding, logits = model(images)
    assert torch.allclose(embedding.norm(dim=1), torch.ones(5))
    assert isinstance(model, FrozenHead)
    again = model(model.features(images))
    assert torch.equal(again[0], embedding)
    assert torch.equal(again[1], logits)
    assert not any("backbone" in name for name, _ in describe_model("frozen-2").parameters)


def test_a_learner_looks_through_the_backbone_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[int]()
    seen = FrozenHead.features

    def counting(model: FrozenHead, images: torch.Tensor) -> torch.Tensor:
        looked.append(len(images))
        return seen(model, images)

    monkeypatch.setattr(FrozenHead, "features", counting)
    learner = Learner(MIXED)
    for number in (1, 2, 3):
        learner.contribute(0, "update", number, b"", evaluate_test=True)
    client = learner.client(0)
    assert looked == [len(client.train_labels), len(client.test_labels), 355]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_whoever_is_measured_first_others_look_at_the_test_set_in_their_own_way(order: tuple[int, int]) -> None:
    mixed = LearningConfig(method="solo", model="digits-mlp+frozen-2", clients=2, hyperparameters={"local_steps": 2})
    together = Learner(mixed)
    for client in order:
        alone = Learner(mixed).contribute(client, "update", 1, b"", evaluate_test=True)
        assert together.contribute(client, "update", 1, b"", evaluate_test=True).local == alone.local


def test_clients_with_different_heads_share_prototypes() -> None:
    federation = Federation(MIXED)
    federation.play(2)
    assert [len(federation.client(client).info.parameters) for client in range(3)] == [4, 6, 4]
    assert federation.known()["prototypes"].shape[1] == 64
    saved = federation.learner.checkpoint(1)
    other = Learner(MIXED)
    other.restore(1, saved)
    assert other.checkpoint(1) == saved
    with pytest.raises(ConfigurationError, match="checkpoint of client 0 must hold"):
        other.restore(0, saved)


def test_models_of_different_shapes_are_for_prototypes_alone() -> None:
    with pytest.raises(ConfigurationError, match=r"fedavg averages parameters, which frozen-2\+frozen-3 do not have"):
        LearningConfig(method="fedavg", model="frozen-2+frozen-3").validate()
    LearningConfig(method="solo", model="frozen-2+frozen-3").validate()
    with pytest.raises(
        ConfigurationError, match="need embeddings of one width, but frozen-2 has 64, digits-mlp has 32"
    ):
        Learner(LearningConfig(model="frozen-2+digits-mlp"))
    with pytest.raises(ConfigurationError, match="augmentation crop-flip is not for frozen-2: its backbone looks once"):
        LearningConfig(model="frozen-2", augmentation="crop-flip").validate()


def test_a_random_backbone_tells_images_apart() -> None:
    coarse = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.interpolate(coarse, size=(28, 28))
    features = FrozenHead(channels=1, size=28).features(images)
    cosines = (features @ features.T / FEATURES)[~torch.eye(40, dtype=torch.bool)]
    assert cosines.mean() < 0.6
