"""Numbers that t members encrypt, add and decrypt give the plain sum; fewer than t learn nothing of it."""

from itertools import combinations

import pytest
from gmpy2 import mpz, powmod
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.crypto.exceptions import InvalidCiphertext, TooFewShares
from fedchain.crypto.threshold import add
from fedchain.crypto.threshold.decryption import interpolation_coefficients, logarithm
from tests.crypto.threshold.dealt import MEMBERS, THRESHOLD, full_key, small_key
from tests.support.crypto import decrypt, encrypt, occasion, posts


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_every_choice_of_t_members_decrypts_to_the_same(s: int) -> None:
    dealt = small_key(s)
    half = int(dealt[0].plaintext_modulus) // 2
    plaintexts = [0, 1, -1, 12345, half, -half, 2**300 % half]
    decryption = occasion(dealt, encrypt(dealt, plaintexts))
    sent = posts(dealt, decryption)
    for chosen in combinations(sent, THRESHOLD):
        assert decrypt(decryption, chosen) == (plaintexts, [])


def test_the_default_length_decrypts_to_the_sum() -> None:
    dealt = full_key()
    summands = [[3**1000, -(7**700)], [-(5**800), 1], [2, 2**2000]]
    total = add(dealt[0], [encrypt(dealt, each, str(i)) for i, each in enumerate(summands)])
    decryption = occasion(dealt, total)
    sums = [sum(each) for each in zip(*summands, strict=True)]
    assert decrypt(decryption, posts(dealt, decryption, (4, 0, 2))) == (sums, [])


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 2), st.integers(1, 6), st.integers(1, 4))
def test_a_product_of_ciphertexts_decrypts_to_the_sum(data: st.DataObject, s: int, summands: int, places: int) -> None:
    dealt = small_key(s)
    bound = int(dealt[0].plaintext_modulus) // 2 // summands
    number = st.integers(-bound, bound)
    lists = data.draw(
        st.lists(st.lists(number, min_size=places, max_size=places), min_size=summands, max_size=summands)
    )
    members = data.draw(st.permutations(range(MEMBERS)))[:THRESHOLD]
    decryption = occasion(dealt, add(dealt[0], [encrypt(dealt, each, str(i)) for i, each in enumerate(lists)]))
    sums = [sum(each) for each in zip(*lists, strict=True)]
    assert decrypt(decryption, posts(dealt, decryption, tuple(members))) == (sums, [])


def test_fewer_than_t_shares_decrypt_nothing() -> None:
    dealt = small_key()
    decryption = occasion(dealt, encrypt(dealt, [42]))
    for chosen in combinations(posts(dealt, decryption), THRESHOLD - 1):
        with pytest.raises(TooFewShares, match="2 members sent valid shares, 3 are needed"):
            decrypt(decryption, chosen)
        with pytest.raises(TooFewShares):
            decryption.combine([*chosen, chosen[0]])  # one of them twice


def test_fewer_than_t_shares_fit_every_plaintext() -> None:
    # Interpolated as if t − 1 were enough, the result is no power of 1 + n: what is left of the randomizer hides M.
    dealt = small_key()
    key = dealt[0]
    decryption = occasion(dealt, encrypt(dealt, [42]))
    for chosen in combinations(posts(dealt, decryption), THRESHOLD - 1):
        product = mpz(1)
        exponents = interpolation_coefficients([post.index for post in chosen], key.delta)
        for post, exponent in zip(chosen, exponents, strict=True):
            product = product * powmod(post.shares[0], 2 * exponent, key.ciphertext_modulus)
        assert product % key.modulus != 1


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_logarithms_are_exact(s: int) -> None:
    key = small_key(s)[0]
    for exponent in (0, 1, 2, 3**100, key.plaintext_modulus - 1):
        assert logarithm(powmod(1 + key.modulus, exponent, key.ciphertext_modulus), key) == (
            exponent % key.plaintext_modulus
        )


def test_interpolation_needs_no_fractions() -> None:
    for indices in combinations(range(1, 8), 4):
        coefficients = interpolation_coefficients(indices, 5040)
        for degree in range(4):
            value = sum(a * i**degree for a, i in zip(coefficients, indices, strict=True))
            assert value == (5040 if degree == 0 else 0)


def test_what_is_decrypted_must_be_units() -> None:
    key = small_key()[0]
    for bad in (mpz(0), key.modulus, 3 * key.modulus, key.ciphertext_modulus, mpz(-1)):
        with pytest.raises(InvalidCiphertext, match="ciphertext 1 of 2"):
            occasion(small_key(), [mpz(5), bad])


def test_a_product_of_ciphertexts_of_different_numbers_is_refused() -> None:
    key = small_key()[0]
    with pytest.raises(ValueError, match="lists of"):
        add(key, [[mpz(1)], [mpz(1), mpz(2)]])
    with pytest.raises(ValueError, match="lists of"):
        add(key, [])
