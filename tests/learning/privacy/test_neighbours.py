"""An epsilon that is stated is at least what two neighbouring data sets are measured to need; where it would not be,
none is stated.

The neighbours differ by one example, replaced by another of its class. Somebody who knows both data sets and all but
the member's private randomness looks at many posts of each, and tells them apart by a threshold. How often that
succeeds bounds epsilon from below.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from fedchain.learning.client import Client
from fedchain.learning.families.prototypes import PrototypeMethod
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.privacy.releases import total_epsilon
from fedchain.learning.round import Round
from fedchain.learning.sums.secrets import Secrets
from tests.support.learning.federation import new_client

DELTA, CONFIDENCE = 1e-5, 0.99
EXAMPLES, BRIGHT = 60, 30.0
"""Training examples, and how much brighter the one is that takes the first one's place."""

FIRST = Round(1, None, clients=3)
DFPL = Dfpl(local_epochs=3, batch_size=20, learning_rate=0.5, prototype_noise=3.0)
FEDPH = FedPh(local_epochs=3, batch_size=20, learning_rate=0.5, noise="local", noise_multiplier=3.0)


def member(is_neighbour: bool, root: int) -> Client:
    """One of the two data sets, with private randomness of its own."""
    client = new_client(EXAMPLES)
    if is_neighbour:
        client.train_images = client.train_images.clone()
        client.train_images[0] *= BRIGHT
    client.open_secrets = lambda: Secrets(0, root.to_bytes(32))
    client.open_ledger = partial(PrivacyLedger, 0, Memory())
    client.generator.manual_seed(5)
    return client


def posts(method: PrototypeMethod, is_neighbour: bool, runs: int) -> NDArray[np.float64]:
    """Posts of the member in round 1, (runs, numbers of a post), each time with other private randomness."""
    first = 1 + runs * is_neighbour
    made = [method.update(member(is_neighbour, first + run), FIRST)["prototypes"].ravel() for run in range(runs)]
    return np.stack(made).astype(np.float64)


def without_noise(method: PrototypeMethod) -> PrototypeMethod:
    """The same with so little noise that posts show the vectors under it."""
    quiet = {"prototype_noise": 1e-9} if isinstance(method, Dfpl) else {"noise_multiplier": 1e-9}
    return replace(method, **quiet)  # type: ignore[arg-type]


def posts_of_one_training(method: PrototypeMethod, is_neighbour: bool, runs: int) -> NDArray[np.float64]:
    """The same of a method that trains without randomness of the member's: it trains once, and adds noise often."""
    client = member(is_neighbour, 0)
    method.update(client, FIRST)
    kept = replace(method, learning_rate=1e-30, local_epochs=0, local_steps=1)  # moves no parameter any more
    rows = []
    for run in range(runs):
        client.open_secrets = partial(Secrets, 0, (1 + run + runs * is_neighbour).to_bytes(32))
        client.open_ledger = partial(PrivacyLedger, 0, Memory())
        rows.append(kept.update(client, FIRST)["prototypes"].ravel())
    return np.stack(rows).astype(np.float64)


def epsilon_needed(
    posts: NDArray[np.float64], neighbours: NDArray[np.float64], direction: NDArray[np.float64] | None = None
) -> float:
    """Return what epsilon is at least, with confidence, given posts (runs, numbers) of two neighbours.

    Half of the runs decide on the threshold, and on the direction where it is not known; the others are counted
    (Clopper and Pearson).
    """
    half = len(posts) // 2
    if direction is None:
        direction = neighbours[:half].mean(axis=0) - posts[:half].mean(axis=0)
    scores, others = posts @ direction, neighbours @ direction
    best = 0.0
    for low, high in ((scores, others), (-others, -scores)):
        threshold = max(low[:half].max(), np.quantile(high[:half], 0.05))
        hits, false = int((high[half:] > threshold).sum()), int((low[half:] > threshold).sum())
        tail = (1 - CONFIDENCE) / 4  # two rates in each of two directions
        least = float(beta.ppf(tail, hits, half - hits + 1)) if hits else 0.0
        most = float(beta.ppf(1 - tail, false + 1, half - false)) if false < half else 1.0
        best = max(best, math.log(max(least - DELTA, 1e-300) / most))
    return best


def epsilon_counted(method: PrototypeMethod) -> float:
    """The figure of the ledger after a post, called an epsilon or not."""
    client = member(False, 0)
    method.update(client, FIRST)
    return client.ledger.epsilon(DELTA)


@pytest.mark.parametrize(
    "method",
    [pytest.param(DFPL, id="dfpl", marks=pytest.mark.long), pytest.param(FEDPH, id="fedph", marks=pytest.mark.slow)],
)
def test_noise_on_prototypes_alone_is_no_epsilon_and_is_not_called_one(method: PrototypeMethod) -> None:
    """One example turns the encoder, which turns all embeddings, and the noise was meant for one of them."""
    first, second = (posts_of_one_training(without_noise(method), which, 1)[0] for which in (False, True))
    made = [posts_of_one_training(method, which, 300) for which in (False, True)]
    needed = epsilon_needed(made[0], made[1], second - first)
    assert epsilon_counted(method) == pytest.approx(total_epsilon([method.prototype_release()], DELTA))
    assert round(epsilon_counted(method), 2) == 1.27
    assert needed > 2 * epsilon_counted(method), "else this pair shows nothing"
    assert not method.states_epsilon


@pytest.mark.parametrize(
    ("method", "gradient_noise"),
    [
        pytest.param(DFPL, 0.5, id="dfpl", marks=pytest.mark.long),
        pytest.param(FEDPH, 4.0, id="fedph", marks=pytest.mark.slow),
    ],
)
def test_with_dp_sgd_what_is_stated_is_more_than_the_pair_needs(method: PrototypeMethod, gradient_noise: float) -> None:
    private = replace(method, local_epochs=1, batch_size=EXAMPLES, gradient_noise=gradient_noise)
    assert private.states_epsilon
    needed = epsilon_needed(*(posts(private, which, 60) for which in (False, True)))
    assert needed <= epsilon_counted(private)


def test_what_the_measurement_finds_is_near_the_truth_where_that_is_known() -> None:
    draw = np.random.default_rng(0)
    shift = np.zeros(20)
    shift[3] = 8.0
    clear, alike = (draw.normal(size=(1_000, 20)) for _ in range(2))
    assert epsilon_needed(clear, draw.normal(size=(1_000, 20)) + shift, shift) > 4.0
    assert epsilon_needed(clear, alike) < 0.5


def test_what_a_post_is_made_of_is_the_model_and_the_example_moves_that() -> None:
    """Without noise: the one example moves the sums of the classes by more than any one embedding could."""
    first, second = (posts_of_one_training(without_noise(DFPL), which, 1)[0] for which in (False, True))
    of_class = EXAMPLES / 3
    sensitivity = 2 * DFPL.prototype_clip
    assert torch.linalg.vector_norm(torch.from_numpy(first - second)) * of_class / sensitivity > 5.0
