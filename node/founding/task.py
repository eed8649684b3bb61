"""The task of a federation: it connects the genesis document, which the chain reads, with the learning method.

A genesis document carries the learning configuration as text; only this module writes and reads it.
"""

import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedchain.chain.exceptions import DiskRefused, InvalidGenesis, MethodFailed
from fedchain.chain.genesis import (
    GENESIS_VERSION,
    PAYLOAD_SIZE_DEFAULT,
    PAYLOAD_SIZE_MAX,
    AggregatorRule,
    Contributor,
    Genesis,
    PhaseRule,
)
from fedchain.chain.membership.amendment import LEARNING, Amendments
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.crypto.keys import PublicKey
from fedchain.files.spool import InMemory, Spools
from fedchain.learning.amended import amended_config
from fedchain.learning.application import Application
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError, LearningError, asking
from fedchain.learning.knowledge import KNOWLEDGE_SIZE_MAX
from fedchain.learning.method import Method
from fedchain.learning.models.model_info import read_model_info, write_model_info
from fedchain.learning.registry import (
    build_method,
    importable_name,
    is_file_path,
    is_import_path,
    load_method,
    use_current_folder,
)
from fedchain.learning.round import Occasion
from fedchain.learning.task.choice import TaskFunction, validate_choice

LOCAL_FIELDS = frozenset({"data_dir", "task", "weights"})
"""Fields that every peer chooses for itself; all others are agreed on."""

LATER_FIELDS = frozenset(
    {"augmentation", "classes", "classes_per_client", "feature_shift", "material", "more_shapes", "scaling"}
    | {"train_examples", "weights_hash", "weights_head"}
)
"""Fields newer than the first documents: omitted at their defaults, so that equal tasks keep their chain ids."""

LATER_HYPERPARAMETERS = frozenset(
    {"aggregation_rule", "byzantine", "clipping_norm", "neighbour_mixing"}
    | {"batch_sampling", "epsilon_budget", "examples_min", "gradient_clip", "gradient_noise"}
    | {"contributors_min", "decryption_threshold", "encryption", "key_bits", "magnitude_max"}
    | {"privacy_delta", "prototype_clip", "prototype_noise"}
    | {"compression", "compression_k", "error_decay", "late_exponent", "late_weighting"}
    | {"adam_beta1", "adam_beta2", "adam_epsilon", "optimizer"}
    | {"schedule", "schedule_decay", "schedule_rounds", "warmup_rounds"}
    | {"adapters"}
)
"""Hyper-parameters of methods to which the same applies."""

DERIVED_FIELDS = frozenset({"dataless", "shapes"})
"""Fields that follow from others, or are written in a form of their own."""

OWN_FIELDS = frozenset(
    {"clients", "dataset", "hyperparameters", "material", "method", "more_shapes", "seed", "shapes"}
    | {"weights_hash", "weights_head"}
)
"""Fields that are agreed on if the members' data are their own: no data set is divided among them."""


def learning_to_genesis(config: LearningConfig) -> tuple[tuple[str, str], ...]:
    """Write the agreed part of ``config`` as the genesis document's (name, JSON) pairs.

    Hyper-parameters are written in full, except later ones: two versions of the program may have different defaults.
    """
    method = build_method(config.method, dict(config.hyperparameters))
    unsaid = {item.name for item in fields(config) if getattr(config, item.name) == item.default} & LATER_FIELDS
    agreed = {item.name for item in fields(config)} - LOCAL_FIELDS - DERIVED_FIELDS - unsaid
    if config.dataset == OWN:
        agreed &= OWN_FIELDS
    values = {name: getattr(config, name) for name in agreed}
    if config.material:
        values["material"] = [(name, value.hex()) for name, value in sorted(dict(config.material).items())]
    if config.shapes is not None:
        values["shapes"] = write_model_info(config.shapes)
    if config.more_shapes:
        values["more_shapes"] = [write_model_info(info) for info in config.more_shapes]
    values["hyperparameters"] = sorted(
        (item.name, getattr(method, item.name))
        for item in fields(method)
        if item.name not in LATER_HYPERPARAMETERS or getattr(method, item.name) != item.default
    )
    return tuple((name, json.dumps(values[name], sort_keys=True)) for name in sorted(values))


