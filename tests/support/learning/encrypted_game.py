"""Federations that encrypt with small keys, round by round: five members with their shares, honest ones and liars."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from fedchain.crypto.threshold import (
    Dealing,
    Encryptor,
    KeyShare,
    PlaintextStatement,
    decode_public_key,
    open_share,
    prove_plaintexts,
)
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.families.prototypes import PrototypeMethod
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.payload.integers import write_integers
from fedchain.learning.registry import HyperparameterValue, build_method
from fedchain.learning.round import OffChain, Tensors
from fedchain.learning.sums.ciphertexts import SHARE
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.sums.threshold import PUBLIC_KEY
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.crypto.threshold.dealt import MEMBERS, SENDERS, SIGNING_KEYS, random_source

SMALL = "tests.support.learning.small_keys:SmallKey"
CHAIN = b"\7" * 32
THRESHOLD, HOLDERS_MIN = 2, 3
THRESHOLDS: dict[str, HyperparameterValue] = {"decryption_threshold": THRESHOLD, "contributors_min": HOLDERS_MIN}


@cache
def dealing(threshold: int = THRESHOLD) -> Dealing:
    stated = {"decryption_threshold": threshold, "contributors_min": threshold + 1}
    method = build_method(f"{SMALL}Dfpl", {"encryption": "threshold", **stated})
    assert isinstance(method, PrototypeMethod)
    dealt = method.deal(SENDERS, random_source("prototypes"))
    assert dealt is not None
    return dealt


@cache
def key_shares(threshold: int = THRESHOLD) -> tuple[KeyShare, ...]:
    key = dealing(threshold).public_key
    sealed = enumerate(zip(dealing(threshold).sealed_shares, SIGNING_KEYS, strict=True), 1)
    return tuple(open_share(key, share, index, signing) for index, (share, signing) in sealed)


def secrets_of(member: int, threshold: int = THRESHOLD) -> Secrets:
    share = int(key_shares(threshold)[member].secret).to_bytes(dealing().public_key.ciphertext_size)
    return Secrets(member, bytes([member]) * ROOT_SIZE, {SHARE: share})


def task(method: str = "FedPh", **settings: HyperparameterValue) -> LearningConfig:
    hyperparameters = {"encryption": "threshold", **THRESHOLDS, "local_epochs": 0, "local_steps": 1, **settings}
    config = LearningConfig(method=f"{SMALL}{method}", clients=MEMBERS, hyperparameters=hyperparameters, seed=3)
    threshold = int(hyperparameters["decryption_threshold"])
    return replace(config, material={PUBLIC_KEY: dealing(threshold).public_key.encode()})


@dataclass
class Game:
    """Five members, round by round."""

    config: LearningConfig
    chain_id: bytes = CHAIN
    known: bytes = b""
    rules: Application = field(init=False)
    learner: Learner = field(init=False)

    def __post_init__(self) -> None:
        self.rules = Application(self.config, SENDERS, self.chain_id)
        self.learner = self.start()

    def start(self) -> Learner:
        threshold = decode_public_key(dict(self.config.material)[PUBLIC_KEY], (KEY_BITS_MIN_TESTING,)).threshold
        shares = partial(secrets_of, threshold=threshold)
        return Learner(self.config, members=SENDERS, chain_id=self.chain_id, stores=Stores(secrets_of=shares))

    def posts(self, phase: str, number: int, members: Sequence[int] = range(MEMBERS)) -> list[tuple[bytes, bytes]]:
        """The posts of members, checked."""
        made = []
        for member in members:
            contribution = self.learner.contribute(member, phase, number, self.known)
            assert (contribution.local is None) == (phase == "decryption_share")
            assert len(contribution.payload) <= self.rules.payload_size_max(phase)
            self.rules.check(OffChain(phase, number, SENDERS), SENDERS[member], self.known, contribution.payload)
            made.append((SENDERS[member], contribution.payload))
        return sorted(made)

    def close(self, phase: str, number: int, posts: Sequence[tuple[bytes, bytes]]) -> None:
        self.known = self.rules.aggregate(OffChain(phase, number, SENDERS), self.known, posts)

    def play(self, number: int, helpers: Sequence[int] = range(MEMBERS)) -> Tensors:
        """A whole round; what it leaves."""
        self.close("update", number, self.posts("update", number))
        self.close("decryption_share", number, self.posts("decryption_share", number, helpers))
        known = self.rules.read_knowledge(self.known)
        assert known is not None
        return known

    def refused(self, phase: str, member: int, payload: bytes, number: int = 1) -> str:
        with pytest.raises(InvalidPayload) as caught:
            self.rules.check(OffChain(phase, number, SENDERS), SENDERS[member], self.known, payload)
        return str(caught.value)

    def read(self, phase: str, payload: bytes) -> dict[str, Any]:
        (found,) = (item for item in self.rules.method.phases if item.name == phase)
        return dict(decode(payload, self.rules.method.payload_spec(found, self.rules.info)))


def proven(game: Game, member: int, labels: np.ndarray, plaintexts: Sequence[int]) -> bytes:
    """A post of any plaintexts by somebody who knows them."""
    key = decode_public_key(dict(game.config.material)[PUBLIC_KEY], (KEY_BITS_MIN_TESTING,))
    source = random_source(f"liar {member}")
    encryptor = Encryptor(key)
    randomizers = encryptor.randomizers(len(plaintexts), source)
    ciphertexts = encryptor.encrypt(plaintexts, randomizers)
    statement = PlaintextStatement(key, game.chain_id, 1, "update", SENDERS[member], ciphertexts)
    proof = prove_plaintexts(statement, plaintexts, randomizers, source).encode(key)
    rows = write_integers(map(int, ciphertexts), key.ciphertext_size)
    return encode({"labels": labels, "ciphertexts": rows, "proof": np.frombuffer(proof, dtype=np.uint8)})
