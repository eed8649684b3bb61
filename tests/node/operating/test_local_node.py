"""One process of a test network: how it ended, the script that starts it again, and its end by whoever runs it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.node import node_app
from fedchain.files.layout import LOG_FILE, SOCKET
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import stop_testnet
from tests.support.node.shell import wait_until

ANSWERS = """
import json, os, signal, socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
def end(*_):
    os.unlink(sys.argv[1])
    time.sleep(0.3)
    sys.exit("told to end")
signal.signal(signal.SIGINT, end)
while True:
    client, _ = server.accept()
    client.recv(100)
    client.sendall(json.dumps({"pid": os.getpid()}).encode())
    client.close()
"""
"""A process that answers as a node does, and ends as one: it answers no more before."""


def node_in(folder: Path) -> LocalNode:
    (folder / "chain").mkdir(parents=True)
    return LocalNode(0, folder, "", [sys.executable, "-c", ANSWERS, str(folder / SOCKET)])


def test_the_end_of_a_node_has_a_reason(tmp_path: Path) -> None:
    node = LocalNode(0, tmp_path, "", [sys.executable, "-c", "import sys; sys.exit('no such genesis')"])
    node.start()
    assert node.process is not None
    node.process.wait(60)
    node.look()
    assert node.ended == "ended with code 1: no such genesis"


def test_the_reason_is_the_end_of_a_log_however_long_that_is(tmp_path: Path) -> None:
    with (tmp_path / LOG_FILE).open("wb") as log:
        log.truncate(2**40)  # more than a machine has memory
        log.seek(0, os.SEEK_END)
        log.write(b"\nit goes on\nthe disk is full\n")
    node = LocalNode(0, tmp_path, "", [sys.executable, "-c", "raise SystemExit(3)"])
    node.process = subprocess.Popen(node.command)
    node.process.wait()
    node.look()
    assert node.ended == "ended with code 3: the disk is full"
    (tmp_path / LOG_FILE).rename(tmp_path / "node.log.1")
    node.look()
    assert node.ended == "ended with code 3: no reason was given"


def test_a_killed_node_is_started_again_by_its_script_and_stopped_by_its_pid(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node-0")
    node.start()
    wait_until(node.look, "it answers")
    assert node.process is not None
    node.send(signal.SIGKILL)
    node.process.wait(60)
    (node.folder / SOCKET).unlink()
    node.look()
    assert (node.ended, node.is_running()) == ("ended by signal 9", False)
    script = subprocess.Popen([node.folder / "start.sh"])
    try:
        wait_until(lambda: node.look() and not node.ended, "it answers again")
        assert node.status["pid"] == script.pid
        assert stop_testnet(tmp_path) == [0]
        assert script.poll() == 1, "it is said to be stopped when it has ended"
    finally:
        script.kill()
    assert "told to end" in (node.folder / "node.log").read_text(encoding="utf-8")
    node.look()
    assert not node.is_running()
    assert stop_testnet(tmp_path) == []


def test_a_node_that_hangs_is_not_said_to_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said that no node runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedchain.node.operating.status.CLIENT_TIMEOUT_S", 0.05)
    folder = Path("runs/testnet/node-0")
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen()
        for words in (["testnet", "stop"], ["testnet", "stop", "--out", "runs/testnet"]):
            result = CliRunner().invoke(node_app, words)
            assert (result.exit_code, result.stdout) == (2, "")
            assert result.stderr.startswith("fedchain: the node in runs/testnet/node-0 gave no answer within")
            assert result.stderr.endswith("; such a node is not stopped: end its process\n")


def test_the_command_stops_the_networks_under_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = node_in(Path("runs/testnet/node-0"))  # a whole path may be too long for a socket
    node.start()
    try:
        wait_until(node.look, "it answers")
        again = CliRunner().invoke(node_app, ["testnet", "--out", "runs/testnet"]).stderr
        assert "exists already, and its nodes run (fedchain node testnet stop --out runs/testnet); name" in again
        result = CliRunner().invoke(node_app, ["testnet", "stop"])
        assert result.output == "runs/testnet: stopped 1 node\n"
    finally:
        stop_all([node])
    assert CliRunner().invoke(node_app, ["testnet", "stop"]).output == "no node runs\n"
    there = CliRunner().invoke(node_app, ["testnet", "stop", "--out", "runs/testnet"])
    assert (there.exit_code, there.output) == (0, "runs/testnet: no node runs\n")
    wrong = CliRunner().invoke(node_app, ["testnet", "stop", "--out", "elsewhere"])
    assert (wrong.exit_code, wrong.stderr) == (2, "fedchain: elsewhere is no folder of a test network\n")
