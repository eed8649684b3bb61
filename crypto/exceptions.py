"""Errors of keys and signatures.

::

    CryptoError
    ├── KeyFileError        a key file is missing, malformed, too open, or its passphrase is wrong
    ├── InvalidAddress      a text is not the address of an Ed25519 key
    └── WrongSignatures     this machine judges signatures otherwise than everybody else
"""


class CryptoError(Exception):
    """Something is wrong with a key, a signature or an address."""


class KeyFileError(CryptoError):
    """The key file cannot be used; the message says why and names the file."""


class InvalidAddress(CryptoError):
    """The text is not the address of an Ed25519 public key."""


class WrongSignatures(CryptoError):
    """The library that judges signatures does not do so as the protocol says; the message names the case."""
