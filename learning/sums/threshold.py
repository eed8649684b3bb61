"""Sums of class vectors that nobody can read before t members open them, and then only sums of k_min and more.

Each class is encrypted by itself, so that a class can be left closed. Everybody sees which members hold which class,
and the mean over the holders of each class that is opened. Nobody sees a single member's vector, unless t members
conspire or the dealer kept the keys: t - 1 members that conspire hold all but two of the vectors in an opened sum at
most, so they see the sum of two that are not theirs. Sums of several rounds together are another matter
(docs/privacy.md).

In the phase `update` members post ciphertexts, and prove that they know the plaintexts, so that nobody's post is made
of others'. Everybody multiplies those of each class, and the products stand beside the knowledge. In the phase
`decryption_share` members post their shares of the products, all of them with one proof; t of them open the sums.
Integers throughout, so that every machine finds the same.

C classes, D numbers of a vector, K members, n classes in a post, m ciphertexts of a vector. Keys, packing, proofs and
their sources: `fedchain.crypto.threshold`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import CryptoError, InvalidCiphertext, InvalidShare, InvalidThresholdKey
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold import (
    Decryption,
    Encryptor,
    FixedPoint,
    KeyShare,
    Packing,
    PlaintextStatement,
    SharePost,
    ThresholdPublicKey,
    add,
    are_plaintexts_known,
    decode_ciphertexts,
    decode_plaintext_proof,
    decode_public_key,
    decode_share_post,
    plaintext_proof_size,
    prove_plaintexts,
)
from fedchain.crypto.threshold.public_key import MEMBERS_MAX
from fedchain.crypto.threshold.sealing import validate_key_share
from fedchain.learning.exceptions import (
    ConfigurationError,
    DecryptionRefused,
    InvalidPayload,
    NothingLeft,
    NothingToPost,
    SecretMissing,
)
from fedchain.learning.method import Lifetime, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.integers import read_integers, write_integers
from fedchain.learning.payload.spec import TensorSpec, byte_strings
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.sums.secrets import Secrets

PUBLIC_KEY = "threshold_key"
"""Name of the public key in the genesis document's material."""

SHARE = "threshold_share"
"""Name of a member's share among its secrets: s_i, big-endian."""

UPDATE, OPENING = "update", "decryption_share"
"""The two phases."""

