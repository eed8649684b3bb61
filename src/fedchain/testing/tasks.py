"""Checks for a task of one's own: a function that returns (model, train set, test set)."""

import torch

from fedchain.learning.method import Method
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.registry import build_method
from fedchain.learning.seeding import initial_seed
from fedchain.learning.task.choice import TaskFunction
from fedchain.learning.task.custom import open_data_source
from fedchain.testing.federation import Federation, function_of, small_config


def check_task(task: TaskFunction | str, method: str | type[Method] | Method = "dfpl", members: int = 3) -> ModelInfo:
    """Call a task's function as every member would, twice, and train one round; return the shapes that peers agree on.

    Args:
        task: the function, or its name: ``"FILE.py:function"`` or ``"module:function"``.
        method: name, class or instance of the method that will learn from it.
        members: number of members.

    Raises:
        ConfigurationError: the function's result cannot be used; the message says why, in one line.
        AssertionError: it returns other examples, or another model, when it is called again.
    """
    task = function_of(task)
    config = small_config(method, task, members)
    config.validate()
    shared_init = build_method(config.method, dict(config.hyperparameters)).shared_init
    for member in range(members):
        seed = initial_seed(config.seed, member, shared_init=shared_init)
        first, again = (open_data_source(config, task).share(member, seed) for _ in range(2))
        for what in ("train_images", "train_labels", "test_images", "test_labels"):
            if not torch.equal(getattr(first, what) + 0, getattr(again, what) + 0):
                raise AssertionError(f"member {member} has other {what.replace('images', 'inputs')} when called again")
        other = again.model.state_dict()
        for tensor, value in first.model.state_dict().items():
            if not torch.equal(value, other[tensor]):
                raise AssertionError(f"member {member} has another initial {tensor} when called again")
    federation = Federation(config, task=task)
    federation.play()
    return federation.rules.info
