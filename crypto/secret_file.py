"""Secrets in files: PKCS #8 in PEM, which ``openssl pkey`` reads, mode 0600, encrypted behind scrypt.

An attacker with a copy of the file tries passphrases, so one attempt has to be expensive: scrypt with N = 2¹⁴, r = 8,
p = 16 takes 16 MiB and about half a second. More memory at a time would be better still, but OpenSSL opens no key file
that takes 32 MiB. Below the block stands the owner's address, in clear; it tells a damaged file from another owner's.

Files of other tools and of older versions are read too, if the work that they ask for is within bounds.

Source: RFC 5958 (PKCS #8), RFC 8018 (PBES2), RFC 7914 (scrypt).
"""

import base64
import binascii
import os
import re
from pathlib import Path

from Crypto import IncorrectPassphraseError, KdfLimitError
from Crypto.IO import PEM, PKCS8
from Crypto.Util.asn1 import DerObjectId, DerSequence

from fedchain.crypto.address import address
from fedchain.crypto.durable import create_file, write_file
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.file_mode import exposure
from fedchain.crypto.signatures import PublicKey
from fedchain.files.kinds import looks_like

PROTECTION = "scryptAndAES256-CBC"
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 16
"""128·N·r bytes of memory, p times one after the other."""

SALT_SIZE = 16

FILE_SIZE_MAX = 2**16
"""Bytes of a key file; one of ours has some 500."""

COST_MAX = 2**22
"""Largest PBKDF2 count and largest N·r·p/8 of scrypt that is computed for a file, a few seconds; ours is 2¹⁸."""

MEMORY_MAX = 2**28
"""Bytes that scrypt may take for a file."""

_BLOCK = re.compile(
    rb"-----BEGIN ((?:ENCRYPTED )?PRIVATE KEY)-----\s(.*?)-----END \1-----\s*(?:address (\S{1,64})\s)?", re.S
)
_SCRYPT = "1.3.6.1.4.1.11591.4.11"
_PBKDF2 = "1.2.840.113549.1.5.12"


def write_secret(
    path: Path, oid: str, data: bytes, owner: PublicKey, passphrase: str | None, *, replace: bool = False
) -> None:
    """Write a secret, encrypted when a passphrase is given, so that it is on the disk when this returns.

    Args:
        path: of a file that does not exist, unless it is to be replaced.
        oid: object identifier of the kind of secret.
        data: DER, as that kind is written.
        owner: whose address stands below.
        passphrase: to encrypt it with; None: not at all.
        replace: let the file take an older one's place, whole or not at all.

    Raises:
        KeyFileError: the file exists already and is not to be replaced, cannot be written, or an empty passphrase.
    """
    if passphrase == "":
        raise KeyFileError(f"{path} is not written: the passphrase is empty")
    text = _pem(oid, data, passphrase) + f"address {address(owner)}\n"
    try:
        if replace:
            write_file(path.resolve(), text.encode("ascii"))
        else:
            create_file(path, text.encode("ascii"))
    except FileExistsError:
        raise _is_taken(path) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None


def expect_free(path: Path) -> None:
    """Raise KeyFileError if something is there, where a new key file is to be: before a passphrase is asked for."""
    if os.path.lexists(path):
        raise _is_taken(path)


def _is_taken(path: Path) -> KeyFileError:
    return KeyFileError(f"{path} exists already; a key file is never overwritten")


