"""Every column of every table with every sort of wrong value: ``verify`` ends with 1, and nothing ends in a traceback.

Each is altered as a disk would, and as somebody would that puts the right checksum beside it.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from tests.support.chain.altered import COLUMNS, TABLES, altered
from tests.support.chain.altered import whole as whole
from tests.support.cli_explorer import explore

pytestmark = pytest.mark.long

COLUMNS += [("contents", "hash"), ("contents", "size"), ("contents", "data")]
"""All but the numbers of rows, which say only in which order they came."""

POSSIBLE = {("candidates", "is_own", 0)}
"""Values that only the checksum tells from those written: a store does not say which member's node it is."""


def expect_no_traceback(result: Result) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[".".join(item) for item in COLUMNS])
def test_verify_ends_with_1_whatever_stands_in_a_column(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    for is_signed in (False, True):
        if is_signed and (table == "contents" or column == "checksum"):
            continue
        count = 0
        for value in altered(whole, tmp_path / "chain", table, column, is_signed=is_signed):
            count += 1
            if is_signed and (table, column, value) in POSSIBLE:
                continue
            result = explore("verify", tmp_path)
            expect_no_traceback(result)
            assert result.exit_code == 1, (is_signed, value if not isinstance(value, bytes) else value[:40])
            assert result.stderr.count("\n") <= 1
        assert count > 2


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[".".join(item) for item in COLUMNS])
def test_no_other_question_ends_in_a_traceback(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    for _ in altered(whole, tmp_path / "chain", table, column, is_signed=table in TABLES and column != "checksum"):
        for words in (("status", tmp_path), ("block", tmp_path, 3), ("members", tmp_path)):
            result = explore(*words)
            expect_no_traceback(result)
            assert result.exit_code in (0, 2)
            assert result.exit_code == 0 or result.stderr.count("\n") == 1


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
