"""Commands on an existing key file: one line and exit code 2 if they cannot be carried out."""

import logging
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from typer.testing import CliRunner, Result

from fedchain.chain.vote import NIL, VoteKind, sign_vote
from fedchain.cli.keys import ask_passphrase, keys_app, load_key, new_passphrase
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.key_file import weakness
from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeConfigError
from fedchain.node.core.voting.journal import Journal
from fedchain.node.custody.journal_file import JournalFile, journal_path
from fedchain.node.custody.secrets_file import open_secrets, secrets_path
from tests.support.chain.builders import genesis

KEY = PrivateKey(bytes(range(32)))
MEMBERS = 2
GENESIS = genesis(MEMBERS)
SAID, SAID_LATER = (
    Journal().with_vote(sign_vote(KEY, GENESIS.chain_id, (height, 0, VoteKind.PREVOTE), NIL)) for height in (3, 7)
)

pytestmark = pytest.mark.usefixtures("quick_passphrases")
OLD, NEW = "FEDCHAIN_PASSPHRASE", "FEDCHAIN_NEW_PASSPHRASE"

app = keys_app


def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], env=env)


def done(*arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    result = run(*arguments, env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    result = run(*arguments, env=env)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.count("\n") == 1
    return result.stderr.strip().removeprefix("fedchain: ")


def old_file(path: Path, encryption: KeySerializationEncryption) -> Path:
    """A key file as version 0.1 wrote it."""
    key = Ed25519PrivateKey.from_private_bytes(KEY.seed)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    path.chmod(0o600)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key.pem"


@pytest.mark.long
@pytest.mark.parametrize(("given", "holds"), [({OLD: "old"}, "old"), ({OLD: "old", NEW: "new"}, "new")])
def test_an_older_file_is_encrypted_anew(path: Path, given: dict[str, str], holds: str) -> None:
    old_file(path, BestAvailableEncryption(b"old"))
    assert weakness(path) == "PBKDF2 with 2048 iterations"
    assert done("protect", path, env=given).strip() == address(KEY.public_key)
    assert weakness(path) is None
    assert PrivateKey.load(path, holds) == KEY


def test_a_plain_file_is_encrypted(path: Path) -> None:
    old_file(path, NoEncryption())
    before = path.read_bytes()
    assert refused("protect", path) == f"{path} stays as it is: no passphrase; set {NEW}"
    assert path.read_bytes() == before
    following = path.with_name("key.pem.next")  # which `node rekey` made, and which no block has counted yet
    old_file(following, NoEncryption())
    done("protect", path, env={NEW: "new"})
    assert PrivateKey.load(path, "new") == PrivateKey.load(following, "new") == KEY


def test_a_wrong_passphrase_changes_nothing(path: Path) -> None:
    old_file(path, BestAvailableEncryption(b"old"))
    before = path.read_bytes()
    assert "the passphrase is wrong" in refused("protect", path, env={OLD: "wrong", NEW: "new"})
    assert "needs a passphrase" in refused("protect", path, env={NEW: "new"})
    assert path.read_bytes() == before


def test_nobody_is_asked_for_a_passphrase_of_a_key_that_is_there(path: Path) -> None:
    done("new", path, "--plain")
    before = path.read_bytes()
    for words in ((), ("--plain",)):
        assert refused("new", path, *words) == f"{path} exists already; a key file is never overwritten"
    assert path.read_bytes() == before


def test_a_passphrase_that_is_no_text_is_told_in_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was typed into a terminal of another encoding: it ended in a traceback, or the file was blamed."""
    half, wrong = {OLD: "\udcff"}, "holds no passphrase: it is not text in UTF-8"
    assert refused("new", path, env=half) == f"{OLD} {wrong}"
    KEY.save(path, "old")
    assert refused("show", path, env=half) == f"{OLD} {wrong}"
    assert refused("protect", path, env={OLD: "old", NEW: "\udcff"}) == f"{NEW} {wrong}"
    monkeypatch.setattr("typer.prompt", lambda *args, **given: b"\xff".decode())
    with pytest.raises(NodeConfigError, match="what was typed is no passphrase: it is not text in UTF-8"):
        ask_passphrase(twice=False)
    assert PrivateKey.load(path, "old") == KEY


def test_who_opens_an_older_file_is_told_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(OLD, "old")
    old_file(path, BestAvailableEncryption(b"old"))
    with caplog.at_level(logging.WARNING):
        assert load_key(path) == KEY
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is encrypted by PBKDF2 with 2048 iterations, which is fast to guess; run: fedchain keys protect {path}"
    ]
    caplog.clear()
    KEY.save(path, "old", replace=True)
    assert load_key(path) == KEY
    old_file(path, NoEncryption())
    assert load_key(path) == KEY
    assert caplog.records == []


@pytest.mark.parametrize(
    "beside", ["fedchain.crypto.threshold.share_file.protect_shares", "fedchain.node.membership.next_key._protect"]
)
def test_a_key_keeps_its_passphrase_until_all_that_lies_beside_it_has_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """A file that is left under the old one could not be encrypted anew: who asks again gives the key's."""
    KEY.save(path, "old")
    KEY.save(path.with_name("key.pem.next"), "old")

    def refuse(*_: object) -> None:
        raise KeyFileError("No space left on device")

    monkeypatch.setattr(beside, refuse)
    assert refused("protect", path, env={OLD: "old", NEW: "new"}) == "No space left on device"
    assert PrivateKey.load(path, "old") == KEY


@pytest.mark.parametrize("opens", [load_key, lambda path: new_passphrase(path, "nothing")])
def test_a_process_that_has_opened_a_key_leaves_no_core_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, opens: Callable[[Path], object]
) -> None:
    """A node that hung and was ended by its service manager left key and passphrase in one, in its working folder."""
    before, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        KEY.save(path)
        monkeypatch.setenv(OLD, "old")
        assert opens(path) in (KEY, "old")
        assert resource.getrlimit(resource.RLIMIT_CORE) == (1 if hard else 0, hard)  # see `leave_no_core_file`
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (before, hard))


