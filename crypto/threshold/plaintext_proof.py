"""One proof that the author of a post knows the plaintexts of all its ciphertexts, and that the post is its own.

Without it sums would hide nobody: ciphertexts are public before a phase closes, and a member that posts C_A·Π C_j^(−1),
which needs no key, turns the sum of all into twice A's plaintext. With it, a member that does not know the plaintext of
its post cannot be a summand.

With H = h^(n^s) and c_j = (1 + n)^(M_j)·H^(r_j), the author draws x modulo n^s and a long u, commits to
a = (1 + n)^x·H^u, hashes it into a challenge e of 128 bits, from which coefficients e_j of 128 bits follow, and
answers y = x + Σ e_j·M_j modulo n^s and z = u + Σ e_j·r_j over the integers. Anybody recomputes
a = (1 + n)^y·H^z·Π c_j^(−e_j), and then e.

**Why it shows knowledge.** An author of k ciphertexts that can answer k + 1 challenges to one commitment can calculate
all M_j: the differences of two answers are linear equations Σ (e_j − e_j′)·M_j = y − y′ modulo n^s, because H, an
n^s-th power, is an encryption of zero; their determinant, of random numbers, has no factor in common with n but with a
negligible chance. That the r_j are known, or short, is not shown, and nothing depends on it.

**Why it tells nothing.** x hides Σ e_j·M_j perfectly, and u, 128 bits longer than Σ e_j·r_j, hides that to 2⁻¹²⁸.

**What it is bound to.** The statement's digest holds the key, chain, round, phase, sender and all ciphertexts. A proof
is good for no other post: another's cannot be sent again, in this round or a later one.

Source: Damgård, Jurik, Nielsen 2010 (see :mod:`fedchain.crypto.threshold.public_key`), section 4.2, of one ciphertext;
the batch as in Maurer, "Unifying zero-knowledge proofs of knowledge", AFRICACRYPT 2009, for the group homomorphism
(M, r) → (1 + n)^M·H^r.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from gmpy2 import context, invert, mpz

from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.randomness import RandomBytes, random_below, random_bits
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold.encryption import (
    CIPHERTEXTS_MAX,
    Randomizer,
    encode_ciphertexts,
    plaintext_power,
    randomizer_bits,
    randomizer_powers,
)
from fedchain.crypto.threshold.fiat_shamir import (
    CHALLENGE_BITS,
    CHALLENGE_SIZE,
    HIDING_BITS,
    draw_challenge,
    draw_coefficients,
)
from fedchain.crypto.threshold.fixed_base import FixedBase
from fedchain.crypto.threshold.power_product import power_product
from fedchain.crypto.threshold.public_key import ThresholdPublicKey


@dataclass(frozen=True)
class PlaintextStatement:
    """The statement to prove: ``sender`` knows the plaintexts of what it posts in this phase and round of the chain."""

    key: ThresholdPublicKey
    chain_id: Hash
    round: int
    phase: str
    sender: PublicKey
    """The author's Ed25519 key, 32 bytes."""
    ciphertexts: Sequence[mpz]
    """Units modulo n^(s+1), at most `CIPHERTEXTS_MAX`."""

    @cached_property
    def digest(self) -> Hash:
        """Hash of all of it; every part has a fixed length or says its own."""
        phase = self.phase.encode()
        occasion = struct.pack(">QHI", self.round, len(phase), len(self.ciphertexts)) + phase + self.sender
        ciphertexts = encode_ciphertexts(self.key, self.ciphertexts)
        return sha256(b"fedchain/2/known-plaintexts/" + self.key.key_id + self.chain_id + occasion + ciphertexts)


@dataclass(frozen=True, slots=True)
class PlaintextProof:
    """A challenge and the answers to it, from which the commitment follows."""

    challenge: int
    """e, of 128 bits."""
    plaintext: int
    """y = x + Σ e_j·M_j, below n^s."""
    randomness: int
    """z = u + Σ e_j·r_j, of at most `response_bits`."""

    def encode(self, key: ThresholdPublicKey) -> bytes:
        """Challenge and both answers; every number has a fixed number of bytes."""
        numbers = (self.challenge, self.plaintext, self.randomness)
        return b"".join(
            number.to_bytes(size, "big") for number, size in zip(numbers, _sizes(key.key_bits, key.s), strict=True)
        )


