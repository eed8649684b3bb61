"""A real node as systemd runs it: it takes its credential, says when it is ready and that it stops, and ends."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.node.operating.testnet import free_ports
from tests.support.chain.builders import keys
from tests.support.node.shell import DIGITS, TIMEOUT_S, write_genesis


@pytest.mark.long
def test_a_node_from_its_credential_to_its_end(tmp_path: Path) -> None:
    write_genesis(tmp_path / "genesis", replace(DIGITS, clients=1), rounds=1, target_mining_time_ms=100)
    keys(1)[0].save(tmp_path / "key.pem", "right")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "passphrase").write_text("right\n")
    (tmp_path / "credentials" / "passphrase").chmod(0o400)
    (port,) = free_ports(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
        words = [
            "node",
            "start",
            "--genesis",
            "genesis",
            "--key",
            "key.pem",
            "--data",
            "data",
            "--set",
            "log_format=json",
        ]
        words += [
            "--listen",
            "/ip4/127.0.0.1/tcp/0",
            "--set",
            f"metrics=127.0.0.1:{port}",
            "--set",
            "exit_when_finished=true",
        ]
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored, by the node as well
        node = subprocess.Popen(
            [sys.executable, "-m", "fedchain", *words],
            cwd=tmp_path,
            env=os.environ | given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        signal.signal(signal.SIGHUP, before)
        try:
            assert manager.recv(1_000) == b"READY=1"
            node.send_signal(signal.SIGHUP)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
                assert "fedchain_head_height" in answer.read().decode()
            said: list[bytes] = []
            while not said or said[-1] != b"STOPPING=1":
                said.append(manager.recv(1_000))
            _, errors = node.communicate(timeout=TIMEOUT_S)
        finally:
            node.kill()
            node.wait()
    assert node.returncode == 0, errors
    assert re.fullmatch(rb"WATCHDOG=1\nSTATUS=height [01], round \d, 0 of 0 members connected; waiting for .+", said[0])
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line["message"] for line in lines if line["message"].startswith("ending")] == [
        "ending: the last round is closed"
    ]
    assert [line["level"] for line in lines if line["message"].startswith("SIGHUP is ignored")] == ["warning"]
    (head,) = [line for line in lines if line["message"].startswith("head ")]
    assert (head["height"], head["posts"], head["level"]) == (1, 1, "info")
    assert 0 <= next(line["accuracy"] for line in lines if "accuracy" in line) <= 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--set", "passphrase_file=none", "none cannot be read: No such file or directory"),
        ("--set", "wait_for=-1", "wait_for is -1, it must be at least 0"),
        ("--set", "stop_accuracy=90", "stop_accuracy is 90.0, it must be a fraction between 0 and 1"),
        ("--set", "log_format=xml", "log_format is 'xml', it must be one of text, json"),
    ],
)
def test_what_cannot_be_meant_is_one_line_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str, said: str
) -> None:
    from typer.testing import CliRunner

    from fedchain.cli.main import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedchain.crypto.key_file.is_encrypted", lambda path: True)
    write_genesis(tmp_path / "genesis")
    words = ["--genesis", "genesis", "--key", "key.pem", "--data", "data", "--listen", "/ip4/127.0.0.1/tcp/0"]
    result = CliRunner().invoke(app, ["node", "start", *words, option, value])
    assert result.exit_code == 2
    assert result.stderr == f"fedchain: {said}\n"
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_full_disk_ends_a_node_so_that_it_is_started_again_and_closed_output_does_not(tmp_path: Path) -> None:
    write_genesis(tmp_path / "genesis", replace(DIGITS, clients=1), rounds=0, target_mining_time_ms=100)
    keys(1)[0].save(tmp_path / "key.pem")
    words = ["node", "start", "--genesis", "genesis", "--key", "key.pem", "--data", "data", "--set", "log_format=json"]
    command = [sys.executable, "-m", "fedchain", *words, "--listen", "/ip4/127.0.0.1/tcp/0"]
    with subprocess.Popen(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stderr is not None
        try:
            next(line for line in node.stderr if '"head ' in line)
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (0, 0))
            *_, last = node.stderr
        finally:
            node.kill()
    said = json.loads(last)
    assert (said["level"], said["logger"]) == ("error", "fedchain.node")
    assert node.returncode == 1, last + "systemd starts it again, other than after a mistake of the operator"
