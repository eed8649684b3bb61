"""``fedchain genesis``: every field can be chosen in the units of people, and is shown to people and to programs."""

import errno
import json
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.genesis import Admission, FaultModel, Genesis
from fedchain.cli.main import app
from fedchain.crypto.address import address
from fedchain.crypto.durable import create_file
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.task import learning_from_genesis
from tests.support.chain.builders import keys

MEMBERS = [word for key in keys(4) for word in ("--member", address(key.public_key))]

CHOSEN: dict[str, tuple[str, str, Any]] = {
    "rounds": ("rounds", "7", 7),
    "fault_model": ("fault_model", "crash", FaultModel.CRASH),
    "round_interval_s": ("round_interval_ms", "90", 90_000),
    "contributors_per_round": ("contributors_per_round", "3", 3),
    "contribution_quorum": ("contribution_quorum", "2", 2),
    "phase_timeout_s": ("phase_timeout_ms", "0.5", 500),
    "phase_floor_s": ("phase_floor_ms", "0", 0),
    "vote_timeout_s": ("vote_timeout_ms", "2.25", 2_250),
    "omission_slack_s": ("omission_slack_ms", "0", 0),
    "committee_size": ("committee_size", "3", 3),
    "mining_s": ("target_mining_time_ms", "1.5", 1_500),
    "mining_attempts": ("initial_bits", "100", bits_from_attempts(100)),
    "proof_function": ("proof_function", "sha256d", "sha256d"),
    "payload_mib_max": ("payload_size_max", "3", 3 * 2**20),
    "inline_kib_max": ("inline_size_max", "2", 2_048),
    "retention_blocks": ("retention_blocks", "0", 0),
    "late_rounds": ("late_rounds", "2", 2),
    "admission": ("admission", "sponsors", Admission.SPONSORS),
    "sponsors": ("sponsors", "2", 2),
    "away_after": ("away_after", "5", 5),
    "patience_percent": ("patience_percent", "150", 150),
    "version": ("version", "3", 3),
}
"""By setting: the field of the document, what is typed, and what comes of it."""


def found(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["genesis", "new", str(path), *MEMBERS, *words])


def test_what_is_chosen_stands_in_the_document(tmp_path: Path) -> None:
    assert {item.name for item in fields(Consensus)} - {"aggregator", "centralized"} == CHOSEN.keys()
    chosen = {name: typed for name, (_, typed, _) in CHOSEN.items()}
    words = ["--rounds", chosen.pop("rounds"), *(word for item in chosen.items() for word in ("--set", "=".join(item)))]
    result = found(tmp_path / "g", *words)
    assert result.exit_code == 0, result.output
    document = Genesis.decode((tmp_path / "g").read_bytes())
    assert {field: getattr(document, field) for field, _, _ in CHOSEN.values()} == {
        field: value for field, _, value in CHOSEN.values()
    }


