"""A valid signature is verified once, and what is remembered vouches for nothing else."""

import pytest

from fedchain.crypto import signature_memory
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.signature_memory import MESSAGE_SIZE_MAX, SignatureMemory
from fedchain.crypto.signatures import Signed, is_valid_signature

KEY, OTHER = PrivateKey(bytes(range(32))), PrivateKey(bytes(32))


def signed(message: bytes) -> Signed:
    return KEY.public_key, KEY.sign(message), message


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Signed]:
    """The signatures that were verified, in order."""
    found: list[Signed] = []

    def verify(key: bytes, signature: bytes, message: bytes) -> bool:
        found.append((key, signature, message))
        return is_valid_signature(key, signature, message)

    monkeypatch.setattr(signature_memory, "is_valid_signature", verify)
    return found


def test_a_valid_signature_is_verified_once_and_an_invalid_one_each_time(verified: list[Signed]) -> None:
    memory, good = SignatureMemory(), signed(b"message")
    bad = OTHER.public_key, good[1], good[2]
    assert [memory(*good), memory(*good), memory(*bad), memory(*bad)] == [True, True, False, False]
    assert verified == [good, bad, bad]


def test_a_remembered_signature_vouches_for_no_other_key_signature_or_message() -> None:
    memory, (key, signature, message) = SignatureMemory(), signed(b"message")
    assert memory(key, signature, message)
    others = (OTHER.public_key, signature, message), (key, signature, b"massage"), (key, signature[:-1] + b"0", message)
    assert not any(memory(*other) for other in others)


def test_what_others_found_valid_is_verified_by_nobody(verified: list[Signed]) -> None:
    memory, items = SignatureMemory(), [signed(b"one"), signed(b"two")]
    assert list(memory.unknown(items)) == items
    memory.note(items[:1])
    assert list(memory.unknown(items)) == items[1:]
    assert memory(*items[0])
    assert verified == []


def test_of_a_long_message_its_hash_is_remembered_and_vouches_for_no_message_of_its_own(verified: list[Signed]) -> None:
    memory, (key, signature, message) = SignatureMemory(), signed(bytes(MESSAGE_SIZE_MAX + 1))
    assert [memory(key, signature, message), memory(key, signature, message)] == [True, True]
    assert len(verified) == 1
    assert not memory(key, signature, sha256(message))
    assert not memory(key, signature, message[:-1] + b"1")
    assert all(message not in identity for identity in memory._valid if isinstance(identity, tuple))


def test_the_oldest_signature_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature_memory, "SIGNATURES_MAX", 2)
    memory, items = SignatureMemory(), [signed(b"%d" % number) for number in range(3)]
    assert all(memory(*item) for item in items)
    assert list(memory.unknown(items)) == items[:1]
