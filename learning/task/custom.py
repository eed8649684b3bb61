"""Training on data of one's own: a function that returns (model, train set, test set).

It is named as `FILE.py:function` or `module:function`, or given.

The genesis document holds the shapes of its model, so that every peer, and anybody who verifies a chain, can check
payloads and recompute aggregates without anybody's code. A peer's training process calls the function, and the founder
once.

B batch, C classes, D embedding.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import is_lazy

from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.device import DEVICE, in_float32
from fedchain.learning.exceptions import OWN_CODE_ERRORS, ConfigurationError, UnknownName, one_line
from fedchain.learning.models.base import (
    Model,
    frozen_names,
    hold_back,
    normalization_names,
    tied_names,
    trainable_names,
)
from fedchain.learning.models.low_rank import find_low_rank, freeze_down
from fedchain.learning.models.model_info import InputField, LowRank, ModelInfo, validate_bounds, validate_same
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.models.weights import hash_tensors, head_names
from fedchain.learning.registry import (
    build_method,
    import_file,
    import_module,
    in_this_folder,
    is_file_path,
    load_method,
)
from fedchain.learning.seeding import initial_seed, seeded
from fedchain.learning.task.adapter import EMBEDDING_NAMES, Output, adapt
from fedchain.learning.task.choice import TaskFunction, validate_choice
from fedchain.learning.task.data_source import DataSource, PartitionedDataSource, Share, WeightedDataSource
from fedchain.learning.task.examples import Examples, name_of_type, read_examples, type_named, validate_labels
from fedchain.learning.task.lazy_inputs import LazyInputs

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def open_data_source(config: LearningConfig, task: TaskFunction | None = None) -> DataSource:
    """Return where a validated configuration's models and examples come from; a given function needs no name.

    Raises `ConfigurationError` where frozen parameters are those of a file that is not named: nothing else has them.
    """
    validate_choice(config, config.task if task is None else task)
    is_lacking = config.dataset == OWN and config.weights_hash and not config.weights
    if is_lacking and any(info.frozen for info in infos_of(config)):
        raise ConfigurationError(
            f"frozen parameters are those of a file with SHA-256 {config.weights_hash}, and none is named here"
        )
    source: DataSource
    if config.dataset != OWN:
        source = PartitionedDataSource(config)
    else:
        source = CustomDataSource(config, load_task(config.task) if task is None else task)
    return WeightedDataSource(source, config) if config.weights else source


class CustomDataSource:
    """Each client's model and examples come from the user's function. Data that were read for a client are kept."""

    def __init__(self, config: LearningConfig, task: TaskFunction) -> None:
        self._config, self._task = config, task
        self._read: dict[tuple[int, int], Sets] = {}  # by client and seed

    def share(self, client: int, seed: int) -> Share:
        """See `DataSource`. Raises `ConfigurationError` if the function fails or its model is not the federation's."""
        config, infos = self._config, infos_of(self._config)
        agreed = infos[config.architecture_of(client, len(infos))]
        like = agreed if client == config.clients else None
        made = call_task(config, self._task, client, seed, like, self._read.get((client, seed)))
        with _named(self._task, client, "the aggregator: its model has to be member 0's" if like else ""):
            validate_same(made.info, agreed)
        hold_back(made.module, agreed.unposted)
        self._read[client, seed] = made.sets
        return made.share()

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        """See `DataSource`."""
        if (client, seed) not in self._read:
            self.share(client, seed)
        return self._read[client, seed].train.labels.numpy()

    def hash_own(self, client: int, seed: int) -> str:
        """See `DataSource`."""
        self.train_labels(client, seed)  # reads them
        sets, known = self._read[client, seed], dict[str, torch.Tensor]()
        for name, part in (("train", sets.train), ("test", sets.test)):
            known[f"{name} labels"] = part.labels
            is_held = not isinstance(part.inputs, LazyInputs)
            known[f"{name} inputs"] = part.inputs if is_held else torch.tensor(part.inputs.shape)
        return hash_tensors(known)

    def test_set(self) -> None:
        """See `DataSource`: nobody can be measured on everybody's data."""


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """A client's examples."""

    train: Examples
    test: Examples


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The function's result for a client."""

    module: nn.Module
    """Adapted: it returns (embedding, logits)."""

    info: ModelInfo
    """Its shapes."""

    sets: Sets

    def share(self) -> Share:
        """The model and the examples that the client begins with."""
        train, test = self.sets.train, self.sets.test
        return Share(cast(Model, self.module), train.inputs, train.labels, test.inputs, test.labels)