FRACTION_BITS = 24
"""A number x is encrypted as the integer next to x 2^24. From 1/2 to 1 a float32 is exactly such a number; the error of
smaller ones, 2^-25 at most, is no larger than that of rounding one from there to float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """How a federation encrypts, as its genesis document says."""

    threshold: int
    """t, how many members open a sum together; more than the liars f that K members bear."""

    contributors_min: int
    """k_min, the fewest holders of a class whose sum is opened; above t, so that two of them conspire with nobody."""

    key_bits: int
    """Bits of n."""

    magnitude_max: float
    """Largest magnitude of a number."""

    key_bits_allowed: Collection[int]
    """Values that `key_bits` may have."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Training and encrypting; then shares, of which t close the phase."""
        return (
            Phase(UPDATE, lifetime=Lifetime.ROUND, trains=True, slow_to_check=True),
            Phase(OPENING, quorum=self.threshold, slow_to_check=True),
        )

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """A post's classes, their ciphertexts and a proof; or a proof and shares, as one string of bytes."""
        if phase.name == UPDATE:
            return (
                _labels(info),
                byte_strings("ciphertexts", self._size, -1, count_max=self._ciphertexts_max(info)),
                byte_strings("proof", plaintext_proof_size(self.key_bits)),
            )
        proof_max = 2 * self._size  # a challenge of 16 bytes, and a response of little more than a share
        return (TensorSpec("shares", (-1,), "uint8", free_max=proof_max + self._size * self._ciphertexts_max(info)),)

    def sums_spec(self, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """Tensors that `update` leaves for the round: the classes of any post, their holders, and the products."""
        return (
            _labels(info),
            TensorSpec("holders", (-1,), "int64", free_max=info.classes, minimum=1),
            TensorSpec("contributors", (1,), "int64", minimum=1),
            byte_strings("sums", self._size, -1, count_max=self._ciphertexts_max(info)),
        )

    def validate_material(self, round: Round) -> None:
        """Raise `ConfigurationError` unless the public key is there and fits these settings and the members."""
        if PUBLIC_KEY not in round.material:
            raise ConfigurationError(f"encryption threshold needs a dealt key, which the material '{PUBLIC_KEY}' is")
        try:
            key = _read_key(round.material[PUBLIC_KEY], tuple(self.key_bits_allowed))
        except InvalidThresholdKey as error:
            raise ConfigurationError(f"material '{PUBLIC_KEY}': {error}") from None
        found = {"members": key.members, "threshold": key.threshold, "bits": key.key_bits, "s": key.s}
        expected = {"members": len(round.members), "threshold": self.threshold, "bits": self.key_bits, "s": 1}
        for name, value in expected.items():
            if found[name] != value:
                raise ConfigurationError(f"material '{PUBLIC_KEY}' has {name} {found[name]}, {value} expected")
        self.validate_members(key.members)

    def validate_members(self, members: int) -> None:
        """Raise `ConfigurationError` unless the settings protect so many members, K.

        The f liars that agreement bears must not open a post (t > f), nor may anybody by itself (t >= 2). And t - 1
        members that conspire claim any classes they like and know their own vectors: only with t + 1 holders or more
        are two always others.
        """
        least, most = smallest_threshold(members), min(members, MEMBERS_MAX)
        if not least <= self.threshold <= most:
            raise ConfigurationError(
                f"decryption_threshold is {self.threshold} of {members} members, it must be from {least} to {most}: "
                "fewer could be the liars that the federation bears"
            )
        if not self.threshold < self.contributors_min <= members:
            raise ConfigurationError(
                f"contributors_min is {self.contributors_min} of {members} members, it must be from "
                f"{self.threshold + 1}, one above decryption_threshold, to {members}: of fewer holders, "
                f"{self.threshold - 1} who conspire could know all but one"
            )

    def of(self, round: Round) -> "RoundSums":
        """Return the reader and writer of the posts of a round whose material was validated."""
        assert round.info is not None, "a round of a federation has shapes"
        key = _read_key(round.material[PUBLIC_KEY], tuple(self.key_bits_allowed))
        packing = Packing(key.plaintext_bits, self._point.integer_max, round.clients)
        return RoundSums(key, self._point, packing, self.contributors_min, round, round.info)

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


@dataclass(frozen=True)
class RoundSums:
    """The ciphertexts and shares of one round."""

    key: ThresholdPublicKey
    point: FixedPoint
    packing: Packing
    contributors_min: int
    round: Round
    info: ModelInfo

    def encrypt(self, labels: NDArray[np.int64], vectors: NDArray[np.float32], secrets: Secrets) -> Tensors:
        """Return the post of labels (n,) and vectors (n, D).

        The randomness follows from the encrypted numbers, too: another vector in the same round has another, and so has
        its proof. Raises `NothingToPost` for a number beyond `magnitude_max`.
        """
        assert self.round.me is not None, "a member computes"
        try:
            numbers = self.point.encode(vectors)  # (n, D)
        except CryptoError as error:
            raise NothingToPost(f"member {secrets.member}, round {self.round.number}: {error}") from None
        plaintexts = [plaintext for row in numbers for plaintext in self.packing.pack(row)]
        random_bytes = self._random_bytes(
            secrets, UPDATE, labels.astype("<i8").tobytes(), numbers.astype("<i8").tobytes()
        )
        encryptor = _encryptor(self.key)
        randomizers = encryptor.randomizers(len(plaintexts), random_bytes)
        ciphertexts = encryptor.encrypt(plaintexts, randomizers)
        proof = prove_plaintexts(self._known(self.round.me, ciphertexts), plaintexts, randomizers, random_bytes)
        return {
            "labels": labels,  # (n,)
            "ciphertexts": self._write(ciphertexts),  # (n m, size)
            "proof": np.frombuffer(proof.encode(self.key), dtype=np.uint8),
        }

    def check_ciphertexts(self, post: ReadPost) -> None:
        """Raise `InvalidPayload`, which names the member, for ciphertexts whose contents it does not prove to know."""
        labels, rows = post.payload["labels"], post.payload["ciphertexts"]
        if (np.diff(labels) <= 0).any():
            raise InvalidPayload(f"labels: strictly ascending order expected, found {labels.tolist()}")
        expected = len(labels) * self._per_class
        if len(rows) != expected:
            raise InvalidPayload(f"ciphertexts: {expected} expected for {len(labels)} labels, found {len(rows)}")
        try:
            ciphertexts = decode_ciphertexts(self.key, rows.tobytes(), len(rows))
        except InvalidCiphertext as error:
            raise InvalidPayload(f"{self._name(post.sender)}: {error}") from None
        proof = decode_plaintext_proof(self.key, post.payload["proof"].tobytes())
        if proof is None or not are_plaintexts_known(self._known(post.sender, ciphertexts), proof):
            raise InvalidPayload(f"{self._name(post.sender)} does not prove that it knows what its ciphertexts hold")

    def add(self, posts: Sequence[ReadPost]) -> Tensors:
        """Multiply the ciphertexts of each class: encryptions of the sums over its holders."""
        posted: dict[int, list[list[mpz]]] = {}  # by label, in sender order
        for post in posts:
            rows = self._read(post.payload["ciphertexts"])
            for place, label in enumerate(post.payload["labels"].tolist()):
                posted.setdefault(label, []).append(rows[place * self._per_class : (place + 1) * self._per_class])
        labels = sorted(posted)
        sums = [ciphertext for label in labels for ciphertext in add(self.key, posted[label])]
        return {
            "labels": np.array(labels, dtype=np.int64),  # (n,)
            "holders": np.array([len(posted[label]) for label in labels], dtype=np.int64),  # (n,)
            "contributors": np.array([len(posts)], dtype=np.int64),
            "sums": self._write(sums),  # (n m, size)
        }

    def validate_openable(self, member: int) -> None:
        """Raise `DecryptionRefused`, which names the member who is asked, if there is no sum that may be opened."""
        if self.decryption is None:
            raise DecryptionRefused(f"member {member}, round {self.round.number}: {self._nothing_to_open()}")

    def share(self, secrets: Secrets) -> Tensors:
        """Return the member's shares of all sums that may be opened, with a proof.

        Raises `SecretMissing` without the member's share of the key.
        """
        assert self.round.me is not None, "a member computes"
        assert self.decryption is not None, "it was validated"
        share = KeyShare(self._index(self.round.me), mpz(int.from_bytes(secrets.value(SHARE))))
        try:
            validate_key_share(self.key, share)
        except CryptoError as error:
            raise SecretMissing(f"secret '{SHARE}' of peer {secrets.member}: {error}") from None
        random_bytes = self._random_bytes(secrets, OPENING, self.fingerprint)
        post = self.decryption.share(share, self.round.me, random_bytes)
        return {"shares": np.frombuffer(post.encode(self.key), dtype=np.uint8)}

    def check_shares(self, post: ReadPost) -> None:
        """Raise `InvalidPayload`, which names the member, unless its shares are proven to be those of these sums."""
        if self.decryption is None:
            raise InvalidPayload(
                f"decryption shares of {self._name(post.sender)} are refused: {self._nothing_to_open()}"
            )
        try:
            self.decryption.validate(self._decode(post))
        except InvalidShare as error:
            raise InvalidPayload(str(error)) from None

    def open(self, posts: Sequence[ReadPost], *, over_all: bool) -> Tensors:
        """Return the mean (n, D) of each opened class over its holders, or over all contributors.

        A sum larger than its holders can honestly have, for which one of them lied, is moved to the nearest possible
        one. Raises `NothingLeft` for fewer shares than the threshold: where members were excluded, so few may close a
        phase.
        """
        assert self.decryption is not None, "posts were checked"
        if len(posts) < self.key.threshold:
            raise NothingLeft(f"{len(posts)} members sent shares, {self.key.threshold} are needed")
        plaintexts = self.decryption.combine([self._decode(post) for post in posts])
        sums, (labels, holders) = self.round.beside[UPDATE], self._opened
        per, rows = self._per_class, []
        for place, count in enumerate(holders.tolist()):
            of_class = plaintexts[place * per : (place + 1) * per]
            total = self.packing.unpack_nearest(of_class, self.info.embedding_size, count)
            divisor = int(sums["contributors"][0]) if over_all else count
            rows.append(self.point.decode(total) / divisor)
        return {"labels": labels, "holders": holders, "prototypes": np.stack(rows).astype(np.float32)}

    @cached_property
    def decryption(self) -> Decryption | None:
        """The occasion: this round's sums of k_min and more; None if there is none."""
        if UPDATE not in self.round.beside or not len(self._opened[0]):
            return None
        sums = self.round.beside[UPDATE]
        rows = sums["sums"].reshape(len(sums["labels"]), self._per_class, -1)[self._may_open]
        ciphertexts = self._read(rows.reshape(-1, rows.shape[-1]))
        return Decryption(self.key, self.round.chain_id, self.round.number, OPENING, ciphertexts)

    @property
    def fingerprint(self) -> Hash:
        """Hash of all that `update` left: a member must not open two different sets of sums in a round."""
        sums = self.round.beside[UPDATE]
        return sha256(b"".join(sums[name].tobytes() for name in ("labels", "holders", "sums")))

    def _random_bytes(self, secrets: Secrets, phase: str, *what: bytes) -> RandomBytes:
        """The randomness of a phase. It follows from all that it is used for, so that no two statements have the same;
        and from the member's share of the key, which is behind a passphrase where its root of randomness is not.
        """
        share = secrets.values.get(SHARE, b"")
        used_for = sha256(b"".join(map(sha256, (self.key.key_id, self.round.chain_id, share, *what))))
        return secrets.stream("encryption", phase, self.round.number, used_for.hex())

    def _known(self, sender: PublicKey, ciphertexts: Sequence[mpz]) -> PlaintextStatement:
        """The statement that the proof in a post of `update` proves."""
        return PlaintextStatement(self.key, self.round.chain_id, self.round.number, UPDATE, sender, ciphertexts)

    @property
    def _may_open(self) -> NDArray[np.bool_]:
        """Whether each of the sums has k_min holders or more, (n,)."""
        may: NDArray[np.bool_] = self.round.beside[UPDATE]["holders"] >= self.contributors_min
        return may

    @property
    def _opened(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Labels and holders of the sums that may be opened."""
        sums = self.round.beside[UPDATE]
        return sums["labels"][self._may_open], sums["holders"][self._may_open]

    def _nothing_to_open(self) -> str:
        if UPDATE not in self.round.beside:
            return f"phase {UPDATE} left nothing to open in round {self.round.number}"
        most = int(self.round.beside[UPDATE]["holders"].max())
        return (
            f"no class has the {self.contributors_min} contributors that an opened sum needs, at most {most} have one"
        )

    @property
    def _per_class(self) -> int:
        """m."""
        return self.packing.plaintexts_of(self.info.embedding_size)

    def _name(self, sender: PublicKey) -> str:
        """A member as people know it."""
        return f"peer {self.round.place_of(sender)} ({address(sender)})"

    def _index(self, sender: bytes) -> int:
        """A member's place in the dealing, from 1."""
        return self.round.place_of(sender) + 1

    def _decode(self, post: ReadPost) -> SharePost:
        assert self.decryption is not None, "there is something to open"
        data, count = post.payload["shares"].tobytes(), len(self.decryption.ciphertexts)
        return decode_share_post(self.key, data, count, self._index(post.sender), post.sender)

    def _write(self, ciphertexts: Sequence[mpz]) -> NDArray[np.uint8]:
        return write_integers(map(int, ciphertexts), self.key.ciphertext_size)

    def _read(self, rows: NDArray[np.uint8]) -> list[mpz]:
        return [mpz(number) for number in read_integers(rows)]


def _labels(info: ModelInfo) -> TensorSpec:
    return TensorSpec("labels", (-1,), "int64", free_max=info.classes, minimum=0, maximum=info.classes - 1)


@lru_cache(maxsize=16)
def _read_key(data: bytes, allowed_bits: tuple[int, ...]) -> ThresholdPublicKey:
    return decode_public_key(data, allowed_bits)


@lru_cache(maxsize=4)
def _encryptor(key: ThresholdPublicKey) -> Encryptor:
    return Encryptor(key)
