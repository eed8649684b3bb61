"""Everything that is wrong with a store is counted, whatever else is."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from tests.support.chain.altered import whole as whole
from tests.support.cli_explorer import explore

pytestmark = pytest.mark.long


def test_the_store_was_whole(whole: Path) -> None:
    assert explore("verify", whole).exit_code == 0
    with Store.open(whole, read_only=True) as store:
        assert Explorer(store).status().height == 3


def test_all_that_is_wrong_is_counted_where_the_head_is_damaged_too(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "chain")
    with closing(sqlite3.connect(tmp_path / "chain" / DATABASE)) as connection, connection:
        connection.execute("UPDATE finals SET posts = 9 WHERE height IN (1, 3)")
        connection.execute("UPDATE votes SET kind = 1")
    result = explore("verify", tmp_path)
    assert result.exit_code == 1
    assert "3 blocks: 2 invalid, 1 unchecked" in result.stdout or "3 blocks: 2 invalid, 1 recomputed" in result.stdout
    for line in ("the chain cannot continue from its head", "finals row with height 1", "votes row with hash"):
        assert line in " ".join(result.stdout.split())


def test_a_store_of_which_every_state_is_gone_is_not_whole(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "chain")
    with closing(sqlite3.connect(tmp_path / "chain" / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM states")
    result = explore("verify", tmp_path)
    assert result.exit_code == 1
    assert "no state leads to block 3" in " ".join(result.stdout.split())
