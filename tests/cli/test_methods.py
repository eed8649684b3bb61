"""``fedchain methods`` says what the methods' own classes say, and nothing that stands elsewhere."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.registry import METHODS, load_method

OWN = '''"""Mine: Somebody, "A title", 2026."""

from dataclasses import dataclass

from fedchain.learning.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    """FedAvg under another name.

    More of it.
    """

    strength: float = 0.25
    """How much of it there is."""

    momentum: float = 0.5
    """Another word for it."""
'''


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["methods", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_method_is_listed_with_one_sentence() -> None:
    lines = dict(line.split(maxsplit=1) for line in shown().splitlines())
    assert lines.keys() == METHODS.keys()
    assert lines["solo"] == "No exchange: local training only."
    listed = json.loads(shown("--json"))
    assert [card["name"] for card in listed] == sorted(METHODS)
    assert all(item["help"] for card in listed for item in card["hyperparameters"])
    assert {card["name"] for card in listed if card["aggregator"] != "none"} == {"feddkc", "fedgkt", "fedict"}


def test_one_method_is_shown_with_its_source_its_exchange_and_its_hyperparameters() -> None:
    text = shown("dfpl")
    assert "arXiv:2505.04947" in text
    assert "posts      labels, prototypes, counts\n" in text
    weight = "  regularizer_weight = 1.0  (float)\n      Weight lambda of the pull towards the global prototypes.\n"
    assert weight in text
    assert '  regularizer = "mse"  (str, one of mse, norm)\n' in text
    names = [item["name"] for item in json.loads(shown("dfpl", "--json"))["hyperparameters"]]
    assert names == [item.name for item in fields(load_method("dfpl"))]


def test_a_phase_is_shown_with_when_it_is_who_posts_what_and_what_stays() -> None:
    lines = shown("fedict").splitlines()
    phases = {line.split()[1].rstrip(","): place for place, line in enumerate(lines) if line.startswith("phase ")}
    assert lines[phases["labels"]].endswith(", once, by each participant")
    assert lines[phases["distill"]].endswith(", every round, by each aggregator")
    setup = lines[phases["labels"] + 1 :][:2]
    assert [line.split()[0] for line in setup] == ["posts", "leaves"]
    assert "distribution" in setup[0]
    assert "distributions" in setup[1]


def test_a_method_of_one_s_own_is_shown_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    card: Any = json.loads(shown("mine_of_test:Mine", "--json"))
    assert card["summary"] == "FedAvg under another name."
    assert card["citation"] == ['Mine: Somebody, "A title", 2026.']
    found = {item["name"]: item for item in card["hyperparameters"]}
    assert (found["strength"]["default"], found["strength"]["help"]) == (0.25, "How much of it there is.")
    assert (found["momentum"]["default"], found["momentum"]["help"]) == (0.5, "Another word for it.")
    assert found["weighting"]["choices"] == ["examples", "clients"]


def test_a_method_without_a_docstring_is_shown_without_the_signature_that_python_puts_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a line of three thousand letters."""
    beginning, _, end = OWN.partition('    """FedAvg')
    (tmp_path / "undescribed.py").write_text(beginning + end.partition('    """')[2])
    monkeypatch.chdir(tmp_path)
    assert shown("undescribed:Mine").splitlines()[0] == "undescribed:Mine"
    assert json.loads(shown("undescribed:Mine", "--json"))["summary"] == ""


def test_a_misspelt_method_is_one_line() -> None:
    result = CliRunner().invoke(app, ["methods", "dfplx"])
    assert (result.exit_code, result.stderr) == (2, "fedchain: unknown method 'dfplx'; did you mean 'dfpl'?\n")
