"""A user's own files are known by what they hold, so that nothing computed with other code is taken for theirs."""

from pathlib import Path

import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.own_code import hashes_of_own
from fedchain.simulator.reproduction.experiment import key_of
from fedchain.simulator.resuming.resume import identity
from fedchain.simulator.scenario import Scenario

METHOD = """
from dataclasses import dataclass
from fedchain.learning.methods.blade_fl import BladeFl

@dataclass(frozen=True, kw_only=True)
class Mine(BladeFl):
    '''Mine.'''
"""


def test_a_result_of_a_method_that_was_changed_since_is_none_of_it(tmp_path: Path) -> None:
    """Else a comparison that goes on would print the numbers of the code as it was."""
    file = tmp_path / "changing.py"
    file.write_text(METHOD)
    scenario = Scenario(method=f"{file}:Mine")
    before, known = key_of(scenario), identity(scenario)
    assert list(hashes_of_own(scenario)) == [scenario.method]
    assert (key_of(scenario), identity(scenario)) == (before, known)
    file.write_text(METHOD + "# another\n")
    assert key_of(scenario) != before
    assert identity(scenario) != known
    file.write_text(METHOD)
    assert key_of(scenario) == before


def test_a_module_and_weights_count_by_what_they_hold(tmp_path: Path) -> None:
    assert hashes_of_own(Scenario(method="fedavg")) == {}
    module = Scenario(method="tests.support.learning.small_keys:SmallKeyDfpl")
    assert len(hashes_of_own(module)) == 1
    for name in ("one", "same"):
        (tmp_path / name).write_bytes(b"one")
    one, same = (Scenario(method="fedavg", weights=str(tmp_path / name)) for name in ("one", "same"))
    before = key_of(one)
    assert before == key_of(same) != key_of(Scenario(method="fedavg"))
    (tmp_path / "one").write_bytes(b"other")
    assert key_of(one) != before
    with pytest.raises(ConfigurationError, match="gone cannot be read"):
        key_of(Scenario(method="fedavg", weights=str(tmp_path / "gone")))
