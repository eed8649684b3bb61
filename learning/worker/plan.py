"""A learner's plan: plain values from which any process, on any machine that has the data, builds the same learner.

Secrets, ledgers, parts and changes of the examples are not in the plan. It names the functions that open them, with the
path or the seed that they need. Like a task and a method, such a name makes a process run code, so plans are taken from
the user and nobody else.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import msgpack
import msgspec

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.round import NO_CHAIN
from fedchain.learning.training.measured import IN_EVERY_ROUND, Measurements

_NAMED = ("secrets", "ledger", "parts", "spools", "source")
"""Fields that are functions by name."""


@dataclass(frozen=True, slots=True)
class Named:
    """A function by its name, with its first arguments. They may be secret, so they are not shown."""

    name: str
    """'module:function'."""

    arguments: tuple[Any, ...] = field(default=(), repr=False)
    """Numbers, strings, bytes and sequences of them; after a transfer as bytes, sequences are lists."""

    def resolve(self) -> Callable[..., Any]:
        """Return the function that lacks its other arguments. Raises `ConfigurationError` if there is none."""
        module, _, function = self.name.partition(":")
        try:
            return partial(getattr(import_module(module), function), *self.arguments)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"a learner's plan names {self.name}, which is not here: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerPlan:
    """Everything that a learner is built from, as plain values."""

    config: LearningConfig
    """The task."""

    members: tuple[bytes, ...] = ()
    """Public keys by place, of all that are members as the process begins; empty where no method asks who is who."""

    chain_id: bytes = NO_CHAIN
    """Identifier of the federation, to which proofs are bound."""

    measurements: Measurements = IN_EVERY_ROUND
    """When models are measured, and on what."""

    secrets: Named | None = None
    """(client) -> its secrets; None: there are none."""

    ledger: Named | None = None
    """(client) -> its privacy ledger, which outlives the process; None: it is in the process's memory."""

    parts: Named | None = None
    """(client) -> its store of parts; None: it is in the process's memory."""

    spools: Named | None = None
    """() -> begins large posts and states of models; None: they are in the process's memory."""

    device: str = "cpu"
    """Where models are trained: a name that `fedchain.learning.device.find_device` takes."""

    vectorize_clients: bool = False
    """Whether clients that work at the same time are trained as one batch of models where that pays."""

    source: Named | None = None
    """(source of examples) -> what clients get instead; None: the examples as they are."""

    def encode(self) -> bytes:
        """The plan as msgpack."""
        data: bytes = msgpack.packb(asdict(self), default=sorted)  # sets of names
        return data

    @classmethod
    def decode(cls, data: bytes) -> "LearnerPlan":
        """Read what `encode` wrote. Other bytes raise ValueError."""
        record = msgpack.unpackb(data)
        config = record["config"]
        shapes = msgspec.convert(config["shapes"], ModelInfo | None)
        more_shapes = msgspec.convert(config["more_shapes"], tuple[ModelInfo, ...])
        named = {name: msgspec.convert(record[name], Named | None) for name in _NAMED}
        return cls(
            config=LearningConfig(**config | {"shapes": shapes, "more_shapes": more_shapes}),
            members=tuple(record["members"]),
            chain_id=record["chain_id"],
            measurements=Measurements(**record["measurements"]),
            device=record["device"],
            vectorize_clients=record["vectorize_clients"],
            **named,
        )
