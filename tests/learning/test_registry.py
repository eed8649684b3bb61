"""Methods by name."""

import re
import sys
from dataclasses import dataclass

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.registry import METHODS, build_method, load_method


@dataclass(frozen=True, kw_only=True)
class Contributed(FedAvg):
    """Stands for a method in a contributor's own file."""

    strength: float = 1.0


def test_every_registered_method_loads_and_cites_its_source() -> None:
    for name in METHODS:
        module = sys.modules[load_method(name).__module__]
        assert re.search(r" et al\., | and \w+, ", module.__doc__ or ""), name


def test_a_method_of_ones_own_is_named_by_module_and_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    LearningConfig(method="contributed:Contributed", hyperparameters={"strength": 2.0}).validate()
    assert isinstance(build_method("contributed:Contributed", {}), Contributed)
