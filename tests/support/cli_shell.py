"""Commands as a shell runs them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.crypto.keys import PrivateKey
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import write as write_chain
from tests.support.paths import ROOT

KEY = PrivateKey(bytes(range(32)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a chain, a genesis document, a key, and files that are none of these."""
    path = tmp_path_factory.mktemp("wrong")
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    with Store.create(path / "run" / "chain", chain.genesis) as store:
        write_chain(store, chain)
    (path / "genesis").write_bytes(genesis(2).encode())
    KEY.save(path / "key.pem")
    (path / "noise").write_bytes(bytes(range(256)))
    (path / "x.toml").write_text("peeers = 3\n", encoding="utf-8")
    (path / "broken.toml").write_text("peers = = 3\n", encoding="utf-8")
    (path / "x.py").write_text("load = 3\n", encoding="utf-8")
    (path / "empty").mkdir()
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), prog_name="fedchain")


def started(line: str, **given: Any) -> subprocess.CompletedProcess[str]:
    """A shell that runs a line, in which ``fedchain`` is the command as it is installed, away from the sources."""
    code = "import sys; sys.argv[0] = 'fedchain'; from fedchain.cli.entry import main; main()"
    function = f'fedchain() {{ "{sys.executable}" -P -c "{code}" "$@"; }}'
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"} | given.pop("env", {})
    return subprocess.run(
        ["bash", "-c", f"{function}; {line}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=environment,
        **given,
    )
