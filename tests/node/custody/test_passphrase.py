"""A passphrase in a file or a credential: read where its owner alone can, refused in one line where others could."""

from pathlib import Path

import pytest

from fedchain.cli.keys import unlock_key
from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeConfigError
from fedchain.node.custody.passphrase import PASSPHRASE_SIZE_MAX, passphrase_from_file, passphrase_from_systemd
from tests.support.chain.builders import keys

pytestmark = pytest.mark.usefixtures("quick_passphrases")


def written(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("data", [b"correct horse", b"correct horse\n", b"correct horse\r\n", b"correct horse\nrest\n"])
def test_the_first_line_is_the_passphrase(tmp_path: Path, data: bytes) -> None:
    assert passphrase_from_file(written(tmp_path / "file", data)) == "correct horse"


@pytest.mark.parametrize(
    ("data", "mode", "said"),
    [
        (b"secret", 0o640, "passphrase: .* has mode 0640, others may read it; run: chmod 600"),
        (b"secret", 0o604, "passphrase: .* has mode 0604, others may read it"),
        (b"", 0o600, "its first line is empty"),
        (b"\nsecret", 0o600, "its first line is empty"),
        (b"\xff\xfe", 0o600, "it is not text in UTF-8"),
        (b"x" * (PASSPHRASE_SIZE_MAX + 1), 0o600, "that is no passphrase"),
    ],
)
def test_a_file_that_others_may_read_or_that_holds_none(tmp_path: Path, data: bytes, mode: int, said: str) -> None:
    with pytest.raises(NodeConfigError, match=said) as caught:
        passphrase_from_file(written(tmp_path / "file", data, mode))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError, match=r"none cannot be read: No such file"):
        passphrase_from_file(tmp_path / "none")


def test_a_credential_of_systemd_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert passphrase_from_systemd() is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert passphrase_from_systemd() is None
    path = written(tmp_path / "passphrase", b"correct horse\n", 0o440)  # the group's bits: an access list's mask
    assert passphrase_from_systemd() == "correct horse"
    path.chmod(0o444)
    with pytest.raises(NodeConfigError, match="mode 0444"):
        passphrase_from_systemd()


def test_a_file_that_is_named_goes_before_the_environment_and_that_before_the_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.crypto.key_file.is_encrypted", lambda path: True)
    monkeypatch.setattr(PrivateKey, "load", lambda path, passphrase: keys(1)[0])  # what opens is tested elsewhere

    def used(passphrase_file: str = "") -> str | None:
        return unlock_key(tmp_path / "key.pem", hint=False, passphrase_file=passphrase_file)[1]

    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("FEDCHAIN_PASSPHRASE", raising=False)
    assert used() is None
    written(tmp_path / "passphrase", b"credential\n")
    assert used() == "credential"
    monkeypatch.setenv("FEDCHAIN_PASSPHRASE_FILE", str(written(tmp_path / "named", b"named\n")))
    assert used() == "named"
    monkeypatch.setenv("FEDCHAIN_PASSPHRASE", "environment")
    assert used() == "environment"
    assert used(str(written(tmp_path / "file", b"file\n"))) == "file"


def test_a_key_that_is_not_encrypted_asks_for_no_file(tmp_path: Path) -> None:
    keys(1)[0].save(tmp_path / "key.pem")
    assert unlock_key(tmp_path / "key.pem", passphrase_file="none") == (keys(1)[0], None)
