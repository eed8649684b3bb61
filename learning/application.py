"""What the chain needs to know about learning: phases, and what may be posted and what it aggregates to, as bytes.

Everything here is public and repeatable: no data set, no private model, no randomness.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.arithmetic import check_arithmetic
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.registry import info_of
from fedchain.learning.payload.codec import decode, encode, settle, size_bytes_max, to_safetensors
from fedchain.learning.registry import build_method
from fedchain.learning.round import Post, Round, Tensors

KNOWLEDGE_KEPT = 2
"""Decoded knowledge that is kept: what a phase begins with, and what it leaves."""


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


class Application:
    """The public side of a learning task."""

    def __init__(self, config: LearningConfig) -> None:
        config.validate()
        check_arithmetic()
        self.method = build_method(config.method, dict(config.hyperparameters))
        self.info: ModelInfo = info_of(config)
        self._knowledge = KnowledgeReader(self.method, self.info)
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

    def check(self, phase: str, sender: bytes, round_number: int, knowledge: bytes, payload: bytes) -> None:
        """Raise `InvalidPayload` unless the bytes are a valid post of the sender's in the phase of the round.

        `knowledge` is what the previous phase left, b'' before the first. What passes, `aggregate` takes.
        """
        round = Round(round_number, self.read_knowledge(knowledge), clients=self._clients)
        self._read(self._phases[phase], sender, payload, round)

    def aggregate(self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the knowledge that (sender, payload) posts, in ascending order of sender, leave behind.

        Without posts the knowledge stays as it is. Raises `InvalidPayload` for a payload that `check` refuses, and for
        no other.
        """
        assert list(posts) == sorted(posts, key=lambda post: post[0]), "posts must come in ascending order of sender"
        if not posts:
            return knowledge
        which = self._phases[phase]
        round = Round(round_number, self.read_knowledge(knowledge), clients=self._clients)
        read = tuple(self._read(which, sender, payload, round) for sender, payload in posts)
        left = self.method.aggregate(which, replace(round, posts=read))
        return encode(settle(left, self.method.knowledge_spec(which, self.info)))

    def read_knowledge(self, knowledge: bytes) -> Tensors | None:
        """Decode knowledge; b'' is None. Raises `InvalidPayload` for bytes that no phase leaves behind."""
        return self._knowledge.read(knowledge)

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

    def _read(self, phase: Phase, sender: bytes, payload: bytes, round: Round) -> Post:
        post = Post(sender, decode(payload, self.method.payload_spec(phase, self.info)))
        self.method.check(phase, post, round)
        return post


class KnowledgeReader:
    """Decodes knowledge, and keeps what it decoded last: all posts of a phase are checked against the same."""

    def __init__(self, method: Method, info: ModelInfo) -> None:
        self._method, self._info = method, info
        self._last: tuple[tuple[bytes, Tensors], ...] = ()  # the newest first

    def read(self, knowledge: bytes) -> Tensors | None:
        """Decode knowledge; b'', which stands before the first aggregate, is None.

        It may be of any phase, because a phase that closes without posts leaves the knowledge as it was. Raises
        `InvalidPayload` for bytes that no phase leaves behind.
        """
        if not knowledge:
            return None
        for known, tensors in self._last:
            if known is knowledge or known == knowledge:
                return tensors
        found = self._decode(knowledge)
        self._last = ((knowledge, found), *self._last)[:KNOWLEDGE_KEPT]
        return found

    def _decode(self, knowledge: bytes) -> Tensors:
        refusals = []
        for phase in (*self._method.phases, *self._method.setup):
            try:
                return decode(knowledge, self._method.knowledge_spec(phase, self._info))
            except InvalidPayload as refusal:
                refusals.append(f"{phase.name}: {refusal}")
        raise InvalidPayload("; ".join(refusals))


def _inner(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Inner product with one rounding per product and a correctly rounded sum."""
    return math.fsum((a * b).tolist())
