"""Sums of class vectors that nobody can read before t members open them, and then only sums of k_min and more.

Each class is encrypted by itself, so that a class can be left closed. Everybody sees which members hold which class,
and the mean over the holders of each class that is opened. Nobody sees a single member's vector, unless t members
conspire or the dealer kept the keys: t - 1 members that conspire hold all but two of the vectors in an opened sum at
most, so they see the sum of two that are not theirs. Sums of several rounds together are another matter
(docs/privacy.md).

In the phase `update` members post ciphertexts, and prove that they know the plaintexts, so that nobody's post is made
of others'. Everybody multiplies those of each class, and the products stand beside the knowledge (`ciphertexts.py`). In
the phase `decryption_share` members post their shares of the products, all of them with one proof; t of them open the
sums (`opening.py`). Integers throughout, so that every machine finds the same.

C classes, D numbers of a vector, K members, n classes in a post, m ciphertexts of a vector. Keys, packing, proofs and
their sources: `fedchain.crypto.threshold`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from fedchain.crypto.exceptions import InvalidThresholdKey
from fedchain.crypto.threshold import (
    KEY_BITS,
    Dealing,
    FixedPoint,
    Packing,
    ThresholdPublicKey,
    deal_sealed,
    decode_public_key,
    plaintext_proof_size,
)
from fedchain.crypto.threshold.public_key import MEMBERS_MAX
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Lifetime, Phase
from fedchain.learning.payload.spec import TensorSpec, byte_strings
from fedchain.learning.sums.ciphertexts import RoundSums
from fedchain.learning.sums.opening import OPENING, Opening
from fedchain.learning.sums.scheme import UPDATE, SumScheme, known_spec, labels_spec

if TYPE_CHECKING:
    from fedchain.crypto.randomness import RandomBytes
    from fedchain.crypto.signatures import PublicKey
    from fedchain.learning.client import Client
    from fedchain.learning.models.model_info import ModelInfo
    from fedchain.learning.round import ReadPost, Round, Tensors

PUBLIC_KEY = "threshold_key"
"""Name of the public key in the genesis document's material."""

FRACTION_BITS = 24
"""A number x is encrypted as the integer next to x 2^24. From 1/2 to 1 a float32 is exactly such a number; the error of
smaller ones, 2^-25 at most, is no larger than that of rounding one from there to float32."""

DIFFERENCES = (
    "each round opens sums of its own: where a member was in one and not in the next, their difference shows its "
    "prototypes to within a few per cent, and only large noise hides them"
)
"""A warning to founders: encryption hides one sum, not the difference of two."""


