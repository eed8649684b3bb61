"""One key, one message, one set of valid signatures: against RFC 8032 and against what libraries disagree about."""

import hashlib

import pytest

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.signatures import is_valid_public_key, is_valid_signature
from fedchain.crypto.vectors import SPECCHECK, signature_cases

KEY = PrivateKey(bytes(range(32)))

ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19

# A point of order 8, from which all eight points of small order follow.
TORSION = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa")

Point = tuple[int, int]


def test_of_what_libraries_disagree_about_one_signature_is_valid() -> None:
    # Small order of key or R (0-2, 8-11), a cofactor in the equation (4, 5), S beyond the order (6, 7), two
    # spellings (8-11). Number 3 has a key and an R of mixed order and satisfies the strict equation.
    taken = [is_valid_signature(case.public_key, case.signature, case.message) for case in SPECCHECK]
    assert [number for number, valid in enumerate(taken) if valid] == [3]
    assert [valid for _, valid in signature_cases()] == [True, *taken]


def test_a_signature_holds_for_its_key_and_message_alone() -> None:
    signature = KEY.sign(b"message")
    assert is_valid_signature(KEY.public_key, signature, b"message")
    assert not is_valid_signature(KEY.public_key, signature, b"massage")
    assert not is_valid_signature(PrivateKey(bytes(32)).public_key, signature, b"message")
    for key in (KEY.public_key + b"\0", KEY.public_key[:-1], b""):
        assert not is_valid_signature(key, signature, b"message")


def test_the_empty_message_is_signed_too() -> None:
    assert is_valid_signature(KEY.public_key, KEY.sign(b""), b"")
    assert not is_valid_signature(KEY.public_key, KEY.sign(b""), b"\0")


def test_every_flipped_bit_breaks_a_signature() -> None:
    signature = int.from_bytes(KEY.sign(b"message"), "big")
    for bit in range(512):
        assert not is_valid_signature(KEY.public_key, (signature ^ 1 << bit).to_bytes(64, "big"), b"message")


def test_a_signature_has_no_second_form() -> None:
    # s and s + L satisfy the same equation; RFC 8032 allows the one below L only.
    signature = KEY.sign(b"message")
    other = int.from_bytes(signature[32:], "little") + ORDER
    assert not is_valid_signature(KEY.public_key, signature[:32] + other.to_bytes(32, "little"), b"message")


def test_the_border_between_signature_and_message_stays_where_it_is() -> None:
    signature = KEY.sign(b"message")
    assert not is_valid_signature(KEY.public_key, signature + b"m", b"essage")
    assert not is_valid_signature(KEY.public_key, signature[:-1], signature[-1:] + b"message")
    assert not is_valid_signature(KEY.public_key + signature[:1], signature[1:], b"message")


@pytest.mark.parametrize("public_key", [b"", bytes(31), bytes(33), b"\xff" * 32, bytes(32)])
def test_malformed_keys_are_invalid(public_key: bytes) -> None:
    assert not is_valid_signature(public_key, KEY.sign(b"message"), b"message")
    assert not is_valid_public_key(public_key)


@pytest.mark.parametrize("signature", [b"", bytes(63), bytes(64), bytes(65), b"\xff" * 64])
def test_malformed_signatures_are_invalid(signature: bytes) -> None:
    assert not is_valid_signature(KEY.public_key, signature, b"message")


# --- public keys


def test_every_private_key_has_a_valid_public_key() -> None:
    for number in range(64):
        assert is_valid_public_key(PrivateKey(hashlib.sha256(bytes([number])).digest()).public_key)


def test_a_key_of_small_or_mixed_order_is_invalid() -> None:
    small = [multiply(count, read(TORSION)) for count in range(8)]
    assert len(set(small)) == 8
    assert [add(point, point) for point in small].count((0, 1)) == 2, "so their orders are 1, 2, 4, 4, 8, 8, 8, 8"
    for point in small:
        assert not is_valid_public_key(write(point))
        assert is_valid_public_key(write(add(read(KEY.public_key), point))) == (point == (0, 1))


def test_a_key_that_is_not_on_the_curve_is_invalid() -> None:
    off = [y for y in range(2, 40) if not is_on_curve(y)]
    assert len(off) > 10
    assert not any(is_valid_public_key(y.to_bytes(32, "little")) for y in off)


def test_a_key_with_a_second_spelling_is_invalid() -> None:
    # y and y + p are one number; only 19 numbers have two spellings in 255 bits.
    spellings = [(FIELD + y) | sign << 255 for y in range(19) for sign in (0, 1)]
    assert not any(is_valid_public_key(number.to_bytes(32, "little")) for number in spellings)


@pytest.mark.parametrize("public_key", [TORSION, bytes(32), b"\x01" + bytes(31), b"\x02" + bytes(31)])
def test_a_key_that_is_nobody_s_has_no_address(public_key: bytes) -> None:
    with pytest.raises(InvalidAddress, match="nobody can have"):
        public_key_from_address(address(public_key))


# --- the curve, by the book


def add(one: Point, other: Point) -> Point:
    """Sum of two points of edwards25519."""
    (x1, y1), (x2, y2) = one, other
    product = curve_d() * x1 * x2 * y1 * y2 % FIELD
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, FIELD) % FIELD
    return x, (y1 * y2 + x1 * x2) * pow(1 - product, -1, FIELD) % FIELD


def multiply(count: int, point: Point) -> Point:
    total = (0, 1)
    for _ in range(count):
        total = add(total, point)
    return total


def read(data: bytes) -> Point:
    """A point from its 32 bytes (RFC 8032, section 5.1.3)."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & 2**255 - 1
    square = (y * y - 1) * pow(curve_d() * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    if (x * x - square) % FIELD:
        x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    assert (x * x - square) % FIELD == 0
    return (x if x & 1 == sign else FIELD - x), y


def write(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def is_on_curve(y: int) -> bool:
    square = (y * y - 1) * pow(curve_d() * y * y + 1, -1, FIELD) % FIELD
    return pow(square, (FIELD - 1) // 2, FIELD) in (0, 1)


def curve_d() -> int:
    return -121665 * pow(121666, -1, FIELD) % FIELD
