"""Members that conspire against the others' encrypted prototypes: t - 1 of them never see the vector of one other."""

from dataclasses import replace

import numpy as np
import pytest

from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError, DecryptionRefused
from fedchain.learning.families.prototypes import PrototypeMethod
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.payload.codec import decode
from fedchain.learning.registry import HyperparameterValue, build_method
from fedchain.learning.round import OffChain
from fedchain.learning.worker.learner import Learner
from tests.crypto.threshold.dealt import MEMBERS, SENDERS
from tests.support.learning.encrypted_game import Game, proven, task

THRESHOLD, LIARS, CLASSES = 3, (3, 4), 10
"""t of five members, the usual one; t - 1 of them lie."""


def usual_game(honest: tuple[int, ...]) -> Game:
    """A round in which these members post, and the liars claim all classes, with zeros: what `update` left."""
    derived = FedPh(encryption="threshold").derived(MEMBERS)
    assert derived["decryption_threshold"] == THRESHOLD
    game = Game(task("FedPh", **{name: int(value) for name, value in derived.items()}))
    posts = dict(game.posts("update", 1, honest))
    posted = game.read("update", posts[SENDERS[honest[0]]])
    per_class = len(posted["ciphertexts"]) // len(posted["labels"])
    for liar in LIARS:
        posts[SENDERS[liar]] = proven(game, liar, np.arange(CLASSES), [0] * CLASSES * per_class)
        game.rules.check(OffChain("update", 1, SENDERS), SENDERS[liar], b"", posts[SENDERS[liar]])
    game.close("update", 1, sorted(posts.items()))
    return game


def vectors_of(game: Game, member: int) -> dict[int, np.ndarray]:
    """The vectors that a member encrypts, by class."""
    plain = replace(game.config, hyperparameters=dict(game.config.hyperparameters) | {"encryption": "none"})
    learner = Learner(plain, members=SENDERS)
    spec = learner.method.payload_spec(learner.method.phases[0], learner.info)
    posted = decode(learner.contribute(member, "update", 1, b"").payload, spec)
    return dict(zip(posted["labels"].tolist(), posted["prototypes"], strict=True))


def test_beside_liars_with_zeros_one_honest_holder_s_class_is_not_opened() -> None:
    game = usual_game((0,))
    for honest in (0, 1, 2):
        with pytest.raises(DecryptionRefused, match=r"no class has the 4 contributors .* at most 3 have one"):
            game.learner.contribute(honest, "decryption_share", 1, game.known)


def test_of_two_honest_holders_the_sum_is_opened_and_neither_vector() -> None:
    game = usual_game((0, 1, 2))
    held = [vectors_of(game, member) for member in (0, 1, 2)]
    game.close("decryption_share", 1, game.posts("decryption_share", 1, (0, 1, 2)))
    known = game.rules.read_knowledge(game.known)
    assert known is not None
    opened = dict(zip(known["labels"].tolist(), known["prototypes"], strict=True))
    holders = {label: [vectors[label] for vectors in held if label in vectors] for label in range(CLASSES)}
    assert sorted(opened) == [label for label, vectors in holders.items() if len(vectors) >= 2]
    assert min(len(holders[label]) for label in opened) == 2, "else this shows nothing"
    for label, mean in opened.items():
        seen = mean * (len(holders[label]) + len(LIARS))  # zeros add nothing
        np.testing.assert_allclose(seen, np.sum(holders[label], axis=0), atol=1e-6)
        for vector in holders[label]:
            assert np.linalg.norm(seen - vector) > 0.3 * np.linalg.norm(vector)


@pytest.mark.parametrize("members", [3, 4, 5, 6, 7, 9, 10, 13, 20, 40, 100, 256])
def test_thresholds_that_nobody_states_withstand_all_liars_that_agreement_bears(members: int) -> None:
    method = FedPh(encryption="threshold")
    derived = method.derived(members)
    threshold, holders = derived["decryption_threshold"], derived["contributors_min"]
    bearable = (members - 1) // 3
    assert threshold > bearable, "they cannot open a post"
    assert threshold >= 2, "nobody can by itself"
    assert holders - (threshold - 1) >= 2, "two others in every sum"
    assert holders <= members - bearable, "those who keep silent cannot keep all sums closed"
    assert method.derived(members) == replace(method, **derived).derived(members)  # type: ignore[arg-type]
    if threshold + 2 <= members:
        stated = FedPh(encryption="threshold", decryption_threshold=threshold + 1)
        assert stated.derived(members)["contributors_min"] == threshold + 2


def test_a_federation_that_grew_bears_as_many_liars_as_open_a_sum() -> None:
    """The key is dealt once: its threshold withstands the liars of so many founders, and of no more members."""
    threshold = FedPh(encryption="threshold").derived(4)["decryption_threshold"]
    assert threshold == 2
    assert [(members - 1) // 3 >= threshold for members in range(4, 8)] == [False, False, False, True]


def test_without_encryption_nothing_is_derived() -> None:
    assert FedPh().derived(10) == {}


@pytest.mark.parametrize(
    ("members", "threshold", "holders", "message"),
    [
        (10, 3, 5, "decryption_threshold is 3 of 10 members, it must be from 4 to 10"),
        (3, 1, 3, "decryption_threshold is 1 of 3 members, it must be from 2 to 3"),
        (2, 2, 3, "encryption threshold needs at least 3 members, not 2: a sum of fewer hides nobody"),
        (1, 0, 0, "encryption threshold needs at least 3 members, not 1"),
        (5, 3, 3, "contributors_min is 3 of 5 members, it must be from 4, one above decryption_threshold, to 5"),
        (5, 6, 7, "decryption_threshold is 6 of 5 members"),
        (257, 100, 101, "encryption threshold is for at most 256 members, not 257"),
    ],
)
def test_thresholds_that_do_not_protect_are_refused(members: int, threshold: int, holders: int, message: str) -> None:
    method = FedPh(encryption="threshold", decryption_threshold=threshold, contributors_min=holders)
    with pytest.raises(ConfigurationError, match=message):
        method.derived(members)


@pytest.mark.parametrize("threshold", [3, 4])
def test_split_noise_for_thresholds_that_do_not_protect_is_refused_with_them(threshold: int) -> None:
    settings: dict[str, HyperparameterValue] = {"decryption_threshold": threshold, "contributors_min": 3}
    method = build_method("fedph", {"encryption": "threshold", "noise": "split", "class_examples_min": 8, **settings})
    assert isinstance(method, PrototypeMethod)
    with pytest.raises(ConfigurationError, match="contributors_min is 3 of 5 members"):
        method.derived(len(SENDERS))


def test_who_reads_a_document_checks_its_thresholds_again() -> None:
    with pytest.raises(ConfigurationError, match="contributors_min is 3 of 5 members"):
        Application(task(decryption_threshold=3, contributors_min=3), SENDERS)
