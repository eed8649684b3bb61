"""Tools for testing contributed methods, tasks, executors and networks: checks that all must pass, and a federation.

Each is imported when it is first used: a test of a network does not wait for the tensor library.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedchain.testing.executors import check_executor
    from fedchain.testing.federation import Federation
    from fedchain.testing.methods import check_method
    from fedchain.testing.networks import NetworkConformance, Wire
    from fedchain.testing.tasks import check_task

__all__ = ["Federation", "NetworkConformance", "Wire", "check_executor", "check_method", "check_task"]

_PLACES = {
    "Federation": "federation",
    "NetworkConformance": "networks",
    "Wire": "networks",
    "check_executor": "executors",
    "check_method": "methods",
    "check_task": "tasks",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'fedchain.testing' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fedchain.testing.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
