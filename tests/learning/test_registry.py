"""Methods by name."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.registry import METHODS, agreed_name, build_method, import_file, load_method


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


def test_a_file_that_was_edited_since_is_imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a notebook that names it trains by the code as it was, without a word."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "2-edited.py"
    text = "from fedchain.learning.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    number = "
    file.write_text(f"{text}1")
    assert agreed_name(f"{file}:Mine") == "_2_edited:Mine"
    first = import_file("method", file)
    assert import_file("method", file) is first
    file.write_text(f"{text}2")  # of the same size and second, by which Python's own cache of compiled code goes
    assert agreed_name(f"{file}:Mine") == "_2_edited:Mine"
    assert [getattr(load_method(name), "number", 0) for name in ("_2_edited:Mine", "fedavg")] == [2, 0]
    assert import_file("method", file) is sys.modules["2-edited"] is sys.modules["_2_edited"] is not first
    file.write_text("1 / 0")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"its import raised ZeroDivisionError: .* line 1\)$"):
            import_file("method", file)
    file.write_text(f"{text}2")
    assert import_file("method", file) is sys.modules["_2_edited"]
    for name in ("2-edited", "_2_edited"):
        monkeypatch.delitem(sys.modules, name)


def test_a_module_that_python_imported_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    file = tmp_path / "imported_before.py"
    file.write_text("number = 1")
    module = __import__("imported_before")
    file.write_text("number = 2")
    assert import_file("method", file) is module
    monkeypatch.delitem(sys.modules, "imported_before")
