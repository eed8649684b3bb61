"""``fedchain node invite``, ``recover`` and ``join``: files and folders, and one line for what cannot be."""

import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

import fedchain.cli.common.running
from fedchain.cli.keys import PASSPHRASE_VARIABLE
from fedchain.cli.node import node_app
from fedchain.crypto.address import address
from fedchain.crypto.durable import write_file
from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeConfig
from fedchain.node.membership.invitation import read_invitation
from fedchain.node.operating.status import answer_status
from tests.support.node.inviting import Host
from tests.support.node.shell import on_trio

pytestmark = pytest.mark.usefixtures("quick_passphrases")


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(node_app, [str(word) for word in words])


def refused(*words: str | Path) -> str:
    result = run(*words)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    return line.removeprefix("fedchain: ")


class Clerk:
    """Invites whoever is named."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def status(self) -> dict[str, Any]:
        return {}

    def answer(self, asked: Any) -> dict[str, Any]:
        node = self.host.node
        lost = (node.head.roster.members[int(asked["member"])], 0) if asked["ask"] == "recover" else None
        made = self.host.requests.invite(asked["name"], lost)
        return {"said": "approved in advance", "invitation": made.encode().hex()}


@on_trio
async def test_an_invitation_is_written_once_for_its_owner_alone(tmp_path: Path) -> None:
    clerk, file = Clerk(Host(tmp_path)), tmp_path / "clinic 7.invitation"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_status, tmp_path, clerk, None, clerk)
        while (result := await to_thread.run_sync(run, "invite", tmp_path, file)).exit_code:
            await anyio.sleep(0.01)
        recovered = await to_thread.run_sync(run, "recover", tmp_path, "1", tmp_path / "bob.invitation")
        tasks.cancel_scope.cancel()
    assert recovered.stdout == f"{tmp_path}/bob.invitation: approved in advance\n"
    assert read_invitation(tmp_path / "bob.invitation").voucher.member == clerk.host.genesis.members[1]
    assert result.stdout == f"{file}: approved in advance\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_invitation(file).voucher.name == "clinic 7"
    assert refused("invite", tmp_path, file) == f"{file} exists already; each newcomer has an invitation of its own"


def test_what_cannot_be_written_is_not_asked_for(tmp_path: Path) -> None:
    assert refused("invite", tmp_path, tmp_path / "a").startswith("no node answers in ")
    assert refused("recover", tmp_path, "1", tmp_path / "a").startswith("no node answers in ")
    assert refused("invite", tmp_path, tmp_path / "none" / "a").endswith("its folder does not exist")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NodeConfig]:
    """The settings of the nodes that would have been started."""
    found: list[NodeConfig] = []

    def note(config: NodeConfig, *_: object, **__: object) -> None:
        found.append(config)

    monkeypatch.setattr(fedchain.cli.common.running, "run", note)
    return found


def test_a_newcomer_gets_a_key_once_and_the_command_goes_on(
    tmp_path: Path, started: list[NodeConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "clinic.invitation", tmp_path / "clinic"
    write_file(file, Host(tmp_path).requests.invite("clinic").encode())
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "of this test")
    first = run("join", file, folder, "--set", "listen=/ip4/127.0.0.1/tcp/0")
    name = address(PrivateKey.load(folder / "key.pem", "of this test").public_key)
    assert first.stdout == f"{folder}/key.pem is made, {name}: this is what members approve of\n"
    assert run("join", file, folder).stdout == ""
    assert [config.listen for config in started] == ["/ip4/127.0.0.1/tcp/0"] * 2


def test_without_a_passphrase_the_way_out_is_said(
    tmp_path: Path, started: list[NodeConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    file, folder = tmp_path / "clinic.invitation", tmp_path / "clinic"
    write_file(file, Host(tmp_path).requests.invite("clinic").encode())
    assert refused("join", file, folder).endswith(f"or make it before: fedchain keys new {folder}/key.pem --plain")
    assert CliRunner().invoke(node_app, ["join", str(file), str(folder)]).exit_code == 2
    PrivateKey.generate().save(folder / "key.pem")
    assert run("join", file, folder).exit_code == 0
    assert len(started) == 1


def test_a_wrong_file_is_refused_and_leaves_nothing(tmp_path: Path, started: list[NodeConfig]) -> None:
    (tmp_path / "file").write_bytes(Host(tmp_path).genesis.encode())
    assert refused("join", tmp_path / "file", tmp_path / "new").endswith("it looks like a genesis document")
    assert refused("join", tmp_path / "none", tmp_path / "new").endswith("cannot be read: No such file or directory")
    assert not (tmp_path / "new").exists()
    assert started == []
