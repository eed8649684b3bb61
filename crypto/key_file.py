"""Key files: an Ed25519 key as PKCS #8 in PEM, which ``openssl pkey`` reads, protected as every secret file is.

Source: RFC 8410 (Ed25519); see :mod:`fedchain.crypto.secret_file` for the rest.
"""

from pathlib import Path

from Crypto.Util.asn1 import DerOctetString

from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.secret_file import FILE_SIZE_MAX as FILE_SIZE_MAX
from fedchain.crypto.secret_file import expect_free as expect_free
from fedchain.crypto.secret_file import is_encrypted as is_encrypted
from fedchain.crypto.secret_file import read_secret, write_secret
from fedchain.crypto.secret_file import weakness as weakness
from fedchain.crypto.signatures import SEED_SIZE, PublicKey

ED25519 = "1.3.101.112"
"""Object identifier of an Ed25519 key."""


def write_key_file(path: Path, seed: bytes, public_key: PublicKey, passphrase: str | None, *, replace: bool) -> None:
    """Write a key, encrypted when a passphrase is given, so that it is on the disk when this returns.

    Raises:
        KeyFileError: the file exists already and is not to be replaced, cannot be written, or an empty passphrase.
    """
    write_secret(path, ED25519, DerOctetString(seed).encode(), public_key, passphrase, replace=replace)


def read_key_file(path: Path, passphrase: str | None) -> tuple[bytes, str | None]:
    """The seed in a key file, and the address that the file says is its key's, if it says so.

    Raises:
        KeyFileError: missing, readable by others, not an Ed25519 key, or the passphrase is wrong or absent.
    """
    oid, data, claimed = read_secret(path, passphrase)
    if oid != ED25519:
        raise KeyFileError(f"{path} holds a key of the kind {oid}, not an Ed25519 key ({ED25519})")
    seed = data[2:]
    if data[:2] != b"\x04\x20" or len(seed) != SEED_SIZE:  # an octet string of 32 bytes
        raise KeyFileError(f"{path} cannot be opened: an Ed25519 key has {SEED_SIZE} bytes, here are {len(seed)}")
    return seed, claimed
