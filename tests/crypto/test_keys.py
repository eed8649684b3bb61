"""Keys against RFC 8032, and against being shown."""

import pytest

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

KEY = PrivateKey(bytes(range(32)))


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_vectors_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    key = PrivateKey(bytes.fromhex(seed))
    assert key.public_key.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert is_valid_signature(key.public_key, bytes.fromhex(signature), bytes.fromhex(message))


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
