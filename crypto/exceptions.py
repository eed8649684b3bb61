"""Errors of keys, signatures and threshold encryption.

::

    CryptoError
    ├── KeyFileError        a key file is missing, malformed, too open, or its passphrase is wrong
    │   └── ShareFileError  the same of the file with a member's share of the decryption key
    ├── InvalidAddress      a text is not the address of an Ed25519 key
    ├── WrongSignatures     this machine judges signatures otherwise than everybody else
    ├── InvalidThresholdKey the bytes are not a public key for threshold encryption, or not one that is allowed
    ├── InvalidCiphertext   a ciphertext has the wrong size, is out of range, or shares a factor with the modulus
    ├── InvalidShare        a member's decryption share is malformed, or not proven to be right; it says whose
    ├── TooFewShares        fewer valid decryption shares than the threshold
    ├── SealBroken          a seal cannot be opened with this key
    ├── InvalidDealing      a share that was dealt cannot be opened, or does not fit the public key
    └── PackingOverflow     a number, or a sum of numbers, is larger than its slot
"""


class CryptoError(Exception):
    """Something is wrong with a key, a signature, an address or a ciphertext."""


class KeyFileError(CryptoError):
    """The key file cannot be used; the message says why and names the file."""


class ShareFileError(KeyFileError):
    """The file with a member's decryption share cannot be used; the message says why and names the file."""


class InvalidAddress(CryptoError):
    """The text is not the address of an Ed25519 public key."""


class WrongSignatures(CryptoError):
    """The library that judges signatures does not do so as the protocol says; the message names the case."""


class InvalidThresholdKey(CryptoError):
    """The bytes are not an allowed public key for threshold encryption; the message has both values."""


class InvalidCiphertext(CryptoError):
    """A ciphertext that nobody could have made by the rules; the message has its position."""


class InvalidShare(CryptoError):
    """A member's decryption shares are refused. It is the member's fault, and stays so.

    The message has the peer's number, which counts from 0, and its address.
    """

    def __init__(self, index: int, sender: str, reason: str) -> None:
        super().__init__(f"decryption shares of peer {index - 1} ({sender}) are refused: {reason}")
        self.index = index
        """Number of the member, from 1, in the order of the public key's verification keys."""
        self.sender = sender
        """The member's address."""
        self.reason = reason
        """The fault of the shares."""


class TooFewShares(CryptoError):
    """Fewer members than the threshold sent valid decryption shares; the message has both numbers."""


class SealBroken(CryptoError):
    """The seal cannot be opened: it was made for or by another key, is bound to other data, or is damaged."""


class InvalidDealing(CryptoError):
    """A sealed share cannot be opened with this member's key, or it does not fit the public key."""


class PackingOverflow(CryptoError):
    """A number, or a sum of numbers, is beyond the bounds for which its slot was made."""
