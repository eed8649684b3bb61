"""Where training computes: the processor, on one thread, or a graphics card, with kernels that repeat.

A client's model and examples are the processor's, and so is all that a method does around its training. A card has them
while the model is trained or looks at a whole set of examples.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fedchain.learning.exceptions import ConfigurationError

DEVICE = "cpu"
"""Where models and examples are."""

THREADS = 1
"""Threads of torch while a client works: sums come in one order whatever the machine, and processes share its cores."""

ASK_S = 20.0
"""How long a card's driver has to say what it is."""

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


class _Here:
    """This process."""

    device = torch.device(DEVICE)


def find_device(wanted: str) -> torch.device:
    """Return the device that a setting names: cpu, cuda, cuda:N, or auto, which is a card where there is one.

    Cards are counted without opening any: a process that has opened one cannot fork others that use it. Raises
    `ConfigurationError` for a name of nothing, or of what this machine has not.
    """
    if not re.fullmatch(r"cpu|auto|cuda(:\d{1,3})?", wanted):
        raise ConfigurationError(f"device is {wanted!r}, it must be cpu, cuda, cuda:1 (a card by its number) or auto")
    if wanted == "cpu":
        return torch.device("cpu")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    cards = torch.cuda.device_count()
    if wanted == "auto":
        return torch.device("cuda", 0) if cards else torch.device("cpu")
    number = int(wanted.partition(":")[2] or 0)
    if number >= cards:
        seen = f"torch {torch.__version__} sees {cards or 'no'} graphics card{'' if cards == 1 else 's'} here"
        raise ConfigurationError(f"device is {wanted}, but {seen}; take cpu, or auto")
    return torch.device("cuda", number)


def describe_device(device: torch.device) -> Mapping[str, str]:
    """Say what results depend on: device and torch, and of a card its name and driver; without opening the card."""
    said = {"device": str(device), "torch": torch.__version__}
    if device.type == "cpu":
        return said
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    number = device.index or 0
    card = visible[number] if number < len(visible) else str(number)
    command = ["nvidia-smi", f"--id={card}", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        found = ""
    name, _, driver = found.strip().partition(", ")
    return said | {"card": name or "unknown", "driver": driver or "unknown"}


def device_in_use() -> torch.device:
    """Where this process computes."""
    return _Here.device


def use_threads() -> None:
    """Keep to that many threads in this process. Before a fork, too: a child cannot use its parent's OpenMP threads."""
    torch.set_num_threads(THREADS)


@contextmanager
def kept_generator() -> Iterator[None]:
    """Leave torch's generator as it was."""
    before = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def in_float32() -> Iterator[None]:
    """Compute in float32 whatever a notebook or a task's file has set: new numbers are of that type, products of
    matrices keep all of its bits, and where nothing else is said new numbers are on the processor and have gradients.
    Leave torch's settings as they were.
    """
    # A new tensor is on the default device. torch 2.6 cannot say which that is once it was set to None.
    kind, place = torch.get_default_dtype(), torch.tensor([]).device
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # it is another one on each kind of device, which torch tells by other names
        precision = ""
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    if precision:
        torch.set_float32_matmul_precision("highest")
    try:
        with torch.enable_grad():
            yield
    finally:
        if precision:
            torch.set_float32_matmul_precision(precision)
        torch.set_default_device(None if place.type == DEVICE else place)
        torch.set_default_dtype(kind)


@contextmanager
def as_training(device: torch.device) -> Iterator[None]:
    """Compute as a training process does on a device, and leave torch's generator, threads and settings as they were.

    On a card the same numbers give the same sums each time.
    """
    threads, before = torch.get_num_threads(), _Here.device
    with kept_generator(), in_float32(), nullcontext() if device.type == "cpu" else _repeating():
        use_threads()
        _Here.device = device
        try:
            yield
        finally:
            _Here.device = before
            torch.set_num_threads(threads)


@contextmanager
def _repeating() -> Iterator[None]:
    """Have a card's kernels repeat. cuBLAS reads its setting when the card is opened.

    Torch would also fill each new tensor before a kernel writes it, up to a fifth of a step: that is for programs that
    read what nothing has written, which repeat on no processor either.
    """
    is_on, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    allow_tf32, workspace = torch.backends.cudnn.allow_tf32, os.environ.get(_WORKSPACE)
    filling: Any = torch.utils.deterministic  # whose attribute torch does not declare
    fills = filling.fill_uninitialized_memory
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.allow_tf32 = False
    filling.fill_uninitialized_memory = False
    try:
        yield
    finally:
        filling.fill_uninitialized_memory = fills
        torch.backends.cudnn.allow_tf32 = allow_tf32
        torch.use_deterministic_algorithms(is_on, warn_only=warns)
        if workspace is None:
            os.environ.pop(_WORKSPACE, None)
