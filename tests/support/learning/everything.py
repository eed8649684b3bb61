"""A client's record with a field of each kind."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class Everything:
    vector: torch.Tensor | None = None
    window: tuple[torch.Tensor, ...] = ()
    model: dict[str, torch.Tensor] = field(default_factory=dict)
    count: int = -1
    share: float | None = None
    is_tired: bool = False


FULL = Everything(
    vector=torch.tensor([1.0, 1e-45]),
    window=tuple(torch.full((2,), float(place)) for place in range(11)),
    model={"fc.weight": torch.ones(2, 2), "fc.bias": torch.zeros(2, dtype=torch.int64)},
    count=2**62 + 1,
    share=0.1,
    is_tired=True,
)


def plain(record: Any) -> Any:
    """A record in values that can be compared."""
    vector = None if record.vector is None else record.vector.tolist()
    model = {name: value.tolist() for name, value in record.model.items()}
    window = [value.tolist() for value in record.window]
    return vector, window, model, record.count, record.share, record.is_tired
