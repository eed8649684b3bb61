"""A contributor's method in one file: encrypted sums, which a quorum of shares opens in a second phase.

The encryption is a toy, masks modulo a public number whose sum the shares take away: what is tested is that such a
method fits the interface. Its ciphertexts are integers larger than any tensor's elements.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload, SecretMissing
from fedchain.learning.method import Lifetime, Method, Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.integers import read_integers, validate_below, write_integers
from fedchain.learning.payload.spec import TensorSpec, byte_strings
from fedchain.learning.round import OffChain, ReadPost, Round, Tensors
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores

SIZE = 64
"""Bytes of a ciphertext."""

MODULUS = 2**511 - 111
MEMBERS = [bytes([place]) * 32 for place in range(4)]


@dataclass(frozen=True, kw_only=True)
class EncryptedSum(Method):
    """The sum of all members' numbers of examples; a member that takes no part in the second phase is not needed."""

    threshold: int = 3

    def validate(self) -> None:
        validate_range("threshold", self.threshold, 1, 1 << 16)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("encrypt", lifetime=Lifetime.ROUND), Phase("decryption_share", quorum=self.threshold)

    def encrypt(self, client: Client, round: Round) -> Tensors:
        noise = int.from_bytes(client.secrets.draw(SIZE, "mask", round.number)) % MODULUS
        number = (len(client.train_labels) + noise * int.from_bytes(round.material["key"])) % MODULUS
        return {"ciphertext": write_integers([number, noise], SIZE)}

    def decryption_share(self, client: Client, round: Round) -> Tensors:
        _, noise = read_integers(round.beside["encrypt"]["product"])
        key = int.from_bytes(client.secrets.value("share"))
        return {"share": write_integers([noise * key % MODULUS], SIZE)}

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return (byte_strings("ciphertext", SIZE, 2) if phase.name == "encrypt" else byte_strings("share", SIZE, 1),)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        if phase.name == "encrypt":
            return byte_strings("product", SIZE, 2), TensorSpec("contributors", (-1,), "int64", free_max=len(MEMBERS))
        return (TensorSpec("total", (1,), "int64"),)

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        (name,) = post.payload
        numbers = read_integers(post.payload[name])
        validate_below(name, numbers, MODULUS)
        if phase.name == "decryption_share":
            if "encrypt" not in round.beside:
                raise InvalidPayload("share: nothing was encrypted in this round")
            _, noise = read_integers(round.beside["encrypt"]["product"])
            if numbers != [noise * int.from_bytes(round.material["key"]) % MODULUS]:
                raise InvalidPayload(f"share of member {round.place_of(post.sender)}: it opens another ciphertext")

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if phase.name == "encrypt":
            rows = [read_integers(post.payload["ciphertext"]) for post in round.posts]
            sums = [sum(column) % MODULUS for column in zip(*rows, strict=True)]
            places = [round.place_of(post.sender) for post in round.posts]
            return {"product": write_integers(sums, SIZE), "contributors": np.array(places)}
        (mask,) = read_integers(round.posts[0].payload["share"])
        masked, _ = read_integers(round.beside["encrypt"]["product"])
        return {"total": np.array([(masked - mask) % MODULUS % 2**62])}


KEY = (12345).to_bytes(SIZE)


def secrets_of(client: int) -> Secrets:
    return Secrets(client, bytes([client]) * ROOT_SIZE, {} if client == 3 else {"share": KEY})


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    return LearningConfig(method="contributed:EncryptedSum", clients=4, material={"key": KEY})


@pytest.fixture
def rules(config: LearningConfig) -> Application:
    return Application(config, MEMBERS)


@pytest.fixture
def learner(config: LearningConfig) -> Learner:
    return Learner(config, members=MEMBERS, stores=Stores(secrets_of))


def close(rules: Application, learner: Learner, phase: str, number: int, known: bytes, clients: Sequence[int]) -> bytes:
    """Let clients do a phase, check what they post, and aggregate it."""
    posts = []
    for client in clients:
        made = learner.contribute(client, phase, number, known)
        assert (made.steps, made.local, made.received) == (0, None, None)
        rules.check(OffChain(phase, number, MEMBERS), MEMBERS[client], known, made.payload)
        posts.append((MEMBERS[client], made.payload))
    return rules.aggregate(OffChain(phase, number, MEMBERS), known, posts)