def test_what_is_not_chosen_is_as_the_document_has_it(tmp_path: Path) -> None:
    assert found(tmp_path / "g").exit_code == 0
    document = Genesis.decode((tmp_path / "g").read_bytes())
    by_name = {item.name: item.default for item in fields(Genesis)}
    differ = {name for name, _, _ in CHOSEN.values() if getattr(document, name) != by_name[name]}
    assert differ == {"initial_bits", "retention_blocks", "version"}, (
        "the protocol's own defaults, but the first has none"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "round_interval_s=-1"), "--set round_interval_s is -1, it must be between 0 and 1,000,000,000"),
        (("--set", "phase_floor_s=nan"), "--set phase_floor_s is nan"),
        (("--set", "vote_timeout_s=0"), "--set vote_timeout_s is 0, it must be between 0.001 and 1,000,000"),
        (("--set", "proof_function=md5"), "--set proof_function is 'md5'; known are scrypt, sha256d"),
        (("--set", "fault_model=evil"), "--set fault_model is 'evil'; known are byzantine, crash"),
        (("--set", "committee_size=9", "--set", "version=2"), "committee_size is 9, it must be between 0 and 4"),
        (("--set", "payload_mib_max=5000"), "--set payload_mib_max is 5000, it must be between 0 and 2,048"),
        (("--set", "inline_kib_max=-1"), "--set inline_kib_max is -1"),
        (("--name", "  "), "name must have 1 to 200 printable characters, not blanks alone"),
        (("--set", "mining_attempts=0"), "--set mining_attempts is 0, it must be between 1 and 1,099,511,627,776"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = found(tmp_path / "g", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"fedchain: {said}")
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_name_is_answered_with_a_setting_or_a_hyper_parameter(tmp_path: Path) -> None:
    for name, meant in (("phase_timeout", "phase_timeout_s"), ("learning_rat", "learning_rate")):
        result = found(tmp_path / "document", "--set", f"{name}=3")
        expected = f"fedchain: unknown setting or hyper-parameter of dfpl '{name}'; did you mean '{meant}'?"
        assert (result.exit_code, result.stderr.strip()) == (2, expected)
    again = found(tmp_path / "document", "--member", MEMBERS[1])
    assert again.stderr.strip() == f"fedchain: members holds {MEMBERS[1]} more than once"


def test_an_aggregator_without_anybody_to_aggregate_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["genesis", "new", str(tmp_path / "g"), *MEMBERS[:2], "--method", "fedict"])
    assert result.exit_code == 2
    assert result.stderr == "fedchain: fedict has a dedicated aggregator, the last member: name those with data, too\n"


# help


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        ("genesis new", ["Federation", "Learning", "Settings", "Data"]),
        ("node start", ["Federation", "Data", "Network", "Settings", "Output"]),
        ("node check", ["Federation", "Data", "Network", "Settings", "Output"]),
        ("node testnet", ["Federation", "Learning", "Settings", "Data", "Output"]),
    ],
)
def test_help_shows_options_under_headings_and_none_beside(command: str, headings: list[str]) -> None:
    text = CliRunner().invoke(app, [*command.split(), "--help"]).stdout
    found = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert [heading for heading in found if heading != "Arguments"] == [*headings, "Options"]
    (alone,) = [line.split() for line in text.split("\nOptions:\n")[1].splitlines()]
    assert alone[:2] == ["-h,", "--help"]


# show


def test_programs_get_every_field(tmp_path: Path) -> None:
    assert found(tmp_path / "g", "--rounds", "3").exit_code == 0
    result = CliRunner().invoke(app, ["genesis", "show", str(tmp_path / "g"), "--json"])
    answer = json.loads(result.stdout)
    assert answer.keys() == {"chain_id", "height"} | {item.name for item in fields(Genesis) if item.init}
    assert (answer["rounds"], answer["fault_model"], answer["round_interval_ms"]) == (3, "byzantine", 0)


