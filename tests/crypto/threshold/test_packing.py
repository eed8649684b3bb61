"""Signed numbers packed, added as plaintexts, and unpacked are their sums; what does not fit raises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.exceptions import PackingOverflow
from fedchain.crypto.threshold import Decryption, Encryptor, FixedPoint, Packing, add
from tests.crypto.threshold.dealt import SENDERS, random_source, small_key
from tests.support.crypto import decrypt


@pytest.mark.long
@given(st.data(), st.integers(20, 700), st.integers(1, 2**40), st.integers(1, 9), st.integers(0, 40))
def test_sums_of_packed_numbers_are_sums(data: st.DataObject, bits: int, magnitude: int, summands: int, N: int) -> None:
    if (summands * magnitude).bit_length() + 1 > bits - 1:
        return
    packing = Packing(bits, magnitude, summands)
    number = st.one_of(st.sampled_from((magnitude, -magnitude, 0)), st.integers(-magnitude, magnitude))
    rows = [np.array(data.draw(st.lists(number, min_size=N, max_size=N)), dtype=np.int64) for _ in range(summands)]
    packed = [packing.pack(row) for row in rows]
    total = [sum(each) for each in zip(*packed, strict=True)]
    assert len(total) == packing.plaintexts_of(N)
    # As residues of the smallest modulus that has so many bits, they come back with their signs.
    modulus = (1 << (bits - 1)) + 1
    signed = [(each + modulus // 2) % modulus - modulus // 2 for each in total]
    assert signed == total
    assert (packing.unpack(total, N) == sum(rows, np.zeros(N, dtype=np.int64))).all()


def test_the_largest_sums_stay_in_their_digits() -> None:
    packing = Packing(2048, 2**34, 5)
    assert (packing.digit_bits, packing.numbers_per_plaintext) == (38, 53)
    for sign in (1, -1):
        numbers = np.full(106, sign * 2**34, dtype=np.int64)
        numbers[::2] *= -1
        total = [5 * each for each in packing.pack(numbers)]
        assert all(abs(each) < 1 << 2046 for each in total)
        assert (packing.unpack(total, 106) == 5 * numbers).all()


def test_digits_leave_room_for_the_sign_of_their_sum() -> None:
    packing = Packing(50, 300, 1)
    assert (packing.digit_bits, packing.numbers_per_plaintext) == (10, 4), "five digits would have all 50 bits"


@pytest.mark.parametrize("wrong", [8, -8, 2**62, -(2**63)])
def test_a_number_beyond_its_bound_is_not_packed(wrong: int) -> None:
    packing = Packing(100, 7, 3)
    assert packing.pack(np.array([7, -7], dtype=np.int64))
    with pytest.raises(PackingOverflow, match=f"number 1 is {wrong}, its magnitude may be 7"):
        packing.pack(np.array([7, wrong], dtype=np.int64))


def test_a_digit_beyond_what_so_many_members_can_add_up_to_becomes_the_nearest() -> None:
    packing = Packing(100, 7, 3)
    (one,) = packing.pack(np.array([7, -7, 1], dtype=np.int64))
    for summands, expected in ((3, [21, -21, 3]), (2, [14, -14, 3]), (1, [7, -7, 3])):
        assert packing.unpack_nearest([3 * one], 3, summands).tolist() == expected


def test_a_digit_that_no_sum_may_have_is_noticed() -> None:
    packing = Packing(100, 7, 3)
    largest = packing.pack(np.array([7, -7], dtype=np.int64))
    assert packing.unpack([3 * largest[0]], 2).tolist() == [21, -21]
    with pytest.raises(PackingOverflow, match="sum 0 is 28, its magnitude may be 21"):
        packing.unpack([4 * largest[0]], 2)
    # The last one is just below the least that two digits of 6 bits can be.
    for beyond in (1 << 90, -(1 << 90), -(32 * 64 + 32) - 1):
        with pytest.raises(PackingOverflow, match="plaintext 0 holds more than 2 digits"):
            packing.unpack([beyond], 2)
    with pytest.raises(ValueError, match="2 plaintexts, 1 expected"):
        packing.unpack([1, 2], 2)


@pytest.mark.parametrize(("bits", "magnitude", "summands"), [(100, 0, 1), (100, 1, 0), (500, 2**60, 2), (20, 2**30, 1)])
def test_bounds_that_cannot_hold_are_refused(bits: int, magnitude: int, summands: int) -> None:
    with pytest.raises(ValueError, match=r"expected|at most|fits"):
        Packing(bits, magnitude, summands)


def test_fixed_point_rounds_to_the_nearest_even() -> None:
    point = FixedPoint(2, 10.0)
    assert point.integer_max == 40
    assert point.encode(np.array([0.125, 0.375, -0.125, -0.375, 10, -10])).tolist() == [0, 2, 0, -2, 40, -40]
    assert point.decode(np.array([1, -3], dtype=np.int64)).tolist() == [0.25, -0.75]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), 1.0000001, -2])
def test_fixed_point_refuses_what_is_too_large_or_no_number_and_does_not_tell_it(wrong: float) -> None:
    with pytest.raises(PackingOverflow) as error:
        FixedPoint(32, 1.0).encode(np.array([[0.5], [wrong]]))
    assert str(error.value) == "a number is not finite or too large, their magnitude may be 1.0"


def test_an_encrypted_round_is_the_plain_round_bit_for_bit() -> None:
    # Unit vectors with noise, float32 as methods post them; 5 members, 4 × 8 numbers each.
    key, shares = small_key()
    point = FixedPoint(32, 4.0)
    packing = Packing(key.plaintext_bits, point.integer_max, summands_max=5)
    rng = np.random.default_rng(0)
    prototypes = rng.normal(0, 0.5, (5, 4, 8)).astype(np.float32)  # (K, C, D)
    integers = [point.encode(each).reshape(-1) for each in prototypes]
    encryptor = Encryptor(key)
    posted = [
        encryptor.encrypt(
            packing.pack(each), encryptor.randomizers(packing.plaintexts_of(32), random_source(f"round/{member}"))
        )
        for member, each in enumerate(integers)
    ]
    decryption = Decryption(key, bytes(32), 1, "decryption_share", add(key, posted))
    posts = [decryption.share(shares[i], SENDERS[i], random_source(str(i))) for i in (3, 1, 4)]
    sums = packing.unpack(decrypt(decryption, posts)[0], 32)
    assert sums.tobytes() == np.sum(integers, axis=0).tobytes()
    assert point.decode(sums).tobytes() == (np.sum(integers, axis=0) / 2**32).tobytes()
