"""No page fails on a store that was altered: it shows what it can read, or says what is wrong."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.support.chain.altered import COLUMNS, TABLES, altered
from tests.support.chain.altered import whole as whole
from tests.support.chain.explored import FakeRules
from tests.support.web.site import HOME, site

pytestmark = pytest.mark.long

PAGES = ("", "blocks", "block/3", "members")


READ = [(table, name) for table, name in COLUMNS if name in ("data", "block", "certificate", "parent_hash", "height")]
READ = [item for item in READ if item[0] in ("finals", "states", "candidates")]
"""Columns of which pages show something; without its genesis document no chain is served at all."""


@pytest.mark.parametrize(("table", "column"), READ, ids=[".".join(item) for item in READ])
def test_no_page_fails_whatever_stands_in_a_column(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    is_signed = table in TABLES and column != "checksum"
    for value in altered(whole, tmp_path / "run" / "chain", table, column, is_signed=is_signed):
        app = site(tmp_path, rules=lambda genesis: FakeRules()).app
        client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
        for page in PAGES:
            answer = client.get(f"/run/{page}")
            assert answer.status_code in (200, 404, 503), (page, value if not isinstance(value, bytes) else value[:9])
