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
from fedchain.simulator.leakage.attack import Setting, attack_methods, attack_prototypes
from fedchain.simulator.leakage.federation import Federation, own_encoder
from fedchain.simulator.leakage.report import row_of
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