def describe_task(config: LearningConfig, task: TaskFunction) -> LearningConfig:
    """Call the function as the first member would, and return the configuration for the task that it returns.

    Where the method takes different models, it is called as every member, whose sets are not looked at. The function
    may fail for members whose data are elsewhere: they are taken to have the first one's model, and if one of them has
    another, its own process says so when it starts.
    """
    info = call_task(config, task, client=0, seed=_seed(config, 0)).info
    infos = [info]
    if load_method(config.method).mixes_models:
        infos += [_describe_other(config, task, client, info) for client in range(1, config.clients)]
    count = next(n for n in range(1, len(infos) + 1) if all(infos[k] == infos[k % n] for k in range(len(infos))))
    return replace(config, dataset=OWN, shapes=info, more_shapes=tuple(infos[1:count]))


def _describe_other(config: LearningConfig, task: TaskFunction, client: int, first: ModelInfo) -> ModelInfo:
    try:
        return call_task(config, task, client, _seed(config, client), like=first).info
    except ConfigurationError:
        return first


def _seed(config: LearningConfig, client: int) -> int:
    method = build_method(config.method, dict(config.hyperparameters))
    return initial_seed(config.seed, client, shared_init=method.shared_init)


def load_task(name: str) -> TaskFunction:
    """Import the function behind 'FILE.py:function' or 'module:function'; raises `ConfigurationError` if it fails."""
    module_name, _, function_name = name.rpartition(":")
    what = f"task {name}"
    module = import_file(what, Path(module_name)) if is_file_path(name) else import_module(what, module_name)
    found = getattr(module, function_name, None)
    if not callable(found):
        own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        known = [key for key in own if inspect.isfunction(getattr(module, key))]
        raise UnknownName(f"function of {module_name}", function_name, known)
    return cast(TaskFunction, found)


def call_task(
    config: LearningConfig,
    task: TaskFunction,
    client: int,
    seed: int,
    like: ModelInfo | None = None,
    sets: Sets | None = None,
) -> Made:
    """Return the function's result for a client, and the shapes of its model.

    If the model's shapes are given as `like`, the sets are not looked at, and there are no examples. If `sets` is
    given, it is used instead of reading them again. All that the function draws from the generators of torch, numpy and
    Python depends on the seed alone. Raises `ConfigurationError`, which begins with the function's name.
    """
    with _named(task, client):
        with seeded(seed):
            model, train, test = _call_function(config, task, client)
            if like is not None:
                sets = _no_examples(like)
            elif sets is None:
                sets = Sets(read_examples("train set", train), read_examples("test set", test))
                _validate_alike(sets)
        # afresh: the parameters of a class shall not depend on how much was drawn for the data
        with seeded(seed), in_float32():
            module = _build(model)
            inputs = sets.train.inputs[:2] if like is None else _zeros(like)
            method = load_method(config.method)
            info = _adopt(module, inputs, sets.train.fields, method.uses_embedding)
            if method.needs_layers:
                _validate_layers(module, inputs, info, config.method)
            info = _freeze(module, info, config)
        validate_labels("train set", sets.train.labels, info.classes)
        validate_labels("test set", sets.test.labels, info.classes)
    return Made(module, info, sets)


