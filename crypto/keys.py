"""Ed25519 keys: one key is a peer's network identity, its signature and its miner's name.

Signatures are deterministic (RFC 8032), so signing the same message twice gives the same bytes.
"""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.signatures import PUBLIC_KEY_SIZE as PUBLIC_KEY_SIZE
from fedchain.crypto.signatures import SEED_SIZE
from fedchain.crypto.signatures import SIGNATURE_SIZE as SIGNATURE_SIZE
from fedchain.crypto.signatures import PublicKey as PublicKey
from fedchain.crypto.signatures import Signature as Signature
from fedchain.crypto.signatures import is_valid_public_key as is_valid_public_key
from fedchain.crypto.signatures import is_valid_signature as is_valid_signature


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

    def save(self, path: Path, passphrase: str | None = None, *, replace: bool = False) -> None:
        """Write the key as PKCS #8 PEM with file mode 0600, encrypted when a passphrase is given.

        Args:
            path: of a file that does not exist, unless it is to be replaced.
            passphrase: to encrypt it with; None: not at all.
            replace: let the file take an older one's place, whole or not at all.

        Raises:
            KeyFileError: the file exists already (a key is never overwritten) or cannot be written.
        """
        from fedchain.crypto.key_file import write_key_file  # slow, and most processes have no key

        write_key_file(path, self.seed, self.public_key, passphrase, replace=replace)

    @classmethod
    def load(cls, path: Path, passphrase: str | None = None) -> "PrivateKey":
        """Read a key written by :meth:`save`, or another tool's PKCS #8 file.

        Raises:
            KeyFileError: missing, readable by others, not an Ed25519 key, or the passphrase is wrong or absent.
        """
        from fedchain.crypto.key_file import read_key_file

        seed, claimed = read_key_file(path, passphrase)
        key = cls(seed)
        if claimed not in (None, address(key.public_key)):
            raise KeyFileError(
                f"{path} is damaged: it holds the key of {address(key.public_key)} and says that it is of {claimed!r}"
            )
        return key
