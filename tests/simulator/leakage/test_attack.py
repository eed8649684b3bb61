"""Attacks on what real clients post, in a federation of one's own and in a stored chain."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.sqlite import Store
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.leakage.descent import Search
from fedchain.learning.models.base import Model
from fedchain.learning.models.prototypes import forward_all
from fedchain.simulator.leakage import attack
from fedchain.simulator.leakage.attack import Setting, View, attack_methods, attack_prototypes
from fedchain.simulator.leakage.federation import Federation, Seen, own_encoder
from fedchain.simulator.leakage.report import row_of
from fedchain.simulator.leakage.scores import Scores, score_prototype
from fedchain.simulator.leakage.settings import Inversion
from tests.support.simulator.leaking import QUICK, SCENARIO
from tests.support.simulator.leaking import chains as chains


def test_one_step_of_plain_parameters_shows_the_image_and_rounds_of_training_do_not_help() -> None:
    settings = [Setting(name="FedAvg", method="fedavg")]
    for rounds in (0, 1):
        victims = Inversion(images=2, rounds_before=rounds)
        found = {item.attack: item for item in attack_methods(SCENARIO, settings, victims, QUICK)}
        assert set(found) == {"cosine", "l2", "closed-form"}
        assert row_of(found["closed-form"]).psnr > 90
        assert row_of(found["closed-form"]).labels_recovered == 1.0


def test_several_examples_have_no_closed_form() -> None:
    settings, victims = [Setting(name="FedAvg", method="fedavg")], Inversion(images=1, victim_batch=2)
    found = list(attack_methods(SCENARIO, settings, victims, QUICK))
    assert [item.attack for item in found] == ["cosine", "l2"]
    assert found[0].scores.found.shape == (2, 1, 8, 8)


def test_noise_spoils_a_prototype_of_one_and_no_attack_needs_it_for_the_class_mean() -> None:
    scenario = replace(SCENARIO, method="dfpl")
    search = Search(iterations=30)
    rows = [row_of(item) for item in attack_prototypes(scenario, (1,), noise=1.0, rounds=1, search=search)]
    assert [row.attack for row in rows] == ["known model", "known model", "own model", "own model"]
    exact, noised = rows[:2]
    assert exact.psnr > exact.psnr_class_mean > noised.psnr


def test_noise_is_as_large_as_it_is_said_to_be_and_each_model_is_whose_it_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deviation is a multiple of the sensitivity of a class mean, 2 C / n. The attacker has trained, too."""
    seen, watched, watch = list[tuple[torch.Tensor, Seen, Model]](), list[int](), Federation.watch
    score, compare, compared = attack.attack_prototype_post, score_prototype, list[int]()

    def noting(prototypes: torch.Tensor, post: Seen, encoder: Model, view: View, search: Search) -> Scores:
        seen.append((prototypes, post, encoder))
        return score(prototypes, post, encoder, view, search)

    def comparing(examples: torch.Tensor, found: torch.Tensor, class_mean: torch.Tensor) -> Scores:
        compared.append(len(examples))
        return compare(examples, found, class_mean)

    def watching(federation: Federation, client: int, number: int, knowledge: bytes) -> Seen:
        watched.append(client)
        return watch(federation, client, number, knowledge)

    monkeypatch.setattr(attack, "attack_prototype_post", noting)
    monkeypatch.setattr(attack, "score_prototype", comparing)
    monkeypatch.setattr(Federation, "watch", watching)
    search, count, noise = Search(iterations=1), 4, 3.0
    found = [*attack_prototypes(replace(SCENARIO, method="dfpl"), (count,), noise=noise, rounds=1, search=search)]
    (exact, post, known), (noised, *_), (again, _, own), _ = seen
    norm = float(forward_all(known, post.images)[0].norm(dim=1).max())
    assert float((noised - exact).std()) == pytest.approx(noise * 2 * norm / count, rel=0.2)
    assert torch.equal(again, exact)
    assert [item.attack for item in found] == ["known model"] * 2 + ["own model"] * 2
    shares = [torch.cat([value.flatten() for value in model.parameters()]) for model in (known, own)]
    assert not torch.equal(*shares)
    assert watched == [0, 1]
    assert {*compared} == {count}, "with the examples of its class alone"


def test_fedph_s_prototypes_are_inverted_as_the_means_of_unit_vectors_that_they_are() -> None:
    scenario = replace(SCENARIO, method="fedph")
    rows = [row_of(item) for item in attack_prototypes(scenario, (1,), noise=1.0, rounds=1, search=QUICK)]
    assert rows[0].attack == "known model"
    encoder = own_encoder(Federation(scenario).learner, 0)
    lengths = encoder(torch.rand(5, 1, 8, 8))[0].norm(dim=1)
    assert torch.allclose(lengths, torch.ones(5))


def test_what_cannot_be_attacked_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no common model"):
        next(attack_methods(SCENARIO, [Setting(name="-", method="solo")], Inversion(images=1), QUICK))
    adam = [Setting(name="-", method="fedavg", hyperparameters={"optimizer": "adam"})]
    with pytest.raises(ConfigurationError, match="reads a gradient of sgd; the members' optimizer is adam"):
        next(attack_methods(SCENARIO, adam, Inversion(images=1), QUICK))
    wrong = [Setting(name="-", method="fedavg", informed=True)]
    with pytest.raises(ConfigurationError, match="needs FedReg, not FedAvg"):
        next(attack_methods(SCENARIO, wrong, Inversion(images=1), QUICK))


def test_the_explorer_gives_payloads_and_what_was_known(chains: dict[str, tuple[Path, list[bytes]]]) -> None:
    folder, members = chains["one"]
    with Store.open(folder / "chain", read_only=True) as store:
        explorer = Explorer(store)
        assert explorer.kept.known_before(1, "update") == b""
        assert explorer.kept.known_before(2, "update") != b""
        assert explorer.kept.payload(2, "update", members[0]) != explorer.kept.payload(2, "update", members[1])
        with pytest.raises(NotFound, match="no block closed nothing of round 1"):
            explorer.kept.payload(1, "nothing", members[0])
        with pytest.raises(NotFound, match="has no post in update of round 1"):
            explorer.kept.payload(1, "update", bytes(32))
