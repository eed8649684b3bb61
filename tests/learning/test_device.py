"""Training leaves the process as it found it: torch's generator, its threads, and what numbers it makes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedchain.learning.device import (
    THREADS,
    as_training,
    describe_device,
    device_in_use,
    find_device,
    in_float32,
    kept_generator,
)
from fedchain.learning.exceptions import ConfigurationError


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def fail_in_training() -> None:
    """Fail after having drawn a number."""
    with as_training(torch.device("cpu")):
        assert torch.get_num_threads() == THREADS
        torch.rand(3)
        raise ZeroDivisionError


def test_the_generator_goes_on_as_if_nobody_had_drawn() -> None:
    state = torch.get_rng_state()
    with kept_generator():
        torch.rand(3)
        assert not torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_come_back_even_if_training_fails(two_threads: None) -> None:
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        fail_in_training()
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def other_numbers() -> Iterator[None]:
    """Numbers as notebooks want them for themselves."""
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    yield
    torch.set_grad_enabled(True)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")
    torch.set_default_dtype(torch.float32)


def test_training_is_in_whole_float32_whatever_the_process_has_set(other_numbers: None) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_in_training()
    with as_training(torch.device("cpu")):
        assert (torch.get_default_dtype(), torch.get_float32_matmul_precision()) == (torch.float32, "highest")
        assert (torch.rand(1).device.type, torch.is_grad_enabled()) == ("cpu", True)
    assert (torch.rand(1).device.type, torch.is_grad_enabled()) == ("meta", False)
    assert (torch.get_default_dtype(), torch.get_float32_matmul_precision()) == (torch.float64, "medium")


def test_precisions_that_torch_tells_by_other_names_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*precision: str) -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", refuse)
    with in_float32():
        assert torch.get_default_dtype() == torch.float32


def test_a_device_is_the_processor_a_card_or_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = {name: str(find_device(name)) for name in ("cpu", "cuda", "cuda:1", "auto")}
    assert found == {"cpu": "cpu", "cuda": "cuda:0", "cuda:1": "cuda:1", "auto": "cuda:0"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert str(find_device("auto")) == "cpu"


@pytest.mark.parametrize(
    ("wanted", "cards", "message"),
    [
        ("cuda", 0, "device is cuda, but torch .* sees no graphics cards here; take cpu, or auto"),
        ("cuda:1", 1, "device is cuda:1, but torch .* sees 1 graphics card here; take cpu, or auto"),
        ("gpu", 1, r"device is 'gpu', it must be cpu, cuda, cuda:1 \(a card by its number\) or auto"),
    ],
)
def test_a_device_that_is_not_here_is_refused_in_one_sentence(
    wanted: str, cards: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        find_device(wanted)


def test_a_card_is_described_by_its_name_and_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\n[ "$1" = --id=GPU-b ] && echo "NVIDIA H100, 570.86"\n', encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    torch_is = {"torch": torch.__version__}
    card = {"device": "cuda:1", "card": "NVIDIA H100", "driver": "570.86"}
    assert describe_device(torch.device("cuda", 1)) == card | torch_is
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_device(torch.device("cuda", 1)) == card | torch_is | {"card": "unknown", "driver": "unknown"}
    assert describe_device(torch.device("cpu")) == {"device": "cpu"} | torch_is


def fail_on_a_card(workspace: str) -> None:
    with as_training(torch.device("cuda", 0)):
        assert device_in_use() == torch.device("cuda", 0)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == workspace
        assert not torch.backends.cudnn.allow_tf32
        assert not vars(torch.utils)["deterministic"].fill_uninitialized_memory
        raise ZeroDivisionError


@pytest.mark.parametrize("workspace", [None, ":16:8"])
@pytest.mark.parametrize("is_on", [False, True])
def test_on_a_card_kernels_repeat_and_afterwards_all_is_as_it_was(
    workspace: str | None, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    if workspace is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    try:
        torch.use_deterministic_algorithms(is_on, warn_only=True)
        with pytest.raises(ZeroDivisionError):
            fail_on_a_card(workspace or ":4096:8")
        assert device_in_use() == torch.device("cpu")
        assert torch.are_deterministic_algorithms_enabled() == is_on
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == workspace
        assert torch.backends.cudnn.allow_tf32
        assert vars(torch.utils)["deterministic"].fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(False)
