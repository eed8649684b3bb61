"""What the chain needs to know about learning: phases, and what may be posted and what it aggregates to, as bytes.

Everything here is public and repeatable: no data set, no private model, no randomness.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.codec import decode, encode, size_bytes_max, to_safetensors
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Method, Phase, Post, Round, Tensors
from fedchain.learning.models import ModelInfo, info_of
from fedchain.learning.registry import build_method


@dataclass(frozen=True, slots=True)
class PrototypeSummary:
    """The global prototypes at a glance; all tuples follow `labels`."""

    labels: tuple[int, ...]
    """Classes with a prototype, ascending, n of them."""

    holders: tuple[int, ...]
    """Number of clients behind each prototype."""

    norms: tuple[float, ...]
    """L2 norm of each prototype."""

    cosines: tuple[tuple[float, ...], ...]
    """(n, n) cosine similarities; 0 where a norm is 0."""


class Rules:
    """The public side of a learning task."""

    def __init__(self, config: LearningConfig) -> None:
        config.validate()
        self.method = build_method(config.method, dict(config.hyperparameters))
        self.info: ModelInfo = info_of(config)
        self._clients = config.clients
        self._phases = {phase.name: phase for phase in (*self.method.setup, *self.method.phases)}

    @property
    def phases(self) -> tuple[tuple[str, str], ...]:
        """Name and contributor ('participant' or 'aggregator') of every round's phases, in order."""
        return tuple((phase.name, phase.by.value) for phase in self.method.phases)

    @property
    def setup_phases(self) -> tuple[tuple[str, str], ...]:
        """The same for the phases that run once, before round 1."""
        return tuple((phase.name, phase.by.value) for phase in self.method.setup)

    def payload_size_bytes_max(self, phase: str) -> int:
        """Return the size that no valid payload of the phase exceeds."""
        return size_bytes_max(self.method.payload_spec(self._phases[phase], self.info))

    def check(self, phase: str, payload: bytes) -> None:
        """Raise `InvalidPayload` unless the bytes are a valid post of the phase."""
        self._read(self._phases[phase], payload)

    def aggregate(self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the knowledge that (sender, payload) posts, in ascending order of sender, leave behind.

        `knowledge` is what the previous phase left, b'' before the first. Without posts it stays as it is. Raises
        `InvalidPayload` if any payload is invalid.
        """
        assert list(posts) == sorted(posts, key=lambda post: post[0]), "posts must come in ascending order of sender"
        if not posts:
            return knowledge
        which = self._phases[phase]
        read = tuple(Post(sender, self._read(which, payload)) for sender, payload in posts)
        round = Round(round_number, self.read_knowledge(knowledge), read, self._clients)
        return encode(self.method.aggregate(which, round))

    def read_knowledge(self, knowledge: bytes) -> Tensors | None:
        """Decode knowledge; b'' is None. Raises `InvalidPayload` for bytes that no phase leaves behind."""
        return read_knowledge(self.method, self.info, knowledge)

    def summary(self, knowledge: bytes) -> PrototypeSummary | None:
        """Describe the class prototypes in the knowledge; None for a method without any, or before the first."""
        tensors = self.read_knowledge(knowledge)
        found = None if tensors is None else self.method.prototypes(tensors)
        if found is None:
            return None
        rows = found["prototypes"].astype(np.float64)  # (n, D)
        norms = tuple(math.sqrt(_inner(row, row)) for row in rows)
        return PrototypeSummary(
            labels=tuple(found["labels"].tolist()),
            holders=tuple(found["holders"].tolist()),
            norms=norms,
            cosines=tuple(
                tuple(_inner(a, b) / (p * q) if p * q > 0 else 0.0 for b, q in zip(rows, norms, strict=True))
                for a, p in zip(rows, norms, strict=True)
            ),
        )

    def safetensors(self, knowledge: bytes) -> bytes:
        """Return the knowledge as a safetensors file; without knowledge, one without tensors."""
        return to_safetensors(self.read_knowledge(knowledge) or {})

    def _read(self, phase: Phase, payload: bytes) -> Tensors:
        tensors = decode(payload, self.method.payload_spec(phase, self.info))
        self.method.check(phase, tensors)
        return tensors


def read_knowledge(method: Method, info: ModelInfo, knowledge: bytes) -> Tensors | None:
    """Decode knowledge; b'', which stands before the first aggregate, is None.

    It may be of any phase, because a phase that closes without posts leaves the knowledge as it was. Raises
    `InvalidPayload` for bytes that no phase leaves behind.
    """
    if not knowledge:
        return None
    refusals = []
    for phase in (*method.phases, *method.setup):
        try:
            return decode(knowledge, method.knowledge_spec(phase, info))
        except InvalidPayload as refusal:
            refusals.append(f"{phase.name}: {refusal}")
    raise InvalidPayload("; ".join(refusals))


def _inner(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Inner product with one rounding per product and a correctly rounded sum."""
    return math.fsum((a * b).tolist())