def build_own_module(config: LearningConfig, task: TaskFunction, client: int) -> nn.Module:
    """Return the function's module for a client as the user made it, with its own `forward`, and untrained."""
    with _named(task, client), seeded(_seed(config, client)):
        model, _, _ = _call_function(config, task, client)
        with in_float32():
            return _build(model)


def _call_function(config: LearningConfig, task: TaskFunction, client: int) -> tuple[Any, Any, Any]:
    return _expect_three(_call(task, {"member": client, "members": config.clients, "seed": config.seed}))


def _build(model: Any) -> nn.Module:
    """Return a module that is nobody else's. Only a class makes a new one each time: any other module is copied, and so
    is one that was built in inference mode, whose tensors no training can change.
    """
    module = model if isinstance(model, nn.Module) else _call(model, {})
    if not isinstance(module, nn.Module):
        raise ConfigurationError(f"the model must be a torch Module, or what builds one, not {type(module).__name__}")
    if isinstance(model, type) and not any(map(_is_inference, _tensors_of(module))):
        return module
    try:
        return deepcopy(module)
    except OWN_CODE_ERRORS as error:
        raise ConfigurationError(
            f"the model cannot be copied for each member, return its class instead: {one_line(error)}"
        ) from error


def _tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _is_inference(value: torch.Tensor) -> bool:
    return not is_lazy(value) and value.is_inference()


def _validate_alike(sets: Sets) -> None:
    train, test = sets.train, sets.test
    shapes = tuple(train.inputs.shape[1:]), tuple(test.inputs.shape[1:])
    if train.fields != test.fields:
        fields = [[tuple(field) for field in part.fields] for part in (train, test)]
        raise ConfigurationError(f"inputs of the train set have the fields {fields[0]}, of the test set {fields[1]}")
    if shapes[0] != shapes[1]:
        raise ConfigurationError(f"inputs of the train set have shape {shapes[0]}, of the test set {shapes[1]}")
    if train.inputs.dtype != test.inputs.dtype:
        kinds = train.inputs.dtype, test.inputs.dtype
        raise ConfigurationError(f"inputs of the train set are {kinds[0]}, of the test set {kinds[1]}")


def _no_examples(like: ModelInfo) -> Sets:
    nothing = Examples(_zeros(like)[:0], torch.empty(0, dtype=torch.int64), like.input_fields)
    return Sets(nothing, nothing)


def _zeros(like: ModelInfo) -> torch.Tensor:
    """Return an input (1, ...) of this form."""
    return torch.zeros(1, *(like.input_shape or ()), dtype=type_named(like.input_type))


@contextmanager
def _named(task: TaskFunction, client: int, role: str = "") -> Iterator[None]:
    """Say in which function the fault is, and for which member where it is not for the first one, with its role."""
    try:
        yield
    except ConfigurationError as error:
        which = f" (member {', '.join(filter(None, (str(client), role)))})" if client else ""
        raise ConfigurationError(f"task {_name(task)}: {error}{which}") from error


def _name(task: TaskFunction) -> str:
    return f"{getattr(task, '__module__', '')}:{getattr(task, '__qualname__', repr(task))}"


def _call(function: Callable[..., Any], offered: Mapping[str, int]) -> Any:
    try:
        wanted = inspect.signature(function).parameters if offered else {}
    except (TypeError, ValueError) as error:  # of a function in C, say
        raise ConfigurationError(f"its parameters are not known: {one_line(error)}") from error
    for name, parameter in wanted.items():
        is_lacking = parameter.default is parameter.empty and parameter.kind not in _ANY_NUMBER
        if is_lacking and name not in offered:
            raise ConfigurationError(f"it is given {', '.join(offered)}, by these names, and no {name!r}")
    with in_this_folder("it"):
        try:
            return function(**{name: value for name, value in offered.items() if name in wanted})
        except OWN_CODE_ERRORS as error:
            raise ConfigurationError(f"it raised {one_line(error)}") from error


