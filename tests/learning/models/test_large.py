import pytest
import torch

from fedchain.learning.models.large import CovidCnn
from fedchain.learning.models.registry import MODELS, build_model, describe_model
from tests.support.paths import DOCS

COUNTS = {  # parameters, embedding, and what build_model is told besides the name
    "resnet18": (11_689_512, 512, {"classes": 1000}),
    "resnet18-200": (11_281_122, 200, {}),
    "plain-cnn": (16 * 9 + 16 + 32 * 16 * 9 + 32 + 64 * 32 * 9 + 64 + 64 * 10 + 10, 64, {}),
    "resnet18-plain": (11_169_162, 512, {}),
    "resnet18-plain-16": (700_266, 128, {}),
    "fedreg-cnn": (228_010, 256, {}),
    "fixup-resnet9": (6_568_673, 512, {}),
    "covid-cnn": (15_676_418, 42 * 42 * 512, {}),
    "resnet2-56": (634, 16, {}),
    "resnet4-56": (5_306, 16, {}),
    "resnet8-56": (10_586, 64, {}),
    "resnet10-56": (9_978, 16, {}),
    "resnet12-56": (9_978, 16, {}),
    "split-mlp-1": (1_116, 14, {"classes": 5}),
    "split-mlp-2": (1_338, 12, {"classes": 5}),
    "split-mlp-3": (1_868, 15, {"classes": 5}),
    "mlp": (784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10, 200, {}),
    "mlp-bn": (784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10 + 2 * 400, 200, {}),
    "cnn-narrow": (9_950, 50, {}),
    "cnn-wide": (53_120, 50, {}),
    "mlp-50": (784 * 200 + 200 + 200 * 50 + 50 + 50 * 10 + 10, 50, {}),
    "mlp-bn-50": (183_360, 50, {}),
    "mlp-linear": (25_450, 32, {}),
    "logistic": (784 * 10 + 10, 10, {}),
    "digits-mlp-bn": (6_570 + 2 * (64 + 32), 32, {}),
    "vit-tiny": (5_526_346, 192, {}),
    "frozen-2": (512 * 64 + 64 + 64 * 6 + 6, 64, {"classes": 6}),
    "frozen-3": (512 * 128 + 128 + 128 * 64 + 64 + 64 * 6 + 6, 64, {"classes": 6}),
}

INPUTS = {  # channels and side of the images
    "resnet18": (3, 32),
    "resnet18-200": (3, 32),
    "plain-cnn": (1, 28),
    "resnet18-plain": (3, 32),
    "resnet18-plain-16": (1, 28),
    "fedreg-cnn": (1, 28),
    "fixup-resnet9": (3, 32),
    "resnet2-56": (3, 32),
    "resnet4-56": (1, 28),
    "resnet8-56": (3, 32),
    "mlp": (1, 28),
    "mlp-bn": (1, 28),
    "cnn-narrow": (1, 28),
    "cnn-wide": (1, 28),
    "mlp-50": (1, 28),
    "mlp-bn-50": (1, 28),
    "mlp-linear": (1, 28),
    "digits-mlp-bn": (1, 8),
    "frozen-2": (1, 8),
    "frozen-3": (1, 8),
}


def test_every_network_is_counted() -> None:
    assert COUNTS.keys() == MODELS.keys() - {"cnn", "digits-mlp"}, "the small ones are counted beside them"


def test_the_page_of_methods_has_the_same_numbers() -> None:
    rows = (DOCS / "methods.md").read_text(encoding="utf-8").split("## Networks")[1].split("\n| ")
    for name, (parameters, embedding, _) in COUNTS.items():
        one_of = name if f"`{name}`" in "".join(rows) else name.replace(name[-2:], "-1")  # `split-mlp-1`, `-2`, `-3`
        (row,) = (row for row in rows if f"`{one_of}`" in row.split("|")[0])
        assert f"{parameters:,}" in row.split("|")[2], name
        assert f"{embedding:,}" in row.split("|")[3], name


@pytest.mark.parametrize("name", COUNTS)
def test_the_number_of_parameters_is_the_papers(name: str) -> None:
    parameters, embedding, shape = COUNTS[name]
    info = describe_model(name, **shape)
    assert info.parameter_count == parameters
    assert info.embedding_size == embedding
    assert info.classes == shape.get("classes", 2 if name == "covid-cnn" else 10)


@pytest.mark.parametrize("name", INPUTS)
def test_a_network_takes_other_classes_and_channels(name: str) -> None:
    _, side = INPUTS[name]
    channels = 2
    model = build_model(name, 0, classes=47, channels=channels).eval()
    images = torch.randn(2, channels, side, side)
    with torch.no_grad():
        layers, logits = model.layers(images)
        embedding, again = model(images)
    assert logits.shape == (2, 47)
    assert model.classes == 47
    assert embedding.shape == (2, model.embedding_size)
    assert torch.equal(embedding, layers[-1])
    assert torch.equal(logits, again)
    assert all(layer.dim() == 2 and torch.isfinite(layer).all() for layer in layers)


def test_the_ct_network_shrinks_with_its_images() -> None:
    model = CovidCnn(size=9)
    layers, logits = model.layers(torch.randn(1, 3, 9, 9))
    assert len(layers) == 9
    assert layers[-1].shape == (1, 9 * 512)
    assert logits.shape == (1, 2)


def test_batch_normalization_is_known_by_name() -> None:
    info = describe_model("digits-mlp-bn")
    kinds = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert info.normalization == {f"norms.{place}.{kind}" for place in (0, 1) for kind in kinds}
    assert {name for name, _ in info.parameters} - info.trainable == {
        f"norms.{place}.{kind}" for place in (0, 1) for kind in kinds[2:]
    }
