"""Hashes against published vectors."""

import hashlib

import pytest

from fedchain.crypto.hashing import HASH_SIZE, ZERO_HASH, scrypt, sha256, sha256d

# The header of Bitcoin's genesis block and its hash, which Bitcoin prints back to front.
BITCOIN_GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f617fc81bc3"
    "888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)
BITCOIN_GENESIS_HASH = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ],
)
def test_sha256_of_fips_180_4(data: bytes, digest: str) -> None:
    assert sha256(data).hex() == digest


def test_sha256d_of_the_first_bitcoin_block() -> None:
    assert sha256d(BITCOIN_GENESIS)[::-1].hex() == BITCOIN_GENESIS_HASH


def test_scrypt_has_the_parameters_of_litecoin() -> None:
    # RFC 7914 writes the algorithm; the parameters are N = 1024, r = 1, p = 1, and the salt is the data itself.
    data = BITCOIN_GENESIS
    assert scrypt(data) == hashlib.scrypt(data, salt=data, n=1024, r=1, p=1, dklen=32)
    assert scrypt(data) != hashlib.scrypt(data, salt=data, n=1024, r=8, p=1, dklen=32)


def test_scrypt_finds_the_proof_of_a_litecoin_block() -> None:
    # Litecoin's block 29,255: header and scrypt hash as its own test of the hash has them.
    header = bytes.fromhex(
        "01000000f615f7ce3b4fc6b8f61e8f89aedb1d0852507650533a9e3b10b9bbcc30639f279fcaa86746e1ef52d3edb3c4ad8259920d509b"
        "d073605c9bf1d59983752a6b06b817bb4ea78e011d012d59d4"
    )
    assert scrypt(header)[::-1].hex() == "0000000110c8357966576df46f3b802ca897deb7ad18b12f1c24ecff6386ebd9"


def test_the_zero_hash_is_32_zeros() -> None:
    assert ZERO_HASH == b"\x00" * 32
    assert HASH_SIZE == len(sha256(b"")) == len(sha256d(b"")) == len(scrypt(b"")) == 32
