"""A method with a phase of the aggregator, which remembers what it announced: what is tested with it is the role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedchain.learning.client import Client
from fedchain.learning.method import Contributor, Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

STEPS = 40
"""Local steps that an announcement takes: in a simulation, two virtual seconds."""


@dataclass(slots=True)
class Book:
    """The aggregator's own state."""

    rounds: int = 0
    """Rounds that it announced something in."""

    total: int = 0
    """Examples that it was told of in all of them."""


@dataclass(frozen=True, kw_only=True)
class Tally(Method):
    """Clients count their examples; the aggregator announces the sum over all rounds.

    Its announcement is its whole state, so another aggregator can go on from the knowledge.
    """

    aggregator: ClassVar[str] = "dedicated"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("count"), Phase("announce", Contributor.AGGREGATOR, trains=True)

    def count(self, client: Client, round: Round) -> Tensors:
        known = {"rounds": np.zeros(1, np.int64), "total": np.zeros(1, np.int64)}
        known |= {name: np.array(value) for name, value in (round.knowledge or {}).items() if name in known}
        return {"examples": np.array([len(client.train_labels)]), **known}

    def announce(self, client: Client, round: Round) -> Tensors:
        assert round.knowledge is not None
        book = client.state(Book)
        known = {name: int(round.knowledge[name][0]) for name in ("rounds", "total", "examples")}
        if book.rounds < known["rounds"]:  # another one has announced meanwhile
            book.rounds, book.total = known["rounds"], known["total"]
        book.rounds, book.total = book.rounds + 1, book.total + known["examples"]
        return {"rounds": np.array([book.rounds]), "total": np.array([book.total])}

    def planned_steps(self, phase: Phase, examples: int, round_number: int) -> int:
        return STEPS

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        announced = TensorSpec("rounds", (1,), "int64", minimum=0), TensorSpec("total", (1,), "int64", minimum=0)
        return announced if phase.name == "announce" else (TensorSpec("examples", (1,), "int64", minimum=1), *announced)

    knowledge_spec = payload_spec

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if phase.name == "announce":
            return round.posts[0].payload
        latest = max(round.posts, key=lambda post: int(post.payload["rounds"][0])).payload
        examples = sum(int(post.payload["examples"][0]) for post in round.posts)
        return {"rounds": latest["rounds"], "total": latest["total"], "examples": np.array([examples])}
