"""The file of a genesis document: each fault names the file."""

import os
import tracemalloc
from pathlib import Path

import pytest

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import GENESIS_SIZE_MAX, GENESIS_VERSION
from fedchain.node.config import NodeConfigError
from fedchain.node.founding.genesis_file import read_genesis
from tests.support.chain.builders import genesis


def test_a_document_is_read(tmp_path: Path) -> None:
    path = tmp_path / "genesis.fedchain"
    path.write_bytes(genesis(4).encode())
    assert read_genesis(path) == genesis(4)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "genesis.fedchain"
    with pytest.raises(NodeConfigError, match=r"genesis\.fedchain cannot be read: No such file"):
        read_genesis(path)
    path.write_text("peers = 4")
    with pytest.raises(InvalidGenesis, match=r"genesis\.fedchain is no genesis document: "):
        read_genesis(path)


def test_a_document_of_another_version_is_named(tmp_path: Path) -> None:
    path, data = tmp_path / "genesis.fedchain", genesis(4).encode()
    assert data[3] == GENESIS_VERSION, "behind the head of the record"
    path.write_bytes(data[:3] + bytes([GENESIS_VERSION + 2]) + data[4:])
    with pytest.raises(InvalidGenesis, match=rf"genesis\.fedchain: version is {GENESIS_VERSION + 2}, this program"):
        read_genesis(path)


def test_no_more_is_read_than_a_document_may_have(tmp_path: Path) -> None:
    path = tmp_path / "genesis.fedchain"
    path.touch()
    os.truncate(path, 8 * GENESIS_SIZE_MAX)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidGenesis, match=r"genesis\.fedchain is no genesis document: "):
            read_genesis(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * GENESIS_SIZE_MAX
    finally:
        tracemalloc.stop()
