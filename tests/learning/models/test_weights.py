"""Weights from a file: the published names, and each way in which a file can be wrong, in words of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.weights import hash_file, hash_tensors, head_names, load_weights, validate_file

State = dict[str, torch.Tensor]


def of_a_block(width: int, before: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for place, channels in ((1, before), (2, width)):
        shapes[f"conv{place}.weight"] = (width, channels, 3, 3)
        shapes |= of_a_norm(f"bn{place}", width)
    if before != width:
        shapes["downsample.0.weight"] = (width, before, 1, 1)
        shapes |= of_a_norm("downsample.1", width)
    return shapes


def of_a_norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{part}": (width,) for part in parts} | {f"{name}.num_batches_tracked": ()}


TORCHVISION = {"conv1.weight": (64, 3, 7, 7)} | of_a_norm("bn1", 64)
"""The state of torchvision's resnet18."""
for layer, (before, width) in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), 1):
    for block, channels in enumerate((before, width)):
        TORCHVISION |= {f"layer{layer}.{block}.{name}": of for name, of in of_a_block(width, channels).items()}
TORCHVISION |= {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def save(path: Path, state: State) -> Path:
    safetensors.torch.save_file(state, path)
    return path


def drawn(shapes: dict[str, tuple[int, ...]]) -> State:
    generator = torch.Generator().manual_seed(3)
    return {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}


def test_resnet18_takes_a_file_with_torchvisions_names(tmp_path: Path) -> None:
    given = drawn(TORCHVISION)
    path = save(tmp_path / "resnet18.safetensors", given)
    model = build_model("resnet18", 0, classes=1000, channels=3)
    load_weights(model, path, new_head=False)
    assert all(torch.equal(value, given[name].to(value.dtype)) for name, value in model.state_dict().items())
    small = build_model("resnet18", 0, classes=10, channels=3)
    own = small.state_dict()["fc.weight"].clone()
    with pytest.raises(
        ConfigurationError,
        match=r"fc.weight: \(10, 512\) expected, as the model has it, found \(1000, 512\); weights_head",
    ):
        load_weights(small, path, new_head=False)
    load_weights(small, path, new_head=True)
    assert torch.equal(small.state_dict()["fc.weight"], own)
    assert torch.equal(small.state_dict()["conv1.weight"], given["conv1.weight"])


def renamed(state: State) -> State:
    return {name.replace("hidden.0.weight", "hidden.0.w"): value for name, value in state.items()}


def reshaped(state: State) -> State:
    return state | {"hidden.0.weight": state["hidden.0.weight"].T.contiguous()}


def longer(state: State) -> State:
    return state | {"more.weight": torch.zeros(1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed, "hidden.0.weight: (200, 784) expected, as the model has it, found no such tensor"),
        (reshaped, "hidden.0.weight: (200, 784) expected, as the model has it, found (784, 200)"),
        (longer, "more.weight: no such tensor expected, as the model has it, found"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_the_first_name_that_differs(
    change: Callable[[State], State], message: str, tmp_path: Path
) -> None:
    model = build_model("mlp", 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    path = save(tmp_path / "other.safetensors", change(build_model("mlp", 1).state_dict()))
    with pytest.raises(ConfigurationError) as caught:
        load_weights(model, path, new_head=False)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_file_that_is_cut_off_or_missing_or_another_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", build_model("mlp", 1).state_dict())
    digest = hash_file(path)
    validate_file(path, digest)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigurationError, match="are no sound safetensors file"):
        load_weights(build_model("mlp", 0), path, new_head=False)
    with pytest.raises(ConfigurationError, match=f"the federation begins with {digest}"):
        validate_file(path, digest)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        hash_file(tmp_path / "none.safetensors")


def test_weights_that_nobody_could_train_are_refused(tmp_path: Path) -> None:
    model = build_model("logistic", 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for wrong in (torch.nan, torch.inf):
        given = {name: torch.zeros_like(value) for name, value in before.items()}
        given["fc.bias"][3] = wrong
        path = save(tmp_path / "wrong.safetensors", given)
        with pytest.raises(ConfigurationError, match=r"wrong.safetensors: fc.bias holds numbers that are not finite$"):
            load_weights(model, path, new_head=False)
        load_weights(build_model("logistic", 0), path, new_head=True)  # the head is left out
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_file_may_have_numbers_of_another_type_that_the_models_can_be(tmp_path: Path) -> None:
    given = build_model("mlp-bn", 1).state_dict()
    for kind in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float64):
        model = build_model("mlp-bn", 0)
        load_weights(
            model, save(tmp_path / "other.safetensors", {k: v.to(kind) for k, v in given.items()}), new_head=False
        )
        for name, value in model.state_dict().items():
            assert torch.equal(value, given[name].to(kind).to(value.dtype))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.full((10,), 1e300, dtype=torch.float64), "numbers that are not finite as torch.float32"),
        (torch.ones(10, dtype=torch.int8), "torch.int8, where the model has torch.float32"),
        (torch.ones(10, dtype=torch.bool), "torch.bool, where the model has torch.float32"),
        (torch.ones(10, dtype=torch.complex64), "torch.complex64, where the model has torch.float32"),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_numbers_that_the_model_cannot_have_are_refused(wrong: torch.Tensor, message: str, tmp_path: Path) -> None:
    model = build_model("logistic", 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    path = save(tmp_path / "other.safetensors", build_model("logistic", 1).state_dict() | {"fc.bias": wrong})
    with pytest.raises(ConfigurationError, match=rf"other.safetensors: fc.bias holds {message}$"):
        load_weights(model, path, new_head=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_head_is_the_last_linear_layer() -> None:
    assert head_names(build_model("mlp", 0)) == {"fc.weight", "fc.bias"}
    assert head_names(build_model("vit-tiny", 0)) == {"head.weight", "head.bias"}
    assert head_names(torch.nn.Conv2d(1, 1, 1)) == frozenset()


def test_the_hash_of_tensors_is_that_of_names_types_shapes_and_values_in_any_order() -> None:
    tensors = {"a": torch.zeros(2, 3), "b": torch.ones((), dtype=torch.bfloat16)}
    digest = hash_tensors(tensors)
    assert hash_tensors(dict(reversed(tensors.items()))) == digest
    assert hash_tensors(tensors | {"a": torch.zeros(3, 2).T}) == digest, "whatever the layout in memory"
    others = [{"a": torch.zeros(3, 2)}, {"a": -torch.zeros(2, 3)}, {"b": torch.ones(())}, {"c": torch.zeros(0)}]
    assert len({digest, *(hash_tensors(tensors | other) for other in others)}) == 5
