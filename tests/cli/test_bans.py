"""``fedchain node bans`` and ``unban``, with a running node and without one."""

import json
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

from fedchain.cli.node import node_app
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import BAN_FILE, CHAIN_FOLDER, SOCKET
from fedchain.network.bans import Ban, read_bans, write_bans
from fedchain.node.operating.status import answer_status
from tests.support.chain.builders import keys
from tests.support.node.shell import on_trio

ONE, TWO = (key.public_key for key in keys(2))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(node_app, [str(word) for word in arguments])


def done(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def refused(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("fedchain: ")
    return line.removeprefix("fedchain: ")


def ban(peer: PublicKey, seconds: float = 3_600.0, reason: str = "it lied") -> Ban:
    now_s = float(round(time.time()))
    return Ban(peer, reason, now_s - 10.0, now_s + seconds)


class Talker:
    """Has a status."""

    def status(self) -> dict[str, Any]:
        return {"height": 7}


class Keeper:
    """Keeps bans, and fails with one of them."""

    def __init__(self, *held: Ban) -> None:
        self.held = list(held)

    def bans(self) -> tuple[Ban, ...]:
        return tuple(self.held)

    def pardon(self, peer: PublicKey) -> bool:
        before, self.held = self.held, [known for known in self.held if known.peer != peer]
        return len(self.held) < len(before)


def beside(folder: Path, keeper: Keeper | None, visit: Callable[[], None]) -> None:
    """Do something while a node runs in ``folder``."""

    @on_trio
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_status, folder, Talker(), keeper)
            while not (folder / SOCKET).exists():
                await anyio.sleep(0.005)
            await to_thread.run_sync(visit)
            tasks.cancel_scope.cancel()

    main()


def test_a_running_node_says_whom_it_has_banned(tmp_path: Path) -> None:
    write_bans(tmp_path, [ban(TWO, reason="of an earlier run")])
    held = ban(ONE, reason="its vote has another block's signature")

    def visit() -> None:
        assert json.loads(done("bans", tmp_path, "--json")) == [
            {"address": address(ONE), "reason": held.reason, "since": held.since_s, "until": held.until_s}
        ]
        (line,) = done("bans", tmp_path).splitlines()
        assert line.startswith(address(ONE))
        assert line.endswith(held.reason)

    beside(tmp_path, Keeper(held), visit)


def test_a_running_node_lets_somebody_in_again(tmp_path: Path) -> None:
    keeper = Keeper(ban(ONE), ban(TWO))
    write_bans(tmp_path, keeper.held)

    def visit() -> None:
        assert done("unban", tmp_path, address(ONE)) == f"{address(ONE)} may connect again"
        assert refused("unban", tmp_path, address(ONE)) == f"{address(ONE)} is not banned in {tmp_path}"

    beside(tmp_path, keeper, visit)
    assert [known.peer for known in keeper.held] == [TWO]
    assert len(read_bans(tmp_path)) == 2, "the list is the node's own affair while it runs"


def test_a_folder_that_is_no_node_s_is_not_called_free_of_bans(tmp_path: Path) -> None:
    assert refused("bans", tmp_path) == f"{tmp_path} holds nothing of a node; name the data folder of one"


def test_without_a_node_the_list_is_read(tmp_path: Path) -> None:
    (tmp_path / CHAIN_FOLDER).mkdir()
    assert done("bans", tmp_path) == "nobody is banned"
    write_bans(tmp_path, [ban(ONE), ban(TWO, seconds=-1.0)])
    assert [entry["address"] for entry in json.loads(done("bans", tmp_path, "--json"))] == [address(ONE)]
    (line,) = done("bans", tmp_path).splitlines()
    assert line.startswith(address(ONE))
    assert " UTC  until " in line


def test_a_ban_that_is_over_is_none_to_lift(tmp_path: Path) -> None:
    over, kept = ban(ONE, seconds=-1.0), ban(TWO)
    write_bans(tmp_path, [over, kept])
    assert refused("unban", tmp_path, address(ONE)) == f"{address(ONE)} is not banned in {tmp_path}"
    assert kept in read_bans(tmp_path)


def test_a_ban_is_shown_with_its_beginning_and_then_its_end(tmp_path: Path) -> None:
    write_bans(tmp_path, [Ban(ONE, "it lied", 1_700_000_000.0, 4_000_000_000.0)])
    expected = "since 2023-11-14 22:13:20 UTC  until 2096-10-02 07:06:40 UTC  it lied"
    assert done("bans", tmp_path) == f"{address(ONE)}  {expected}"


def test_without_a_node_the_list_is_edited(tmp_path: Path) -> None:
    kept = ban(TWO)
    write_bans(tmp_path, [ban(ONE), kept])
    assert done("unban", tmp_path, address(ONE)) == f"{address(ONE)} may connect again"
    assert read_bans(tmp_path) == (kept,)
    assert stat.S_IMODE((tmp_path / BAN_FILE).stat().st_mode) == 0o600
    assert refused("unban", tmp_path, address(ONE)) == f"{address(ONE)} is not banned in {tmp_path}"


def test_a_ban_of_an_older_version_without_end_is_shown(tmp_path: Path) -> None:
    (tmp_path / BAN_FILE).write_text(json.dumps({address(ONE): 1e18}))
    line = done("bans", tmp_path)
    assert line.startswith(f"{address(ONE)}  since 1970-01-01")
    assert line.endswith("until the end of time  for a forgotten reason")


def test_what_is_no_address_is_named(tmp_path: Path) -> None:
    assert "nonsense" in refused("unban", tmp_path, "nonsense")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for arguments in (("bans", tmp_path / "none"), ("unban", tmp_path / "none", address(ONE))):
        assert refused(*arguments) == f"{tmp_path / 'none'} is no folder; name the data folder of a node"


def test_a_socket_that_a_killed_node_left_behind_is_no_node(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
    write_bans(tmp_path, [ban(ONE)])
    assert done("unban", tmp_path, address(ONE)) == f"{address(ONE)} may connect again"


def test_a_node_that_hangs_is_no_reason_to_edit_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr("fedchain.node.operating.status.CLIENT_TIMEOUT_S", 0.05)
    write_bans(tmp_path, [ban(ONE)])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()
        for arguments in (("bans", tmp_path), ("unban", tmp_path, address(ONE))):
            assert refused(*arguments).startswith(f"the node in {tmp_path} gave no answer")
    assert len(read_bans(tmp_path)) == 1


def test_a_node_without_bans_to_tell_of_says_so(tmp_path: Path) -> None:
    def visit() -> None:
        assert "no answer" in refused("bans", tmp_path)

    beside(tmp_path, None, visit)