@dataclass(frozen=True, kw_only=True)
class ThresholdSums(SumScheme):
    """How a federation encrypts, as its genesis document says."""

    threshold: int
    """t, how many members open a sum together; more than the liars f that K members bear. 0: not derived yet."""

    contributors_min: int
    """k_min, the fewest holders of a class whose sum is opened; above t, so that two of them conspire with nobody.
    0: not derived yet."""

    key_bits: int
    """Bits of n."""

    magnitude_max: float
    """Largest magnitude of a number."""

    over_all: bool = False
    """Whether a sum is divided by the number of all contributors, not by that of its holders."""

    key_bits_allowed: Collection[int] = KEY_BITS
    """Values that `key_bits` may have."""

    hides: ClassVar[bool] = True

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Training and encrypting; then shares, of which t close the phase."""
        return (
            Phase(UPDATE, lifetime=Lifetime.ROUND, trains=True, slow_to_check=True),
            Phase(OPENING, quorum=self.threshold, slow_to_check=True),
        )

    @property
    def honest_min(self) -> int:
        """Two, or what the thresholds leave if too few members to open anything conspire."""
        return self.contributors_min - self.threshold + 1 if self.threshold and self.contributors_min else 2

    @property
    def contributors_least(self) -> tuple[int, str]:
        """As many as a class needs to be opened."""
        return self.contributors_min, "contributors_min"

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """A post's classes, their ciphertexts and a proof; or a proof and shares, as one string of bytes."""
        if phase.name == UPDATE:
            return (
                labels_spec(info),
                byte_strings("ciphertexts", self._size, -1, count_max=self._ciphertexts_max(info)),
                byte_strings("proof", plaintext_proof_size(self.key_bits)),
            )
        proof_max = 2 * self._size  # a challenge of 16 bytes, and a response of little more than a share
        return (TensorSpec("shares", (-1,), "uint8", free_max=proof_max + self._size * self._ciphertexts_max(info)),)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The classes of any post, their holders, and the products, for the round; then the known prototypes."""
        if phase.name != UPDATE:
            return known_spec(info)
        return (
            labels_spec(info),
            TensorSpec("holders", (-1,), "int64", free_max=info.classes, minimum=1),
            TensorSpec("contributors", (1,), "int64", minimum=1),
            byte_strings("sums", self._size, -1, count_max=self._ciphertexts_max(info)),
        )

    def hide(self, posted: Tensors, client: Client, round: Round) -> Tensors:
        """Encrypt prototypes; counts stay private."""
        return self.sums(round).encrypt(posted["labels"], posted["prototypes"], client.secrets)

    def contribute(self, phase: Phase, client: Client, round: Round) -> Tensors:
        """Post the client's share of each sum."""
        return self.opening(round).contribute(client)

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        """Ciphertexts hold what their sender proves to know, and shares are those of the round's sums."""
        if phase.name == UPDATE:
            self.sums(round).check(post)
        else:
            self.opening(round).check(post)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Multiply the ciphertexts of each class; then open the products of k_min holders or more."""
        if phase.name == UPDATE:
            return self.sums(round).add(round.posts)
        return self.opening(round).open(round.posts, over_all=self.over_all)

    def derived(self, members: int) -> Mapping[str, int]:
        """The thresholds that are not stated. Raises `ConfigurationError` for thresholds that do not protect."""
        threshold = self.threshold or usual_threshold(members)
        contributors_min = self.contributors_min or threshold + 1
        replace(self, threshold=threshold, contributors_min=contributors_min)._validate_members(members, members)
        return {"decryption_threshold": threshold, "contributors_min": contributors_min}

    def deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing:
        """Make a key of `key_bits`, for thresholds that were derived from the founders.

        Raises `ConfigurationError` for thresholds beyond the members.
        """
        self._validate_members(2, len(members))
        return self._deal(members, random_bytes)

    def validate_material(self, round: Round) -> None:
        """Raise `ConfigurationError` unless the public key is there and fits these settings and the members.

        Members that join later may have been dealt shares beside the founders: one for each part of the data.
        """
        if PUBLIC_KEY not in round.material:
            raise ConfigurationError(f"encryption threshold needs a dealt key, which the material '{PUBLIC_KEY}' is")
        try:
            key = _read_key(round.material[PUBLIC_KEY], tuple(self.key_bits_allowed))
        except InvalidThresholdKey as error:
            raise ConfigurationError(f"material '{PUBLIC_KEY}': {error}") from None
        found = {"members": key.members, "threshold": key.threshold, "bits": key.key_bits, "s": key.s}
        founders = len(round.members)
        members = key.members if founders <= key.members <= round.clients else founders
        expected = {"members": members, "threshold": self.threshold, "bits": self.key_bits, "s": 1}
        for name, value in expected.items():
            if found[name] != value:
                raise ConfigurationError(f"material '{PUBLIC_KEY}' has {name} {found[name]}, {value} expected")
        self._validate_members(founders, key.members)

    def cautions(self) -> Sequence[str]:
        """That the difference of two sums shows the member that was in one of them."""
        return (DIFFERENCES,)

    def sums(self, round: Round) -> RoundSums:
        """Return the ciphertexts of a round whose material was validated."""
        assert round.info is not None, "a round of a federation has shapes"
        key = _read_key(round.material[PUBLIC_KEY], tuple(self.key_bits_allowed))
        packing = Packing(key.plaintext_bits, self._point.integer_max, round.clients)
        return RoundSums(key, self._point, packing, round, round.info)

    def opening(self, round: Round) -> Opening:
        """Return the shares of such a round."""
        return Opening(self.sums(round), self.contributors_min)

    def _deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing:
        return deal_sealed(members, self.threshold, random_bytes, key_bits=self.key_bits)

    def _validate_members(self, founders: int, members: int) -> None:
        """Raise `ConfigurationError` unless the settings protect so many founders, K, and so many members have shares.

        The f liars that agreement bears must not open a post (t > f), nor may anybody by itself (t >= 2). And t - 1
        members that conspire claim any classes they like and know their own vectors: only with t + 1 holders or more
        are two always others. Newcomers change no threshold.
        """
        if members > MEMBERS_MAX:
            raise ConfigurationError(f"encryption threshold is for at most {MEMBERS_MAX} members, not {members}")
        least = smallest_threshold(founders)
        if members <= least:
            raise ConfigurationError(
                f"encryption threshold needs at least {least + 1} members, not {members}: a sum of fewer hides nobody"
            )
        if not least <= self.threshold <= members:
            raise ConfigurationError(
                f"decryption_threshold is {self.threshold} of {members} members, it must be from {least} to {members}: "
                "fewer could be the liars that the federation bears"
            )
        if not self.threshold < self.contributors_min <= members:
            raise ConfigurationError(
                f"contributors_min is {self.contributors_min} of {members} members, it must be from "
                f"{self.threshold + 1}, one above decryption_threshold, to {members}: of fewer holders, "
                f"{self.threshold - 1} who conspire could know all but one"
            )

    @property
    def _point(self) -> FixedPoint:
        """How numbers are integers."""
        return FixedPoint(FRACTION_BITS, self.magnitude_max)

    @property
    def _size(self) -> int:
        """Bytes of a ciphertext, a number modulo n^2."""
        return self.key_bits // 4

    def _ciphertexts_max(self, info: ModelInfo) -> int:
        """C m, were the members as many as there can be."""
        packing = Packing(self.key_bits, self._point.integer_max, MEMBERS_MAX)
        return info.classes * packing.plaintexts_of(info.embedding_size)


def smallest_threshold(members: int) -> int:
    """Return the least t that K members may have: one more than the liars that Byzantine agreement bears, and 2."""
    return max(2, (members - 1) // 3 + 1)


def usual_threshold(members: int) -> int:
    """Return the t of a federation that states none: three where f silent members leave a sum of t + 1 holders."""
    bearable = (members - 1) // 3
    return max(smallest_threshold(members), min(3, members - bearable - 1))


@lru_cache(maxsize=16)
def _read_key(data: bytes, allowed_bits: tuple[int, ...]) -> ThresholdPublicKey:
    return decode_public_key(data, allowed_bits)
