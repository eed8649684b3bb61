"""A journal goes with its key to another machine, and never back."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.node.journal_file import CONTENT_SIZE_MAX, JournalError, JournalFile, journal_path
from fedchain.node.journal_transfer import EXPORT_SIZE_MAX, export_journal, import_journal

CHAIN = bytes(range(32))
KEY, OTHER_KEY = (PrivateKey(bytes([number]) * 32).public_key for number in (1, 2))


def is_behind(old: bytes, new: bytes) -> bool:
    """Contents are heights here."""
    return new < old


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return journal_path(tmp_path / "key.pem", CHAIN)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return journal_path(tmp_path / "there" / "key.pem", CHAIN)


def put(path: Path, *contents: bytes, public_key: bytes = KEY) -> None:
    with JournalFile.open(path, CHAIN, public_key) as journal:
        for content in contents:
            journal.write(content)


def read(path: Path) -> bytes | None:
    with JournalFile.open(path, CHAIN, KEY) as journal:
        return journal.content()


@pytest.mark.parametrize("contents", [[], [b""], [b"\x01", b"\x02"], [bytes(CONTENT_SIZE_MAX)]])
def test_what_is_exported_can_be_imported(here: Path, there: Path, contents: list[bytes]) -> None:
    put(here, *contents)
    text = export_journal(here)
    assert len(text) <= EXPORT_SIZE_MAX
    import_journal(there, text, is_behind)
    assert read(there) == (contents[-1] if contents else None)
    assert there.stat().st_mode & 0o777 == 0o600
    import_journal(there, text, is_behind)


def test_the_exported_journal_is_for_people_too(here: Path) -> None:
    put(here, b"\x01", b"\x02")
    found = json.loads(export_journal(here))
    expected = {"version": 1, "chain_id": CHAIN.hex(), "address": address(KEY), "sequence": 2, "content": "02"}
    assert found == expected


def test_it_never_goes_back(here: Path, there: Path) -> None:
    put(here, b"\x05")
    text = export_journal(here)
    put(there, b"\x06")
    with pytest.raises(JournalError, match="knows of more that was signed than what is to be imported"):
        import_journal(there, text, is_behind)
    assert read(there) == b"\x06"
    put(here, b"\x07")
    import_journal(there, export_journal(here), is_behind)
    assert read(there) == b"\x07"


def test_an_empty_journal_does_not_replace_one_that_is_not(here: Path, there: Path) -> None:
    put(here)
    put(there, b"")
    with pytest.raises(JournalError, match="knows of more"):
        import_journal(there, export_journal(here), lambda old, new: False)
    assert read(there) == b""


def test_a_journal_in_use_is_neither_exported_nor_imported_into(here: Path) -> None:
    put(here, b"\x01")
    text = export_journal(here)
    with JournalFile.open(here, CHAIN, KEY):
        with pytest.raises(JournalError, match="is in use"):
            export_journal(here)
        with pytest.raises(JournalError, match="is in use"):
            import_journal(here, text, is_behind)


def test_another_key_s_journal_is_not_imported(here: Path, there: Path) -> None:
    put(here, b"\x01")
    put(there, b"\x00", public_key=OTHER_KEY)
    with pytest.raises(JournalError, match=f"is of the key of {address(OTHER_KEY)}, not of {address(KEY)}"):
        import_journal(there, export_journal(here), is_behind)


def test_another_chain_s_journal_is_not_imported(here: Path, tmp_path: Path) -> None:
    put(here, b"\x01")
    with pytest.raises(JournalError, match=f"is not the journal of chain {CHAIN.hex()}"):
        import_journal(journal_path(tmp_path / "key.pem", bytes(32)), export_journal(here), is_behind)
    assert [item.name for item in tmp_path.iterdir()] == [here.name]


def test_what_is_not_there_is_not_exported(here: Path) -> None:
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        export_journal(here)
    assert not here.exists()


def test_a_damaged_journal_is_not_exported(here: Path) -> None:
    put(here, b"\x01")
    here.write_bytes(b"x" + here.read_bytes()[1:])
    with pytest.raises(JournalError, match="is damaged"):
        export_journal(here)


def document(**changes: Any) -> str:
    good = {"version": 1, "chain_id": CHAIN.hex(), "address": address(KEY), "sequence": 1, "content": "01"}
    return json.dumps(good | changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no exported journal"),
        ("[]", "this is no exported journal"),
        ("{}", "this is no exported journal: KeyError: 'version'"),
        ("[" * 100_000, "this is no exported journal"),
        (" " * (EXPORT_SIZE_MAX + 1), f"at most {EXPORT_SIZE_MAX} characters, not {EXPORT_SIZE_MAX + 1}"),
        (document(version=2), "has version 2, this program reads 1"),
        (document(chain_id=5), "this is no exported journal: TypeError"),
        (document(chain_id=CHAIN.hex()[2:]), "a chain id has 32 bytes, not 31"),
        (document(address="nobody"), "this is no exported journal: InvalidAddress"),
        (document(address=5), "this is no exported journal: "),
        (document(content="0"), "this is no exported journal: ValueError"),
        (document(content=[1]), "this is no exported journal: TypeError"),
        (
            document(content="00" * (CONTENT_SIZE_MAX + 1)),
            f"takes {CONTENT_SIZE_MAX} bytes, the exported one has {CONTENT_SIZE_MAX + 1}",
        ),
    ],
)
def test_other_texts_are_refused_and_leave_nothing_behind(there: Path, text: str, said: str) -> None:
    with pytest.raises(JournalError) as caught:
        import_journal(there, text, is_behind)
    assert said in str(caught.value)
    assert not there.exists()


@given(text=st.text(max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(JournalError):
        import_journal(Path("/nonexistent/key.pem.00010203.journal"), text, is_behind)
