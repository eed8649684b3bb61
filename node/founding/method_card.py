"""Method cards: a method's description of itself, read only from its class, its fields and its file."""

import inspect
import sys
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from fedchain.files.field_texts import field_texts
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Contributor, Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import BUFFER_PREFIX, PREFIX
from fedchain.learning.registry import METHODS, build_method, installed_methods, load_method, locate_method

_LAYER, _NORM = "layer", "norm"

EXAMPLE = ModelInfo(
    parameters=((f"{_LAYER}.weight", (10, 16)), (f"{_NORM}.weight", (16,)), (f"{_NORM}.running_mean", (16,))),
    embedding_size=16,
    classes=10,
    trainable=frozenset({f"{_LAYER}.weight", f"{_NORM}.weight"}),
    normalization=frozenset({f"{_NORM}.weight", f"{_NORM}.running_mean"}),
    feature_shape=(16,),
)
"""A model for which a method states the tensors that it exchanges; all of its tensors but one are trained."""

_WHOLE = {PREFIX: "the model's parameters", BUFFER_PREFIX: "the model's buffers"}


@dataclass(frozen=True, slots=True)
class HyperparameterCard:
    """One hyper-parameter."""

    name: str
    type: str
    """bool, int, float or str."""
    default: Any
    """The default value; None if the hyper-parameter must be given."""
    choices: tuple[str, ...]
    """Values that it may have; () if it may have any of its type that the method takes."""
    help: str
    """The docstring under the field."""


@dataclass(frozen=True, slots=True)
class PhaseCard:
    """One phase, with the method's default settings."""

    name: str
    is_setup: bool
    """Whether it runs once, before the first round."""
    by: str
    """participant or aggregator."""
    posts: tuple[str, ...]
    """Names of the tensors that a contributor posts, and of the kinds of parts that it lists."""
    leaves: tuple[str, ...]
    """Names of the tensors that are known afterwards."""


@dataclass(frozen=True, slots=True)
class MethodCard:
    """A method."""

    name: str
    place: str
    """Place of its class, as module:Class."""
    summary: str
    """The first paragraph of the class's docstring."""
    citation: tuple[str, ...]
    """Lines of the first paragraph of the method's file: its authors, and the publication."""
    aggregator: str
    """The aggregator that it needs beside the peers by default: none, fixed, rotating or dedicated."""
    shares_model: bool
    """Whether a round leaves behind a model with which all members begin the next one."""
    mixes_models: bool
    """Whether members may have models of different shapes."""
    phases: tuple[PhaseCard, ...]
    hyperparameters: tuple[HyperparameterCard, ...]


def method_names() -> list[str]:
    """Names of the built-in methods and those of installed packages, sorted."""
    return sorted({*METHODS, *installed_methods()})


def card_of(name: str) -> MethodCard:
    """The card of a method, given by its name or 'module:Class'.

    Raises `ConfigurationError` if there is no such method, or it cannot be built.
    """
    kind = load_method(name)
    method = build_method(name, {})
    return MethodCard(
        name=name,
        place=locate_method(name),
        summary=_summary(kind),
        citation=tuple((inspect.getdoc(sys.modules[kind.__module__]) or "").split("\n\n")[0].splitlines()),
        aggregator=kind.aggregator,
        shares_model=method.shares_model,
        mixes_models=kind.mixes_models,
        phases=tuple(
            _phase_card(method, phase, is_setup=phase in method.setup) for phase in (*method.setup, *method.phases)
        ),
        hyperparameters=tuple(_hyperparameter_cards(kind)),
    )


def _phase_card(method: Method, phase: Phase, *, is_setup: bool) -> PhaseCard:
    return PhaseCard(
        name=phase.name,
        is_setup=is_setup,
        by="aggregator" if phase.by is Contributor.AGGREGATOR else "participant",
        posts=(
            *_names([spec.name for spec in method.payload_spec(phase, EXAMPLE)]),
            *(f"{kind} (fetched by its readers)" for kind in method.parts(phase, EXAMPLE)),
        ),
        leaves=_names([spec.name for spec in method.knowledge_spec(phase, EXAMPLE)]),
    )


def _names(names: Sequence[str]) -> tuple[str, ...]:
    """Short names of tensors: one term for a whole model, and the prefix for tensors named after the model's."""
    found: dict[str, None] = {}
    for name in names:
        prefix = next((prefix for prefix in _WHOLE if name.startswith(prefix)), None)
        if prefix is not None:
            found[_WHOLE[prefix]] = None
            continue
        ending = next((part for part in (f"{_LAYER}.", f"{_NORM}.") if part in name), None)
        found[name if ending is None else f"{name.partition(ending)[0].rstrip('.')} of the model's parameters"] = None
    return tuple(found)


def _hyperparameter_cards(kind: type[Method]) -> list[HyperparameterCard]:
    hints = typing.get_type_hints(kind)
    texts = _texts(kind)
    cards = []
    for item in fields(kind):
        choices = typing.get_args(hints[item.name])
        of = type(choices[0]) if choices else hints[item.name]
        default = None if item.default is MISSING else item.default
        cards.append(
            HyperparameterCard(item.name, of.__name__, default, tuple(map(str, choices)), texts.get(item.name, ""))
        )
    return cards


def _texts(kind: type) -> dict[str, str]:
    """The docstring under each field, from the nearest class that has one; an unreadable source is an error."""
    try:
        return field_texts(kind)
    except (OSError, TypeError) as error:
        raise ConfigurationError(f"the source of {kind.__name__} cannot be read: {error}") from None


def _summary(kind: type[Method]) -> str:
    """Return the first paragraph of the docstring, or nothing: where none is written, a dataclass has its signature."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else _paragraph(text)


def _paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())
