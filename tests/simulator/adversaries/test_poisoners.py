"""Liars about what they learned: each lie is valid, the plain mean follows it, and robust rules do not."""

import random
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedchain.learning.aggregation.mean import WEIGHT_MAX
from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.payload.codec import decode
from fedchain.learning.round import Tensors
from fedchain.simulator.adversaries import poisoners
from fedchain.simulator.adversaries.poisoners import FlippedLabels, _put_together, _take_apart
from fedchain.simulator.disturbances import MemberChange, Traitors
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.campaigns import some

PEERS, LIARS, ROUNDS = 7, (2, 5), 3


def scenario(behaviour: str, parameters: dict[str, float] | None = None, **values: Any) -> Scenario:
    settings = {"learning_rate": 0.1, "local_steps": 40, **values.pop("hyperparameters", {})}
    made = Scenario(
        peers=PEERS,
        workers=1,
        test_every=0,
        proof_function="sha256d",
        hyperparameters=settings,
        adversaries=(Traitors(behaviour=behaviour, peers=LIARS, parameters=parameters or {}),),
        **{"method": "fedavg", "partition": "iid", "rounds": ROUNDS, **values},
    )
    made.validate()
    return made


def play(scenario: Scenario) -> Outcome:
    outcome = simulate(scenario, load_learner(scenario))
    assert outcome.violations == []
    assert [row.posts for row in outcome.rows] == [PEERS] * scenario.rounds, "what liars post is valid, and counts"
    assert outcome.totals["convicted"] == []
    return outcome


def received(outcome: Outcome) -> float:
    """Accuracy of the last common model on the honest members' test sets."""
    found = outcome.rows[-1].taa_received
    assert found is not None
    return found


@pytest.mark.long
def test_the_mean_falls_where_a_trimmed_mean_holds() -> None:
    robust = {"aggregation_rule": "trimmed_mean", "byzantine": 2}
    undisturbed = received(play(scenario("follower")))
    poisoned = received(play(scenario("sign-flipper", {"scale": 10.0})))
    held = received(play(scenario("sign-flipper", {"scale": 10.0}, hyperparameters=robust)))
    assert undisturbed > 0.8
    assert poisoned < 0.4
    assert held > undisturbed - 0.05


@pytest.mark.long
def test_counts_that_members_state_carry_no_weight_unless_genesis_says_so() -> None:
    stated = received(play(scenario("count-inflater")))
    equal = received(play(scenario("count-inflater", hyperparameters={"weighting": "clients"})))
    assert stated < 0.4
    assert equal > stated + 0.2


@pytest.mark.long
@pytest.mark.parametrize("behaviour", ["label-flipper", "noise-poster", "little-is-enough", "inner-product"])
@pytest.mark.parametrize("method", some(["fedavg", "dfpl"], first=1))
def test_every_lie_is_taken_for_a_post(behaviour: str, method: str) -> None:
    assert knowledge_root(behaviour, method) != knowledge_root("follower", method)


@pytest.mark.long
def test_a_lie_is_packed_as_all_posts_are() -> None:
    settings = {"local_steps": 4, "compression": "sparse"}
    undisturbed, poisoned = (
        play(scenario(behaviour, {"scale": 10.0} if liars else None, hyperparameters=settings))
        for behaviour, liars in (("follower", False), ("sign-flipper", True))
    )
    assert poisoned.knowledge_root != undisturbed.knowledge_root


@cache
def knowledge_root(behaviour: str, method: str) -> str:
    """In the second round there is knowledge that a lie can start from."""
    return play(scenario(behaviour, method=method, partition="n-way", rounds=2)).knowledge_root


def test_a_post_is_put_together_as_it_was_taken_apart() -> None:
    rng = np.random.default_rng(0)
    known: Tensors = {"model.w": rng.normal(size=(2, 3)).astype(np.float32)}
    posted: Tensors = {
        "model.w": rng.normal(size=(2, 3)).astype(np.float32),
        "labels": np.array([1, 4]),
        "prototypes": rng.normal(size=(2, 5)).astype(np.float32),
    }
    apart = _take_apart(posted, known)
    assert set(apart) == {("model.w", -1), ("prototypes", 1), ("prototypes", 4)}
    np.testing.assert_array_equal(apart["model.w", -1], posted["model.w"] - known["model.w"].astype(np.float64))
    again = _put_together(posted, known, apart)
    assert {name: value.tobytes() for name, value in again.items()} == {
        name: value.tobytes() for name, value in posted.items()
    }


def lie(behaviour: str, own: Any, others: list[Any], **parameters: float) -> Any:
    """Result of a behaviour for one vector."""
    made = getattr(poisoners, behaviour)(None, random.Random(0), parameters)
    vectors = [{("w", -1): np.array(value, dtype=float)} for value in (own, *others)]
    return made.lie(vectors[0], vectors[1:])["w", -1]


