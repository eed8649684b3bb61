"""Signatures against RFC 8032, and key files against careless users and curious neighbours."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.keys import PrivateKey, is_valid_signature

# RFC 8032, section 7.1: TEST 1, TEST 2 and TEST 3.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe"
        "24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302a"
        "eeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed2"
        "8dc027beceea1ec40a",
    ),
]

ORDER = 2**252 + 27742317777372353535851937790883648493

KEY = PrivateKey(bytes(range(32)))


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_vectors_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    key = PrivateKey(bytes.fromhex(seed))
    assert key.public_key.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert is_valid_signature(key.public_key, bytes.fromhex(signature), bytes.fromhex(message))


def test_a_signature_holds_for_its_key_and_message_alone() -> None:
    signature = KEY.sign(b"message")
    assert is_valid_signature(KEY.public_key, signature, b"message")
    assert not is_valid_signature(KEY.public_key, signature, b"massage")
    assert not is_valid_signature(PrivateKey(bytes(32)).public_key, signature, b"message")


def test_every_flipped_bit_breaks_a_signature() -> None:
    signature = int.from_bytes(KEY.sign(b"message"), "big")
    for bit in range(512):
        assert not is_valid_signature(KEY.public_key, (signature ^ 1 << bit).to_bytes(64, "big"), b"message")


def test_a_signature_has_no_second_form() -> None:
    # s and s + L satisfy the same equation; RFC 8032 allows the one below L only.
    signature = KEY.sign(b"message")
    other = int.from_bytes(signature[32:], "little") + ORDER
    assert not is_valid_signature(KEY.public_key, signature[:32] + other.to_bytes(32, "little"), b"message")


@pytest.mark.parametrize("public_key", [b"", bytes(31), bytes(33), b"\xff" * 32, bytes(32)])
def test_malformed_keys_are_invalid(public_key: bytes) -> None:
    assert not is_valid_signature(public_key, KEY.sign(b"message"), b"message")


@pytest.mark.parametrize("signature", [b"", bytes(63), bytes(64), bytes(65), b"\xff" * 64])
def test_malformed_signatures_are_invalid(signature: bytes) -> None:
    assert not is_valid_signature(KEY.public_key, signature, b"message")


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_has_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"32 bytes, not {size}"):
        PrivateKey(bytes(size))


def test_generated_keys_differ() -> None:
    assert PrivateKey.generate() != PrivateKey.generate()


def test_the_seed_is_not_shown() -> None:
    for text in (repr(KEY), str(KEY), f"{KEY}"):
        assert KEY.seed.hex() not in text
        assert repr(KEY.seed)[2:-1] not in text
        assert "seed" not in text


# --- key files


@pytest.mark.parametrize("passphrase", [None, "pass phrase with ü"])
def test_a_key_file_is_read_back(tmp_path: Path, passphrase: str | None) -> None:
    KEY.save(tmp_path / "key.pem", passphrase)
    assert PrivateKey.load(tmp_path / "key.pem", passphrase) == KEY


def test_only_the_owner_may_read_a_key_file_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        KEY.save(tmp_path / "key.pem")
    finally:
        os.umask(before)
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600


def test_a_passphrase_encrypts_the_file(tmp_path: Path) -> None:
    KEY.save(tmp_path / "open.pem")
    KEY.save(tmp_path / "closed.pem", "secret")
    assert (tmp_path / "open.pem").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert (tmp_path / "closed.pem").read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")


@pytest.mark.parametrize(
    ("saved", "given", "reason"),
    [
        ("right", "wrong", "the passphrase is wrong or the file is damaged"),
        ("right", None, "is encrypted and needs a passphrase"),
        (None, "needless", "needs no passphrase"),
    ],
)
def test_the_passphrase_must_fit(tmp_path: Path, saved: str | None, given: str | None, reason: str) -> None:
    path = tmp_path / "key.pem"
    KEY.save(path, saved)
    with pytest.raises(KeyFileError, match=reason) as caught:
        PrivateKey.load(path, given)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_may_read_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    KEY.save(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        PrivateKey.load(path)


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text("precious")
    with pytest.raises(KeyFileError, match="never overwritten"):
        KEY.save(path)
    assert path.read_text() == "precious"


def test_a_link_is_not_followed_when_a_key_is_saved(tmp_path: Path) -> None:
    (tmp_path / "key.pem").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError, match="never overwritten"):
        KEY.save(tmp_path / "key.pem")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_file_that_is_not_pem_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="cannot be opened: it is not a PEM key"):
        PrivateKey.load(path)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    other = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="X25519PrivateKey, not an Ed25519 key"):
        PrivateKey.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"none\.pem cannot be read: No such file"):
        PrivateKey.load(tmp_path / "none.pem")
    with pytest.raises(KeyFileError, match=r"key\.pem cannot be written: No such file"):
        KEY.save(tmp_path / "no folder" / "key.pem")
