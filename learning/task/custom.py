"""Training on data of one's own: a function that returns (model, train set, test set), named as `module:function`.

The genesis document holds the shapes of its model, so that every peer, and whoever verifies a chain, can check payloads
and recompute aggregates without anybody's code. A peer's training process calls the function, and the founder once.

B batch, C classes, D embedding.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError, one_line, unknown_name
from fedchain.learning.models.base import Model, normalization_names, trainable_names
from fedchain.learning.models.model_info import ModelInfo, validate_bounds, validate_same
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.registry import import_module, load_method
from fedchain.learning.seeding import seeded
from fedchain.learning.task.choice import TaskFunction, validate_choice
from fedchain.learning.task.data_source import DataSource, PartitionedDataSource, Share, share_without_examples
from fedchain.learning.task.examples import read_examples, validate_labels


def open_data_source(config: LearningConfig, task: TaskFunction | None = None) -> DataSource:
    """Return where a validated configuration's models and examples come from; a given function needs no name."""
    validate_choice(config, config.task if task is None else task)
    if config.dataset != OWN:
        return PartitionedDataSource(config)
    return CustomDataSource(config, load_task(config.task) if task is None else task)


class CustomDataSource:
    """Each client's model and examples come from the user's function."""

    def __init__(self, config: LearningConfig, task: TaskFunction) -> None:
        self._config, self._task = config, task

    def share(self, client: int, seed: int) -> Share:
        """See `DataSource`. Raises `ConfigurationError` if the function fails or its model is not the federation's."""
        config, infos = self._config, infos_of(self._config)
        agreed = infos[config.architecture_of(client, len(infos))]
        share, info = call_task(
            config, self._task, client, seed, agreed.input_shape if client == config.clients else None
        )
        with _named(self._task):
            validate_same(info, agreed)
        return share

    def train_labels(self, client: int) -> NDArray[np.int64]:
        """See `DataSource`."""
        return self.share(client, seed=0).train_labels.numpy()

    def test_set(self) -> None:
        """See `DataSource`: nobody can be measured on everybody's data."""


def describe_task(config: LearningConfig, task: TaskFunction) -> LearningConfig:
    """Call the function as the first member would, and return the configuration that learns what it returns.

    Where the method takes different models, it is called as every member, whose sets are not looked at. The function
    may fail for members whose data are elsewhere: they are taken to have the first one's model, and if one of them has
    another, its own process says so when it starts.
    """
    _, info = call_task(config, task, client=0, seed=0)
    infos = [info]
    if load_method(config.method).mixes_models:
        infos += [_describe_other(config, task, client, info) for client in range(1, config.clients)]
    count = next(n for n in range(1, len(infos) + 1) if all(infos[k] == infos[k % n] for k in range(len(infos))))
    return replace(config, dataset=OWN, shapes=info, more_shapes=tuple(infos[1:count]))


def _describe_other(config: LearningConfig, task: TaskFunction, client: int, first: ModelInfo) -> ModelInfo:
    try:
        return call_task(config, task, client, seed=0, input_shape=first.input_shape)[1]
    except ConfigurationError:
        return first


def load_task(name: str) -> TaskFunction:
    """Import the function behind 'module:function'. Raises `ConfigurationError` where that is impossible."""
    module_name, _, function_name = name.partition(":")
    module = import_module(f"task {name}", module_name)
    found = getattr(module, function_name, None)
    if not callable(found):
        own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == module_name)
        known = [key for key in own if inspect.isfunction(getattr(module, key))]
        raise unknown_name(f"function of {module_name}", function_name, known)
    return cast(TaskFunction, found)


def call_task(
    config: LearningConfig, task: TaskFunction, client: int, seed: int, input_shape: tuple[int, ...] | None = None
) -> tuple[Share, ModelInfo]:
    """Return what the function brings for a client, and the shapes of its model.

    Where the shape of an example is given, nobody looks at the sets, and the share has no examples. All that the
    function draws from the generators of torch, numpy and Python depends on the seed alone. Raises
    `ConfigurationError`, which begins with the function's name.
    """
    uses_embedding = load_method(config.method).uses_embedding
    with _named(task):
        with seeded(seed):
            offered = {"member": client, "members": config.clients, "seed": config.seed}
            model, train, test = _expect_three(_call(task, offered))
            if input_shape is not None:
                train = test = torch.zeros(1, *input_shape), torch.zeros(1, dtype=torch.int64)
            train_images, train_labels = read_examples("train set", train)
            test_images, test_labels = read_examples("test set", test)
        if test_images.shape[1:] != train_images.shape[1:]:
            shapes = tuple(train_images.shape[1:]), tuple(test_images.shape[1:])
            raise ConfigurationError(f"inputs of the train set have shape {shapes[0]}, of the test set {shapes[1]}")
        with seeded(seed):  # afresh: what a class builds shall not depend on how much was drawn for the data
            module = model if isinstance(model, nn.Module) else _call(model, {})
            info = _adopt(module, train_images[:2], uses_embedding)
        validate_labels("train set", train_labels, info.classes)
        validate_labels("test set", test_labels, info.classes)
    if input_shape is not None:
        return share_without_examples(cast(Model, module), input_shape), info
    return Share(cast(Model, module), train_images, train_labels, test_images, test_labels), info


