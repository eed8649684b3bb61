"""A seal is a nonce that meets the target, over everything else in the header."""

from dataclasses import fields, replace
from typing import Any

import pytest

from fedchain.chain.block import Header
from fedchain.chain.difficulty import bits_from_attempts, target_from_bits
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.proof_of_work import NONCE_MAX, PROOF_FUNCTIONS, is_sealed, proof_hash, search_nonce
from fedchain.crypto.hashing import scrypt, sha256, sha256d

HEADER = Header(2, b"p" * 32, 3, 2, 1, b"t" * 32, b"c" * 32, b"e" * 32, b"s" * 32, b"k" * 32, 0x1F00FFFF, b"m" * 32, 0)


def test_the_proof_runs_over_seal_and_nonce() -> None:
    header = replace(HEADER, nonce=0x0102030405060708)
    message = header.seal() + bytes(range(1, 9))
    assert len(message) == 40
    assert proof_hash("sha256d", header) == sha256d(message)
    assert proof_hash("scrypt", header) == scrypt(message)


def test_the_seal_covers_every_field_but_the_nonce() -> None:
    header = replace(HEADER, version=CHANGES_VERSION)
    names = [item.name for item in fields(Header) if item.init]
    for name in names:
        value = getattr(header, name)
        change: dict[str, Any] = {name: value + 1 if isinstance(value, int) else sha256(value)}
        changed = replace(header, **change)
        assert changed.hash != header.hash, name
        assert (changed.seal() == header.seal()) == (name == "nonce"), name


@pytest.mark.parametrize("function", ["sha256d", "scrypt"])
def test_the_nonce_that_is_found_seals(function: str) -> None:
    header = replace(HEADER, bits=bits_from_attempts(30))
    sealed = search_nonce(function, header, 0, 2_000)
    assert sealed is not None
    assert replace(sealed, nonce=0) == header
    assert is_sealed(function, sealed)
    assert int.from_bytes(proof_hash(function, sealed), "big") <= target_from_bits(header.bits)
    assert not any(is_sealed(function, replace(header, nonce=nonce)) for nonce in range(sealed.nonce))


@pytest.mark.parametrize(("above", "good"), [(-1, True), (0, True), (1, False)])
def test_a_hash_equal_to_the_target_is_good_enough(above: int, good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_from_bits(HEADER.bits)
    name = f"fixed, {above} above"
    monkeypatch.setitem(PROOF_FUNCTIONS, name, lambda data: (target + above).to_bytes(32, "big"))
    assert is_sealed(name, HEADER) == good
    assert (search_nonce(name, HEADER, 0, 1) is not None) == good


def test_no_nonce_is_found_where_none_is_tried() -> None:
    hard = replace(HEADER, bits=0x03000001)
    assert search_nonce("sha256d", hard, 0, 100) is None
    assert search_nonce("sha256d", replace(HEADER, bits=0x207FFFFF), 0, 0) is None


def test_the_search_wraps_around() -> None:
    easy = replace(HEADER, bits=0x207FFFFF)
    sealed = search_nonce("sha256d", easy, NONCE_MAX + 1, 100)
    assert sealed == search_nonce("sha256d", easy, 0, 100)
    last = search_nonce("sha256d", easy, NONCE_MAX, 100)
    assert last is not None
    assert last.nonce == NONCE_MAX or last.nonce < 100


def test_a_proof_of_another_function_does_not_seal() -> None:
    header = replace(HEADER, bits=bits_from_attempts(1_000))
    sealed = search_nonce("sha256d", header, 0, 100_000)
    assert sealed is not None
    assert not is_sealed("scrypt", sealed)
