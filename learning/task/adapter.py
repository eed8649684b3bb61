"""A user's module as methods want it: one tensor in, (embedding, logits) out. Its parameters keep their names.

Hooks do it, which stand around the module's own `forward` and can be taken away again. B batch, C classes, D embedding,
L tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.learning.models.model_info import InputField
from fedchain.learning.task.examples import type_named

EMBEDDING_NAMES = ("embedding", "embeddings", "pooler_output", "last_hidden_state", "hidden_states")
"""Where an output that has names may have the embedding; the first of them that is there counts."""

_MASK = "attention_mask"


@dataclass(frozen=True, slots=True)
class Output:
    """A model's output for B inputs."""

    embedding: torch.Tensor | None
    """(B, D), or None where it gives none."""

    logits: torch.Tensor
    """(B, C)."""


def read_output(output: Any, inputs: Mapping[str, Any]) -> Output | None:
    """Read a module's output for inputs that have names, or for {}; None if it cannot be read.

    It is a pair (embedding, logits), the logits alone, or has `logits` and perhaps an embedding (`EMBEDDING_NAMES`) by
    name, as Hugging Face's models. If there are hidden states of the last layer (B, L, D), the embedding is their mean
    over the tokens that the attention mask (B, L) leaves, or over all without a mask.
    """
    if isinstance(output, torch.Tensor):
        return Output(None, output)
    if isinstance(output, tuple) and not hasattr(output, "_fields"):
        pair = [part for part in output if isinstance(part, torch.Tensor)]
        return Output(pair[0], pair[1]) if len(pair) == len(output) == 2 else None
    logits = _named(output, "logits")
    if not isinstance(logits, torch.Tensor):
        return None
    found = next((value for name in EMBEDDING_NAMES if (value := _named(output, name)) is not None), None)
    if isinstance(found, Sequence):  # of each layer
        found = found[-1] if found else None
    if not isinstance(found, torch.Tensor):
        return Output(None, logits)
    return Output(_mean_over_tokens(found, inputs.get(_MASK)) if found.ndim == 3 else found, logits)


def describe_output(output: Any) -> str:
    """Describe a module's output for people: its tensors' shapes, or its type."""
    sizes = [tuple(part.shape) for part in output if isinstance(part, torch.Tensor)] if type(output) is tuple else []
    if isinstance(output, torch.Tensor):
        return f"a tensor {tuple(output.shape)}"
    return str(sizes) if sizes and len(sizes) == len(output) else type(output).__name__


def adapt(module: nn.Module, fields: Sequence[InputField], inputs: torch.Tensor) -> Output | str:
    """Try the module on a few inputs, and hook it, so that it takes them and returns (embedding, logits) from then on.

    A module that gives no embedding gets the logits in its place; the output that is returned says so. One that changes
    its inputs in place gets copies. If the output cannot be read, the answer describes it, for people. The module's own
    errors pass.
    """
    tried = inputs.clone()
    if fields:
        unpack_hook = module.register_forward_pre_hook(_Unpack(tuple(fields)), with_kwargs=True)
    with torch.no_grad():
        raw = module(tried)
    output = read_output(raw, unpack(inputs, fields) if fields else {})
    if output is None:
        if fields:
            unpack_hook.remove()
        return describe_output(raw)
    if not isinstance(raw, tuple) or hasattr(raw, "_fields"):
        module.register_forward_hook(_Pair(output.embedding is not None), with_kwargs=True)
    if tried._version:  # torch counts changes
        module.register_forward_pre_hook(_copy, prepend=True)
    return output


def unpack(inputs: torch.Tensor, fields: Sequence[InputField]) -> dict[str, torch.Tensor]:
    """Return the fields (B, ...) of inputs (B, F) by name, each of its own type."""
    sizes = [math.prod(field.shape) for field in fields]
    parts = torch.split(inputs, sizes, dim=1)
    return {
        field.name: part.reshape(len(inputs), *field.shape).to(type_named(field.type))
        for field, part in zip(fields, parts, strict=True)
    }


@dataclass(frozen=True, slots=True)
class _Unpack:
    """A hook before `forward`: one tensor becomes the fields; a call that gives fields by name stays as it is."""

    fields: tuple[InputField, ...]

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        return ((), unpack(args[0], self.fields)) if len(args) == 1 and not kwargs else None


def _copy(module: nn.Module, args: Any) -> Any:
    """A hook before all others: batches are views of a client's examples."""
    return tuple(arg.clone() for arg in args)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A hook behind `forward`. Where nobody reads the embedding and there is none, the logits stand in its place."""

    has_embedding: bool
    """Whether the output that was tried had one. Two tensors of a model without are no embedding and logits, but logits
    and those of a second head, as some models return them in training."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> tuple[torch.Tensor, torch.Tensor]:
        read = read_output(output, kwargs)
        if read is None or (type(output) is tuple and not self.has_embedding):
            tried = "embedding and logits" if self.has_embedding else "logits alone"
            mode = "training" if module.training else "evaluation"
            raise OwnCodeFailed(
                f"the model returned {tried} when it was tried, and {describe_output(output)} in {mode}; it must "
                "return the same in both"
            )
        return (read.logits if read.embedding is None else read.embedding), read.logits


def _named(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _mean_over_tokens(states: torch.Tensor, mask: Any) -> torch.Tensor:
    """Return the mean (B, D) of hidden states (B, L, D)."""
    if not isinstance(mask, torch.Tensor) or mask.shape != states.shape[:2]:
        return states.mean(dim=1)
    weights = mask.to(states.dtype).unsqueeze(2)  # (B, L, 1)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
