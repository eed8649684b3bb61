"""The opening of a round's encrypted sums: which may be opened, the members' shares of them, and the means.

D numbers of a vector, n classes of the sums, m ciphertexts of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedchain.crypto.exceptions import CryptoError, InvalidShare
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.threshold import Decryption, KeyShare, SharePost, decode_share_post
from fedchain.crypto.threshold.sealing import validate_key_share
from fedchain.learning.exceptions import DecryptionRefused, InvalidPayload, NothingLeft, SecretMissing
from fedchain.learning.round import ReadPost, Tensors
from fedchain.learning.sums.ciphertexts import SHARE, RoundSums, read_ciphertexts
from fedchain.learning.sums.scheme import UPDATE
from fedchain.learning.sums.secrets import Secrets

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client

OPENING = "decryption_share"
"""The phase in which members post their shares."""


@dataclass(slots=True)
class Opened:
    """The last sums that a client helped to open."""

    round: int = 0
    """The round; 0 before the first."""

    sums: torch.Tensor | None = None
    """Hash of the sums, (32,) uint8."""


@dataclass(frozen=True)
class Opening:
    """The shares of one round's sums."""

    of: RoundSums
    """The round's ciphertexts."""

    contributors_min: int
    """k_min, the fewest holders of a class whose sum is opened."""

    def contribute(self, client: Client) -> Tensors:
        """Return the client's shares. It opens one set of sums of a round, and none of an earlier round.

        Raises `DecryptionRefused` where that would not be so, too few have contributed, or the client joined after the
        dealing.
        """
        import torch

        number, opened = self.of.round.number, client.state(Opened)
        if self.decryption is None:
            raise DecryptionRefused(f"member {client.index}, round {number}: {self._nothing_to_open()}")
        if client.index >= self.of.key.members:
            raise DecryptionRefused(
                f"member {client.index}, round {number}: it was dealt no share of the key; others open the sums"
            )
        fingerprint = torch.frombuffer(bytearray(self.fingerprint), dtype=torch.uint8)
        is_same = opened.round == number and opened.sums is not None and torch.equal(opened.sums, fingerprint)
        if number <= opened.round and not is_same:
            raise DecryptionRefused(
                f"member {client.index}, round {number}: it has opened other sums, those of round {opened.round}"
            )
        opened.round, opened.sums = number, fingerprint
        return self.share(client.secrets)

    def share(self, secrets: Secrets) -> Tensors:
        """Return the member's shares of all sums that may be opened, with a proof.

        Raises `SecretMissing` without the member's share of the key.
        """
        assert self.of.round.me is not None, "a member computes"
        assert self.decryption is not None, "it was validated"
        share = KeyShare(self._index(self.of.round.me), mpz(int.from_bytes(secrets.value(SHARE))))
        try:
            validate_key_share(self.of.key, share)
        except CryptoError as error:
            raise SecretMissing(f"secret '{SHARE}' of peer {secrets.member}: {error}") from None
        random_bytes = self.of.random_bytes(secrets, OPENING, self.fingerprint)
        post = self.decryption.share(share, self.of.round.me, random_bytes)
        return {"shares": np.frombuffer(post.encode(self.of.key), dtype=np.uint8)}

    def check(self, post: ReadPost) -> None:
        """Raise `InvalidPayload`, which names the member, unless its shares are proven to be those of these sums."""
        if self.decryption is None:
            raise InvalidPayload(
                f"decryption shares of {self.of.name(post.sender)} are refused: {self._nothing_to_open()}"
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
        if len(posts) < self.of.key.threshold:
            raise NothingLeft(f"{len(posts)} members sent shares, {self.of.key.threshold} are needed")
        plaintexts = self.decryption.combine([self._decode(post) for post in posts])
        sums, (labels, holders) = self._left, self._opened
        per, rows = self.of.per_class, []
        for place, count in enumerate(holders.tolist()):
            of_class = plaintexts[place * per : (place + 1) * per]
            total = self.of.packing.unpack_nearest(of_class, self.of.info.embedding_size, count)
            divisor = int(sums["contributors"][0]) if over_all else count
            rows.append(self.of.point.decode(total) / divisor)
        return {"labels": labels, "holders": holders, "prototypes": np.stack(rows).astype(np.float32)}

    @cached_property
    def decryption(self) -> Decryption | None:
        """The occasion: this round's sums of k_min and more; None if there is none."""
        if UPDATE not in self.of.round.beside or not len(self._opened[0]):
            return None
        rows = self._left["sums"].reshape(len(self._left["labels"]), self.of.per_class, -1)[self._may_open]
        ciphertexts = read_ciphertexts(rows.reshape(-1, rows.shape[-1]))
        return Decryption(self.of.key, self.of.round.chain_id, self.of.round.number, OPENING, ciphertexts)

    @property
    def fingerprint(self) -> Hash:
        """Hash of all that `update` left: a member must not open two different sets of sums in a round."""
        return sha256(b"".join(self._left[name].tobytes() for name in ("labels", "holders", "sums")))

    @property
    def _left(self) -> Tensors:
        """The sums that `update` left for the round."""
        return self.of.round.beside[UPDATE]

    @property
    def _may_open(self) -> NDArray[np.bool_]:
        """Whether each of the sums has k_min holders or more, (n,)."""
        may: NDArray[np.bool_] = self._left["holders"] >= self.contributors_min
        return may

    @property
    def _opened(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Labels and holders of the sums that may be opened."""
        return self._left["labels"][self._may_open], self._left["holders"][self._may_open]

    def _nothing_to_open(self) -> str:
        if UPDATE not in self.of.round.beside:
            return f"phase {UPDATE} left nothing to open in round {self.of.round.number}"
        most = int(self._left["holders"].max())
        return (
            f"no class has the {self.contributors_min} contributors that an opened sum needs, at most {most} have one"
        )

    def _index(self, sender: bytes) -> int:
        """A member's place in the dealing, from 1."""
        return self.of.round.place_of(sender) + 1

    def _decode(self, post: ReadPost) -> SharePost:
        assert self.decryption is not None, "there is something to open"
        data, count = post.payload["shares"].tobytes(), len(self.decryption.ciphertexts)
        return decode_share_post(self.of.key, data, count, self._index(post.sender), post.sender)
