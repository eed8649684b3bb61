"""A method that moves numbers by reference: members send rows to the aggregator, which answers each of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedchain.learning.client import Client
from fedchain.learning.exceptions import NothingToPost, PartMissing
from fedchain.learning.method import Contributor, Lifetime, Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors, left_behind

WIDTH = 64
"""Numbers of a row."""


@dataclass(frozen=True, kw_only=True)
class Relay(Method):
    """In the setup everybody shows everybody a row. In a round all send rows, and the aggregator returns their sum,
    to which it adds what it has summed before."""

    rows: int = 8
    """Rows of a part."""

    parts_of_post: int = 2
    """Parts of a post."""

    uses_embedding: ClassVar[bool] = False

    @property
    def setup(self) -> tuple[Phase, ...]:
        return (Phase("show", lifetime=Lifetime.FEDERATION),)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("send", lifetime=Lifetime.ROUND), Phase("answer", by=Contributor.AGGREGATOR)

    def parts(self, phase: Phase, info: ModelInfo) -> Mapping[str, tuple[TensorSpec, ...]]:
        rows = (TensorSpec("rows", (-1, WIDTH), free_max=self.rows),)
        return {
            "show": {"shown": rows},
            "send": {"sent": rows},
            "answer": {"answered": rows, "total": (TensorSpec("total", (WIDTH,)),)},
        }[phase.name]

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return ()

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return ()

    def show(self, client: Client, round: Round) -> Tensors:
        assert round.bulk is not None
        round.bulk.write("shown", {"rows": _row(client.index + 1, 1)}, EVERYBODY)
        return round.bulk.manifest()

    def send(self, client: Client, round: Round) -> Tensors:
        bulk = round.bulk
        assert bulk is not None
        told = [bulk.read(ref)["rows"][0, 0] for ref in bulk.parts("answer") if ref.reader == client.index]
        shown = sum(float(bulk.read(ref)["rows"][0, 0]) for ref in bulk.parts("show"))
        for number in range(self.parts_of_post):
            value = shown + sum(told) + client.index + number / 64
            bulk.write("sent", {"rows": _row(value, self.rows)}, AGGREGATOR)
        return bulk.manifest()

    def answer(self, client: Client, round: Round) -> Tensors:
        bulk = round.bulk
        assert bulk is not None
        before = [bulk.read(ref)["total"] for ref in bulk.parts("answer") if ref.kind == "total"]
        total = sum(before, np.zeros(WIDTH, np.float32))
        senders = set()
        for ref in bulk.parts("send"):
            try:
                total = total + bulk.read(ref)["rows"].mean(axis=0) / 1024
            except PartMissing:
                continue
            senders.add(ref.sender)
        if not senders:
            raise NothingToPost(f"member {client.index}, round {round.number}: nobody sent anything")
        for place in sorted(senders):
            bulk.write("answered", {"rows": _row(float(total[0]), self.rows)}, place)
        bulk.write("total", {"total": total.astype(np.float32)}, NEXT_AGGREGATOR)
        return bulk.manifest()

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        return left_behind(round)


def _row(value: float, rows: int) -> np.ndarray:
    return np.full((rows, WIDTH), value, np.float32)
