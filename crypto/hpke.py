"""Sealing bytes to the owner of an Ed25519 key: HPKE with the X25519 key that belongs to it.

The birational map between the two curves turns one key into the other, so that nobody needs a second key. That one key
may do both is shown for exactly this pair (Thormarker). The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
ChaCha20-Poly1305: in base mode, where the receiver does not learn the sender, or in auth mode, where it does.

Source: RFC 9180 (HPKE), RFC 7748 section 4.1; Thormarker, "On using the same key pair for Ed25519 and an X25519 based
KEM", IACR ePrint 2021/509.
"""

from typing import TYPE_CHECKING

from nacl.bindings import crypto_sign_ed25519_pk_to_curve25519, crypto_sign_ed25519_sk_to_curve25519

from fedchain.crypto.exceptions import SealBroken
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.signatures import PublicKey

if TYPE_CHECKING:
    from Crypto.Protocol.HPKE import HPKE_Cipher
    from Crypto.PublicKey.ECC import EccKey

ENCAPSULATED_SIZE, TAG_SIZE = 32, 16
"""Bytes that a seal puts before and behind the hidden data."""


def seal(data: bytes, receiver: PublicKey, info: bytes, sender: PrivateKey | None = None) -> bytes:
    """Seal ``data``: encapsulated key (32 bytes), then ciphertext and tag (16 bytes).

    Args:
        data: to be hidden.
        receiver: public key of the member that can open it, which :func:`is_valid_public_key` takes.
        info: the context that it is bound to; the receiver has to state the same.
        sender: private key of the member that seals it, in auth mode; None: base mode.
    """
    cipher = _cipher(_public(receiver), None if sender is None else _private(sender), info)
    sealed: bytes = cipher.seal(data)
    return bytes(cipher.enc) + sealed


def unseal(sealed: bytes, receiver: PrivateKey, info: bytes, sender: PublicKey | None = None) -> bytes:
    """Open a seal that :func:`seal` made.

    Args:
        sealed: the whole seal.
        receiver: private key of the member to which it was sealed.
        info: the context that it is bound to.
        sender: public key of the member that must have sealed it, in auth mode; None: base mode.

    Raises:
        SealBroken: it was made for or by another key, is bound to other data, or is damaged.
    """
    if len(sealed) < ENCAPSULATED_SIZE + TAG_SIZE:
        raise SealBroken(f"{len(sealed)} bytes, a seal alone has {ENCAPSULATED_SIZE + TAG_SIZE}")
    try:
        sender_key = None if sender is None else _public(sender)
        cipher = _cipher(_private(receiver), sender_key, info, sealed[:ENCAPSULATED_SIZE])
        return bytes(cipher.unseal(sealed[ENCAPSULATED_SIZE:]))
    except ValueError:
        raise SealBroken("it is sealed to another key or damaged") from None


def _cipher(receiver: "EccKey", sender: "EccKey | None", info: bytes, enc: bytes | None = None) -> "HPKE_Cipher":
    # Pycryptodome is imported late, here and below: it compiles declarations in C, and most processes seal nothing.
    from Crypto.Protocol import HPKE

    aead = HPKE.AEAD.CHACHA20_POLY1305
    return HPKE.new(receiver_key=receiver, aead_id=aead, enc=enc, sender_key=sender, info=info)


def _public(key: PublicKey) -> "EccKey":
    from Crypto.Protocol.DH import import_x25519_public_key

    return import_x25519_public_key(crypto_sign_ed25519_pk_to_curve25519(key))


def _private(key: PrivateKey) -> "EccKey":
    from Crypto.Protocol.DH import import_x25519_private_key

    return import_x25519_private_key(crypto_sign_ed25519_sk_to_curve25519(key.seed + key.public_key))
