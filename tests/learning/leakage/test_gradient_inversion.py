"""The post of a step gives away the gradient, the labels, and the image."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.leakage.descent import PixelRange, Search, draw_start
from fedchain.learning.leakage.gradient_inversion import (
    expect_fedreg_step,
    expect_plain_step,
    has_closed_form,
    head_gradient,
    invert_gradient,
    read_gradient,
    read_input,
    recover_labels,
)
from fedchain.learning.leakage.quality import psnr
from fedchain.learning.methods.fedreg import FedReg
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.small import Cnn
from fedchain.learning.models.vectors import gradient_vector
from fedchain.simulator.leakage.federation import Federation, Handful, Seen, common_model
from fedchain.simulator.scenario import Scenario

PIXELS = PixelRange(torch.tensor(-1.0), torch.tensor(1.0))
SHAPE = (1, 8, 8)


def step_of(method: str, batch_size: int = 1, **settings: float | bool) -> tuple[Federation, Seen]:
    """A real client's post of one step, in round 1."""
    step = {"batch_size": batch_size, "local_steps": 1, **settings}
    scenario = Scenario(method=method, peers=2, partition="iid", hyperparameters=step)
    federation = Federation(scenario, lambda source: Handful(source, batch_size))
    return federation, federation.watch(0, 1, b"")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {}),
        ("fedavg", {"weight_decay": 0.1}),
        ("fedprox", {}),
        ("fedreg", {}),
        ("fedreg", {"modified_gradient": True}),
    ],
)
def test_what_an_attacker_expects_of_the_true_images_is_what_was_posted(
    method: str, settings: dict[str, float | bool]
) -> None:
    federation, seen = step_of(method, batch_size=3, **settings)
    common = common_model(federation.learner, federation.rules, 1, 1, b"")
    own = federation.learner.method
    assert isinstance(own, LocalSgdMethod)
    gradient = read_gradient(seen.posted, common, own.schedule_in(1))
    if isinstance(own, FedReg):
        expected = expect_fedreg_step(own, common, seen.dropout_seed)(seen.images, seen.labels)
        plain = expect_plain_step(common, seen.dropout_seed)(seen.images, seen.labels)
        assert not torch.allclose(plain, gradient, atol=1e-2)
    else:
        expected = expect_plain_step(common, seen.dropout_seed)(seen.images, seen.labels)
    assert torch.allclose(expected, gradient, atol=2e-5)


def test_dropout_is_no_secret() -> None:
    model, images = Cnn(), torch.rand((1, 1, 28, 28), generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([3])
    torch.manual_seed(5)
    seen = gradient_vector(F.cross_entropy(model.train()(images)[1], labels), model)
    assert torch.equal(expect_plain_step(model, 5)(images, labels), seen)
    assert not torch.allclose(expect_plain_step(model, 6)(images, labels), seen)


@pytest.mark.parametrize("labels", [[7], [2, 2, 9], [0, 1, 2, 3]])
def test_labels_are_read_from_the_bias_of_the_head(labels: list[int]) -> None:
    model = build_model("digits-mlp", 0)
    images = torch.randn((len(labels), *SHAPE), generator=torch.Generator().manual_seed(0))
    loss = F.cross_entropy(model(images)[1], torch.tensor(labels))
    gradient = gradient_vector(loss, model)
    assert recover_labels(gradient, model, len(labels)).tolist() == labels


def test_without_a_bias_the_weights_of_the_head_tell() -> None:
    model = build_model("digits-mlp", 0)
    model.fc3.register_parameter("bias", None)  # type: ignore[union-attr]
    images = torch.randn((1, *SHAPE), generator=torch.Generator().manual_seed(0))
    gradient = gradient_vector(F.cross_entropy(model(images)[1], torch.tensor([4])), model)
    assert head_gradient(gradient, model).shape == (10,)
    assert recover_labels(gradient, model, 1).tolist() == [4]


def test_the_input_of_a_linear_layer_is_read_off() -> None:
    model = build_model("digits-mlp", 0)
    image = torch.randn((1, *SHAPE), generator=torch.Generator().manual_seed(0))
    gradient = gradient_vector(F.cross_entropy(model(image)[1], torch.tensor([4])), model)
    assert torch.allclose(read_input(gradient, model, SHAPE), image, atol=1e-4)
    assert has_closed_form(model, 1)
    assert not has_closed_form(model, 2)
    assert not has_closed_form(Cnn(), 1)


@pytest.mark.parametrize("objective", ["cosine", "l2"])
def test_an_image_is_found_behind_its_gradient(objective: str) -> None:
    model = build_model("digits-mlp", 0)
    image = torch.rand((1, *SHAPE), generator=torch.Generator().manual_seed(3)) * 2 - 1
    label = torch.tensor([4])
    gradient = gradient_vector(F.cross_entropy(model(image)[1], label), model)
    search, expected = Search(iterations=200, total_variation=0.0), expect_plain_step(model, 0)

    def found(steps: int) -> float:
        generator = torch.Generator().manual_seed(0)
        images = invert_gradient(
            gradient,
            label,
            expected,
            objective,  # type: ignore[arg-type]
            draw_start(1, PIXELS, SHAPE, generator),
            PIXELS,
            replace(search, iterations=steps),
        )
        return psnr(PIXELS.to_pixels(images), PIXELS.to_pixels(image)).item()

    assert found(1) < 12, "where it starts"
    assert found(200) > 30