def prove_plaintexts(
    statement: PlaintextStatement,
    plaintexts: Sequence[int],
    randomizers: Sequence[Randomizer],
    random_bytes: RandomBytes,
) -> PlaintextProof:
    """Prove a true statement.

    Args:
        statement: about the ciphertexts that :meth:`Encryptor.encrypt` made of the following two.
        plaintexts: as many.
        randomizers: as many.
        random_bytes: the operating system's; two proofs with the same randomness give the plaintexts away.
    """
    key, modulus = statement.key, statement.key.plaintext_modulus
    x = random_below(modulus, random_bytes)
    u = random_bits(_nonce_bits(key.key_bits), random_bytes)
    commitment = plaintext_power(key, x) * _powers(key).power(u) % key.ciphertext_modulus
    e = _challenge(statement, commitment)
    weights = _coefficients(e, len(statement.ciphertexts))
    y = x + sum(weight * plaintext for weight, plaintext in zip(weights, plaintexts, strict=True))
    z = u + sum(weight * each.exponent for weight, each in zip(weights, randomizers, strict=True))
    return PlaintextProof(e, int(y % modulus), int(z))


def are_plaintexts_known(statement: PlaintextStatement, proof: PlaintextProof) -> bool:
    """Whether ``proof`` shows that ``statement`` is true. Other threads of the process go on meanwhile.

    The statement's ciphertexts must be known to be units modulo n^(s+1).
    """
    key, modulus = statement.key, statement.key.ciphertext_modulus
    e, y, z = proof.challenge, proof.plaintext, proof.randomness
    bounds = (1 << CHALLENGE_BITS, key.plaintext_modulus, 1 << response_bits(key.key_bits))
    if not all(0 <= number < bound for number, bound in zip((e, y, z), bounds, strict=True)):
        return False
    if len(statement.ciphertexts) > CIPHERTEXTS_MAX:
        return False
    with context(allow_release_gil=True):
        weighted = power_product(statement.ciphertexts, _coefficients(e, len(statement.ciphertexts)), modulus)
        answer = plaintext_power(key, y) * _powers(key).power(z)
        return _challenge(statement, answer * invert(weighted, modulus) % modulus) == e


def decode_plaintext_proof(key: ThresholdPublicKey, data: bytes) -> PlaintextProof | None:
    """Read a proof back; None for another number of bytes than `plaintext_proof_size`."""
    if len(data) != plaintext_proof_size(key.key_bits, key.s):
        return None
    challenge, plaintext, _ = _sizes(key.key_bits, key.s)
    middle = challenge + plaintext
    parts = data[:challenge], data[challenge:middle], data[middle:]
    return PlaintextProof(*(int.from_bytes(part, "big") for part in parts))


def plaintext_proof_size(key_bits: int, s: int = 1) -> int:
    """Bytes of an encoded proof under a key of so many bits, however many ciphertexts there are."""
    return sum(_sizes(key_bits, s))


def response_bits(key_bits: int) -> int:
    """Bits of the largest z: u and Σ e_j·r_j are below half of it each."""
    return _nonce_bits(key_bits) + 1


def _sizes(key_bits: int, s: int) -> tuple[int, int, int]:
    return CHALLENGE_SIZE, (key_bits * s + 7) // 8, (response_bits(key_bits) + 7) // 8


def _nonce_bits(key_bits: int) -> int:
    return randomizer_bits(key_bits) + CHALLENGE_BITS + CIPHERTEXTS_MAX.bit_length() + HIDING_BITS


@lru_cache(maxsize=2)
def _powers(key: ThresholdPublicKey) -> FixedBase:
    """The powers of H for every answer that there can be: a table of 1 MiB, which two posts are worth."""
    return randomizer_powers(key, response_bits(key.key_bits))


def _coefficients(challenge: int, count: int) -> list[int]:
    """e_j for each ciphertext."""
    seed = b"fedchain/2/plaintext-coefficients/" + challenge.to_bytes(CHALLENGE_SIZE, "big")
    return draw_coefficients(seed, count)


def _challenge(statement: PlaintextStatement, commitment: mpz) -> int:
    """e, over the digest and the commitment."""
    seed = b"fedchain/2/plaintext-challenge/" + statement.digest
    return draw_challenge(seed, (commitment,), statement.key.ciphertext_size)
