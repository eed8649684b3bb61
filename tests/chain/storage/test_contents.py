"""Contents by hash: damaged, missing, served in parts, dropped."""

from pathlib import Path

import pytest

from fedchain.chain.exceptions import StoreError
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from tests.support.chain.contents import contents
from tests.support.chain.stored import (
    SMALL,
    execute,
    warnings,
)
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder


def test_a_full_disk_is_a_store_error(folder: Path) -> None:
    with Store.open(folder) as store:
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            store.append([contents(bytes([number]) * ROW_SIZE_MAX) for number in range(3)])
        assert store.content(sha256(SMALL)) == SMALL


def test_a_damaged_content_row_is_logged_and_can_be_fetched_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for change in ("data = x'00'", "size = 'many'"):
        execute(folder, f"UPDATE contents SET {change} WHERE data IS NOT NULL")
        with Store.open(folder) as store:
            assert [store.content(sha256(SMALL)), store.content_part(sha256(SMALL), 0, 1)] == [None, None]
            assert len(warnings(caplog)) == 1
            store.append([contents(SMALL)])
            assert store.content(sha256(SMALL)) == SMALL
        with Store.open(folder) as store:
            assert store.content(sha256(SMALL)) == SMALL
        caplog.clear()