@contextmanager
def _named(task: TaskFunction) -> Iterator[None]:
    """Say in which function the fault is."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"task {_name(task)}: {error}") from error


def _name(task: TaskFunction) -> str:
    return f"{getattr(task, '__module__', '')}:{getattr(task, '__qualname__', repr(task))}"


def _call(function: Callable[..., Any], offered: Mapping[str, int]) -> Any:
    try:
        wanted = inspect.signature(function).parameters if offered else {}
        return function(**{name: value for name, value in offered.items() if name in wanted})
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        raise ConfigurationError(f"it raised {one_line(error)}") from error


def _expect_three(made: Any) -> tuple[Any, Any, Any]:
    if not isinstance(made, tuple) or len(made) != 3:
        found = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise ConfigurationError(f"(model, train set, test set) must be returned, not {found}")
    if not callable(made[0]):
        raise ConfigurationError(f"the model must be a torch Module, or what builds one, not {type(made[0]).__name__}")
    return made


def _adopt(module: Any, images: torch.Tensor, uses_embedding: bool) -> ModelInfo:
    """Try the model on a few inputs (B, ...). From then on it returns (embedding, logits), whatever it did before."""
    if not isinstance(module, nn.Module):
        raise ConfigurationError(f"the model must be a torch Module, or what builds one, not {type(module).__name__}")
    try:
        module.cpu().eval()
        with torch.no_grad():
            output = module(images)
    except Exception as error:
        shape = tuple(images.shape)
        raise ConfigurationError(f"the model cannot take inputs of shape {shape}: {one_line(error)}") from error
    if isinstance(output, torch.Tensor):
        if uses_embedding:
            raise ConfigurationError("the method needs a model that returns (embedding, logits), not one tensor")
        module.register_forward_hook(_logits_twice)
        output = output, output
    parts = output if isinstance(output, tuple) else ()
    sizes = [tuple(part.shape) if isinstance(part, torch.Tensor) else () for part in parts]
    if len(sizes) != 2 or any(len(size) != 2 or size[0] != len(images) for size in sizes):
        found = sizes if parts else type(output).__name__
        raise ConfigurationError(
            f"the model must return embedding (B, D) and logits (B, C), not {found} for B = {len(images)}"
        )
    info = _describe(module, sizes[0][1], sizes[1][1], tuple(images.shape[1:]))
    return replace(info, feature_shape=_split_shape(module, images, info))


def _split_shape(module: nn.Module, images: torch.Tensor, info: ModelInfo) -> tuple[int, ...] | None:
    """Return the shape of one example's features, if the module has a method `split`, which is tried on (B, ...)."""
    split: Any = getattr(module, "split", None)
    if split is None:
        return None
    try:
        with torch.no_grad():
            parts = split(images)
        sizes = [tuple(part.shape) for part in parts]
    except Exception as error:
        shape = tuple(images.shape)
        raise ConfigurationError(f"the model cannot split inputs of shape {shape}: {one_line(error)}") from error
    wanted = [(len(images), info.embedding_size), (len(images), info.classes)]
    if len(sizes) != 3 or len(sizes[0]) < 2 or sizes[0][0] != len(images) or sizes[1:] != wanted:
        raise ConfigurationError(
            f"split must return features (B, ...), embedding and logits, {wanted} for B = {len(images)}, not {sizes}"
        )
    return sizes[0][1:]


def _logits_twice(module: nn.Module, inputs: Any, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A forward hook for a model that has no embedding: where nobody reads it, the logits stand in its place."""
    return logits, logits


def _describe(module: nn.Module, embedding_size: int, classes: int, input_shape: tuple[int, ...]) -> ModelInfo:
    state = module.state_dict()
    for name, value in state.items():
        kind = value.dtype if isinstance(value, torch.Tensor) else None
        if kind is None or (kind != torch.float32 and (kind.is_floating_point or kind.is_complex)):
            found = kind or type(value).__name__
            raise ConfigurationError(f"{name} of the model is {found}; only float32 and integers can be exchanged")
    if not trainable_names(module):
        raise ConfigurationError("the model has no parameter to train")
    info = ModelInfo(
        parameters=tuple((name, tuple(value.shape)) for name, value in state.items()),
        embedding_size=embedding_size,
        classes=classes,
        trainable=trainable_names(module),
        normalization=normalization_names(module),
        input_shape=input_shape,
    )
    validate_bounds(info)
    return info
