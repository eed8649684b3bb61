"""A proof is checked by a program of its own, with nothing but Python."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.web import proof_check
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import document, learning_chain, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site


def test_a_proof_can_be_checked_with_nothing_but_python(
    client: TestClient, chain: ChainBuilder, tmp_path: Path
) -> None:
    post = chain.blocks[chain.tip].transactions[2].hash.hex()
    shown = text_of(client, f"/run/proof/{post}")
    assert "the proof holds" in shown
    proof = client.get(f"/run/proof/{post}/proof.json")
    (tmp_path / "proof.json").write_bytes(proof.content)
    (tmp_path / "check.py").write_bytes(client.get("/proof_check.py").content)
    command = [sys.executable, "-I", "check.py", "proof.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    block = f"block   {chain.tip.hex()}\nheight  5\nround   5\npost    {post}\n"
    assert done.stdout == f"The proof holds.\n{block}"


def test_the_header_of_a_federation_whose_members_may_change_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = learning_chain(document("living", version=3), 1)
    post = chain.blocks[chain.tip].transactions[2].hash.hex()
    with TestClient(site(write_run(tmp_path / "run", chain)).app, base_url=HOME) as client:
        assert "the proof holds" in text_of(client, f"/run/proof/{post}")
        proof = client.get(f"/run/proof/{post}/proof.json").json()
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof))
    assert proof_check.main([str(path)]) == 0
    assert f"block   {chain.tip.hex()}\nheight  1\nround   1\npost    {post}\n" in capsys.readouterr().out
    proof["header"]["members_root"] = "11" * 32
    path.write_text(json.dumps(proof))
    assert proof_check.main([str(path)]) == 1
    assert "does not say what its bytes say: members_root." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        (("merkle", "leaf"), "00" * 32, "the post is not in the tree"),
        (("merkle", "siblings"), [], "the post is not in the tree"),
        (("merkle", "index"), 1, "the post is not in the tree"),
        (("block_hash",), "11" * 32, "not the block's"),
        (("header", "height"), 7, "the header does not say what its bytes say: height."),
        (("header", "round"), 3, "the header does not say what its bytes say: round."),
        (("header", "hash"), "11" * 32, "the header does not say what its bytes say: hash."),
        (("header", "time"), 1, "the header does not say what its bytes say: it has other fields."),
    ],
)
def test_a_proof_in_which_anything_was_changed_fails(
    client: TestClient,
    chain: ChainBuilder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    place: tuple[str, ...],
    value: Any,
    fault: str,
) -> None:
    post = chain.blocks[chain.tip].transactions[2].hash.hex()
    changed: Any = client.get(f"/run/proof/{post}/proof.json").json()
    at = changed
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = value
    (tmp_path / "lie.json").write_text(json.dumps(changed))
    assert proof_check.main([str(tmp_path / "lie.json")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("The proof FAILS: ")
    assert fault in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is no proof of the explorer: Expecting value"),
        ("{}", "is no proof of the explorer: it lacks 'header_bytes'"),
        ("[]", "its values are not those of one"),
        ("[" * 99_999, "its values are not those of one"),
        ('{"header_bytes": "9d"}', "its values are not those of one"),
        ('{"header_bytes": "9dc0"}', "its header has 0xc0 where version begins"),
        ('{"header_bytes": "9d01010101010101010101010101ff"}', "is 15 bytes long, and its 13 fields end at 14"),
        ('{"header_bytes": 5}', "its values are not those of one"),
    ],
)
def test_what_is_no_proof_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str
) -> None:
    path = tmp_path / "proof.json"
    path.write_text(text)
    assert proof_check.main([str(path)]) == 2
    said = capsys.readouterr()
    assert fault in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_the_proof_checker_wants_one_file_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], [str(tmp_path / "nowhere.json")], [str(tmp_path)]):
        assert proof_check.main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "proof_check: name one file: python3 proof_check.py PROOF.json"
    assert said[1:] == [
        f"proof_check: {tmp_path / 'nowhere.json'}: No such file or directory",
        f"proof_check: {tmp_path}: Is a directory",
    ]
