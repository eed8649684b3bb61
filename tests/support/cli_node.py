"""The commands for nodes, as a test calls them."""

from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from fedchain.cli.main import app

ANYWHERE = "/ip4/127.0.0.1/tcp/0"


def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], env=env)


def done(*arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Output of a command that must succeed."""
    result = run(*arguments, env=env)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def refused(*arguments: str | Path, env: Mapping[str, str] | None = None, code: int = 2) -> str:
    """The one line of a command that cannot run."""
    result = run(*arguments, env=env)
    assert result.exit_code == code, (result.output, result.exception)
    lines = [line for line in result.stderr.strip().splitlines() if " INFO " not in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("fedchain: ")
    return lines[0].removeprefix("fedchain: ")


def start(*more: str, key: str = "key.pem", genesis: str = "genesis", code: int = 2) -> str:
    """The one line of a node that cannot start."""
    named = ("--genesis", genesis, "--key", key, "--data", "data", "--listen", ANYWHERE)
    return refused("node", "start", *named, *more, code=code)
