"""A node that can start, for the checks before it does."""

from pathlib import Path

import pytest

import fedchain.node.operating.check as check_module
from fedchain.node.config import NodeConfig
from tests.support.chain.builders import keys
from tests.support.node.shell import write_genesis

ME, OTHER = keys(2)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeConfig:
    """Settings of a node that can start."""
    monkeypatch.setattr(check_module, "is_clock_synchronized", lambda: True)
    path = write_genesis(tmp_path / "genesis")
    ME.save(tmp_path / "key.pem")
    paths = [str(tmp_path / name) for name in ("key.pem", "data")]
    return NodeConfig(genesis=str(path), key=paths[0], data=paths[1], listen="/ip4/127.0.0.1/tcp/0")


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the check that takes a second."""
    monkeypatch.setattr(check_module, "_check_data", lambda *_: "not looked at")