def read_secret(path: Path, passphrase: str | None) -> tuple[str, bytes, str | None]:
    """The kind of secret, its data in DER, and the address that the file says is its owner's, if it says so.

    Raises:
        KeyFileError: missing, readable by others, damaged, or the passphrase is wrong or absent.
    """
    encrypted, der, claimed = _read_block(path)
    if encrypted and passphrase is None:
        raise KeyFileError(f"{path} is encrypted and needs a passphrase")
    if passphrase is not None and not encrypted:
        raise KeyFileError(f"{path} needs no passphrase, it is not encrypted")
    try:
        oid, data, _ = PKCS8.unwrap(der, _to_bytes(passphrase), COST_MAX, max_memory=MEMORY_MAX)
    except KdfLimitError as error:
        # The library says which number is above which limit, and then what to do with its own parameters.
        raise KeyFileError(f"{path} cannot be opened: {str(error).partition('. ')[0]}") from None
    except IncorrectPassphraseError:
        raise KeyFileError(f"{path} cannot be opened: the passphrase is wrong or the file is damaged") from None
    except (ValueError, TypeError, IndexError):  # of a field of another type, or one that ends too soon
        raise KeyFileError(f"{path} cannot be opened: it is damaged, or protected in a way that is not known") from None
    return oid, data, claimed


def is_encrypted(path: Path) -> bool:
    """Whether a passphrase is needed to read a key file; raises KeyFileError."""
    return _read_block(path)[0]


def weakness(path: Path) -> str | None:
    """Return how a key file is encrypted, if that is weaker than in new files; None if it is not, or not encrypted.

    Raises:
        KeyFileError: the file cannot be read.
    """
    encrypted, der, _ = _read_block(path)
    if not encrypted:
        return None
    try:
        scheme = DerSequence().decode(DerSequence().decode(der)[0])
        derivation = DerSequence().decode(DerSequence().decode(scheme[1])[0])
        oid, numbers = DerObjectId().decode(derivation[0]).value, DerSequence().decode(derivation[1])
        if oid == _PBKDF2:
            return f"PBKDF2 with {numbers[1]} iterations"
        if oid != _SCRYPT:
            return f"a method that is not known ({oid})"
        n, r, p = (int(number) for number in numbers[1:4])
    except (ValueError, IndexError, TypeError):
        return "a method that is not known"
    return f"scrypt with N = {n}, r = {r}, p = {p}" if n * r * p < SCRYPT_N * SCRYPT_R * SCRYPT_P else None


def _pem(oid: str, data: bytes, passphrase: str | None) -> str:
    """A secret as PKCS #8 in PEM."""
    if passphrase is None:
        return PEM.encode(PKCS8.wrap(data, oid, key_params=None), "PRIVATE KEY") + "\n"
    der = PKCS8.wrap(
        data,
        oid,
        _to_bytes(passphrase),
        PROTECTION,
        {"iteration_count": SCRYPT_N, "block_size": SCRYPT_R, "parallelization": SCRYPT_P, "salt_size": SALT_SIZE},
        key_params=None,
    )
    return PEM.encode(der, "ENCRYPTED PRIVATE KEY") + "\n"


def _to_bytes(passphrase: str | None) -> bytes | None:
    """UTF-8, as all tools encode typed text; the library itself would choose Latin-1."""
    return None if passphrase is None else passphrase.encode()


def _read_block(path: Path) -> tuple[bool, bytes, str | None]:
    """Whether the key is encrypted, its DER bytes, and the address below."""
    try:
        if path.is_fifo():
            raise KeyFileError(f"{path} is a pipe, and a key file is read more than once")
        with path.open("rb") as file:
            exposed = exposure(path, os.fstat(file.fileno()).st_mode)
            text = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > FILE_SIZE_MAX:
        raise KeyFileError(f"{path} cannot be opened: it has more than {FILE_SIZE_MAX} bytes and is no key file")
    block = _BLOCK.search(text)
    if block is None:
        seen = looks_like(text, "a key file")
        raise KeyFileError(f"{path} cannot be opened: it is not a PEM key{f'; {seen}' if seen else ''}")
    if exposed is not None:
        raise KeyFileError(exposed)
    label, base64_lines, claimed = block.groups()
    try:
        der = base64.b64decode(b"".join(base64_lines.split()), validate=True)
    except binascii.Error:
        raise KeyFileError(f"{path} cannot be opened: it is not a PEM key") from None
    return label.startswith(b"ENCRYPTED"), der, None if claimed is None else claimed.decode("ascii", "replace")
