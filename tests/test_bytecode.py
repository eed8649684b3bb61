"""The program's modules are compiled by being imported, whatever extras are there."""

import sys

import pytest

from fedchain.bytecode import import_program

ON_RAY = "fedchain.learning.executors.on_ray"


def test_a_module_of_an_extra_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, ON_RAY, raising=False)
    monkeypatch.delitem(sys.modules, "fedchain.wording", raising=False)
    import_program([ON_RAY, "fedchain.wording"])
    assert ON_RAY not in sys.modules
    assert "fedchain.wording" in sys.modules


def test_a_module_that_is_not_there_is_told() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        import_program(["fedchain.nowhere"])