def learning_from_genesis(genesis: Genesis, data_dir: str = "", task: str = "", weights: str = "") -> LearningConfig:
    """Read the learning configuration of a federation, and add this peer's own choices.

    The rules in force, see :func:`fedchain.chain.membership.in_force.rules_of`, have its values in force.

    Raises:
        InvalidGenesis: the document's learning part is not one that this program knows.
    """
    try:
        values = {name: json.loads(text) for name, text in genesis.learning if not name.startswith(LEARNING)}
        values["hyperparameters"] = tuple((name, value) for name, value in values.get("hyperparameters", ()))
        values["material"] = tuple((name, bytes.fromhex(text)) for name, text in values.get("material", ()))
        if "shapes" in values:
            values["shapes"] = read_model_info(values["shapes"])
        values["more_shapes"] = tuple(read_model_info(value) for value in values.get("more_shapes", ()))
        config = LearningConfig(data_dir=data_dir, task=task, weights=weights, **values)
        config.validate()
        config = amended_config(config, Amendments(tuple(genesis.learning)).hyperparameters)
        is_dedicated = genesis.aggregator is AggregatorRule.DEDICATED
        config = replace(config, dataless=len(genesis.participants) if is_dedicated else -1)
        count, may_grow = len(genesis.participants), genesis.version >= CHANGES_VERSION
        if config.clients < count or (config.clients > count and not may_grow):
            raise ConfigurationError(f"clients is {config.clients}, but {count} members have data")
    except (TypeError, ValueError, OverflowError, RecursionError, ConfigurationError) as error:
        raise InvalidGenesis(f"learning cannot be read: {error}") from None
    return config


def with_shapes(config: LearningConfig, task: TaskFunction | None = None) -> LearningConfig:
    """Add the hash of the weights, and for own data the shapes of the model: its function is called as by the first.

    Args:
        config: the task.
        task: the function itself; None for the one that the configuration names.

    Raises:
        ConfigurationError: the function fails, or the configuration does not ask for one.
    """
    validate_choice(config, task or config.task)
    if config.weights:
        from fedchain.learning.models.weights import hash_file

        config = replace(config, weights_hash=hash_file(Path(config.weights)))
    if config.dataset != OWN:
        return config
    use_current_folder()

    from fedchain.learning.task.custom import describe_task, load_task

    return describe_task(config, task or load_task(config.task))


def require_weights(config: LearningConfig) -> None:
    """Raise `ConfigurationError` if the members' models begin with the weights of a file, and none is named."""
    if config.weights_hash and not config.weights:
        raise ConfigurationError(
            f"models begin with weights from a file with SHA-256 {config.weights_hash}: name yours, weights = FILE"
        )


def rules_of(genesis: Genesis, spools: Spools = InMemory) -> Application:
    """The learning method's rules of validity, for a genesis document; raises InvalidGenesis.

    Large aggregates are written where ``spools`` says.
    """
    return _ChainRules(learning_from_genesis(genesis), genesis.members, genesis.chain_id, spools)


class _ChainRules(Application):
    """An application that tells the chain, which knows no learning, when the method's own code fails."""

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        with _failures():
            super().check(occasion, sender, knowledge, payload)

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        with _failures():
            try:
                return super().aggregate(occasion, knowledge, posts)
            except OSError as error:
                raise DiskRefused(f"an aggregate cannot be written: {error}") from None


@contextmanager
def _failures() -> Iterator[None]:
    """Raise MethodFailed for errors that are no member's fault; InvalidPayload, a ValueError, passes unchanged."""
    try:
        yield
    except ValueError:
        raise
    except LearningError as error:
        raise MethodFailed("method", str(error)) from error


def use_method_file(name: str) -> None:
    """Import a method from ``FILE.py:Class``, which runs the file: it is trusted. Raises ConfigurationError."""
    if not is_file_path(name):
        raise ConfigurationError(f"method {name} is not of the form FILE.py:Class")
    load_method(importable_name(name))


def rules_with(methods: Sequence[str]) -> Callable[[Genesis], Application]:
    """The function :func:`rules_of` for a reader of others' chains, with method files that Python would not find.

    Neither a chain nor a file beside it decides whose code runs here: the reader gives ``methods``, as
    ``FILE.py:Class``. Raises InvalidGenesis, at once for these files, and later for the method of a document.
    """

    try:
        for name in methods:
            use_method_file(name)
    except ConfigurationError as error:
        raise InvalidGenesis(str(error)) from None

    def build(genesis: Genesis) -> Application:
        try:
            return rules_of(genesis)
        except InvalidGenesis as error:
            hint = f"; --method FILE.py:{kind} names its file" if (kind := _missing_class(genesis)) else ""
            raise InvalidGenesis(f"{error}{hint}") from None

    return build