def test_the_lies_are_those_of_the_papers() -> None:
    others = [[1.0, 2.0], [3.0, 2.0]]
    assert lie("SignFlipper", [1.0, -2.0], others, scale=10.0).tolist() == [-10, 20]
    assert lie("InnerProductManipulator", [9.0, 9.0], others, factor=0.5).tolist() == [-1, -1]
    assert lie("LittleIsEnough", [9.0, 9.0], others, deviations=2.0).tolist() == [0, 2]
    noise = lie("NoisePoster", np.zeros(10_000), others, deviation=3.0)
    assert noise.std() == pytest.approx(3.0, rel=0.05)


def test_liars_see_the_posts_of_all_honest_members_and_of_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, claimed = [], []

    def noting(self: Any, own: Any, others: Any) -> Any:
        seen.append(len(others))
        return own

    def counting(self: Any, counts: Any) -> Any:
        claimed.append(counts)
        return counts

    monkeypatch.setattr(poisoners.CountInflater, "lie", noting)
    monkeypatch.setattr(poisoners.CountInflater, "claim", counting)
    play(scenario("count-inflater", method="dfpl", rounds=1))
    assert seen == [PEERS - len(LIARS)] * len(LIARS)
    assert len(claimed) == len(LIARS), "prototypes come with a count for each class"


def test_a_liar_that_is_late_counts_no_other_liar_s_post_as_honest() -> None:
    posts = [SimpleNamespace(sender=sender, payload_hash=sender * 2) for sender in (b"a", b"b", b"c")]
    here = {b"aa": b"honest", b"bb": b"lie"}  # the third one's payload has not come
    liar: Any = SimpleNamespace(
        coalition=SimpleNamespace(keys=[SimpleNamespace(public_key=b"b")]),
        node=SimpleNamespace(open_posts=lambda: posts, content=here.get),
    )
    assert poisoners.Poisoner._honest_payloads(liar) == [b"honest"]


def test_flipped_labels_are_one_members_alone() -> None:
    flipped, plain = load_learner(scenario("label-flipper")), load_learner(scenario("follower"))
    assert isinstance(flipped.source, FlippedLabels)
    for client in range(PEERS):
        ours, theirs = (learner.source.share(client, 0).train_labels for learner in (flipped, plain))
        assert ours.tolist() == ((9 - theirs) if client in LIARS else theirs).tolist()


def test_labels_are_flipped_of_the_members_own_part() -> None:
    """Behind an aggregator that has no data, members have other numbers than their parts of the data."""
    joining = MemberChange(round=2, kind="join", peers=(5, 6))
    liar = Traitors(behaviour="label-flipper", peers=(5,))
    made = Scenario(method="fedgkt", peers=4, changes=(joining,), admission="quorum", adversaries=(liar,))
    flipped, plain = (load_learner(one) for one in (made, replace(made, adversaries=())))
    for place in (0, 3, 5, 6):
        ours, theirs = (learner.client(place).train_labels for learner in (flipped, plain))
        assert ours.tolist() == ((9 - theirs) if place == 5 else theirs).tolist()


def test_inflated_counts_are_the_largest_that_may_be_said() -> None:
    made = scenario("count-inflater", method="dfpl", partition="n-way")
    learner, rules = load_learner(made), Application(made.learning_config())
    payload = learner.contribute(0, "update", 1, b"").payload
    counts = decode(payload, rules.method.payload_spec(rules.method.phases[0], rules.info))["counts"]
    inflated = poisoners.CountInflater(None, None, {}).claim(counts)  # type: ignore[arg-type]
    assert inflated.tolist() == [WEIGHT_MAX] * len(counts)


def test_a_parameter_that_a_lie_does_not_have_is_refused() -> None:
    with pytest.raises((ScenarioError, ConfigurationError), match="no parameter 'size'"):
        play(scenario("sign-flipper", {"size": 1.0}))


def of_method(method: str, behaviour: str) -> Scenario:
    liars = (Traitors(behaviour=behaviour, peers=(2,)),)
    return Scenario(
        method=method, peers=4, rounds=1, workers=1, test_every=0, proof_function="sha256d", adversaries=liars
    )


@pytest.mark.parametrize("behaviour", ["noise-poster", "poison-poster"])
@pytest.mark.parametrize("method", ["feddkc", "solo"])
def test_a_lie_about_numbers_that_no_post_holds_is_refused(behaviour: str, method: str) -> None:
    """Posts of FedDKC list parts, and those of SOLO are empty."""
    made = of_method(method, behaviour)
    with pytest.raises(ScenarioError, match=f"behaviour {behaviour} changes numbers, and posts of {method} hold none"):
        simulate(made, load_learner(made))


@pytest.mark.long
@pytest.mark.parametrize(("method", "members"), [("fedict", 1), ("fededs", 4)])
def test_a_lie_stands_beside_parts(method: str, members: int) -> None:
    """Clients of FedICT post a distribution of labels, and FedEDS shares encrypted images before it trains."""
    honest, lying = (
        simulate(made, load_learner(made))
        for made in (of_method(method, "follower"), of_method(method, "noise-poster"))
    )
    assert (lying.violations, [row.posts for row in lying.rows]) == ([], [members])
    assert lying.knowledge_root != honest.knowledge_root
