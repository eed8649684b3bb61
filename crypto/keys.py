"""Ed25519 keys: one key is a peer's network identity, its signature and its miner's name.

Signatures are deterministic (RFC 8032), so signing the same message twice gives the same bytes.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedchain.crypto.exceptions import KeyFileError

PublicKey = bytes
"""32 raw bytes of an Ed25519 public key; also the identity of a member."""

Signature = bytes
"""64 bytes."""

PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64
SEED_SIZE = 32


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A signing key. It never appears in a log: its ``repr`` shows the public half only."""

    seed: bytes = field(repr=False)
    """32 secret bytes from which the key pair is derived."""
    public_key: PublicKey = field(init=False)
    """32 bytes that everyone may know."""
    _signer: Ed25519PrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_SIZE:
            raise ValueError(f"an Ed25519 seed has {SEED_SIZE} bytes, not {len(self.seed)}")
        signer = Ed25519PrivateKey.from_private_bytes(self.seed)
        object.__setattr__(self, "_signer", signer)
        object.__setattr__(self, "public_key", signer.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "PrivateKey":
        """Draw a new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, message: bytes) -> Signature:
        """Sign ``message``; 64 bytes."""
        return self._signer.sign(message)

    def save(self, path: Path, passphrase: str | None = None) -> None:
        """Write the key as PKCS #8 PEM with file mode 0600, encrypted when a passphrase is given.

        Raises:
            KeyFileError: the file exists already (a key is never overwritten) or cannot be written.
        """
        encryption: KeySerializationEncryption = NoEncryption()
        if passphrase:
            encryption = BestAvailableEncryption(passphrase.encode())
        pem = self._signer.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise KeyFileError(f"{path} exists already; a key file is never overwritten") from None
        except OSError as error:
            raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path, passphrase: str | None = None) -> "PrivateKey":
        """Read a key written by :meth:`save`.

        Raises:
            KeyFileError: missing, readable by others, not an Ed25519 key, or the passphrase is wrong or absent.
        """
        try:
            mode = path.stat().st_mode & 0o777
            pem = path.read_bytes()
        except OSError as error:
            raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise KeyFileError(f"{path} has mode {mode:04o}, others may read it; run: chmod 600 {path}")
        try:
            key = load_pem_private_key(pem, passphrase.encode() if passphrase else None)
        except TypeError:
            needs = "needs no passphrase" if passphrase else "is encrypted and needs a passphrase"
            raise KeyFileError(f"{path} {needs}") from None
        except (ValueError, UnsupportedAlgorithm):
            reason = "the passphrase is wrong or the file is damaged" if passphrase else "it is not a PEM key"
            raise KeyFileError(f"{path} cannot be opened: {reason}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyFileError(f"{path} holds a {type(key).__name__}, not an Ed25519 key")
        return cls(key.private_bytes_raw())


def is_valid_signature(public_key: PublicKey, signature: Signature, message: bytes) -> bool:
    """Whether ``signature`` is ``public_key``'s over ``message``. Malformed keys and signatures are invalid."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def is_valid_public_key(key: bytes) -> bool:
    """Whether ``key`` is a canonical Ed25519 key of the full group."""
    from nacl.bindings import crypto_core_ed25519_is_valid_point

    return len(key) == PUBLIC_KEY_SIZE and bool(crypto_core_ed25519_is_valid_point(key))
