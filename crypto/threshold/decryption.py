"""Decryption by t of L members: everybody posts a share of each ciphertext with a proof, anybody combines them.

Member i's share of c is c^(2·Δ·s_i). From t of them, interpolation in the exponent gives c^(4·Δ²·d), which is
(1 + n)^(4·Δ²·M), and the logarithm to base 1 + n is easy. Fewer than t shares are as good as none.

The caller decides when to refuse a share: a phase may not be closed, or may have too few contributors.

Source: Damgård, Jurik 2001 and Damgård, Jurik, Nielsen 2010 (see :mod:`fedchain.crypto.threshold.public_key`).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gmpy2 import invert, mpz, powmod

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidCiphertext, InvalidShare, TooFewShares
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold.encryption import (
    decode_ciphertexts,
    encode_ciphertexts,
    validate_ciphertexts,
)
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_SIZE
from fedchain.crypto.threshold.power import powers
from fedchain.crypto.threshold.public_key import KeyShare, ThresholdPublicKey
from fedchain.crypto.threshold.share_proof import (
    ShareProof,
    ShareStatement,
    is_proven,
    prove_shares,
    response_bits,
)


@dataclass(frozen=True)
class Decryption:
    """The occasion: which ciphertexts are decrypted, where and when. Shares and proofs are good for it alone.

    Raises:
        InvalidCiphertext: a ciphertext is out of range or not coprime to n.
    """

    key: ThresholdPublicKey
    chain_id: Hash
    round: int
    phase: str
    ciphertexts: Sequence[mpz]
    """Units modulo n^(s+1); usually products of members' ciphertexts."""

    def __post_init__(self) -> None:
        validate_ciphertexts(self.key, self.ciphertexts)

    def share(self, share: KeyShare, sender: PublicKey, random_bytes: RandomBytes) -> "SharePost":
        """Make a member's post: its share of each ciphertext, and one proof for all of them.

        Args:
            share: the member's.
            sender: the member's Ed25519 key.
            random_bytes: the operating system's.
        """
        modulus = self.key.ciphertext_modulus
        exponent = 2 * self.key.delta * share.secret
        shares = tuple(powers(self.ciphertexts, exponent, modulus))
        statement = self._statement(share.index, sender, shares)
        return SharePost(share.index, sender, shares, prove_shares(statement, share, random_bytes))

    def validate(self, post: "SharePost") -> None:
        """Check that a post holds its sender's right share of each ciphertext.

        Raises:
            InvalidShare: it does not; the error names the sender.
        """
        if not 1 <= post.index <= self.key.members:
            raise post.refusal(f"the key has shares 1 to {self.key.members}")
        if len(post.shares) != len(self.ciphertexts):
            raise post.refusal(f"{len(post.shares)} shares of {len(self.ciphertexts)} ciphertexts")
        try:
            validate_ciphertexts(self.key, post.shares)
        except InvalidCiphertext as error:
            raise post.refusal(f"as a share, {error}") from None
        if not is_proven(self._statement(post.index, post.sender, post.shares), post.proof):
            raise post.refusal("the proof does not hold for these ciphertexts")

    def combine(self, posts: Sequence["SharePost"]) -> list[int]:
        """The plaintexts, each from −n^s/2 to n^s/2, from posts that :meth:`validate` let pass.

        Args:
            posts: of t different members; of more, the first t are used.

        Raises:
            TooFewShares: fewer than t.
        """
        distinct = {post.index: post for post in reversed(posts)}  # of two by one member, the first
        posts = [distinct[index] for index in dict.fromkeys(post.index for post in posts)][: self.key.threshold]
        if len(posts) < self.key.threshold:
            raise TooFewShares(f"{len(posts)} members sent valid shares, {self.key.threshold} are needed")
        key, modulus, plaintext_modulus = self.key, self.key.ciphertext_modulus, self.key.plaintext_modulus
        exponents = [2 * number for number in interpolation_coefficients([post.index for post in posts], key.delta)]
        scale = invert(4 * key.delta**2, plaintext_modulus)
        half, plaintexts = plaintext_modulus >> 1, list[int]()
        for place in range(len(self.ciphertexts)):
            product = mpz(1)
            for post, exponent in zip(posts, exponents, strict=True):
                product = product * powmod(post.shares[place], exponent, modulus) % modulus
            plaintext = logarithm(product, key) * scale % plaintext_modulus
            plaintexts.append(int(plaintext - plaintext_modulus if plaintext > half else plaintext))
        return plaintexts

    def _statement(self, index: int, sender: PublicKey, shares: Sequence[mpz]) -> ShareStatement:
        author = struct.pack(">H", index) + sender
        digest = sha256(self._digest + author + encode_ciphertexts(self.key, shares))
        return ShareStatement(self.key, index, self.ciphertexts, shares, digest)

    @cached_property
    def _digest(self) -> Hash:
        """Hash of key, chain, round, phase and ciphertexts; every part has a fixed length or says its own."""
        phase = self.phase.encode()
        occasion = struct.pack(">QHI", self.round, len(phase), len(self.ciphertexts)) + phase
        ciphertexts = encode_ciphertexts(self.key, self.ciphertexts)
        return sha256(b"fedchain/2/decryption-share/" + self.key.key_id + self.chain_id + occasion + ciphertexts)


