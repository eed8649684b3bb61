"""A successor federation begins with what the old one had learned, as the operators' guide says."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.task.custom import describe_task
from fedchain.learning.worker.learner import Learner
from tests.support.paths import DOCS


def guide_s_module() -> dict[str, Any]:
    """Names that the guide's section on successors defines."""
    section = (DOCS / "operating.md").read_text(encoding="utf-8").split("## A successor federation")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "operating.md", "exec"), names)
    return names


@pytest.mark.parametrize("method", ["dfpl", "fedavg"])
def test_parameters_that_the_function_loads_are_those_of_the_first_round(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guide = guide_s_module()
    old = guide["Net"]().state_dict()
    save_file(old, "old.safetensors")
    load = guide["load"]
    config = describe_task(LearningConfig(method=method, dataset=OWN, task="mytask:load", clients=2), load)
    learner = Learner(config, load)
    for member in range(2):
        with learner.lend(member, 1) as client:
            begun = dict(client.model.state_dict())
        assert len(begun) == len(old)
        for name, tensor in old.items():
            (found,) = [value for key, value in begun.items() if key.endswith(name)]
            assert torch.equal(found, tensor), name