def _expect_three(made: Any) -> tuple[Any, Any, Any]:
    if inspect.iscoroutine(made):
        made.close()
        raise ConfigurationError("(model, train set, test set) must be returned, not a coroutine: leave out async")
    if not isinstance(made, tuple) or len(made) != 3:
        found = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise ConfigurationError(f"(model, train set, test set) must be returned, not {found}")
    if not callable(made[0]):
        raise ConfigurationError(f"the model must be a torch Module, or what builds one, not {type(made[0]).__name__}")
    return made


def _adopt(module: nn.Module, inputs: torch.Tensor, fields: tuple[InputField, ...], uses_embedding: bool) -> ModelInfo:
    """Try the model on a few inputs (B, ...). From then on it returns (embedding, logits), whatever it did before."""
    for part in module.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            part.sparse = False  # whatever is added to a gradient, or clips it, takes dense ones
    try:
        module.to(DEVICE).eval()
        output = adapt(module, fields, inputs)
    except OWN_CODE_ERRORS as error:
        shown = ", ".join(f"{field.name} {(len(inputs), *field.shape)}" for field in fields)
        shape = tuple(inputs.shape)
        what = shown or f"shape {shape}" + ("" if inputs.is_floating_point() else f" and type {inputs.dtype}")
        raise ConfigurationError(f"the model cannot take inputs of {what}: {one_line(error)}") from error
    if not isinstance(output, Output):
        raise ConfigurationError(
            f"the model must return embedding (B, D) and logits (B, C), not {output} for B = {len(inputs)}"
        )
    if output.embedding is None and uses_embedding:
        raise ConfigurationError(
            "the method needs a model that returns (embedding, logits), not one tensor; an object with logits needs "
            f"beside them one of {', '.join(EMBEDDING_NAMES)}"
        )
    embedding = output.logits if output.embedding is None else output.embedding
    sizes = [tuple(embedding.shape), tuple(output.logits.shape)]
    if any(len(size) != 2 or size[0] != len(inputs) for size in sizes):
        raise ConfigurationError(
            f"the model must return embedding (B, D) and logits (B, C), not {sizes} for B = {len(inputs)}"
        )
    for numbers in (embedding, output.logits):
        if not numbers.is_floating_point():
            raise ConfigurationError(f"the model must return floating-point numbers, not {numbers.dtype}")
    info = _describe(module, sizes[0][1], sizes[1][1], inputs, fields)
    return info if fields else replace(info, feature_shape=_split_shape(module, inputs, info))


def _split_shape(module: nn.Module, images: torch.Tensor, info: ModelInfo) -> tuple[int, ...] | None:
    """Return the shape of one example's features, if the module has a method `split`, which is tried on (B, ...)."""
    split: Any = getattr(module, "split", None)
    if split is None or (isinstance(module, Model) and module.feature_shape is None):
        return None
    try:
        with torch.no_grad():
            parts = split(images.clone())
        sizes = [tuple(part.shape) for part in parts]
    except OWN_CODE_ERRORS as error:
        shape = tuple(images.shape)
        raise ConfigurationError(f"the model cannot split inputs of shape {shape}: {one_line(error)}") from error
    wanted = [(len(images), info.embedding_size), (len(images), info.classes)]
    if len(sizes) != 3 or len(sizes[0]) < 2 or sizes[0][0] != len(images) or sizes[1:] != wanted:
        raise ConfigurationError(
            f"split must return features (B, ...), embedding and logits, {wanted} for B = {len(images)}, not {sizes}"
        )
    return sizes[0][1:]


