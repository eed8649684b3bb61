"""A federation whose posts list parts, and parts in a folder."""

import sys

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.bulk import (
    pack_part,
)
from fedchain.learning.payload.codec import encode
from fedchain.learning.round import Tensors
from tests.support.learning import relay


def written(tensors: Tensors) -> bytes:
    """The part that holds the tensors."""
    return pack_part(encode(tensors))


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "relay", relay)
    return LearningConfig(method="relay:Relay", clients=3)
