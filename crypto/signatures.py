"""Ed25519 signatures that are valid on every machine or on none.

RFC 8032 leaves open what to do with points of small order and with numbers that are written in two ways, and
libraries differ there. A block that one member takes and another refuses splits a federation, so there is one
answer, libsodium's: the strictest that is in use. Key and R are written in one way and have no small order, S is
below the order of the group, and the equation holds without a cofactor.

Source: RFC 8032; Chalkias, Garillot, Nikolaenko, "Taming the many EdDSAs", SSR 2020.
"""

from collections.abc import Callable
from functools import lru_cache

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open
from nacl.exceptions import BadSignatureError

PublicKey = bytes
"""32 raw bytes of an Ed25519 public key; also the identity of a member."""

Signature = bytes
"""64 bytes."""

Signed = tuple[PublicKey, Signature, bytes]
"""The signer, the signature, and the message: all that the validity of a signature depends on."""

SignatureCheck = Callable[[PublicKey, Signature, bytes], bool]
"""``is_valid_signature(public_key, signature, message)``, or the memory in front of it."""

SEED_SIZE = 32
"""Bytes from which a key pair is derived."""

PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64


def is_valid_signature(public_key: PublicKey, signature: Signature, message: bytes) -> bool:
    """Whether ``signature`` is ``public_key``'s over ``message``. Malformed keys and signatures are invalid."""
    if len(public_key) != PUBLIC_KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


@lru_cache(maxsize=4096)
def is_valid_public_key(key: bytes) -> bool:
    """Whether ``key`` may be a member's: a point of the prime-order group, written as it should be.

    Each such point except the neutral one has a private key. Among other points, some have none, and for some a
    signature of any message can be forged.
    """
    return len(key) == PUBLIC_KEY_SIZE and crypto_core_ed25519_is_valid_point(key)
