"""A model's parameters as a payload: how the methods that average models post, load and average them.

Stating, averaging and combining them needs no torch; reading and loading a model does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import moved_mean, weighted_mean
from fedchain.learning.aggregation.robust import RobustRule
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import RESIDUAL_PREFIX, ModelInfo
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import ReadPost, Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.models.base import Model

PREFIX = "model."
"""Before the name of each tensor that training moves, so that a method's own tensors cannot clash with them."""

BUFFER_PREFIX = "buffer."
"""Before the name of each other tensor of the model's state, such as running means: averaged, but never stepped."""

BUFFER_MAGNITUDE_MAX = 1e12
"""Largest absolute value of those: the running variance of data that nobody scaled is large, and so may counters be."""

_POSITIVE = ("running_var", "num_batches_tracked")
"""Ends of the names of what batch normalization would make NaN of, were it negative."""


def parameter_spec(info: ModelInfo) -> tuple[TensorSpec, ...]:
    """State the tensors of the model's state, but for the frozen ones that every member has, each by one name."""
    return tuple(_tensor_spec(name, shape, info) for name, shape in info.parameters if name not in info.unposted)


def places_in_vector(info: ModelInfo) -> dict[str, slice]:
    """Return which elements each trainable parameter is of the vector of all, (P,), in the model's order."""
    found, end = {}, 0
    for name, shape in info.parameters:
        if name in info.trainable:
            begin, end = end, end + math.prod(shape)
            found[PREFIX + name] = slice(begin, end)
    return found


def read_parameters(model: Model) -> dict[str, NDArray[Any]]:
    """Return copies of the model's tensors as float32 arrays, without those that it holds back."""
    return {name: value.numpy().astype(np.float32, copy=True) for name, value in _named_tensors(model)}


def load_parameters(model: Model, tensors: Tensors) -> None:
    """Overwrite those of the model's tensors that are given, and add residuals to frozen ones.

    A parameter that has two names is what the one says under which it is trained, combined and packed, also where the
    other is given, too, as older federations do.
    """
    from fedchain.learning.models.low_rank import add_residuals

    add_residuals(model, tensors)
    named = sorted(_named_tensors(model), key=lambda item: item[0].startswith(PREFIX))  # what is trained comes last
    with np.errstate(all="ignore"):  # as torch rounds to a narrower type: without a word
        for name, value in named:
            if name in tensors:
                np.copyto(value.numpy(), tensors[name], casting="unsafe")


def common_parameters(knowledge: Tensors, info: ModelInfo) -> dict[str, NDArray[Any]]:
    """Return the model that the knowledge is, float32, under the names that the module itself gives its tensors.

    They are all tensors of the module's state, in its order, but for the frozen ones that members have, to which
    residuals may have to be added (`find_residual`); a tensor of several names is one. Their memory is the knowledge's.
    Raises `ConfigurationError` where the knowledge is no whole model: prototypes, or parameters of which some are every
    member's own.
    """
    first = dict(info.tied)
    names = {name: first.get(name, name) for name, _ in info.parameters if name not in info.frozen}
    wire = {name: wire_name(posted, posted in info.trainable) for name, posted in names.items()}
    missing = [name for name in wire if wire[name] not in knowledge]
    if missing:
        found = f"{len(wire) - len(missing)} of the model's {len(wire)} tensors, without {missing[0]}"
        raise ConfigurationError(f"the knowledge holds {found}: members share no whole model; ask for a member's")
    return {name: knowledge[wire[name]] for name in wire}


def find_residual(knowledge: Tensors) -> str:
    """Return the name of a frozen tensor to which members add what the knowledge holds of it; empty: there is none."""
    names = (name.removeprefix(RESIDUAL_PREFIX) for name in knowledge if name.startswith(RESIDUAL_PREFIX))
    return next(names, "")


def average_parameters(posts: Sequence[ReadPost], weights: Sequence[int]) -> LazyTensors:
    """Return the weighted mean of the posted models, tensor by tensor."""
    names = [name for name in posts[0].payload if name.startswith((PREFIX, BUFFER_PREFIX))]

    def mean(name: str) -> NDArray[Any]:
        return weighted_mean([post.payload[name] for post in posts], weights)

    return LazyTensors({name: partial(mean, name) for name in names})


def combine_parameters(rule: RobustRule | None, round: Round, count: Callable[[ReadPost], int]) -> LazyTensors:
    """Return the posted models' combination by the rule, which looks at no weights; None: their weighted mean.

    Each tensor is computed when it is asked for. Parameters are one vector to the rule and buffers another: the scale
    of running statistics would hide parameters. `count` is the weight of a post.
    """
    if rule is None and round.late:
        return _move_parameters(round, count)
    if rule is None:
        return average_parameters(round.posts, [count(post) for post in round.posts])
    combined = LazyTensors({})
    for prefix in (PREFIX, BUFFER_PREFIX):
        names = [name for name in round.posts[0].payload if name.startswith(prefix)]
        if names:
            posted = [{name: post.payload[name] for name in names} for post in round.posts]
            combined |= rule.combine(posted, round.knowledge)
    return combined


def _move_parameters(round: Round, count: Callable[[ReadPost], int]) -> LazyTensors:
    """v + sum s n (w - b) / sum s n over the posts, s = 1 and b = v for those in time: a late model counts by what it
    changed of the model b that it was trained from, not by the distance that the others have gone since."""
    known = round.knowledge
    assert known is not None, "nothing is late before there is knowledge"
    posts = [*round.posts, *(late.post for late in round.late)]
    bases = [*(known for _ in round.posts), *(late.base for late in round.late)]
    weights = [*(float(count(post)) for post in round.posts), *(late.weight * count(late.post) for late in round.late)]
    names = [name for name in round.posts[0].payload if name.startswith((PREFIX, BUFFER_PREFIX))]

    def moved(name: str) -> NDArray[Any]:
        posted, begun = [post.payload[name] for post in posts], [base[name] for base in bases]
        return moved_mean(known[name], posted, begun, weights)

    return LazyTensors({name: partial(moved, name) for name in names})


def wire_name(name: str, is_trainable: bool) -> str:
    """Return the name under which one of the model's tensors is posted."""
    return (PREFIX if is_trainable else BUFFER_PREFIX) + name


def _tensor_spec(name: str, shape: tuple[int, ...], info: ModelInfo) -> TensorSpec:
    if name in info.trainable:
        return TensorSpec(wire_name(name, True), shape)
    is_positive = name in info.normalization and name.endswith(_POSITIVE)
    return TensorSpec(
        wire_name(name, False), shape, minimum=0 if is_positive else None, magnitude_max=BUFFER_MAGNITUDE_MAX
    )


def _named_tensors(model: Model) -> list[tuple[str, torch.Tensor]]:
    from fedchain.learning.models.base import exchanged_state, trainable_names

    trainable = trainable_names(model)
    return [(wire_name(name, name in trainable), value) for name, value in exchanged_state(model).items()]
