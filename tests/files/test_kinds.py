"""Files of another kind than was asked for are named by what they look like."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.files.kinds import looks_like
from tests.support.chain.builders import genesis
from tests.support.paths import ROOT

CONTENTS = {
    "a scenario": b"method = 'dfpl'\npeers = 4\n",
    "a node's configuration": b"genesis = 'genesis.fedchain'\nkey = 'key.pem'\n",
    "an experiment": (ROOT / "experiments" / "dfpl_fig4.toml").read_bytes(),
    "a genesis document": genesis(4).encode(),
    "a key file": b"-----BEGIN PRIVATE KEY-----\nAA==\n",
    "TOML": b"a = 1\n",
    "JSON": b'{"tip": ""}',
    "the database of a chain": b"SQLite format 3\0\0",
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_file_looks_like_what_it_is(kind: str) -> None:
    assert looks_like(CONTENTS[kind]) == f"it looks like {kind}"


def test_what_is_of_no_known_kind_looks_like_nothing() -> None:
    assert [looks_like(content) for content in (b"a text", b"\xff\xfe", b"a = " + b"[" * 10_000)] == ["", "", ""]


def test_an_empty_file_is_called_so(tmp_path: Path) -> None:
    """That one value ends within a value told nobody that a copy had failed."""
    (tmp_path / "file").touch(0o600)
    for command in ("genesis", "keys"):
        answer = CliRunner().invoke(app, [command, "show", str(tmp_path / "file")])
        assert answer.stderr.endswith(" it is empty\n")


@pytest.mark.parametrize(("command", "kind"), [("genesis", "a genesis document"), ("keys", "a key file")])
def test_a_damaged_file_does_not_look_like_what_was_asked_for(tmp_path: Path, command: str, kind: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENTS[kind][:20])
    answer = CliRunner().invoke(app, [command, "show", str(file)])
    assert answer.exit_code == 2
    assert answer.stderr.endswith(" it is damaged\n")


@pytest.mark.parametrize(
    ("command", "said"), [("genesis", "is no genesis document: "), ("keys", "cannot be opened: it is not a PEM key; ")]
)
@pytest.mark.parametrize("kind", ["a scenario", "a node's configuration"])
def test_a_command_that_got_a_file_of_another_kind_says_so(tmp_path: Path, command: str, said: str, kind: str) -> None:
    file = tmp_path / "file.toml"
    file.write_bytes(CONTENTS[kind])
    answer = CliRunner().invoke(app, [command, "show", str(file)])
    assert (answer.exit_code, answer.stderr) == (2, f"fedchain: {file} {said}it looks like {kind}\n")
