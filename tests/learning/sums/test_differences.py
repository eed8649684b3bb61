"""Sums of two rounds together: a member that was in one and not in the next is seen in their difference.

Encryption does not hide that. How little the others' training blurs it is measured here, for docs/privacy.md and the
caution that founders are given.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.models.prototypes import ClassMeans
from fedchain.learning.payload.codec import decode
from fedchain.learning.registry import HyperparameterValue, build_method
from fedchain.learning.round import OffChain, Round
from fedchain.learning.sums.scheme import UPDATE
from fedchain.learning.sums.threshold import DIFFERENCES
from fedchain.learning.worker.learner import Learner
from tests.crypto.threshold.dealt import MEMBERS, SENDERS
from tests.support.learning.encrypted_game import Game, task

ABSENT, STAYING = 0, range(1, MEMBERS)


def error_of_the_difference(monkeypatch: pytest.MonkeyPatch, method: str, **settings: HyperparameterValue) -> float:
    """Return how far the difference of two openings is from the absent member's prototypes, relative to their length.

    All five post in rounds 1 and 2, four in round 3; they hold all classes, and train as the method has it by default.
    """
    secret = keep_what_the_absent_member_posts(monkeypatch)
    default = build_method(method.lower(), {})
    kept = {name: getattr(default, name) for name in ("local_epochs", "local_steps")}
    game = Game(replace(task(method, **(kept | settings)), partition="iid"))
    game.play(1)
    second = game.play(2)
    game.close("update", 3, game.posts("update", 3, STAYING))
    game.close("decryption_share", 3, game.posts("decryption_share", 3))
    third = game.rules.read_knowledge(game.known)
    assert third is not None
    assert ({*second["holders"].tolist()}, {*third["holders"].tolist()}) == ({MEMBERS}, {MEMBERS - 1})
    seen = MEMBERS * second["prototypes"].astype(float) - (MEMBERS - 1) * third["prototypes"].astype(float)  # (C, D)
    return float(np.linalg.norm(seen - secret[2]) / np.linalg.norm(secret[2]))


def keep_what_the_absent_member_posts(monkeypatch: pytest.MonkeyPatch) -> dict[int, NDArray[np.float64]]:
    """Let its prototypes (C, D) be noted by round, before any noise."""
    kept: dict[int, NDArray[np.float64]] = {}
    noised = FedPh._noised

    def noising(self: FedPh, means: ClassMeans, client: Client, round: Round) -> ClassMeans:
        if client.index == ABSENT:
            kept[round.number] = means.prototypes.double().numpy()
        return noised(self, means, client, round)

    monkeypatch.setattr(FedPh, "_noised", noising)
    return kept


def test_who_misses_a_round_is_seen_in_the_difference_of_two_openings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.015 < error_of_the_difference(monkeypatch, "FedPh") < 0.04
    assert DIFFERENCES in build_method("fedph", {"encryption": "threshold"}).cautions(10)


def test_noise_hides_it_where_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    noise: dict[str, HyperparameterValue] = {"noise": "split", "class_examples_min": 8, "magnitude_max": 1024.0}
    assert error_of_the_difference(monkeypatch, "FedPh", **noise) > 2.0


@pytest.mark.parametrize(
    ("method", "after_six", "after_sixteen"),
    [("dfpl", 0.36, 0.06), pytest.param("fedproto", 0.47, 0.09, marks=pytest.mark.slow)],
)
def test_models_that_still_move_blur_the_difference_and_settle(
    method: str, after_six: float, after_sixteen: float
) -> None:
    """Their learning rates are a hundred times larger. Everything is in clear: encryption opens the same sums."""
    config = LearningConfig(method=method, clients=MEMBERS, partition="iid", seed=3)
    rules, learner = Application(config, SENDERS), Learner(config, members=SENDERS)
    spec = rules.method.payload_spec(rules.method.phases[0], rules.info)
    known, before, errors = b"", None, {}
    for number in range(1, 17):
        posts = [(SENDERS[place], learner.contribute(place, UPDATE, number, known).payload) for place in range(MEMBERS)]
        vectors = np.array([decode(payload, spec)["prototypes"].astype(float) for _, payload in posts])  # (K, C, D)
        if before is not None:
            seen = before.sum(axis=0) - vectors[1:].sum(axis=0)
            errors[number] = float(np.linalg.norm(seen - before[ABSENT]) / np.linalg.norm(before[ABSENT]))
        before, known = vectors, rules.aggregate(OffChain(UPDATE, number, SENDERS), known, sorted(posts))
    assert errors[3] > 1.0
    assert errors[6] == pytest.approx(after_six, abs=0.05)
    assert errors[16] == pytest.approx(after_sixteen, abs=0.03)
