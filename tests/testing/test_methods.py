"""Sound methods pass, and what others do wrong is named."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedchain import testing
from fedchain.learning.exceptions import ConfigurationError
from tests.python.tasks import Forgetful, Sound, load
from tests.support.paths import ROOT

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}


@pytest.mark.parametrize("method", ["dfpl", "scaffold", Sound])
def test_sound_methods_pass(method: Any) -> None:
    testing.check_method(method, task=load, local_steps=2)


def test_noise_is_charged_to_a_ledger_that_outlives_the_process() -> None:
    testing.check_method("fedavg", local_steps=2, gradient_noise=2.0)


def test_a_method_that_remembers_outside_of_its_clients_is_found() -> None:
    with pytest.raises(AssertionError, match="a client that goes on from a checkpoint posts something else"):
        testing.check_method(Forgetful, task=load, local_steps=2)


OWN = """
from dataclasses import dataclass
from fedchain import testing
from fedchain.learning.methods.fedavg import FedAvg
from tests.python.tasks import load

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    pass

if __name__ == "__main__":
    testing.check_method(Mine, "own.py:load", local_steps=2)
    print(testing.check_task("own:load", Mine).classes)
"""


@pytest.mark.long
def test_a_script_checks_what_is_in_it_by_name(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    command = [sys.executable, "own.py"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3\n", "")
    with pytest.raises(ConfigurationError, match=r"^task must be of the form FILE.py:function or module:function"):
        testing.check_task("own")
