"""Whether members train on data of their own; asked of a peer's operator, and answered without torch."""

import sys
from collections.abc import Callable
from typing import Any

from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import is_file_path, is_import_path, running_script

TaskFunction = Callable[..., Any]
"""The user's function. It is given `member` (place among the members, from 0), `members` (how many have data) and
`seed` (the federation's), as far as it has parameters of these names. A dedicated aggregator calls it for its model
alone, as `member` number `members`."""


def name_task(task: TaskFunction) -> str:
    """Return the name under which a function is found again; "" for one that no name leads to, such as a lambda.

    For a function of the script that runs it is 'FILE.py:function', with the file's whole path; else 'module:function'.
    """
    module_name, name = getattr(task, "__module__", None) or "", getattr(task, "__qualname__", "")
    module = sys.modules.get(module_name)
    if not name.isidentifier() or getattr(module, name, None) is not task:
        return ""
    if module_name != "__main__":
        return f"{module_name}:{name}"
    script = running_script()
    return "" if script is None else f"{script}:{name}"


def validate_choice(config: LearningConfig, task: TaskFunction | str) -> None:
    """Raise `ConfigurationError` unless there is a function, or its name, exactly if each member has own data."""
    if isinstance(task, str) and task and not (is_import_path(task) or is_file_path(task)):
        raise ConfigurationError(f"task must be of the form FILE.py:function or module:function, not '{task}'")
    if config.dataset == OWN and not task:
        raise ConfigurationError(
            "the members train on data of their own: name your function with --task FILE.py:function"
        )
    if config.dataset != OWN and task:
        raise ConfigurationError(f"the members train on {config.dataset}, not on data of their own; leave out the task")