def test_a_byte_is_too_little_for_a_core_in_the_working_folder(tmp_path: Path) -> None:
    said = "from fedchain.cli.keys import leave_no_core_file as leave; leave(); import os; os.abort()"
    ended = subprocess.run([sys.executable, "-c", said], cwd=tmp_path, check=False, stderr=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []


def test_a_journal_goes_with_its_key(tmp_path: Path) -> None:
    document, exported = tmp_path / "genesis", tmp_path / "journal.json"
    document.write_bytes(GENESIS.encode())
    (tmp_path / "there").mkdir()
    here, there = tmp_path / "key.pem", tmp_path / "there" / "key.pem"
    with JournalFile.open(journal_path(here, GENESIS.chain_id), GENESIS.chain_id, KEY.public_key, MEMBERS) as journal:
        journal.write(SAID.encode())
    exported.write_text(done("export-journal", here, "--genesis", document), encoding="utf-8")
    assert "there/key.pem cannot be read: No such file" in refused(
        "import-journal", there, exported, "--genesis", document
    )
    assert list(there.parent.iterdir()) == []  # beside a misspelt name, no node would look for it
    KEY.save(there)
    done("import-journal", there, exported, "--genesis", document)
    with JournalFile.open(journal_path(there, GENESIS.chain_id), GENESIS.chain_id, KEY.public_key, MEMBERS) as journal:
        assert journal.content() == SAID.encode()
        assert "is in use" in refused("import-journal", there, exported, "--genesis", document)
        journal.write(SAID_LATER.encode())
    assert "knows of more" in refused("import-journal", there, exported, "--genesis", document)


def test_private_randomness_goes_with_the_journal_and_needs_the_key(tmp_path: Path) -> None:
    member = PrivateKey(bytes(range(1, 33)))
    federation = genesis(2, members=(KEY.public_key, member.public_key))
    document, exported = tmp_path / "genesis", tmp_path / "journal.json"
    document.write_bytes(federation.encode())
    (tmp_path / "there").mkdir()
    here, there = tmp_path / "key.pem", tmp_path / "there" / "key.pem"
    member.save(here, "old")
    with JournalFile.open(journal_path(here, federation.chain_id), federation.chain_id, member.public_key, MEMBERS):
        drawn = open_secrets(secrets_path(here, federation.chain_id), 1)
    assert "needs a passphrase" in refused("export-journal", here, "--genesis", document)
    exported.write_text(done("export-journal", here, "--genesis", document, env={OLD: "old"}), encoding="utf-8")
    assert "there/key.pem cannot be read" in refused("import-journal", there, exported, "--genesis", document)
    member.save(there)
    done("import-journal", there, exported, "--genesis", document)
    assert open_secrets(secrets_path(there, federation.chain_id), 1) == drawn
    secrets_path(there, federation.chain_id).write_bytes(bytes(32))
    assert "secrets of member 1: " in refused("import-journal", there, exported, "--genesis", document)


def test_journals_that_cannot_be_exported_or_imported(tmp_path: Path) -> None:
    document, exported = tmp_path / "genesis", tmp_path / "journal.json"
    key = tmp_path / "key.pem"
    assert "genesis cannot be read" in refused("export-journal", key, "--genesis", document)
    document.write_bytes(b"x")
    assert "is no genesis document" in refused("export-journal", key, "--genesis", document)
    document.write_bytes(GENESIS.encode())
    assert "journal cannot be read" in refused("export-journal", key, "--genesis", document)
    KEY.save(key)
    assert "journal.json: No such file" in refused("import-journal", key, exported, "--genesis", document)
    exported.write_bytes(b"\xff")
    assert "it is not text" in refused("import-journal", key, exported, "--genesis", document)
    for text, said in (("{}", "this is no exported journal"), ('{"version": 1}', "the exported journal has version 1")):
        exported.write_text(text)
        assert f"journal.json: {said}" in refused("import-journal", key, exported, "--genesis", document)


def test_a_passphrase_in_the_environment_goes_before_a_file_of_one(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text("of the file\n")
    file.chmod(0o600)
    PrivateKey.generate().save(path, "of the variable")
    both = {"FEDCHAIN_PASSPHRASE": "of the variable", "FEDCHAIN_PASSPHRASE_FILE": str(file)}
    done("show", path, env=both)
    PrivateKey.generate().save(path, "of the file", replace=True)
    done("show", path, env={"FEDCHAIN_PASSPHRASE_FILE": str(file)})
    assert refused("show", path, env=both)
