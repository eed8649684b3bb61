"""A federation of split networks of several widths, whose parts can be looked at and lost."""

from dataclasses import replace

from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.bulk import PartRef, decode_part, listed
from fedchain.learning.payload.codec import decode
from fedchain.learning.registry import HyperparameterValue
from fedchain.learning.round import Tensors
from tests.support.learning.federation import CLIENTS, Federation, config

MIXED = "split-mlp-1+split-mlp-2+split-mlp-3"


class Relay(Federation):
    """A federation whose parts can be looked at, and lost."""

    def refs(self, phase: str, payload: bytes) -> tuple[PartRef, ...]:
        return listed(decode(payload, self.rules._payload_specs[phase]), self.rules._kinds[phase])

    def tensors(self, phase: str, ref: PartRef) -> Tensors:
        return decode_part(self.parts.read(ref.hash), self.rules._kinds[phase][ref.kind])

    def step(self, phase: str, participants: range = range(CLIENTS)) -> list[bytes]:
        return [one.payload for one in self._phase(phase, participants)]


def small(method: str = "fedgkt", **hyperparameters: HyperparameterValue) -> LearningConfig:
    return replace(config(method, **hyperparameters), model=MIXED)
