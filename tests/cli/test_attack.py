"""`fedchain attack`: requests that mean nothing."""

from pathlib import Path

import pytest

from tests.support.simulator.leaking import chains as chains
from tests.support.simulator.leaking import invert, sets


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((".",), "give both or neither"),
        (("--out", "."), ". exists already; name another folder with --out"),
        ((".", *sets(sender="x", learning_rate=1)), "learning_rate is not taken"),
        ((".", *sets(sender="x", images=3, noise=2)), "images, noise is not taken"),
        ((".", "--method", "fedreg", *sets(sender="x")), "--method is not taken"),
        ((".", "--method", "nowhere.py:Own", *sets(sender="x")), "there is no file nowhere.py"),
        (sets(sender="x"), "give both or neither"),
        (sets(round=3, attacker="x"), "attacker, round: this is for the folder of a stored chain"),
        (sets(images=0), "images is 0, it must be between 1 and 1,000"),
        (sets(iterations="many"), "attack iterations is 'many', it must be of type int"),
        (sets(learning_rate=1), "learning_rate: this is for one method, and none is named by --method"),
        (("--method", "fedavg", *sets(informed="true", images=1)), "an informed attack needs FedReg, not FedAvg"),
        (("--method", "fedavg", *sets(augmentation="crop-flip")), "a step is taken on changed images"),
        (("--method", "fedavgg"), "did you mean 'fedavg'"),
        (("--method", "fedavg", *sets(known_pairs=3)), "known_pairs are of encrypted images"),
        (("--method", "fededs", *sets(model="digits-mlp")), "ends with a pooling"),
        (sets(dataset="tmd", data_dir="nowhere"), "tmd"),
        (sets(task="own.py:load"), "data set 'own': only images of the built-in data sets can be compared"),
        (("--method", "dfpl", *sets(encryption="threshold")), "dfpl encrypts its prototypes here: a post shows none"),
    ],
)
def test_a_request_that_means_nothing_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = invert(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


STORM = """
peers = 10
method = "fedavg"
degree = 8
committee_size = 7
admission = "quorum"
churn = 0.1

[[faults]]
at_s = 2.0
kind = "crash"
peers = [8, 9]
"""


def test_what_a_scenario_says_of_its_own_peers_is_nothing_to_an_attack(tmp_path: Path) -> None:
    """There are as many clients as images, and peers 8 and 9 were refused."""
    (tmp_path / "storm.toml").write_text(STORM)
    result = invert(tmp_path / "storm.toml", *sets(images=2, iterations=1), "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "fedavg, closed-form: 100.0 dB" in result.stdout