METHOD = """
from dataclasses import dataclass
from fedchain.learning.methods.blade_fl import BladeFl

@dataclass(frozen=True, kw_only=True)
class Mine(BladeFl):
    \"\"\"Mine: as BLADE-FL.\"\"\"
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python does not know of; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    yield folder
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def test_a_method_of_a_file_is_named_by_its_module(elsewhere: Path, tmp_path: Path) -> None:
    (elsewhere / "genesis_method.py").write_text(METHOD, encoding="utf-8")
    result = found(tmp_path / "g", "--method", f"{elsewhere}/genesis_method.py:Mine")
    assert result.exit_code == 0, result.output
    learning = dict(Genesis.decode((tmp_path / "g").read_bytes()).learning)
    assert json.loads(learning["method"]) == "genesis_method:Mine"
    assert "each member needs the same genesis_method.py, in the folder where its node is started" in result.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("my-method", "is no module's"),
        ("json", "is another module's"),
        ("wave", "is another module's"),  # of the library, which nobody has imported yet
        ("sys", "is another module's"),
    ],
)
def test_a_method_of_a_file_that_no_node_could_import_is_refused(
    elsewhere: Path, tmp_path: Path, name: str, reason: str
) -> None:
    (elsewhere / f"{name}.py").write_text(METHOD, encoding="utf-8")
    result = found(tmp_path / "g", "--method", f"{elsewhere}/{name}.py:Mine")
    assert result.exit_code == 2
    assert f"nodes import it by the name '{name}', which {reason}; rename it" in result.stderr
    assert not (tmp_path / "g").exists()


def test_a_method_of_a_file_that_fails_where_it_is_asked_for_cautions_founds_nothing(
    elsewhere: Path, tmp_path: Path
) -> None:
    text = METHOD + "\n    def cautions(self, rounds):\n        raise ValueError('no words')\n"
    (elsewhere / "wordless_method.py").write_text(text, encoding="utf-8")
    result = found(tmp_path / "g", "--method", f"{elsewhere}/wordless_method.py:Mine")
    assert result.exit_code == 2
    assert "Mine.cautions: ValueError: no words (" in result.stderr
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(("drawn", "told"), [(0, "5 rounds"), (3, "None rounds")])
def test_it_is_not_known_in_how_many_rounds_a_member_takes_part_that_is_drawn(
    elsewhere: Path, tmp_path: Path, drawn: int, told: str
) -> None:
    """A caution of what all rounds let out would be one of too many."""
    text = METHOD + "\n    def cautions(self, rounds):\n        yield f'{rounds} rounds'\n"
    (elsewhere / "cautious_method.py").write_text(text, encoding="utf-8")
    words = ("--method", f"{elsewhere}/cautious_method.py:Mine", "--rounds", "5")
    result = found(tmp_path / "g", *words, "--set", f"contributors_per_round={drawn}")
    assert result.stderr.splitlines()[0] == told


def test_an_aggregator_without_data_has_no_part_of_them(tmp_path: Path) -> None:
    """Nobody would train on its part."""
    assert found(tmp_path / "g", "--method", "fedict").exit_code == 0
    assert learning_from_genesis(Genesis.decode((tmp_path / "g").read_bytes())).clients == 3


def test_a_method_of_a_file_is_shown(elsewhere: Path) -> None:
    (elsewhere / "shown_method.py").write_text(METHOD, encoding="utf-8")
    result = CliRunner().invoke(app, ["methods", f"{elsewhere}/shown_method.py:Mine"])
    assert result.exit_code == 0, result.output
    assert "Mine: as BLADE-FL." in result.output


def test_a_process_that_deals_leaves_no_core_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factors of the key stood in one that Ctrl-\\ made after the dealing; they open all that is encrypted."""
    before, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limits = []

    def deal(config: Any, members: Any, random: Any) -> tuple[Any, None]:
        limits.append(resource.getrlimit(resource.RLIMIT_CORE))
        return config, None

    monkeypatch.setattr("fedchain.node.custody.dealing.deal_keys", deal)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        assert found(tmp_path / "g").exit_code == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (before, hard))
    assert limits == [(1 if hard else 0, hard)]


def test_no_shares_are_left_behind_by_a_document_that_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They kept the next attempt from writing its own."""

    def write_on_a_full_disk(path: Path, data: bytes, *, is_public: bool) -> None:
        if path.name == "g":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        create_file(path, data, is_public=is_public)

    dealt = SimpleNamespace(encode=lambda: b"sealed shares")
    monkeypatch.setattr("fedchain.node.custody.dealing.deal_keys", lambda config, members, random: (config, dealt))
    monkeypatch.setattr("fedchain.crypto.durable.create_file", write_on_a_full_disk)
    result = found(tmp_path / "g")
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert result.stderr == f"fedchain: {tmp_path / 'g'} cannot be written: No space left on device\n"
    monkeypatch.setattr("fedchain.crypto.durable.create_file", create_file)
    assert found(tmp_path / "g").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "g.dealing"]


def test_shares_that_an_interrupted_founding_left_are_said_to_be_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command said that a file exists, of which its operator had never heard."""
    dealt = SimpleNamespace(encode=lambda: b"sealed shares")
    monkeypatch.setattr("fedchain.node.custody.dealing.deal_keys", lambda config, members, random: (config, dealt))
    (tmp_path / "g.dealing").touch()
    result = found(tmp_path / "g")
    left = "a founding that was interrupted left it, or its document lies elsewhere"
    expected = f"fedchain: {tmp_path / 'g.dealing'} cannot be written: File exists: {left}\n"
    assert (result.exit_code, result.stderr) == (2, expected)