def _missing_class(genesis: Genesis) -> str:
    """The class of the federation's method, if Python does not find its module; otherwise empty."""
    try:
        name = json.loads(dict(genesis.learning).get("method", ""))
    except (ValueError, RecursionError):
        return ""
    if not isinstance(name, str) or not is_import_path(name):
        return ""
    module, _, kind = name.partition(":")
    package = module.partition(".")[0]
    return "" if package in sys.modules or importlib.util.find_spec(package) is not None else kind


def setup_phases(rules: Application) -> tuple[PhaseRule, ...]:
    """Phases that run once, in the form of the genesis document."""
    return tuple(PhaseRule(name, Contributor(by), quorum) for name, by, quorum in rules.setup_phases)


def round_phases(rules: Application) -> tuple[PhaseRule, ...]:
    """Phases of every round, in the form of the genesis document."""
    return tuple(PhaseRule(name, Contributor(by), quorum) for name, by, quorum in rules.phases)


def found_federation(
    config: LearningConfig,
    rules: Application,
    members: Sequence[PublicKey],
    *,
    name: str,
    created_ms: int,
    **consensus: Any,
) -> Genesis:
    """The genesis document of a federation that learns ``config``, with the model's shapes and room for its posts.

    Args:
        config: the learning task.
        rules: the rules of the same task.
        members: public keys, in the order of the partition; a dedicated aggregator is the last.
        name: name of the federation, for people.
        created_ms: time of its founding, in milliseconds since the Unix epoch.
        consensus: further fields of :class:`Genesis`.

    Raises:
        InvalidGenesis: the values contradict each other.
        ConfigurationError: late posts are to count, and the method has no use for them; fewer members are drawn than
            it needs; or what it posts or leaves behind is larger than a document can be.
    """
    with asking("refuses_late", type(rules.method)):
        reason = rules.method.refuses_late if consensus.get("late_rounds") else ""
    if reason:
        raise ConfigurationError(
            f"late_rounds is {consensus['late_rounds']}, but {config.method} uses no late posts: {reason}"
        )
    expect_contributors(rules.method, consensus.get("contributors_per_round", 0))
    if (most := rules.stated_size) > KNOWLEDGE_SIZE_MAX:
        why = f" ({rules.method.leaves})" if rules.method.leaves else ""
        raise ConfigurationError(
            f"{config.method} leaves up to {most} bytes behind{why}, at most {KNOWLEDGE_SIZE_MAX} can be written"
        )
    sizes = {name: rules.payload_size_max(name) for name, _, _ in (*rules.setup_phases, *rules.phases)}
    largest = max(sizes, key=sizes.__getitem__)
    allowed = PAYLOAD_SIZE_MAX[consensus.get("version", GENESIS_VERSION)]
    if sizes[largest] > allowed and "payload_size_max" not in consensus:
        raise ConfigurationError(
            f"{config.method} posts up to {sizes[largest]} bytes in phase {largest}, at most {allowed} can be "
            "allowed: take a smaller model or, where posts are smaller than they may be, set payload_mib_max"
        )
    consensus.setdefault("payload_size_max", max(PAYLOAD_SIZE_DEFAULT, sizes[largest]))
    return Genesis(
        name=name,
        created_ms=created_ms,
        members=tuple(members),
        learning=learning_to_genesis(replace(config, shapes=rules.info, more_shapes=rules.infos[1:])),
        setup=setup_phases(rules),
        phases=round_phases(rules),
        **consensus,
    )


def expect_contributors(method: Method, drawn: int) -> None:
    """Raise `ConfigurationError` if so many members are drawn for each round, 0 for all, and the method needs more."""
    with asking("contributors_least", type(method)):
        least, setting = method.contributors_least
    if 0 < drawn < least:
        raise ConfigurationError(
            f"contributors_per_round is {drawn}, but {setting} is {least}: with fewer contributors no round leaves "
            "anything"
        )


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` settings: the value as TOML, or as text if it is not TOML; raises ConfigurationError."""
    values = dict[str, Any]()
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--set {setting!r} is not of the form NAME=VALUE")
        if "\n" in text:
            raise ConfigurationError(f"--set {setting!r} has several lines; give --set for each setting")
        if name.strip() in values:
            raise ConfigurationError(f"--set {name.strip()} is given twice")
        try:
            values[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name.strip()] = text.strip()
        except (ValueError, RecursionError):  # endless digits, endless brackets
            raise ConfigurationError(f"--set {name.strip()} has a value that no setting can have") from None
    return values
