"""Clusters of Ray on this machine: nodes of one core each, which can be taken away. Without Ray their tests skip."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

STORE_SIZE = 100 * 2**20


@contextmanager
def cluster(nodes: int) -> Iterator[Any]:
    """A cluster that this process is connected to, so that executors use it and leave it running."""
    ray = pytest.importorskip("ray", reason="Ray is an extra of the package, for which there is make ray-test")
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    size = {"num_cpus": 1, "object_store_memory": STORE_SIZE, "include_dashboard": False}
    found = Cluster(initialize_head=True, connect=False, head_node_args=size)
    try:
        others = [found.add_node(num_cpus=1, object_store_memory=STORE_SIZE) for _ in range(nodes - 1)]
        ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
        yield SimpleNamespace(address=found.address, remove=lambda: found.remove_node(others.pop()))
    finally:
        ray.shutdown()
        found.shutdown()


def actors() -> list[int]:
    """Processes of the actors of this machine's clusters that live, the newest last."""
    living = (process.info for process in psutil.process_iter(["pid", "name", "create_time"]))
    found = [info for info in living if info["name"].startswith("ray::_Actor")]
    return [info["pid"] for info in sorted(found, key=lambda info: info["create_time"])]


def at(times: int, do: Callable[[], object]) -> Callable[..., None]:
    """A callback that does something the so-manieth time that it is called."""
    left = [times]

    def call(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            do()

    return call
