"""Vectors for fixed keys, and a second implementation with nothing but Python's integers and hashes that reads them.

``python -m tests.crypto.threshold.test_vectors`` writes them anew; another encoding splits a running federation.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gmpy2 import mpz

from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.threshold import (
    Decryption,
    Encryptor,
    KeyShare,
    Packing,
    PlaintextStatement,
    ThresholdPublicKey,
    add,
    are_plaintexts_known,
    decode_ciphertexts,
    decode_plaintext_proof,
    decode_public_key,
    decode_share_post,
    encode_ciphertexts,
    open_share,
    prove_plaintexts,
)
from fedchain.crypto.threshold.sealing import seal_shares
from tests.crypto.threshold.dealt import SENDERS, SIGNING_KEYS, random_source, small_key
from tests.support.crypto import decrypt

PATH = Path(__file__).parent / "vectors.json"
VECTORS: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else []

PLAINTEXTS = ([0, 1, -1, 2**100], [5, -6, 7, -(2**100)])
ROUND, PHASE, CHAIN_ID = 7, "decryption_share", bytes(range(32))


def vector(s: int) -> dict[str, Any]:
    """One of everything under one key, in hexadecimal where it is bytes or long."""
    key, shares = small_key(s)
    encryptor = Encryptor(key)
    randomizers = [encryptor.randomizers(len(row), random_source(f"vector/{i}")) for i, row in enumerate(PLAINTEXTS)]
    lists = [encryptor.encrypt(row, each) for row, each in zip(PLAINTEXTS, randomizers, strict=True)]
    proofs = [
        prove_plaintexts(_statement(key, i, lists[i]), row, randomizers[i], random_source(f"vector proof/{i}"))
        for i, row in enumerate(PLAINTEXTS)
    ]
    decryption = Decryption(key, CHAIN_ID, ROUND, PHASE, add(key, lists))
    posts = [decryption.share(shares[i], SENDERS[i], random_source(f"vector post/{i}")) for i in range(3)]
    return {
        "public_key": key.encode().hex(),
        "key_id": key.key_id.hex(),
        "seeds": [member.seed.hex() for member in SIGNING_KEYS],
        "shares": [hex(share.secret) for share in shares],
        "sealed_shares": [sealed.hex() for sealed in seal_shares(key, shares, SENDERS)],
        "plaintexts": [[str(number) for number in row] for row in PLAINTEXTS],
        "randomness": [random_source(f"vector/{i}")(4 * key.key_bits // 16).hex() for i in range(2)],
        "ciphertexts": [encode_ciphertexts(key, each).hex() for each in lists],
        "proofs": [proof.encode(key).hex() for proof in proofs],
        "chain_id": CHAIN_ID.hex(),
        "round": ROUND,
        "phase": PHASE,
        "sums": encode_ciphertexts(key, decryption.ciphertexts).hex(),
        "posts": [post.encode(key).hex() for post in posts],
        "decrypted": [str(sum(each)) for each in zip(*PLAINTEXTS, strict=True)],
    }


@pytest.mark.parametrize("number", [0, 1])
def test_everything_is_made_as_the_vectors_say(number: int) -> None:
    made = json.loads(json.dumps(vector(number + 1)))
    expected = dict(VECTORS[number])
    del made["sealed_shares"], expected["sealed_shares"]  # HPKE draws a key of its own
    assert made == expected


@pytest.mark.parametrize("case", VECTORS)
def test_everything_is_read_as_the_vectors_say(case: dict[str, Any]) -> None:
    key = decode_public_key(bytes.fromhex(case["public_key"]), (320,))
    for index, (sealed, seed, secret) in enumerate(
        zip(case["sealed_shares"], case["seeds"], case["shares"], strict=True), 1
    ):
        opened = open_share(key, bytes.fromhex(sealed), index, PrivateKey(bytes.fromhex(seed)))
        assert opened == KeyShare(index, mpz(int(secret, 16)))
    for place, (encoded, encoded_proof) in enumerate(zip(case["ciphertexts"], case["proofs"], strict=True)):
        proof = decode_plaintext_proof(key, bytes.fromhex(encoded_proof))
        assert proof is not None
        assert are_plaintexts_known(_statement(key, place, decode_ciphertexts(key, bytes.fromhex(encoded), 4)), proof)
    sums = decode_ciphertexts(key, bytes.fromhex(case["sums"]), 4)
    decryption = Decryption(key, bytes.fromhex(case["chain_id"]), case["round"], case["phase"], sums)
    posts = [
        decode_share_post(key, bytes.fromhex(data), 4, i, SENDERS[i - 1]) for i, data in enumerate(case["posts"], 1)
    ]
    assert [str(number) for number in decrypt(decryption, posts)[0]] == case["decrypted"]


@pytest.mark.parametrize("case", VECTORS)
def test_a_second_implementation_takes_the_same_proofs_of_known_plaintexts(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["public_key"])
    bits, s = int.from_bytes(data[:2]), data[2]
    n, h = numbers(data[7 : 7 + bits // 4], bits // 8)
    modulus, size = n ** (s + 1), ((n ** (s + 1)).bit_length() + 7) // 8
    for place, (encoded, proof) in enumerate(
        zip(map(bytes.fromhex, case["ciphertexts"]), map(bytes.fromhex, case["proofs"]), strict=True)
    ):
        occasion = case["round"].to_bytes(8) + len(b"update").to_bytes(2) + (4).to_bytes(4) + b"update"
        sender = PrivateKey(bytes.fromhex(case["seeds"][place])).public_key
        known = bytes.fromhex(case["key_id"] + case["chain_id"])
        digest = hashlib.sha256(b"fedchain/2/known-plaintexts/" + known + occasion + sender + encoded).digest()
        e, y, z = (
            proof[:16],
            int.from_bytes(proof[16 : 16 + bits * s // 8]),
            int.from_bytes(proof[16 + bits * s // 8 :]),
        )
        assert z.bit_length() <= bits // 2 + 128 + 17 + 128 + 1
        a = pow(1 + n, y, modulus) * pow(h, n**s * z, modulus) % modulus
        stream = hashlib.shake_256(b"fedchain/2/plaintext-coefficients/" + e).digest(16 * 4)
        for weight, c in zip(numbers(stream, 16), numbers(encoded, size), strict=True):
            a = a * pow(c, -weight, modulus) % modulus
        assert hashlib.sha256(b"fedchain/2/plaintext-challenge/" + digest + a.to_bytes(size)).digest()[:16] == e


@pytest.mark.parametrize("case", VECTORS)
def test_a_second_implementation_takes_the_same_proofs(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["public_key"])
    bits, s, members = int.from_bytes(data[:2]), data[2], int.from_bytes(data[5:7])
    n = int.from_bytes(data[7 : 7 + bits // 8])
    modulus, size = n ** (s + 1), ((n ** (s + 1)).bit_length() + 7) // 8
    v, *v_i = numbers(data[7 + bits // 4 :], size)
    assert hashlib.sha256(data).hexdigest() == case["key_id"]
    sums, phase = bytes.fromhex(case["sums"]), case["phase"].encode()
    occasion = case["round"].to_bytes(8) + len(phase).to_bytes(2) + (4).to_bytes(4) + phase
    statement = b"fedchain/2/decryption-share/" + bytes.fromhex(case["key_id"] + case["chain_id"]) + occasion + sums
    delta_bits = (1 * 2 * 3 * 4 * 5).bit_length()
    response_size = (modulus.bit_length() + delta_bits + 256 + 2 + 7) // 8
    for index, encoded in enumerate(map(bytes.fromhex, case["posts"]), 1):
        e, z = int.from_bytes(encoded[:16]), int.from_bytes(encoded[16 : 16 + response_size])
        shares = encoded[16 + response_size :]
        sender = PrivateKey(bytes.fromhex(case["seeds"][index - 1])).public_key
        digest = hashlib.sha256(hashlib.sha256(statement).digest() + index.to_bytes(2) + sender + shares).digest()
        stream = hashlib.shake_256(b"fedchain/2/share-coefficients/" + digest).digest(16 * 4)
        C, D = 1, 1
        for weight, c, d in zip(numbers(stream, 16), numbers(sums, size), numbers(shares, size), strict=True):
            C, D = C * pow(c, 4 * weight, modulus) % modulus, D * pow(d, 2 * weight, modulus) % modulus
        a = pow(v, z, modulus) * pow(v_i[index - 1], -e, modulus) % modulus
        b = pow(C, z, modulus) * pow(D, -e, modulus) % modulus
        challenge = hashlib.sha256(b"fedchain/2/share-challenge/" + digest + a.to_bytes(size) + b.to_bytes(size))
        assert challenge.digest()[:16] == encoded[:16]
    assert members == len(v_i)


def test_packed_numbers_look_as_the_vectors_say() -> None:
    packing = Packing(319, 100, 5)
    assert (packing.digit_bits, packing.numbers_per_plaintext) == (10, 31)
    row = np.array([100, -100, 0, 1, -1], dtype=np.int64)
    assert packing.pack(row) == [100 - 100 * 2**10 + 2**30 - 2**40]


def _statement(key: ThresholdPublicKey, place: int, ciphertexts: list[mpz]) -> PlaintextStatement:
    return PlaintextStatement(key, CHAIN_ID, ROUND, "update", SENDERS[place], ciphertexts)


def numbers(data: bytes, size: int) -> list[int]:
    return [int.from_bytes(data[at : at + size]) for at in range(0, len(data), size)]


if __name__ == "__main__":
    PATH.write_text(json.dumps([vector(1), vector(2)], indent=1) + "\n", encoding="utf-8")
