"""A round's encrypted class vectors: each member's, with a proof that it knows them, and the sums of all.

D numbers of a vector, n classes in a post, m ciphertexts of a vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import CryptoError, InvalidCiphertext
from fedchain.crypto.hashing import sha256
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold import (
    Encryptor,
    FixedPoint,
    Packing,
    PlaintextStatement,
    ThresholdPublicKey,
    add,
    are_plaintexts_known,
    decode_ciphertexts,
    decode_plaintext_proof,
    prove_plaintexts,
)
from fedchain.learning.exceptions import InvalidPayload, NothingToPost
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.integers import read_integers, write_integers
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.sums.scheme import UPDATE, validate_ascending
from fedchain.learning.sums.secrets import Secrets

SHARE = "threshold_share"
"""Name of a member's share of the key among its secrets: s_i, big-endian."""


@dataclass(frozen=True)
class RoundSums:
    """The ciphertexts of one round."""

    key: ThresholdPublicKey
    """The federation's public key."""

    point: FixedPoint
    """How numbers are integers."""

    packing: Packing
    """How many integers a plaintext holds."""

    round: Round
    """The round, with the federation's members."""

    info: ModelInfo
    """Its shapes."""

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
        random_bytes = self.random_bytes(
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

    def check(self, post: ReadPost) -> None:
        """Raise `InvalidPayload`, which names the member, for ciphertexts whose contents it does not prove to know."""
        labels, rows = post.payload["labels"], post.payload["ciphertexts"]
        validate_ascending(labels)
        expected = len(labels) * self.per_class
        if len(rows) != expected:
            raise InvalidPayload(f"ciphertexts: {expected} expected for {len(labels)} labels, found {len(rows)}")
        try:
            ciphertexts = decode_ciphertexts(self.key, rows.tobytes(), len(rows))
        except InvalidCiphertext as error:
            raise InvalidPayload(f"{self.name(post.sender)}: {error}") from None
        proof = decode_plaintext_proof(self.key, post.payload["proof"].tobytes())
        if proof is None or not are_plaintexts_known(self._known(post.sender, ciphertexts), proof):
            raise InvalidPayload(f"{self.name(post.sender)} does not prove that it knows what its ciphertexts hold")

    def add(self, posts: Sequence[ReadPost]) -> Tensors:
        """Multiply the ciphertexts of each class: encryptions of the sums over its holders."""
        posted: dict[int, list[list[mpz]]] = {}  # by label, in sender order
        for post in posts:
            rows = read_ciphertexts(post.payload["ciphertexts"])
            for place, label in enumerate(post.payload["labels"].tolist()):
                posted.setdefault(label, []).append(rows[place * self.per_class : (place + 1) * self.per_class])
        labels = sorted(posted)
        sums = [ciphertext for label in labels for ciphertext in add(self.key, posted[label])]
        return {
            "labels": np.array(labels, dtype=np.int64),  # (n,)
            "holders": np.array([len(posted[label]) for label in labels], dtype=np.int64),  # (n,)
            "contributors": np.array([len(posts)], dtype=np.int64),
            "sums": self._write(sums),  # (n m, size)
        }

    @property
    def per_class(self) -> int:
        """m."""
        return self.packing.plaintexts_of(self.info.embedding_size)

    def random_bytes(self, secrets: Secrets, phase: str, *what: bytes) -> RandomBytes:
        """Return the randomness of a phase. It follows from all that it is used for, so that no two statements have the
        same; and from the member's share of the key, which is behind a passphrase where its root of randomness is not.

        The sender's key is not in it: a member has one key in a phase, as a next one holds from the next height on. Two
        statements by two keys would give the share away.
        """
        share = secrets.values.get(SHARE, b"")
        used_for = sha256(b"".join(map(sha256, (self.key.key_id, self.round.chain_id, share, *what))))
        return secrets.stream("encryption", phase, self.round.number, used_for.hex())

    def name(self, sender: PublicKey) -> str:
        """Return a member as people know it."""
        return f"peer {self.round.place_of(sender)} ({address(sender)})"

    def _known(self, sender: PublicKey, ciphertexts: Sequence[mpz]) -> PlaintextStatement:
        """The statement that the proof in a post proves."""
        return PlaintextStatement(self.key, self.round.chain_id, self.round.number, UPDATE, sender, ciphertexts)

    def _write(self, ciphertexts: Sequence[mpz]) -> NDArray[np.uint8]:
        return write_integers(map(int, ciphertexts), self.key.ciphertext_size)


def read_ciphertexts(rows: NDArray[np.uint8]) -> list[mpz]:
    """Return the ciphertexts in rows (count, size), without a look at what they hold."""
    return [mpz(number) for number in read_integers(rows)]


@lru_cache(maxsize=4)
def _encryptor(key: ThresholdPublicKey) -> Encryptor:
    return Encryptor(key)
