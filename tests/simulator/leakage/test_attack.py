"""Attacks on what real clients post, in a federation of one's own and in a stored chain."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.crypto.address import address
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.leakage.descent import Search
from fedchain.simulator.engine.simulation import simulation_keys
from fedchain.simulator.leakage.attack import Setting, Victims, attack_methods, attack_prototypes
from fedchain.simulator.leakage.encrypted import Decoding, attack_encrypted
from fedchain.simulator.leakage.federation import Federation, Handful, own_encoder
from fedchain.simulator.leakage.report import row_of
from fedchain.simulator.leakage.scores import mean_images, score_prototype, score_update
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario

SCENARIO = Scenario(peers=2, partition="iid", workers=1, rounds=2, test_every=0, proof_function="sha256d")
QUICK = Search(iterations=2)


def test_found_images_are_matched_with_originals_in_whatever_order_they_come() -> None:
    originals = torch.rand((3, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    means = torch.zeros((4, 1, 8, 8))
    labels, found_labels = torch.tensor([0, 3, 3]), torch.tensor([0, 1, 3])
    scores = score_update(originals, labels, originals[[2, 0, 1]], found_labels, means)
    assert torch.equal(scores.found, originals)
    assert scores.labels_recovered.tolist() == [1.0, 1.0, 0.0], "one of the two was known"
    assert (scores.psnr > scores.psnr_baseline).all()


def test_a_prototype_is_compared_with_the_example_that_suits_best_and_so_is_the_class_mean() -> None:
    examples = torch.rand((5, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    scores = score_prototype(examples, examples[2], examples[4])
    assert torch.equal(scores.originals, examples[2:3])
    assert scores.psnr.item() == scores.psnr_baseline.item() == 100.0


def test_a_class_without_examples_has_the_mean_of_all() -> None:
    images = torch.stack([torch.zeros((1, 2, 2)), torch.ones((1, 2, 2))])
    means = mean_images(images, torch.tensor([0, 2]), 3)
    assert means.mean(dim=(1, 2, 3)).tolist() == [0.0, 0.5, 1.0]


def test_a_handful_is_the_first_few_of_each_class() -> None:
    federation = Federation(SCENARIO, lambda source: Handful(source, 2, of_each_class=True, clients=(0,)))
    histogram = federation.learner.histogram()
    assert histogram[0].tolist() == [2] * 10
    assert histogram[1].sum() == 721, "the other client keeps all"
    with federation.learner.lend(0, 1) as client:
        assert len(client.train_images) == len(client.train_labels) == 20


def test_one_step_of_plain_parameters_shows_the_image_and_rounds_of_training_do_not_help() -> None:
    settings = [Setting(name="FedAvg", method="fedavg")]
    for rounds in (0, 1):
        victims = Victims(clients=2, rounds=rounds)
        found = {item.attack: item for item in attack_methods(SCENARIO, settings, victims, noise=1.0, search=QUICK)}
        assert set(found) == {"cosine", "l2", "closed-form"}
        assert row_of(found["closed-form"]).psnr > 90
        assert row_of(found["closed-form"]).labels_recovered == 1.0


def test_several_examples_have_no_closed_form() -> None:
    settings, victims = [Setting(name="FedAvg", method="fedavg")], Victims(clients=1, batch_size=2)
    found = list(attack_methods(SCENARIO, settings, victims, noise=1.0, search=QUICK))
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


ENCRYPTED = replace(
    SCENARIO,
    method="fededs",
    model="plain-cnn",
    train_examples=120,
    hyperparameters={"encryptor_width": 2, "encryptor_epochs": 2, "extractor_epochs": 1, "batch_size": 16},
)


def test_encrypted_images_are_decoded_with_what_an_attacker_has() -> None:
    findings = list(attack_encrypted(ENCRYPTED, Decoding(images=12, known_pairs=100, passes=4)))
    assert [finding.attack for finding in findings] == [
        "as posted",
        "own encryptor",
        "own encryptor and 48 known pairs",
    ]
    assert {finding.target for finding in findings} == {"encrypted"}
    for finding in findings:
        assert len(finding.scores.psnr) == 12
        assert torch.equal(finding.scores.originals, findings[0].scores.originals)
        assert not torch.equal(finding.scores.found, finding.scores.originals)
    assert len({row_of(finding).psnr for finding in findings}) == 3
    assert [row_of(finding).labels_recovered for finding in findings] == [row_of(findings[0]).labels_recovered] * 3
    again = list(attack_encrypted(ENCRYPTED, Decoding(images=12, known_pairs=100, passes=4)))
    assert [row_of(finding) for finding in again] == [row_of(finding) for finding in findings]


@pytest.mark.parametrize("hyperparameters", [{"sharing": False}, None])
def test_only_what_is_encrypted_can_be_decoded(hyperparameters: dict[str, Any] | None) -> None:
    other = ENCRYPTED if hyperparameters else replace(ENCRYPTED, method="fedavg")
    with pytest.raises(ConfigurationError, match="posted by fededs, with sharing"):
        next(attack_encrypted(replace(other, hyperparameters=hyperparameters or {}), Decoding(images=1)))


def test_what_cannot_be_attacked_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no common model"):
        next(attack_methods(SCENARIO, [Setting(name="-", method="solo")], Victims(clients=1), noise=0, search=QUICK))
    wrong = [Setting(name="-", method="fedavg", informed=True)]
    with pytest.raises(ConfigurationError, match="needs FedReg, not FedAvg"):
        next(attack_methods(SCENARIO, wrong, Victims(clients=1), noise=0, search=QUICK))


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[bytes]]]:
    """Stored chains: parameters after one step, after two, and prototypes with and without noise."""
    made = {}
    kinds: tuple[tuple[str, str, dict[str, int | str]], ...] = (
        ("one", "fedavg", {"local_steps": 1, "batch_size": 1}),
        ("two", "fedavg", {"local_steps": 2, "batch_size": 1}),
        ("prototypes", "dfpl", {"local_steps": 2}),
        ("noised prototypes", "fedph", {"local_epochs": 0, "local_steps": 2, "noise": "local"}),
    )
    for name, method, settings in kinds:
        scenario = replace(SCENARIO, peers=3, method=method, hyperparameters=settings)
        folder = tmp_path_factory.mktemp(name)
        simulate(scenario, load_learner(scenario), chain_folder=folder / "chain")
        made[name] = folder, [key.public_key for key in simulation_keys(scenario)]
    return made


def sets(**values: object) -> tuple[str, ...]:
    return tuple(word for name, value in values.items() for word in ("--set", f"{name}={value}"))


def invert(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["attack", "inversion", *map(str, arguments)])


def test_a_stored_post_of_one_step_is_read(chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path) -> None:
    folder, members = chains["one"]
    sender, out = address(members[1])[-8:], tmp_path / "out"
    result = invert(folder, *sets(round=2, sender=sender, iterations=2), "--out", out, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer == json.loads((out / "inversion.json").read_text())
    (closed,) = [row for row in answer["rows"] if row["attack"] == "closed-form"]
    assert closed["psnr"] > 60, "one example's image, as it was"
    assert {path.name for path in out.iterdir()} == {"inversion.json", "inversion.md", "parameters.png"}
    with Image.open(out / "parameters.png") as picture:
        assert len(picture.convert("L").getcolors(1 << 20) or ()) > 10


@pytest.mark.parametrize("name", ["prototypes", "noised prototypes"])
def test_prototypes_of_a_chain_are_read_with_the_reader_s_own_model(
    name: str, chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path
) -> None:
    folder, members = chains[name]
    who = sets(sender=address(members[0]), attacker=address(members[2]), round=2, iterations=2)
    result = invert(folder, *who, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["attack"], row["images"]) == ("own model", 10)
    assert (tmp_path / "out" / "prototypes.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("two", "1"), "posts of this federation take 2 local steps"),
        (("one", "9"), "the chain ended with round 2"),
    ],
)
def test_posts_that_are_not_there_or_of_more_steps_are_refused(
    chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    folder, members = chains[arguments[0]]
    post = sets(sender=address(members[0]), round=arguments[1])
    result = invert(folder, *post, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_explorer_gives_payloads_and_what_was_known(chains: dict[str, tuple[Path, list[bytes]]]) -> None:
    folder, members = chains["one"]
    with Store.open(folder / "chain", read_only=True) as store:
        explorer = Explorer(store)
        assert explorer.known_before(1, "update") == b""
        assert explorer.known_before(2, "update") != b""
        assert explorer.payload(2, "update", members[0]) != explorer.payload(2, "update", members[1])
        with pytest.raises(NotFound, match="no block closed nothing of round 1"):
            explorer.payload(1, "nothing", members[0])
        with pytest.raises(NotFound, match="has no post in update of round 1"):
            explorer.payload(1, "update", bytes(32))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((".",), "give both or neither"),
        ((".", *sets(sender="x", learning_rate=1)), "learning_rate is not taken"),
        (sets(sender="x"), "give both or neither"),
        (sets(images=0), "images is 0, it must be between 1 and 1000"),
        (sets(iterations="many"), "attack iterations is 'many', it must be of type int"),
        (sets(learning_rate=1), "learning_rate: this is for one method, and none is named by --method"),
        (("--method", "fedavg", *sets(informed="true", images=1)), "an informed attack needs FedReg, not FedAvg"),
        (("--method", "fedavgg"), "did you mean 'fedavg'"),
        (("--method", "fedavg", *sets(known_pairs=3)), "known_pairs are of encrypted images"),
        (("--method", "fededs", *sets(model="digits-mlp")), "ends with a pooling"),
        (sets(dataset="tmd", data_dir="nowhere"), "tmd"),
    ],
)
def test_a_request_that_means_nothing_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = invert(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
