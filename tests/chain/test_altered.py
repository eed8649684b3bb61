"""Every column of every table with every sort of wrong value: ``verify`` ends with 1, and nothing ends in a traceback.

Each is altered as a disk would, and as somebody would that puts the right checksum beside it.
"""

from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.chain.altered import COLUMNS, TABLES, altered
from tests.support.chain.altered import whole as whole
from tests.support.cli_explorer import explore

pytestmark = pytest.mark.long

COLUMNS += [("contents", "hash"), ("contents", "size"), ("contents", "data")]
"""All but the numbers of rows, which say only in which order they came."""

CASES = [
    pytest.param(
        *item, id=".".join(item), marks=() if item[0] in ("finals", "states") or item[1] == "data" else pytest.mark.slow
    )
    for item in COLUMNS
]
"""CI looks at the blocks, at their states, and at a column of each other table."""

POSSIBLE = {("candidates", "is_own", 0)}
"""Values that only the checksum tells from those written: a store does not say which member's node it is."""


def expect_no_traceback(result: Result) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info


@pytest.mark.parametrize(("table", "column"), CASES)
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


@pytest.mark.parametrize(("table", "column"), CASES)
def test_no_other_question_ends_in_a_traceback(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    questions = (("status", tmp_path), ("block", tmp_path, 3), ("members", tmp_path))
    values = altered(whole, tmp_path / "chain", table, column, is_signed=table in TABLES and column != "checksum")
    for place, _ in enumerate(values, COLUMNS.index((table, column))):
        result = explore(*questions[place % len(questions)])
        expect_no_traceback(result)
        assert result.exit_code in (0, 2)
        assert result.exit_code == 0 or result.stderr.count("\n") == 1
