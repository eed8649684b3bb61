"""A process that runs one node after the other is one service to its manager."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedchain.node.operating.preflight
import fedchain.node.shell.run
from fedchain.cli.common.command import Complaints
from fedchain.cli.common.running import run
from fedchain.node.config import NodeConfig, NodeConfigError
from fedchain.node.shell.run import Audience
from tests.support.chain.builders import keys


@pytest.mark.parametrize("is_fault", [False, True])
def test_a_service_manager_hears_that_a_node_stops_when_no_other_key_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fault: bool
) -> None:
    keys(1)[0].save(tmp_path / "key.pem")
    path, ran = tmp_path / "notify", list[Audience]()

    def play(config: NodeConfig, key: object, audience: Audience, **others: Any) -> bool:
        ran.append(audience)
        audience.manager.tell(READY=len(ran))
        if is_fault and len(ran) == 2:
            raise NodeConfigError("the port is taken")
        return len(ran) < 2

    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setattr(fedchain.node.operating.preflight, "check", lambda config: None)
    monkeypatch.setattr(fedchain.node.shell.run, "run_node", play)
    config = NodeConfig(genesis="genesis", key=str(tmp_path / "key.pem"), data="data")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.setblocking(False)
        if is_fault:
            with pytest.raises(NodeConfigError, match="the port is taken"):
                run(config, Complaints(), verbose=False)
        else:
            run(config, Complaints(), verbose=False)
        said = [manager.recv(100) for _ in range(3)]
        assert said == [b"READY=1", b"READY=2", b"STOPPING=1"]
        with pytest.raises(BlockingIOError):
            manager.recv(100)
    assert ran[0].manager is ran[1].manager


LATE = """
import signal, sys
import anyio, trio
import fedchain.node.operating.preflight, fedchain.node.shell.run
from fedchain.cli.main import main
number = signal.Signals[sys.argv.pop(1)]
signal.signal(number, signal.default_int_handler)  # it may be ignored where these tests run
async def close():
    trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, number)
    await anyio.sleep_forever()
def run_node(*given, passphrase):
    anyio.run(close, backend="trio")
fedchain.node.operating.preflight.check = lambda config: None
fedchain.node.shell.run.run_node = run_node
main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_another_signal_while_a_node_stops_ends_it_in_one_line(tmp_path: Path, name: str) -> None:
    """It came out of the middle of trio's loop as an "internal error in Trio", with exit code 1."""
    keys(1)[0].save(tmp_path / "key.pem")
    words = ["node", "start", "--genesis", "genesis", "--key", "key.pem", "--data", "data"]
    command = [sys.executable, "-c", LATE, name, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "fedchain: interrupted\n")