@dataclass(frozen=True, slots=True)
class SharePost:
    """A member's shares of all ciphertexts of a phase, and the proof for all of them."""

    index: int
    """Number of the member, from 1, in the order of verification keys."""
    sender: PublicKey
    """The member's Ed25519 key, 32 bytes. It and the index follow from the post's author, and are not encoded."""
    shares: tuple[mpz, ...]
    """c^(2·Δ·s_i) for each ciphertext c."""
    proof: ShareProof

    def encode(self, key: ThresholdPublicKey) -> bytes:
        """Challenge and response of the proof, then all shares; every number has a fixed number of bytes."""
        challenge = self.proof.challenge.to_bytes(CHALLENGE_SIZE, "big")
        response = self.proof.response.to_bytes(_response_size(key), "big")
        return challenge + response + encode_ciphertexts(key, self.shares)

    def refusal(self, reason: str) -> InvalidShare:
        """An error that names this post's author."""
        return InvalidShare(self.index, address(self.sender), reason)


def decode_share_post(key: ThresholdPublicKey, data: bytes, count: int, index: int, sender: PublicKey) -> SharePost:
    """Read a post of ``count`` shares back. It is well-formed then; :meth:`Decryption.validate` tells if it is right.

    Raises:
        InvalidShare: another number of bytes, or a share that is out of range or not coprime to n.
    """
    middle = CHALLENGE_SIZE + _response_size(key)
    expected = middle + count * key.ciphertext_size
    if len(data) != expected:
        raise InvalidShare(index, address(sender), f"{len(data)} bytes, {expected} expected for {count} shares")
    challenge, response = int.from_bytes(data[:CHALLENGE_SIZE]), int.from_bytes(data[CHALLENGE_SIZE:middle])
    try:
        shares = decode_ciphertexts(key, data[middle:], count)
    except InvalidCiphertext as error:
        raise InvalidShare(index, address(sender), f"as a share, {error}") from None
    return SharePost(index, sender, tuple(shares), ShareProof(challenge, response))


def interpolation_coefficients(indices: Sequence[int], delta: int) -> list[mpz]:
    """λ_i = Δ·Π over j ≠ i of j/(j − i), integers with which Σ λ_i·f(i) = Δ·f(0), for different ``indices``."""
    coefficients = []
    for i in indices:
        numerator, denominator = mpz(delta), mpz(1)
        for j in indices:
            if j != i:
                numerator, denominator = numerator * j, denominator * (j - i)
        coefficients.append(numerator // denominator)  # no remainder: the denominator divides (i − 1)!·(L − i)!
    return coefficients


def logarithm(power: mpz, key: ThresholdPublicKey) -> mpz:
    """M mod n^s from (1 + n)^M mod n^(s+1), digit by digit to base n (Damgård, Jurik 2001, section 3)."""
    n, found = key.modulus, mpz(0)
    for digits in range(1, key.s + 1):
        modulus = n**digits
        rest, falling, factor = (power % (modulus * n) - 1) // n, found, mpz(1)
        for k in range(2, digits + 1):
            falling = falling * (found - k + 1) % modulus
            factor = factor * n * invert(k, modulus) % modulus
            rest -= falling * factor
        found = rest % modulus
    return found


def _response_size(key: ThresholdPublicKey) -> int:
    return (response_bits(key) + 7) // 8
