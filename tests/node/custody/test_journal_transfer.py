"""A journal goes with its key to another machine, and never back."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.encoding import encode
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.address import address
from fedchain.crypto.hpke import seal
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.exceptions import LedgerDamaged, SecretMissing
from fedchain.learning.privacy.ledger import Budget, Entry
from fedchain.learning.privacy.releases import Release
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.journal import is_behind as allows_more
from fedchain.node.custody import journal_transfer, private_transfer
from fedchain.node.custody.journal_file import JournalError, JournalFile, content_size_max, importing_path, journal_path
from fedchain.node.custody.journal_transfer import EXPORT_SIZE_MAX, Owner, export_journal, import_journal
from fedchain.node.custody.ledger_file import ledger_path, open_ledger
from fedchain.node.custody.private_transfer import PrivatePart
from fedchain.node.custody.secrets_file import open_secrets

CHAIN = bytes(range(32))
PRIVATE, OTHER_PRIVATE = (PrivateKey(bytes([number]) * 32) for number in (1, 2))
MEMBERS = 1
CONTENT_SIZE_MAX = content_size_max(MEMBERS)
KEY, OTHER_KEY = PRIVATE.public_key, OTHER_PRIVATE.public_key
OWNER = Owner(lambda: PRIVATE, {KEY: 3})


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
    with JournalFile.open(path, CHAIN, public_key, MEMBERS) as journal:
        for content in contents:
            journal.write(content)


def read(path: Path) -> bytes | None:
    with JournalFile.open(path, CHAIN, KEY, MEMBERS) as journal:
        return journal.content()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_imports_belongs_to_whom_the_key_belongs(here: Path, there: Path) -> None:
    put(here, b"\x01")
    open_secrets(here.with_suffix(".secrets"), 3)
    key = there.with_name("key.pem")
    key.touch(mode=0o600)
    os.chown(key, 45_678, 45_679)
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    made = set(there.parent.iterdir()) - {key}
    assert {path.suffix for path in made} == {".journal", ".secrets", ".privacy"}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(45_678, 45_679)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_imports_anew_after_a_kill_belongs_to_whom_the_key_belongs(here: Path, there: Path) -> None:
    """The journal had been created, and had still its first name as well: what has two names is given to nobody."""
    put(here, b"\x01")
    key, gone = there.with_name("key.pem"), subprocess.Popen(["true"])
    gone.wait()
    key.touch(mode=0o600)
    os.chown(key, 45_678, 45_679)
    put(there)
    there.with_name(f"{there.name}.{gone.pid}.part").hardlink_to(there)
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert {path.name for path in there.parent.iterdir()} == {key.name, there.name}
    assert there.stat().st_uid == 45_678


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_nothing_away_that_a_link_leads_to(here: Path, there: Path, tmp_path: Path) -> None:
    put(here, b"\x01")
    key, victim, twin = there.with_name("key.pem"), tmp_path / "victim", tmp_path / "twin"
    for path in (key, victim, twin):
        path.touch(mode=0o600)
    os.chown(key, 45_678, 45_679)
    there.with_suffix(".secrets").symlink_to(victim)
    there.with_suffix(".privacy").hardlink_to(twin)
    with pytest.raises(
        JournalError, match=r"\.secrets cannot be given to the owner of .*: Too many levels of symbolic"
    ):
        import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    there.with_suffix(".secrets").unlink()
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert there.stat().st_uid == 45_678
    assert (victim.stat().st_uid, twin.stat().st_uid) == (0, 0)


@pytest.mark.parametrize("contents", [[], [b""], [b"\x01", b"\x02"], [bytes(CONTENT_SIZE_MAX)]])
def test_what_is_exported_can_be_imported(here: Path, there: Path, contents: list[bytes]) -> None:
    put(here, *contents)
    text = export_journal(here, OWNER)
    assert len(text) <= EXPORT_SIZE_MAX
    import_journal(there, text, is_behind, OWNER)
    assert read(there) == (contents[-1] if contents else None)
    assert there.stat().st_mode & 0o777 == 0o600
    import_journal(there, text, is_behind, OWNER)


def test_the_exported_journal_is_for_people_too(here: Path) -> None:
    put(here, b"\x01", b"\x02")
    found = json.loads(export_journal(here, OWNER))
    expected = {"version": 2, "chain_id": CHAIN.hex(), "address": address(KEY), "sequence": 2, "content": "02"}
    assert found == expected | {"private": None}


def test_a_journal_that_no_node_would_read_is_not_imported(here: Path, there: Path) -> None:
    """Its owner would have to move it away, and with it what the key has signed."""
    block, other = bytes([1]) * 32, bytes([2]) * 32
    vote = sign_vote(PRIVATE, CHAIN, (7, 1, VoteKind.PRECOMMIT), block, clock_ms=1, mining_ms=1)
    signed = Journal().with_vote(vote)
    altered = {
        "journal: 1 fields found, 6 fields expected": encode([1]),
        "the exported journal allows what it forbids itself": replace(signed, slot=(6, 0, 1)).encode(),
        "allows what it forbids itself: it was altered": replace(signed, lock=(1, other)).encode(),
    }
    for words, content in altered.items():
        put(here, content)
        with pytest.raises(JournalError, match=words):
            import_journal(there, export_journal(here, OWNER), allows_more, OWNER)
        assert read(there) is None
    put(here, signed.encode())
    import_journal(there, export_journal(here, OWNER), allows_more, OWNER)
    assert read(there) == signed.encode()


def test_it_never_goes_back(here: Path, there: Path) -> None:
    put(here, b"\x05")
    text = export_journal(here, OWNER)
    put(there, b"\x06")
    with pytest.raises(JournalError, match="knows of more that was signed than what is to be imported"):
        import_journal(there, text, is_behind, OWNER)
    assert read(there) == b"\x06"
    put(here, b"\x07")
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert read(there) == b"\x07"


def test_an_empty_journal_does_not_replace_one_that_is_not(here: Path, there: Path) -> None:
    put(here)
    put(there, b"")
    with pytest.raises(JournalError, match="knows of more"):
        import_journal(there, export_journal(here, OWNER), lambda old, new: False, OWNER)
    assert read(there) == b""


def test_a_journal_in_use_is_neither_exported_nor_imported_into(here: Path) -> None:
    put(here, b"\x01")
    text = export_journal(here, OWNER)
    with JournalFile.open(here, CHAIN, KEY, MEMBERS):
        with pytest.raises(JournalError, match="is in use"):
            export_journal(here, OWNER)
        with pytest.raises(JournalError, match="is in use"):
            import_journal(here, text, is_behind, OWNER)


def test_another_key_s_journal_is_not_imported(here: Path, there: Path) -> None:
    put(here, b"\x01")
    put(there, b"\x00", public_key=OTHER_KEY)
    with pytest.raises(JournalError, match=f"is of the key of {address(OTHER_KEY)}, not of {address(KEY)}"):
        import_journal(there, export_journal(here, OWNER), is_behind, OWNER)


def test_another_chain_s_journal_is_not_imported(here: Path, tmp_path: Path) -> None:
    put(here, b"\x01")
    with pytest.raises(JournalError, match=f"is not the journal of chain {CHAIN.hex()}"):
        import_journal(journal_path(tmp_path / "key.pem", bytes(32)), export_journal(here, OWNER), is_behind, OWNER)
    assert [item.name for item in tmp_path.iterdir()] == [here.name]


def test_what_is_not_there_is_not_exported(here: Path) -> None:
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        export_journal(here, OWNER)
    assert not here.exists()


def test_a_damaged_journal_is_not_exported(here: Path) -> None:
    put(here, b"\x01")
    here.write_bytes(b"x" + here.read_bytes()[1:])
    with pytest.raises(JournalError, match="is damaged"):
        export_journal(here, OWNER)


def document(**changes: Any) -> str:
    good = {"version": 2, "chain_id": CHAIN.hex(), "address": address(KEY), "sequence": 1, "content": "01"}
    return json.dumps(good | {"private": None} | changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no exported journal"),
        ("[]", "this is no exported journal"),
        ("{}", "this is no exported journal: KeyError: 'version'"),
        ("[" * 100_000, "this is no exported journal"),
        (" " * (EXPORT_SIZE_MAX + 1), f"at most {EXPORT_SIZE_MAX} characters, not {EXPORT_SIZE_MAX + 1}"),
        (document(version=1), "has version 1, this program reads 2"),
        (document(chain_id=5), "this is no exported journal: TypeError"),
        (document(chain_id=CHAIN.hex()[2:]), "a chain id has 32 bytes, not 31"),
        (document(address="nobody"), "this is no exported journal: InvalidAddress"),
        (document(address=5), "this is no exported journal: "),
        (document(private="0"), "this is no exported journal: ValueError"),
        (document(private=""), "the exported private randomness cannot be opened: 0 bytes, a seal alone has 48"),
        (document(private="00" * 60), "the exported private randomness cannot be opened: it is sealed to another key"),
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
        import_journal(there, text, is_behind, OWNER)
    assert said in str(caught.value)
    assert not there.exists()


@given(text=st.text(max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(JournalError):
        import_journal(Path("/nonexistent/key.pem.00010203.journal"), text, is_behind, OWNER)


# --- what is private goes along


def release(number: int) -> Entry:
    return Entry(number, "update", f"{number:x}", Release("prototypes", 3.0, 1.0))


def secrets(journal: Path) -> Path:
    return journal.with_suffix(".secrets")


def let_out(journal: Path, *numbers: int) -> bytes:
    """Draw private randomness beside a journal, and charge releases; the randomness."""
    drawn = open_secrets(secrets(journal), 3).root
    for number in numbers:
        open_ledger(secrets(journal), 3).charge(release(number), Budget(0.0, 1e-5))
    return drawn


def released(journal: Path) -> list[int]:
    return [entry.round for entry in open_ledger(secrets(journal), 3).entries()]


def test_randomness_and_ledger_go_with_the_journal_and_nobody_else_can_read_them(here: Path, there: Path) -> None:
    put(here, b"\x01")
    root = let_out(here, 1, 2)
    text = export_journal(here, OWNER)
    sealed = bytes.fromhex(json.loads(text)["private"])
    for hidden in (root, root.hex().encode(), b"prototypes"):
        assert hidden not in sealed
        assert hidden.hex() not in text
    import_journal(there, text, is_behind, OWNER)
    assert read(there) == b"\x01"
    assert (open_secrets(secrets(there), 3).root, released(there)) == (root, [1, 2])
    for path in (secrets(there), ledger_path(secrets(there))):
        assert path.stat().st_mode & 0o777 == 0o600
    assert ledger_path(secrets(there)).read_bytes() == ledger_path(secrets(here)).read_bytes()
    import_journal(there, text, is_behind, OWNER)
    assert released(there) == [1, 2]


def test_a_ledger_without_randomness_goes_too(here: Path, there: Path) -> None:
    put(here, b"\x01")
    open_ledger(secrets(here), 3).charge(release(1), Budget(0.0, 1e-5))
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert released(there) == [1]
    assert not secrets(there).exists()


def test_a_ledger_grows_and_never_shrinks(here: Path, there: Path) -> None:
    put(here, b"\x01")
    let_out(here, 1)
    first = export_journal(here, OWNER)
    import_journal(there, first, is_behind, OWNER)
    let_out(here, 2)
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert released(there) == [1, 2]
    with pytest.raises(LedgerDamaged, match="ledger of member 3 holds 2 releases, which are not the first of the 1 to"):
        import_journal(there, first, is_behind, OWNER)
    put(here, b"\x02")
    let_out(there, 4)
    let_out(here, 3)
    with pytest.raises(LedgerDamaged, match="holds 3 releases, which are not the first of the 3"):
        import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert (read(there), released(there)) == (b"\x01", [1, 2, 4])


def test_nobody_draws_from_imported_randomness_before_what_it_let_out_is_there(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here, b"\x01")
    let_out(here, 1)
    counts = list[int]()
    monkeypatch.setattr(
        private_transfer, "write_root", lambda path, member, _: counts.append(len(open_ledger(path, member).entries()))
    )
    import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert counts == [1]


def test_other_randomness_is_never_exchanged(here: Path, there: Path) -> None:
    put(here, b"\x01")
    let_out(here, 1)
    root = let_out(there)
    with pytest.raises(SecretMissing, match=r"secrets of member 3: .* holds other randomness than what is to be"):
        import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    assert (open_secrets(secrets(there), 3).root, released(there), read(there)) == (root, [], None)


def test_where_the_ledger_is_gone_nothing_is_exported_or_imported(here: Path, there: Path) -> None:
    for path in (here, there):
        put(path, b"\x01")
        let_out(path)
    text = export_journal(here, OWNER)
    for path in (here, there):
        ledger_path(secrets(path)).unlink()
    with pytest.raises(LedgerDamaged, match="is gone; put it back"):
        export_journal(here, OWNER)
    secrets(there).write_bytes(secrets(here).read_bytes())
    with pytest.raises(LedgerDamaged, match="is gone; put it back"):
        import_journal(there, text, is_behind, OWNER)


@pytest.mark.parametrize(
    "died_before",
    [
        "fedchain.node.custody.journal_transfer.write_private",
        "fedchain.node.custody.private_transfer.write_root",
        "fedchain.node.custody.journal_transfer.JournalFile.write",
        "fedchain.node.custody.journal_transfer._end",
    ],
)
def test_an_import_that_died_is_refused_by_everybody_until_it_is_made_once_more(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch, died_before: str
) -> None:
    put(here, b"\x01")
    root = let_out(here, 1)
    text = export_journal(here, OWNER)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(died_before, die)
        with pytest.raises(KeyboardInterrupt):
            import_journal(there, text, is_behind, OWNER)
    for attempt in (lambda: read(there), lambda: export_journal(there, OWNER)):
        with pytest.raises(JournalError, match=r"\.journal: its import was interrupted, so what the key has signed"):
            attempt()
    import_journal(there, text, is_behind, OWNER)
    assert (read(there), open_secrets(secrets(there), 3).root, released(there)) == (b"\x01", root, [1])
    assert not importing_path(there).exists()


def test_the_note_is_on_the_disk_from_before_the_first_write_until_after_the_last_one(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here, content := bytes([165]) * 40)
    exported, synced, note = export_journal(here, OWNER), list[tuple[bool, bool]](), importing_path(there)
    monkeypatch.setattr(
        journal_transfer, "sync_folder", lambda _: synced.append((note.exists(), content in there.read_bytes()))
    )
    import_journal(there, exported, is_behind, OWNER)
    assert synced == [(True, False), (False, True)]


def test_an_import_that_is_refused_leaves_no_note(here: Path, there: Path) -> None:
    put(here, b"\x01")
    let_out(here, 1)
    text = export_journal(here, OWNER)
    let_out(there)
    with pytest.raises(SecretMissing):
        import_journal(there, text, is_behind, OWNER)
    assert not importing_path(there).exists()
    assert read(there) is None


def test_an_import_into_a_folder_that_takes_no_note_writes_nothing(here: Path, there: Path) -> None:
    put(here, b"\x01")
    let_out(here, 1)
    importing_path(there).mkdir()
    with pytest.raises(JournalError, match=r"cannot be written: .*; nothing was imported"):
        import_journal(there, export_journal(here, OWNER), is_behind, OWNER)
    importing_path(there).rmdir()
    assert read(there) is None
    assert not secrets(there).exists()


def test_what_is_sealed_is_opened_by_its_own_key_for_its_own_chain_alone(here: Path, there: Path) -> None:
    put(here, b"\x01")
    let_out(here, 1)
    text = export_journal(here, OWNER)
    for owner in (Owner(lambda: OTHER_PRIVATE, {}), Owner(lambda: OTHER_PRIVATE, {KEY: 3})):
        with pytest.raises(JournalError, match=f"the key is that of {address(OTHER_KEY)}, the journal is of the key"):
            import_journal(there, text, is_behind, owner)
        with pytest.raises(JournalError, match=f"the key is that of {address(OTHER_KEY)}"):
            export_journal(here, owner)
    changed = json.loads(text)
    part = PrivatePart(bytes(32), ())
    for forged in (
        seal(b"{}", KEY, b"fedchain/2/private-transfer/" + CHAIN),  # anybody can, but for the sender
        seal(b"{}", KEY, b"fedchain/2/private-transfer/" + CHAIN, OTHER_PRIVATE),
        part.seal(PRIVATE, bytes(32)),
        part.seal(PRIVATE, CHAIN)[:-1],
    ):
        with pytest.raises(JournalError, match="cannot be opened: it is sealed to another key or damaged"):
            import_journal(there, json.dumps(changed | {"private": forged.hex()}), is_behind, OWNER)
    assert not there.exists()
    assert not secrets(there).exists()
