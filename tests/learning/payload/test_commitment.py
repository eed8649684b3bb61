"""A contributor's method in one file: members commit to their models before anybody shows one."""

import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import CLIENTS_MAX, LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Lifetime, Phase
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.commitment import COMMITMENT, commit, commitments_spec, validate_revealed
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import OffChain, ReadPost, Round, Tensors
from fedchain.learning.worker.learner import Learner

MEMBERS = [b"\1" * 32, b"\2" * 32, b"\3" * 32]


@dataclass(slots=True)
class Trained:
    """The model that a client will reveal."""

    model: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CommittedBladeFl(BladeFl):
    """BLADE-FL, in which nobody can post another's model as its own."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("commitment", lifetime=Lifetime.ROUND, trains=True), Phase("reveal")

    def commitment(self, client: Client, round: Round) -> Tensors:
        model = self.update(client, round)
        client.state(Trained).model = {name: torch.from_numpy(np.array(value)) for name, value in model.items()}
        assert round.me is not None
        return {"commitment": commit(round.me, model)}

    def reveal(self, client: Client, round: Round) -> Tensors:
        return {name: value.numpy() for name, value in client.state(Trained).model.items()}

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        if phase.name == "reveal":
            place = round.place_of(post.sender)
            validate_revealed(post.sender, place, post.payload, round.beside.get("commitment"))

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if phase.name == "reveal":
            return super().aggregate(phase, round)
        return {
            "committed": np.array([round.place_of(post.sender) for post in round.posts]),
            "commitments": np.stack([post.payload["commitment"] for post in round.posts]),
        }

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return super().payload_spec(phase, info) if phase.name == "reveal" else (COMMITMENT,)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return super().knowledge_spec(phase, info) if phase.name == "reveal" else commitments_spec(CLIENTS_MAX)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    return LearningConfig(method="contributed:CommittedBladeFl", clients=3, hyperparameters={"local_steps": 2})


def post(rules: Application, learner: Learner, phase: str, number: int, known: bytes) -> list[tuple[bytes, bytes]]:
    """Posts of all members, checked."""
    posts = [(MEMBERS[k], learner.contribute(k, phase, number, known).payload) for k in range(3)]
    for sender, payload in posts:
        rules.check(OffChain(phase, number, MEMBERS), sender, known, payload)
    return posts


def test_what_is_revealed_is_aggregated_as_without_commitments(config: LearningConfig) -> None:
    rules, learner, known = Application(config, MEMBERS), Learner(config, members=MEMBERS), b""
    plain = Application(LearningConfig(method="blade-fl", clients=3))
    for number in (1, 2):
        known = rules.aggregate(
            OffChain("commitment", number, MEMBERS), known, post(rules, learner, "commitment", number, known)
        )
        revealed = post(rules, learner, "reveal", number, known)
        known = rules.aggregate(OffChain("reveal", number, MEMBERS), known, revealed)
        expected = plain.aggregate(OffChain("update", number), b"", revealed)
        assert known.replace(b"reveal", b"update") == expected.replace(b"reveal", b"update")


def test_the_phase_that_trains_is_the_one_that_is_evaluated_and_takes_time(config: LearningConfig) -> None:
    learner = Learner(config, members=MEMBERS)
    assert [learner.planned_steps(0, phase, 1) for phase in ("commitment", "reveal")] == [2, 0]
    assert learner.contribute(0, "commitment", 1, b"").local is not None


def test_another_model_than_the_committed_one_is_refused(config: LearningConfig) -> None:
    rules, learner = Application(config, MEMBERS), Learner(config, members=MEMBERS)
    known = rules.aggregate(OffChain("commitment", 1, MEMBERS), b"", post(rules, learner, "commitment", 1, b""))
    revealed = post(rules, learner, "reveal", 1, known)
    with pytest.raises(InvalidPayload, match=r"reveal: member 0 committed to .*, found "):
        rules.check(OffChain("reveal", 1, MEMBERS), MEMBERS[0], known, revealed[1][1])


def test_a_copied_commitment_is_of_no_use(config: LearningConfig) -> None:
    rules, learner = Application(config, MEMBERS), Learner(config, members=MEMBERS)
    honest = learner.contribute(0, "commitment", 1, b"").payload
    known = rules.aggregate(OffChain("commitment", 1, MEMBERS), b"", [(MEMBERS[0], honest), (MEMBERS[1], honest)])
    model = learner.contribute(0, "reveal", 1, known).payload
    rules.check(OffChain("reveal", 1, MEMBERS), MEMBERS[0], known, model)
    with pytest.raises(InvalidPayload, match="reveal: member 1 committed to"):
        rules.check(OffChain("reveal", 1, MEMBERS), MEMBERS[1], known, model)


def test_nothing_is_revealed_without_a_commitment_of_the_same_round(config: LearningConfig) -> None:
    rules, learner = Application(config, MEMBERS), Learner(config, members=MEMBERS)
    made = post(rules, learner, "commitment", 1, b"")
    known = rules.aggregate(OffChain("commitment", 1, MEMBERS), b"", made[:2])
    model = learner.contribute(2, "reveal", 1, known).payload
    with pytest.raises(InvalidPayload, match="a commitment of member 2 expected, found none"):
        rules.check(OffChain("reveal", 1, MEMBERS), MEMBERS[2], known, model)
    model = learner.contribute(0, "reveal", 1, known).payload
    with pytest.raises(InvalidPayload, match="a commitment of member 0 expected, found none"):
        rules.check(OffChain("reveal", 2, MEMBERS), MEMBERS[0], known, model)


def test_what_will_be_revealed_survives_a_crash(config: LearningConfig) -> None:
    rules, learner = Application(config, MEMBERS), Learner(config, members=MEMBERS)
    known = rules.aggregate(OffChain("commitment", 1, MEMBERS), b"", post(rules, learner, "commitment", 1, b""))
    other = Learner(config, members=MEMBERS)
    other.restore(1, learner.checkpoint(1))
    revealed = other.contribute(1, "reveal", 1, known)
    assert revealed.payload == learner.contribute(1, "reveal", 1, known).payload
    assert revealed.local is None
