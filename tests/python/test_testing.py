"""``fedchain.testing``: sound methods and tasks pass, and what others do wrong is named."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedchain import testing
from fedchain.learning.exceptions import ConfigurationError
from tests.python.tasks import Bag, Forgetful, Sound, load
from tests.support.paths import ROOT

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}


@pytest.mark.parametrize("method", ["dfpl", "scaffold", Sound])
def test_sound_methods_pass(method: Any) -> None:
    testing.check_method(method, task=load, local_steps=2)


def test_a_method_that_remembers_outside_of_its_clients_is_found() -> None:
    with pytest.raises(AssertionError, match="a client that goes on from a checkpoint posts something else"):
        testing.check_method(Forgetful, task=load, local_steps=2)


def test_a_sound_task_passes_and_its_shapes_are_returned() -> None:
    shapes = testing.check_task(load, method=Sound(local_steps=2))
    assert (shapes.input_shape, shapes.input_type, shapes.classes) == ((6,), "int64", 3)


def test_a_task_that_brings_something_else_each_time_is_found() -> None:
    calls = iter(range(100))

    def other_examples(member: int) -> Any:
        _, train, test = load(member)
        return Bag, (train[0], torch.roll(train[1], next(calls))), test

    def other_model() -> Any:
        model = Bag()
        with torch.no_grad():
            model.head.bias[0] = next(calls)
        return model, *load(0)[1:]

    with pytest.raises(AssertionError, match=r"member 0 has other train_labels when called again"):
        testing.check_task(other_examples)
    with pytest.raises(AssertionError, match=r"member 0 has another initial head.bias when called again"):
        testing.check_task(other_model)
    with pytest.raises(ConfigurationError, match="must be returned, not NoneType"):
        testing.check_task(lambda: None)


def test_what_is_imported_late_is_offered() -> None:
    assert {*testing.__all__} <= {*dir(testing)}


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


def test_a_federation_in_memory_plays_rounds() -> None:
    federation = testing.Federation.of("fedavg", task=load, clients=2, local_steps=2)
    made = federation.play(rounds=2)
    assert (federation.round, len(made)) == (2, 2)
    assert "model.words.weight" in federation.known()
