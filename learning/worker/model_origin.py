"""Where a model in a file is from, and how good the run found it: JSON in the header of the safetensors file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Method

HEADER = "fedchain"
"""The one key of the file's metadata: of several, safetensors would change the order from process to process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a model is from, and how good the run found it."""

    chain_id: str
    """Identifier of the federation's chain, in hexadecimal."""

    method: str
    """The learning method."""

    dataset: str
    """The data set, or "own"."""

    model: str
    """Name of a built-in model; "own" where the members brought it."""

    round: int | None
    """The round after which the model had this state; None if its member never trained, or it was not measured."""

    member: int | None = None
    """Place of the member whose local model it is, from 0; None: it is the aggregate of all."""

    accuracy: float | None = None
    """Accuracy that the run measured, a fraction: for a member's model on its own test set, for the aggregate the mean
    over the members' own test sets; None if it measured none."""

    loss: float | None = None
    """Mean cross-entropy on the same, in nats."""

    test_accuracy: float | None = None
    """Accuracy on the whole test set, where the run measured it."""


def write_origin(origin: Origin) -> dict[str, str]:
    """Return the metadata of a file."""
    return {HEADER: json.dumps(asdict(origin), sort_keys=True)}


def read_metadata(data: bytes) -> dict[str, str]:
    """Read all texts in the header of a sound safetensors file, by their keys."""
    size = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    return found


def read_origin(data: bytes) -> Origin | None:
    """Read a sound safetensors file's statement about its model; None for a file that another program wrote."""
    text = read_metadata(data).get(HEADER)
    try:
        values = None if text is None else json.loads(text)
    except ValueError:
        return None
    if isinstance(values, Mapping) and values.keys() == {item.name for item in fields(Origin)}:
        return Origin(**values)
    return None


def validate_shared(name: str, method: Method) -> None:
    """Raise `ConfigurationError` for a method, called by its name, whose members share no model."""
    if not method.shares_model:
        raise ConfigurationError(f"{name} has no common model, only those of its members; ask for a member's")
