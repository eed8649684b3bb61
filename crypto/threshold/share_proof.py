"""One proof that all decryption shares of a post are right: Chaum–Pedersen over the squares modulo n^(s+1).

With x = Δ·s_i, member i's share of the ciphertext c is d = c^(2x), and its verification key is v_i = v^x. To prove k
shares at once, coefficients ρ_j of 128 bits are derived by hashing everything that is known before the proof, the
shares included. With C = Π c_j^(4·ρ_j) and D = Π d_j^(2·ρ_j), the member proves that log_C D = log_v v_i: it draws r,
commits to a = v^r and b = C^r, hashes them into a challenge e of 128 bits, and answers z = r + e·x over the integers.
Anybody recomputes a = v^z·v_i^(−e) and b = C^z·D^(−e), and then e.

**Why a wrong share is refused.** All of v, v_i, c_j⁴ and d_j² are squares: the first two by the trusted dealer, the
others because c_j and d_j are checked to be coprime to n, and a square of a unit is one; the even powers remove what a
unit has beside it, the elements of order 2. The squares form a cyclic group of order n^s·p′·q′. All its prime factors
are above 2¹²⁸, so any smaller number can be inverted modulo the order of any of its elements, without knowing it.

1. *The proof.* Two answers to one commitment give v^(z − z′) = v_i^(e − e′) and C^(z − z′) = D^(e − e′). As e − e′ can
   be inverted and v generates the squares, D = C^x for the one x that v_i = v^x defines. If D ≠ C^x, at most one
   challenge in 2¹²⁸ can be answered.
2. *The batch.* Let u_j = d_j²·c_j^(−4x). If some u_j ≠ 1, then with the other coefficients fixed, Π u_j^ρ_j = 1 holds
   for at most one ρ_j in 2¹²⁸, as u_j has an order above that. Otherwise D ≠ C^x, and point 1 applies.
3. *Hashing.* Coefficients and challenge are hashes of the values that they have to be independent of (Fiat–Shamir, in
   the random oracle model): an attacker that tries Q times succeeds with a chance of about Q·2⁻¹²⁷.

It follows that d_j² = c_j^(4x). The sign of d_j and its like stay open; combination uses even powers of d_j alone, so
they change nothing.

**Why it tells nothing.** r has 128 bits more than e·x, so z is within 2⁻¹²⁸ of a number that was drawn without x.

**What it is bound to.** The statement's digest holds the key, chain, round, phase, sender, index, all ciphertexts and
all shares. A proof is good for no other decryption.

Source: Chaum, Pedersen, "Wallet databases with observers", CRYPTO 1992; Shoup, "Practical threshold signatures",
EUROCRYPT 2000; Bellare, Garay, Rabin, "Fast batch verification for modular exponentiation and digital signatures",
EUROCRYPT 1998.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gmpy2 import context, mpz, powmod

from fedchain.crypto.hashing import Hash
from fedchain.crypto.randomness import RandomBytes, random_bits
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS, HIDING_BITS, draw_challenge, draw_coefficients
from fedchain.crypto.threshold.fixed_base import FixedBase
from fedchain.crypto.threshold.power import power
from fedchain.crypto.threshold.power_product import power_product
from fedchain.crypto.threshold.public_key import KeyShare, ThresholdPublicKey


@dataclass(frozen=True, slots=True)
class ShareStatement:
    """The statement to prove: ``shares`` are member ``index``'s shares of ``ciphertexts``."""

    key: ThresholdPublicKey
    index: int
    """Number of the member, from 1."""
    ciphertexts: Sequence[mpz]
    """Units modulo n^(s+1)."""
    shares: Sequence[mpz]
    """As many units modulo n^(s+1)."""
    digest: Hash
    """Hash of all of the above and of the occasion."""


@dataclass(frozen=True, slots=True)
class ShareProof:
    """A challenge and the answer to it, from which the commitments follow."""

    challenge: int
    """e, of 128 bits."""
    response: int
    """z = r + e·x, of `response_bits` at most."""


def prove_shares(statement: ShareStatement, share: KeyShare, random_bytes: RandomBytes) -> ShareProof:
    """Prove a true statement. Powers with secret exponents take the same time for every exponent of their length.

    Args:
        statement: about the holder of ``share``.
        share: s_i.
        random_bytes: the operating system's; two proofs with the same randomness give the share away.
    """
    key, modulus = statement.key, statement.key.ciphertext_modulus
    x = key.delta * share.secret
    nonce_bits = _nonce_bits(key)
    r = (mpz(1) << nonce_bits) + random_bits(nonce_bits, random_bytes)  # of one length, whatever is drawn
    base = powmod(_combine(statement.ciphertexts, statement, modulus), 4, modulus)
    e = _challenge(statement, power(key.verification_base, r, modulus), power(base, r, modulus))
    return ShareProof(e, int(r + e * x))


def is_proven(statement: ShareStatement, proof: ShareProof) -> bool:
    """Whether ``proof`` shows that ``statement`` is true. Other threads of the process go on meanwhile.

    The statement's ciphertexts and shares must be known to be units modulo n^(s+1).
    """
    e, z = proof.challenge, proof.response
    if not (0 <= e < 1 << CHALLENGE_BITS and 0 <= z < 1 << response_bits(statement.key)):
        return False
    with context(allow_release_gil=True):  # one power takes 20 ms at 2048 bits
        return _challenge(statement, *_commitments(statement, e, z)) == e


def response_bits(key: ThresholdPublicKey) -> int:
    """Bits of the largest answer: r is below 2^(bits of r), and e·x below half of it."""
    return _nonce_bits(key) + 2


def _nonce_bits(key: ThresholdPublicKey) -> int:
    return key.share_bits_max + int(key.delta.bit_length()) + CHALLENGE_BITS + HIDING_BITS


def _commitments(statement: ShareStatement, e: int, z: int) -> tuple[mpz, mpz]:
    """a and b, which a right answer z to the challenge e brings back."""
    key, modulus = statement.key, statement.key.ciphertext_modulus
    base = powmod(_combine(statement.ciphertexts, statement, modulus), 4, modulus)
    square = powmod(_combine(statement.shares, statement, modulus), 2, modulus)
    verification_key = key.verification_keys[statement.index - 1]
    a = _verification_powers(key).power(z) * powmod(verification_key, -e, modulus) % modulus
    b = power(base, mpz(z), modulus) * powmod(square, -e, modulus) % modulus
    return a, b


@lru_cache(maxsize=2)
def _verification_powers(key: ThresholdPublicKey) -> FixedBase:
    """The powers of v for every answer that there can be: a table of 1 MiB, which two posts are worth."""
    return FixedBase(key.verification_base, key.ciphertext_modulus, response_bits(key))


def _combine(numbers: Iterable[mpz], statement: ShareStatement, modulus: mpz) -> mpz:
    """Π of numbers, each to the power of its coefficient."""
    return power_product(numbers, _coefficients(statement), modulus)


def _coefficients(statement: ShareStatement) -> list[int]:
    """ρ_j for each ciphertext."""
    return draw_coefficients(b"fedchain/2/share-coefficients/" + statement.digest, len(statement.ciphertexts))


def _challenge(statement: ShareStatement, a: mpz, b: mpz) -> int:
    """e, over the digest and both commitments."""
    return draw_challenge(b"fedchain/2/share-challenge/" + statement.digest, (a, b), statement.key.ciphertext_size)
