"""`fedchain attack`: requests that mean nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedchain.learning.leakage.descent import Search
from fedchain.simulator.leakage.attack import SETTINGS, Setting
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.scenario import Scenario, ScenarioError
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


@dataclass
class Asked:
    """The words of a command, as its attack is told them."""

    scenario: Scenario = field(default_factory=Scenario)
    settings: tuple[Setting, ...] = ()
    options: Inversion = field(default_factory=Inversion)
    search: Search | None = None
    data_dir: str = ""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """No attack is made: what it was asked for is noted, and the command ends in an error."""
    noted = Asked()

    def methods(scenario: Scenario, settings: Sequence[Setting], options: Inversion, search: Search) -> None:
        noted.scenario, noted.settings, noted.options, noted.search = scenario, tuple(settings), options, search
        raise ScenarioError("noted")

    def encrypted(scenario: Scenario, options: Inversion) -> None:
        noted.scenario, noted.options = scenario, options
        raise ScenarioError("noted")

    def stored(folder: Path, options: Inversion, search: Search, data_dir: str) -> None:
        noted.options, noted.search, noted.data_dir = options, search, data_dir
        raise ScenarioError("noted")

    monkeypatch.setattr("fedchain.simulator.leakage.attack.attack_methods", methods)
    monkeypatch.setattr("fedchain.simulator.leakage.encrypted.attack_encrypted", encrypted)
    monkeypatch.setattr("fedchain.simulator.leakage.stored.attack_stored", stored)
    return noted


def refused(*arguments: object) -> str:
    result = invert(*arguments)
    assert result.exit_code == 2, result.output
    return str(result.stderr)


def test_clients_are_attacked_as_the_file_and_the_settings_say(tmp_path: Path, asked: Asked) -> None:
    """A setting goes before the file, and there are as many clients as images."""
    (tmp_path / "x.toml").write_text(
        'peers = 9\npartition = "n-way"\nmethod = "fedavg"\n[hyperparameters]\nlearning_rate = 0.5\nbatch_size = 3\n'
    )
    given = sets(images=4, iterations=7, search_rate=0.25, total_variation=0.125, learning_rate=0.75)
    assert refused(tmp_path / "x.toml", *given) == "fedchain: noted\n"
    assert (asked.scenario.peers, asked.scenario.partition) == (4, "n-way")
    (only,) = asked.settings
    assert (only.method, only.informed) == ("fedavg", False)
    assert dict(only.hyperparameters) == {"learning_rate": 0.75, "batch_size": 3}
    assert asked.search == Search(iterations=7, learning_rate=0.25, total_variation=0.125)


def test_without_a_method_the_usual_ones_are_attacked_on_data_that_are_spread_evenly(asked: Asked) -> None:
    assert refused() == "fedchain: noted\n"
    assert (asked.settings, asked.scenario.partition) == (SETTINGS, "iid")
    assert refused(*sets(informed="true")).startswith("fedchain: informed: this is for one method, and none is named")
    assert refused("--method", "fedreg", *sets(informed="true")) == "fedchain: noted\n"
    assert [(item.method, item.informed) for item in asked.settings] == [("fedreg", True)]


def test_encrypted_images_are_attacked_as_such(asked: Asked) -> None:
    assert refused("--method", "fededs", *sets(known_pairs=3, images=2)) == "fedchain: noted\n"
    assert (asked.scenario.method, asked.options.known_pairs, asked.settings) == ("fededs", 3, ())


def test_the_data_of_a_stored_chain_are_looked_for_where_they_are_said_to_lie(tmp_path: Path, asked: Asked) -> None:
    given = sets(sender="x", data_dir="there", iterations=5)
    assert refused(tmp_path, *given) == "fedchain: noted\n"
    assert (asked.data_dir, asked.options.sender) == ("there", "x")
    assert asked.search is not None
    assert asked.search.iterations == 5


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