def _validate_layers(module: nn.Module, images: torch.Tensor, info: ModelInfo, method: str) -> None:
    """Raise `ConfigurationError` if the module has no method `layers`, or one that does not give what is compared."""
    layers: Any = getattr(module, "layers", None)
    if not callable(layers):
        raise ConfigurationError(
            f"{method} compares layers: give the model a method `layers`, which returns a tuple of their outputs "
            "(B, D_l), the embedding last, and the logits (B, C)"
        )
    count = len(images)
    try:
        with torch.no_grad():
            outputs, logits = layers(images.clone())
        sizes, of_logits = [tuple(output.shape) for output in outputs], tuple(logits.shape)
    except OWN_CODE_ERRORS as error:
        raise ConfigurationError(
            f"the model cannot give its layers' outputs and its logits: {one_line(error)}"
        ) from error
    is_flat = all(len(size) == 2 and size[0] == count for size in sizes)
    wanted = (count, info.embedding_size), (count, info.classes)
    if not is_flat or (*sizes[-1:], of_logits) != wanted:
        raise ConfigurationError(
            f"layers must return outputs (B, D_l), the last of them {wanted[0]}, and logits {wanted[1]}, "
            f"for B = {count}, not {sizes} and {of_logits}"
        )


def _freeze(module: nn.Module, info: ModelInfo, config: LearningConfig) -> ModelInfo:
    """Add what a method that exchanges parameters has to know of those that it does not, frozen and tied ones, and of
    adapters.

    Under FFA-LoRA each adapter's A is frozen here.
    """
    method = build_method(config.method, dict(config.hyperparameters))
    if method.mixes_models:
        return info
    low_rank: tuple[LowRank, ...] = ()
    if (adapters := getattr(method, "adapters", "mean")) != "mean":
        low_rank = find_low_rank(module)
        if adapters == "ffa":
            freeze_down(module)
    frozen, tied = frozen_names(module), tied_names(module)
    if not frozen:
        return replace(info, tied=tied)
    if config.weights_head == "new" and not frozen.isdisjoint(head_names(module)):
        raise ConfigurationError(
            "weights_head is new, but the last layer is frozen: it would never be more than random"
        )
    of_file = bool(config.weights or config.weights_hash)
    values = {} if of_file else {name: value for name, value in module.state_dict().items() if name in frozen}
    found = hash_tensors(values) if values else ""
    info = replace(
        info, trainable=info.trainable - frozen, frozen=frozen, frozen_hash=found, low_rank=low_rank, tied=tied
    )
    validate_bounds(info)
    return info


def _describe(
    module: nn.Module, embedding_size: int, classes: int, inputs: torch.Tensor, fields: tuple[InputField, ...]
) -> ModelInfo:
    state = module.state_dict()
    frozen = frozen_names(module)
    own = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
    for name, value in state.items():
        if name in frozen and isinstance(value, torch.Tensor):
            continue  # of any type: nobody posts it
        kind = value.dtype if isinstance(value, torch.Tensor) else None
        if kind is None or (kind != torch.float32 and (kind.is_floating_point or kind.is_complex)):
            found = kind or type(value).__name__
            raise ConfigurationError(f"{name} of the model is {found}; only float32 and integers can be exchanged")
        if value.layout is not torch.strided:
            raise ConfigurationError(f"{name} of the model is {value.layout}; only dense tensors can be exchanged")
        if any(step == 0 for step, size in zip(value.stride(), value.shape, strict=True) if size > 1):
            raise ConfigurationError(
                f"{name} of the model has one number in many places (`expand`): it needs `clone()`"
            )
        if name in own and own[name].data_ptr() != value.data_ptr():
            raise ConfigurationError(
                f"{name} of the model is a copy in its state, through which models are set: its `state_dict` must "
                "return the tensors themselves"
            )
    if not trainable_names(module):
        raise ConfigurationError("the model has no parameter to train")
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and not bool(torch.isfinite(parameter).all()):
            raise ConfigurationError(f"{name} of the model holds numbers that are not finite before any training")
    info = ModelInfo(
        parameters=tuple((name, tuple(value.shape)) for name, value in state.items()),
        embedding_size=embedding_size,
        classes=classes,
        trainable=trainable_names(module),
        normalization=normalization_names(module),
        input_shape=tuple(inputs.shape[1:]),
        input_type=name_of_type(inputs),
        input_fields=fields,
    )
    validate_bounds(info)
    return info
