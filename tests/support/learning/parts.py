"""A federation whose posts list parts, and parts in a folder."""

import sys

import pytest

from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.bulk import (
    pack_part,
)
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.part_folder import PartMemory
from fedchain.learning.round import OffChain, Tensors
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning import relay


def written(tensors: Tensors) -> bytes:
    """The part that holds the tensors."""
    return pack_part(encode(tensors))


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "relay", relay)
    return LearningConfig(method="relay:Relay", clients=3)


MEMBERS = [bytes([place + 1]) * 32 for place in range(3)]


class Players:
    """Three members that share a store of parts, the first of which is the aggregator."""

    def __init__(self, config: LearningConfig) -> None:
        self.rules, self.store = Application(config, MEMBERS), PartMemory()
        self.learner = Learner(config, members=MEMBERS, stores=Stores(parts_of=lambda _: self.store))
        self.known = b""

    def play(self, phase: str, number: int, players: range) -> list[bytes]:
        payloads = [self.learner.contribute(place, phase, number, self.known).payload for place in players]
        posts = [(MEMBERS[place], payload) for place, payload in zip(players, payloads, strict=True)]
        for sender, payload in posts:
            self.rules.check(OffChain(phase, number, MEMBERS), sender, self.known, payload)
        self.known = self.rules.aggregate(OffChain(phase, number, MEMBERS), self.known, posts)
        return payloads
