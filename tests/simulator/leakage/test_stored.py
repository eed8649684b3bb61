"""Posts of a stored chain are attacked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from fedchain.crypto.address import address
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.base import Model
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.leakage import stored
from fedchain.simulator.leakage.federation import own_encoder
from fedchain.simulator.run import load_learner
from tests.support.simulator.leaking import SCENARIO, invert, sets
from tests.support.simulator.leaking import chains as chains


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


def test_what_was_found_is_shown_where_it_cannot_be_written(
    chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path
) -> None:
    folder, members = chains["one"]
    (tmp_path / "file").touch()
    sender, out = address(members[1])[-8:], tmp_path / "file" / "out"
    result = invert(folder, *sets(round=2, sender=sender, iterations=1), "--out", out)
    assert (result.exit_code, result.stderr) == (2, f"fedchain: {out}: Not a directory\n")
    assert "closed-form" in result.stdout


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


def test_the_reader_s_model_is_trained_in_each_round_up_to_the_post_s(
    chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, taken, contribute, encoder = list[tuple[int, int]](), list[int](), Learner.contribute, own_encoder

    def contributing(learner: Learner, client: int, phase: str, number: int, knowledge: bytes) -> Contribution:
        asked.append((client, number))
        return contribute(learner, client, phase, number, knowledge)

    def taking(learner: Learner, client: int) -> Model:
        taken.append(client)
        return encoder(learner, client)

    monkeypatch.setattr(Learner, "contribute", contributing)
    monkeypatch.setattr(stored, "own_encoder", taking)
    folder, members = chains["prototypes"]
    who = sets(sender=address(members[0]), attacker=address(members[2]), round=2, iterations=1)
    assert invert(folder, *who, "--out", tmp_path / "out").exit_code == 0
    assert (asked, taken) == ([(2, 1), (2, 2)], [2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("two", "1"), "posts of this federation take 2 local steps"),
        (("one", "9"), "the chain ended with round 2"),
        (("poisson", "1"), "batches of batch_sampling = poisson are drawn from the sender's private randomness"),
        (("one", "1", *sets(informed="true")), "an informed attack needs FedReg, not FedAvg"),
    ],
)
def test_posts_that_are_not_there_or_of_more_steps_are_refused(
    chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    folder, members = chains[arguments[0]]
    post = sets(sender=address(members[0]), round=arguments[1])
    result = invert(folder, *post, *arguments[2:], "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_nobody_attacks_itself(chains: dict[str, tuple[Path, list[bytes]]], tmp_path: Path) -> None:
    """The sender's own model was shown as that of another member."""
    folder, members = chains["prototypes"]
    result = invert(folder, *sets(sender=address(members[1]), attacker=address(members[1])), "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "attacker and sender are one member" in result.stderr


def test_a_stored_post_of_changed_images_is_refused() -> None:
    """Found images would be compared with images that no step was taken on."""
    scenario = replace(SCENARIO, method="fedavg", augmentation="crop-flip", hyperparameters={"local_steps": 1})
    with pytest.raises(ConfigurationError, match="with augmentation = crop-flip a step is taken on changed images"):
        stored._expect_one_known_step(load_learner(scenario), 0, 1)
