"""A client whose training diverges is as it was before, posts nothing, and trains again when it is asked again."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

from fedchain.learning.client import Client
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.methods.demlearn import DemLearnState
from fedchain.learning.payload.codec import encode
from fedchain.learning.registry import METHODS
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.worker.contribution import Contribution
from tests.support.campaigns import some
from tests.support.learning.federation import SPLITTING, VARIED, Federation, config, read_payload
from tests.support.learning.played import played


@pytest.mark.long
@pytest.mark.parametrize("method", some(sorted(METHODS.keys() - SPLITTING | {"fedict"}), chosen=VARIED))
def test_after_a_divergence_every_method_goes_on_as_if_nothing_had_been(method: str) -> None:
    with played(method, has_norm=True) as first:
        learner, knowledge = first.federation.learner, first.federation.knowledge
        before = learner.checkpoint(1)
        expected, after = learner.contribute(1, "update", 5, knowledge), learner.checkpoint(1)
        learner.restore(1, before)
        with learner.lend(1, 3) as own:
            sound, own.train_images = own.train_images, own.train_images * float("inf")
        for number in (3, 4):
            with pytest.raises(TrainingDiverged, match=rf"^peer 1, round {number}: the loss is nan at step 0; "):
                learner.contribute(1, "update", number, knowledge)
            assert learner.checkpoint(1) == before
        with learner.lend(1, 5) as own:
            own.train_images = sound
        assert learner.contribute(1, "update", 5, knowledge) == expected
        assert learner.checkpoint(1) == after != before


@pytest.mark.long
@pytest.mark.parametrize("method", some(sorted(METHODS.keys() - SPLITTING - {"solo"}), chosen=VARIED))
def test_knowledge_of_the_largest_numbers_does_no_lasting_harm(method: str) -> None:
    """It is valid, so a client has to take it; most methods diverge from it."""
    with played(method, has_norm=True) as first:
        _receive_the_largest_numbers(first.federation, first.made[1])


def _receive_the_largest_numbers(federation: Federation, sound: list[Contribution]) -> None:
    rules, learner = federation.rules, federation.learner
    largest = {
        name: np.copysign(np.float32(1e6), value) if name.startswith(("model.", "prototypes")) else value
        for name, value in read_payload(rules, sound[0].payload).items()
    }
    hostile = rules.aggregate(OffChain("update", 2), federation.knowledge, [(b"a", encode(largest))])
    before = learner.checkpoint(1)
    expected = learner.contribute(1, "update", 4, federation.knowledge)
    learner.restore(1, before)
    try:
        payload = learner.contribute(1, "update", 3, hostile).payload
    except TrainingDiverged:
        assert learner.checkpoint(1) == before
    else:
        rules.check(OffChain("update", 3), b"b", hostile, payload)
        learner.restore(1, before)
    assert learner.contribute(1, "update", 4, federation.knowledge) == expected


@dataclass(slots=True)
class Rounds:
    """Counts updates, so that a checkpoint shows one that was taken back."""

    played: int = 0


@dataclass(frozen=True, kw_only=True)
class Breaking(BladeFl):
    """Something goes wrong in round 2, at the very end of client 1's training."""

    kind: str = ""

    def update(self, client: Client, round: Round) -> Tensors:
        posted = BladeFl.update(self, client, round)
        client.state(Rounds).played += 1
        if (client.index, round.number) != (1, 2):
            return posted
        if self.kind == "error":
            raise RuntimeError("out of memory")
        return {**posted, "model.fc3.bias": np.full(10, float(self.kind), np.float32)}


BREAKING = {
    "inf": "elements of model.fc3.bias: finite numbers expected, found inf",
    "nan": "elements of model.fc3.bias: finite numbers expected, found nan",
    "-1.5e6": "elements of model.fc3.bias: a magnitude of at most 1e+06 expected, found -1500000.0",
}


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Federation]:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    return lambda kind: Federation(config("contributed:Breaking", kind=kind))


@pytest.mark.parametrize("kind", BREAKING)
def test_a_post_that_others_would_refuse_is_not_made(kind: str, breaking: Callable[[str], Federation]) -> None:
    federation = breaking(kind)
    federation.play()
    before = federation.learner.checkpoint(1)
    with pytest.raises(TrainingDiverged) as caught:
        federation.learner.contribute(1, "update", 2, federation.knowledge)
    assert str(caught.value) == f"peer 1, round 2: {BREAKING[kind]}; try a smaller learning_rate"
    assert str(ForkingPickler.loads(ForkingPickler.dumps(caught.value))) == str(caught.value)
    assert federation.learner.checkpoint(1) == before
    assert federation.learner.contribute(1, "update", 3, federation.knowledge).payload


def test_a_client_is_as_it_was_after_any_other_error_too(breaking: Callable[[str], Federation]) -> None:
    federation = breaking("error")
    federation.play()
    before = federation.learner.checkpoint(1)
    with pytest.raises(RuntimeError, match="out of memory"):
        federation.learner.contribute(1, "update", 2, federation.knowledge)
    assert federation.learner.checkpoint(1) == before


@pytest.mark.parametrize("kind", ["1e-40", "-1e-45", "-0.0"])
def test_numbers_that_are_too_small_are_posted_as_0(kind: str, breaking: Callable[[str], Federation]) -> None:
    federation = breaking(kind)
    federation.play()
    payload = federation.learner.contribute(1, "update", 2, federation.knowledge).payload
    federation.rules.check(OffChain("update", 2), b"b", federation.knowledge, payload)
    assert read_payload(federation.rules, payload)["model.fc3.bias"].tobytes() == bytes(40)


def test_a_client_finds_its_group_by_what_was_sent_and_not_by_what_it_has() -> None:
    federation = Federation(config("demlearn", learning_rate=1e-44))  # nothing moves
    with federation.learner.lend(0, 1) as own, torch.no_grad():
        own.model.get_parameter("fc1.weight")[:, 0] = 1e-40
    federation.play()
    with federation.learner.lend(0, 2) as own:
        assert (own.model.get_parameter("fc1.weight")[:, 0] != 0).all()
    assert federation.client(0).state(DemLearnState).posted in federation.known()["fingerprints"].tolist()
