"""Share files: written once, read by their owner alone, and refused with a clear word when anything is wrong."""

from dataclasses import replace
from pathlib import Path

import pytest
from Crypto.Util.asn1 import DerOctetString

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import KeyFileError, ShareFileError
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.secret_file import write_secret
from fedchain.crypto.threshold.share_file import THRESHOLD_SHARE, read_share_file, share_file_path, write_share_file
from tests.crypto.threshold.dealt import SENDERS, SIGNING_KEYS, small_key

pytestmark = pytest.mark.usefixtures("quick_passphrases")

KEY, SHARES = small_key()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return share_file_path(tmp_path / "key.pem", KEY)


def read(path: Path, passphrase: str | None = None) -> object:
    return read_share_file(path, KEY, 1, SENDERS[0], passphrase)


def test_a_share_lies_beside_the_key_and_is_its_owners(path: Path, tmp_path: Path) -> None:
    write_share_file(path, KEY, SHARES[0], SENDERS[0], None)
    assert path.parent == tmp_path
    assert path.name == f"key.pem.{KEY.key_id.hex()[:8]}.share"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path) == SHARES[0]


@pytest.mark.long
def test_an_encrypted_share_shows_nothing_and_needs_its_passphrase(path: Path) -> None:
    write_share_file(path, KEY, SHARES[0], SENDERS[0], "pass phrase with ü")
    assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert read(path, "pass phrase with ü") == SHARES[0]
    with pytest.raises(ShareFileError, match="passphrase is wrong or the file is damaged"):
        read(path, "another")
    with pytest.raises(ShareFileError, match="needs a passphrase"):
        read(path)


def test_a_missing_share_is_said_to_be_missing(path: Path) -> None:
    with pytest.raises(ShareFileError, match=f"decryption share: {path} cannot be read: No such file"):
        read(path)


def test_a_share_is_never_overwritten(path: Path) -> None:
    write_share_file(path, KEY, SHARES[0], SENDERS[0], None)
    before = path.read_bytes()
    with pytest.raises(ShareFileError, match="exists already"):
        write_share_file(path, KEY, SHARES[1], SENDERS[0], None)
    with pytest.raises(ShareFileError, match="passphrase is empty"):
        write_share_file(path, KEY, SHARES[1], SENDERS[0], "")
    assert path.read_bytes() == before


def test_a_share_that_others_may_read_is_refused(path: Path) -> None:
    write_share_file(path, KEY, SHARES[0], SENDERS[0], None)
    path.chmod(0o640)
    with pytest.raises(ShareFileError, match="others may read it"):
        read(path)


def test_a_share_is_of_one_member_and_one_federation(path: Path) -> None:
    write_share_file(path, KEY, SHARES[0], SENDERS[0], None)
    with pytest.raises(ShareFileError, match="is the decryption share of"):
        read_share_file(path, KEY, 1, SENDERS[1], None)
    with pytest.raises(ShareFileError, match=rf"share of peer 0, not of peer 1 \({address(SENDERS[0])}\)"):
        read_share_file(path, KEY, 2, SENDERS[0], None)
    with pytest.raises(ShareFileError, match=r"share of the key [0-9a-f]{16}…, not of"):
        read_share_file(path, replace(KEY, threshold=2), 1, SENDERS[0], None)


def test_a_key_is_not_a_share_and_a_share_is_not_a_key(path: Path) -> None:
    SIGNING_KEYS[0].save(path)
    with pytest.raises(ShareFileError, match=r"kind 1\.3\.101\.112, not a decryption share"):
        read(path)
    path.unlink()
    write_share_file(path, KEY, SHARES[0], SENDERS[0], None)
    with pytest.raises(KeyFileError, match="not an Ed25519 key"):
        PrivateKey.load(path)


def test_a_damaged_share_is_refused(path: Path) -> None:
    write_share_file(path, KEY, SHARES[0], SENDERS[0], None)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 80, 7):  # the address at the end may be missing
        path.write_bytes(whole[:length])
        with pytest.raises(ShareFileError):
            read(path)


@pytest.mark.parametrize("position", [0, 31, 32, 33, 34, 60, -1])
def test_a_flipped_bit_inside_is_noticed(path: Path, position: int) -> None:
    secret = int(SHARES[0].secret).to_bytes(KEY.ciphertext_size, "big")
    content = bytearray(KEY.key_id + b"\0\1" + secret)
    content[position] ^= 1
    write_secret(path, THRESHOLD_SHARE, DerOctetString(bytes(content)).encode(), SENDERS[0], None)
    with pytest.raises(ShareFileError):
        read(path)


@pytest.mark.parametrize("data", [b"", b"\x04", b"\x02\x01\x01", DerOctetString(KEY.key_id + b"\0\1").encode()])
def test_what_is_no_share_inside_is_refused(path: Path, data: bytes) -> None:
    write_secret(path, THRESHOLD_SHARE, data, SENDERS[0], None)
    with pytest.raises(ShareFileError):
        read(path)