def test_shares_open_the_sum(rules: Application, learner: Learner) -> None:
    assert rules.phases == (("encrypt", "participant", 0), ("decryption_share", "participant", 3))
    encrypted = close(rules, learner, "encrypt", 1, b"", range(4))
    assert rules.read_knowledge(encrypted) is None, "nobody trains on ciphertexts"
    opened = rules.read_knowledge(close(rules, learner, "decryption_share", 1, encrypted, range(3)))
    assert opened is not None
    assert opened["total"].tolist() == [int(learner.histogram().sum())]


def test_a_phase_that_closes_empty_leaves_the_knowledge_of_the_last_round(rules: Application, learner: Learner) -> None:
    known = close(rules, learner, "decryption_share", 1, close(rules, learner, "encrypt", 1, b"", range(4)), range(3))
    waiting = close(rules, learner, "encrypt", 2, known, [0, 1])
    assert rules.read_knowledge(
        rules.aggregate(OffChain("decryption_share", 2, MEMBERS), waiting, [])
    ) == rules.read_knowledge(known)
    shown = learner._contributing.knowledge.fill(Round(3, None), waiting)
    assert shown.knowledge == rules.read_knowledge(known)
    assert shown.knowledge_phase == "decryption_share"
    assert shown.beside == {}, "what round 2 encrypted is no business of round 3"
    share = learner.contribute(0, "decryption_share", 2, waiting).payload
    rules.check(OffChain("decryption_share", 2, MEMBERS), MEMBERS[0], waiting, share)
    with pytest.raises(InvalidPayload, match="nothing was encrypted in this round"):
        rules.check(OffChain("decryption_share", 3, MEMBERS), MEMBERS[0], waiting, share)


def test_later_phases_see_who_contributed(rules: Application, learner: Learner) -> None:
    known = close(rules, learner, "encrypt", 1, b"", [0, 2, 3])
    beside = learner._contributing.knowledge.fill(Round(1, None), known).beside
    assert beside["encrypt"]["contributors"].tolist() == [0, 2, 3]


@pytest.mark.parametrize("number", [MODULUS, 2**512 - 1])
def test_ciphertexts_out_of_range_are_refused(rules: Application, number: int) -> None:
    payload = encode({"ciphertext": write_integers([1, number], SIZE)})
    with pytest.raises(InvalidPayload, match=r"ciphertext\[1\]: below a number of 511 bits expected"):
        rules.check(OffChain("encrypt", 1, MEMBERS), MEMBERS[0], b"", payload)


def test_a_share_for_another_ciphertext_names_its_member(rules: Application, learner: Learner) -> None:
    first = close(rules, learner, "encrypt", 1, b"", range(4))
    other = close(rules, learner, "encrypt", 1, b"", range(3))
    share = learner.contribute(2, "decryption_share", 1, first).payload
    with pytest.raises(InvalidPayload, match="share of member 2: it opens another ciphertext"):
        rules.check(OffChain("decryption_share", 1, MEMBERS), MEMBERS[2], other, share)


def test_a_missing_share_names_its_member_and_the_client_stays_as_it_was(rules: Application, learner: Learner) -> None:
    known, before = close(rules, learner, "encrypt", 1, b"", range(4)), learner.checkpoint(3)
    with pytest.raises(SecretMissing, match="member 3 has no secret 'share'"):
        learner.contribute(3, "decryption_share", 1, known)
    assert learner.checkpoint(3) == before


def test_the_same_mask_is_drawn_again_after_a_crash(config: LearningConfig, learner: Learner) -> None:
    again = Learner(config, members=MEMBERS, stores=Stores(secrets_of))
    first = learner.contribute(1, "encrypt", 5, b"").payload
    assert again.contribute(1, "encrypt", 5, b"").payload == first
    assert again.contribute(1, "encrypt", 6, b"").payload != first
    assert again.contribute(2, "encrypt", 5, b"").payload != first


def test_secrets_are_neither_shown_nor_checkpointed(learner: Learner) -> None:
    secrets = secrets_of(1)
    assert KEY.hex() not in repr(secrets) + repr(learner.client(1).open_secrets)
    assert repr(secrets) == "Secrets(member=1)"
    assert secrets.root not in learner.checkpoint(1)
    assert KEY not in learner.checkpoint(1)
    with pytest.raises(SecretMissing, match="member 9 has no root of private randomness"):
        Secrets(9, b"").draw(4, "mask")


def test_a_quorum_beyond_its_range_is_refused_by_its_name(config: LearningConfig) -> None:
    with pytest.raises(ConfigurationError, match="threshold must lie in"):
        EncryptedSum(threshold=0)
