"""A member's share of the decryption key on its disk: beside the key file, protected as that is.

The file has the form of a key file with a kind of its own: PKCS #8 in PEM, mode 0600, encrypted behind scrypt when a
passphrase is given, the member's address below. Inside stand the public key's id and the member's index, so that the
share of another federation is told from this one's, and a share that does not fit its verification key is refused.
"""

import glob
import struct
from pathlib import Path

from Crypto.Util.asn1 import DerOctetString
from gmpy2 import mpz

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidDealing, KeyFileError, ShareFileError
from fedchain.crypto.hashing import HASH_SIZE
from fedchain.crypto.secret_file import is_encrypted, read_secret, write_secret
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold.public_key import KeyShare, ThresholdPublicKey
from fedchain.crypto.threshold.sealing import validate_key_share

THRESHOLD_SHARE = "2.25.218797614443696808320496581544205302031"
"""Object identifier of such a share: a UUID, for which nobody needs to ask (ITU-T X.667)."""

_INDEX = struct.Struct(">H")


def share_file_path(key_path: Path, key: ThresholdPublicKey) -> Path:
    """Where the share of a key file's owner lies: beside it, so that one key may be a member of many federations."""
    real = key_path.resolve()
    return real.with_name(f"{real.name}.{key.key_id.hex()[:8]}.share")


def write_share_file(
    path: Path, key: ThresholdPublicKey, share: KeyShare, owner: PublicKey, passphrase: str | None
) -> None:
    """Write a share, so that it is on the disk when this returns.

    Args:
        path: of a file that does not exist: a share is never overwritten.
        key: which the share is of.
        share: the owner's.
        owner: the member's Ed25519 key.
        passphrase: to encrypt it with, the same as the key's; None: not at all.

    Raises:
        ShareFileError: the file exists already, cannot be written, or an empty passphrase.
    """
    content = key.key_id + _INDEX.pack(share.index) + int(share.secret).to_bytes(key.ciphertext_size, "big")
    try:
        write_secret(path, THRESHOLD_SHARE, DerOctetString(content).encode(), owner, passphrase)
    except KeyFileError as error:
        raise ShareFileError(f"decryption share: {error}") from None


def protect_shares(key_path: Path, owner: PublicKey, old: str | None, new: str) -> None:
    """Encrypt all shares that lie beside a key file anew, so that the key's passphrase opens them after it changed.

    Args:
        key_path: of the key file.
        owner: whose key it is.
        old: passphrase; None: they are not encrypted.
        new: passphrase. A share that has it already stays as it is.

    Raises:
        ShareFileError: a share cannot be read or written; those before it are encrypted anew.
    """
    real = key_path.resolve()
    for path in sorted(real.parent.glob(f"{glob.escape(real.name)}.*.share")):
        try:
            passphrase = old if is_encrypted(path) else None
            try:
                oid, data, _ = read_secret(path, passphrase)
            except KeyFileError:  # it was reached before an earlier attempt was broken off
                read_secret(path, new)
                continue
            write_secret(path, oid, data, owner, new, replace=True)
        except KeyFileError as error:
            raise ShareFileError(f"decryption share: {error}") from None


def read_share_file(
    path: Path, key: ThresholdPublicKey, index: int, owner: PublicKey, passphrase: str | None
) -> KeyShare:
    """Read a share and check that it is this member's of this key.

    Args:
        path: of the file.
        key: the federation's.
        index: of the member, from 1.
        owner: the member's Ed25519 key.
        passphrase: with which the file is encrypted; None: it is not.

    Raises:
        ShareFileError: missing, readable by others, damaged, of another federation or member, or the passphrase is
            wrong or absent. Without its share a member can post, but not help to decrypt.
    """
    try:
        oid, data, claimed = read_secret(path, passphrase)
    except KeyFileError as error:
        raise ShareFileError(f"decryption share: {error}") from None
    if oid != THRESHOLD_SHARE:
        raise ShareFileError(f"{path} holds a secret of the kind {oid}, not a decryption share ({THRESHOLD_SHARE})")
    if claimed not in (None, address(owner)):
        raise ShareFileError(f"{path} is the decryption share of {claimed!r}, not of {address(owner)}")
    try:
        content = bytes(DerOctetString().decode(data, strict=True).payload)
    except ValueError:
        raise ShareFileError(f"{path} is damaged: what is in it is no octet string") from None
    middle, expected = HASH_SIZE + _INDEX.size, HASH_SIZE + _INDEX.size + key.ciphertext_size
    if content[:HASH_SIZE] != key.key_id:
        raise ShareFileError(f"{path} holds a share of the key {content[:8].hex()}…, not of {key.key_id[:8].hex()}…")
    if len(content) != expected:
        raise ShareFileError(f"{path} is damaged: a share has {expected} bytes, here are {len(content)}")
    (found,) = _INDEX.unpack_from(content, HASH_SIZE)
    if found != index:
        raise ShareFileError(f"{path} holds the share of peer {found - 1}, not of peer {index - 1} ({address(owner)})")
    share = KeyShare(index, mpz(int.from_bytes(content[middle:], "big")))
    try:
        validate_key_share(key, share)
    except InvalidDealing as error:
        raise ShareFileError(f"{path} is damaged: {error}") from None
    return share
