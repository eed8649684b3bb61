"""Weights that models begin with, from a safetensors file by the model's own names, such as torchvision's or timm's."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from torch import nn

from fedchain.learning.exceptions import ConfigurationError


def validate_file(path: Path, expected_hash: str) -> None:
    """Raise `ConfigurationError` unless the file's SHA-256, in hexadecimal, is the expected one."""
    found = hash_file(path)
    if found != expected_hash:
        raise ConfigurationError(f"weights {path} have SHA-256 {found}, the federation begins with {expected_hash}")


def hash_file(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal; raises `ConfigurationError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"weights {path} cannot be read: {error.strerror}") from error


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what tells a file from another that takes its place; empty if there is none.

    Bytes are not read: only their owner could write others in place with the same size and time.
    """
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def hash_tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of tensors, in hexadecimal: of their names, types, shapes and values, by name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_weights(model: nn.Module, path: Path, *, new_head: bool) -> None:
    """Give a model the file's weights; with `new_head` its last layer keeps those that it has.

    Raises `ConfigurationError`, which names the first tensor that differs, or that nobody could train, and leaves the
    model as it was.
    """
    own = model.state_dict()
    head = head_names(model) if new_head else frozenset()
    wanted = {name: tuple(value.shape) for name, value in own.items() if name not in head}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name not in head]  # noqa: SIM118 - it is no mapping
            misfit = find_misfit(wanted, {name: tuple(file.get_slice(name).get_shape()) for name in names})
            if misfit is not None:
                hint = "; weights_head = new leaves the last layer out" if misfit.name in head_names(model) else ""
                raise ConfigurationError(f"weights {path}: {misfit}{hint}")
            for name in wanted:
                try:
                    _as_typed(file.get_tensor(name), own[name].dtype)
                except ValueError as error:
                    raise ConfigurationError(f"weights {path}: {name} holds {error}") from None
            with torch.no_grad():
                for name in wanted:
                    own[name].copy_(_as_typed(file.get_tensor(name), own[name].dtype))
    except (safetensors.SafetensorError, OSError) as error:
        raise ConfigurationError(f"weights {path} are no sound safetensors file: {error}") from error


def _as_typed(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a file's tensor in a model's type, which may round it. Raises ValueError, which says what the tensor
    holds, for integers or complex numbers that a real number cannot be, and for numbers that are not finite then."""
    if value.is_complex() or (dtype.is_floating_point and not value.is_floating_point()):
        raise ValueError(f"{value.dtype}, where the model has {dtype}")
    if not bool(torch.isfinite(value.to(dtype if dtype.is_floating_point else torch.float64)).all()):
        raise ValueError("numbers that are not finite" + (f" as {dtype}" if value.dtype != dtype else ""))
    return value.to(dtype)


Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of tensors by name."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A tensor that keeps others from being a model's; a shape is None where there is no such tensor."""

    name: str
    expected: tuple[int, ...] | None
    found: tuple[int, ...] | None

    def __str__(self) -> str:
        wanted, had = ("no such tensor" if shape is None else shape for shape in (self.expected, self.found))
        return f"{self.name}: {wanted} expected, as the model has it, found {had}"


def find_misfit(expected: Shapes, found: Shapes) -> Misfit | None:
    """Return the first tensor that a model has otherwise, in the model's order and then in that of those given."""
    for name in (*expected, *found):
        if expected.get(name) != found.get(name):
            return Misfit(name, expected.get(name), found.get(name))
    return None


def head_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the last linear layer's tensors, which make the logits."""
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    if not layers:
        return frozenset()
    name, layer = layers[-1]
    return frozenset(f"{name}.{key}" for key in layer.state_dict())
