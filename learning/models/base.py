"""The base of every model: images in; the embedding, from which prototypes are made, and the logits out.

B batch, C classes, D embedding.
"""

from collections import OrderedDict
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class Model(nn.Module):
    """Base of the built-in models: images -> (embedding, logits). A user's own model need not state its sizes."""

    embedding_size: int
    """Width D of the embedding."""

    classes: int
    """Number of classes C."""

    feature_shape: tuple[int, ...] | None = None
    """Shape H of the features that `split` gives of one example; None: the model cannot be split."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) of images (B, channels, height, width)."""
        raise NotImplementedError

    def layers(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the outputs (B, D_l) of the layers that can be compared, the embedding last, and the logits (B, C)."""
        embedding, logits = self(images)
        return (embedding,), logits

    def split(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the features (B, *H) of the first layers, which a larger network can learn from, the embedding (B, D)
        and the logits (B, C)."""
        raise NotImplementedError


class LayeredModel(Model):
    """A model whose layers can be compared. Anything that only the comparison needs is made when it is asked for."""

    pools: ClassVar[bool] = False
    """Whether the layers' outputs are averaged over the pixels to be compared, or else flattened."""

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the layers' outputs as they come, the embedding last, and the logits."""
        raise NotImplementedError

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) of images (B, channels, height, width)."""
        outputs, logits = self.outputs(images)
        return outputs[-1], logits

    def layers(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """See `Model.layers`."""
        outputs, logits = self.outputs(images)
        return tuple(self._comparable(output) for output in outputs), logits

    def _comparable(self, output: torch.Tensor) -> torch.Tensor:
        return output.mean(dim=(2, 3)) if self.pools and output.ndim == 4 else output.flatten(1)


def twin_of(model: Model) -> Model:
    """Return a model as its class has made this one, with the same numbers in memory of its own.

    It takes a fifth of the time that `copy.deepcopy` takes, which looks into everything: here only modules, tensors,
    lists, dictionaries and sets are copied. So attributes may not hold tensors or modules that torch knows nothing of.
    """
    return _twin(model, {})  # type: ignore[no-any-return]


def _twin(value: Any, made: dict[int, Any]) -> Any:
    """Return the twin of a module or tensor, the one that was `made` already if it has several names."""
    if value is None:
        return None
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, nn.Parameter):
        other: Any = nn.Parameter(value.detach().clone(), value.requires_grad)
    elif isinstance(value, torch.Tensor):
        other = value.clone()
    else:
        other = object.__new__(type(value))
        for name, attribute in vars(value).items():
            if name in ("_parameters", "_buffers", "_modules"):
                attribute = {key: _twin(item, made) for key, item in attribute.items()}
            elif type(attribute) in (OrderedDict, dict, list, set):
                attribute = attribute.copy()
            vars(other)[name] = attribute
    made[id(value)] = other
    return other


def trainable_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the tensors that training moves: parameters that are not frozen."""
    return frozenset(key for key, value in model.named_parameters() if value.requires_grad)


def frozen_names(model: nn.Module) -> frozenset[str]:
    """Return the names in the model's state of its frozen parameters; one that has two names counts by both."""
    return frozenset(key for key, value in model.named_parameters(remove_duplicate=False) if not value.requires_grad)


def tied_names(model: nn.Module) -> tuple[tuple[str, str], ...]:
    """Return the other names in the model's state of parameters that training moves: each, and the name under which
    :func:`trainable_names` has it."""
    first = {id(value): name for name, value in model.named_parameters() if value.requires_grad}
    named = model.named_parameters(remove_duplicate=False)
    return tuple(sorted((name, first[id(value)]) for name, value in named if first.get(id(value), name) != name))


def hold_back(model: nn.Module, names: frozenset[str]) -> None:
    """Have these tensors be in no post: every member has the same ones, or has them under other names, too."""
    vars(model)["held_back"] = names


def exchanged_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the model's state without the tensors that are held back; they share memory with the model's."""
    held_back: frozenset[str] = getattr(model, "held_back", frozenset())
    return {name: value for name, value in model.state_dict().items() if name not in held_back}


def normalization_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the tensors of batch normalization."""
    norms = [(prefix, module) for prefix, module in model.named_modules() if isinstance(module, _BatchNorm)]
    return frozenset(f"{prefix}.{key}" for prefix, module in norms for key in module.state_dict())
