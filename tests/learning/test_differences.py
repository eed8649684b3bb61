"""What sums of two rounds show together: a member that was in one and not in the next is seen in their difference.

Encryption does not hide that, and docs/privacy.md and the caution at founding say by how little the others' training
blurs it. The figures of that page are measured here.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.learning.learner import Learner
from fedchain.learning.payload.codec import decode
from fedchain.learning.prototype_method import DIFFERENCES
from fedchain.learning.registry import HyperparameterValue, build_method
from tests.crypto.threshold.dealt import MEMBERS, SENDERS
from tests.learning.encrypted_game import Game, task

ABSENT, STAYING = 0, range(1, MEMBERS)


def error_of_the_difference(method: str, **settings: HyperparameterValue) -> float:
    """Return how far the difference of two openings is from what the absent member posted, relative to its length.

    All five post in rounds 1 and 2, four in round 3; they hold all classes, and train as the method has it by default.
    """
    default = build_method(method, {})
    kept = {name: getattr(default, name) for name in ("local_epochs", "local_steps")}
    game = Game(replace(task(CLASSES[method], **(kept | settings)), partition="iid"))
    game.play(1)
    before = game.known
    second = game.play(2)
    posted = posted_in_clear(game, before)
    game.close("update", 3, game.posts("update", 3, STAYING))
    game.close("decryption_share", 3, game.posts("decryption_share", 3))
    third = game.rules.read_knowledge(game.known)
    assert third is not None
    assert {*second["holders"].tolist()} == {MEMBERS}
    assert {*third["holders"].tolist()} == {MEMBERS - 1}
    seen = MEMBERS * second["prototypes"].astype(float) - (MEMBERS - 1) * third["prototypes"].astype(float)
    return float(np.linalg.norm(seen - posted) / np.linalg.norm(posted))


CLASSES = {"fedph": "FedPh", "dfpl": "Dfpl", "fedproto": "FedProto"}


def posted_in_clear(game: Game, known: bytes) -> NDArray[np.float64]:
    """What the absent member encrypted in round 2, without noise, (C, D)."""
    settings = dict(game.config.hyperparameters) | {"encryption": "none"}
    learner = Learner(replace(game.config, hyperparameters=settings), members=SENDERS)
    learner.contribute(ABSENT, "update", 1, b"")
    spec = learner.method.payload_spec(learner.method.phases[0], learner.info)
    posted = decode(learner.contribute(ABSENT, "update", 2, known).payload, spec)
    return posted["prototypes"].astype(float)


@pytest.mark.parametrize(("method", "low", "high"), [("fedph", 0.0, 9.0), ("dfpl", 0.0, 9.0), ("fedproto", 0.0, 9.0)])
def test_who_misses_a_round_is_seen_in_the_difference_of_two_openings(method: str, low: float, high: float) -> None:
    error = error_of_the_difference(method)
    print(method, error)
    assert low < error < high


def test_noise_hides_it_if_it_is_large() -> None:
    print(error_of_the_difference("fedph", noise="split", noise_multiplier=1.0), error_of_the_difference("fedph", noise="split", noise_multiplier=4.0, magnitude_max=1024.0))
