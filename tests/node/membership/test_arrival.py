"""A newcomer's folder: made once, gone on with, and never somebody else's."""

import errno
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.genesis import Admission
from fedchain.crypto.address import address
from fedchain.crypto.durable import write_file
from fedchain.node.config import NodeConfigError, load_config
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.membership.arrival import settle
from fedchain.node.membership.invitation import invitation_in, read_invitation
from tests.support.chain.builders import keys
from tests.support.cli_node import ANYWHERE
from tests.support.node.inviting import Host

AT = f"/ip4/127.0.0.1/tcp/4001/p2p/{address(keys(2)[1].public_key)}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.invitation"
    write_file(path, Host(tmp_path).requests.invite("clinic").encode())
    return path


def test_a_folder_is_made_and_the_same_command_goes_on_with_it(tmp_path: Path, file: Path) -> None:
    folder = tmp_path / "new" / "clinic"
    settings = {"listen": ANYWHERE, "bootstrap": [AT, AT], "train_ahead": False, "stop_accuracy": 1}
    path = settle(file, folder, settings)
    config = load_config(path, {})
    assert (config.listen, config.bootstrap, config.train_ahead) == (ANYWHERE, (AT, AT), False)
    assert (config.data, config.key) == (str(folder), str(folder / "key.pem"))
    assert read_genesis(Path(config.genesis)) == read_invitation(file).genesis
    assert [stat.S_IMODE(item.stat().st_mode) for item in (folder, folder / "invitation")] == [0o700, 0o600]
    assert settle(file, folder, {}) == settle(file, folder, settings) == path
    for changed in ({"listen": "x"}, {"metrics": "127.0.0.1:1"}):
        with pytest.raises(NodeConfigError, match=f"has another {next(iter(changed))} of this node already; change it"):
            settle(file, folder, settings | changed)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lisen": ANYWHERE}, "node has no key 'lisen'; did you mean 'listen'"),
        ({"wait_for": -1}, "wait_for is -1"),
        ({"listen": "4001"}, "listen is '4001', which is not of the form /ip4"),
        ({"listen": "/ip4/192.0.2.7/tcp/4001"}, "this machine does not have that address"),
        ({"metrics": "9100"}, "metrics is '9100', which is not of the form HOST:PORT"),
        ({"announce": ["here"]}, "'here' cannot be announced"),
        ({"bootstrap": [AT.replace("tcp", "udp")]}, "is not of the form /ip4/…/tcp/…/p2p/…"),
    ],
)
def test_wrong_settings_are_not_written_down(
    tmp_path: Path, file: Path, settings: dict[str, int | str], said: str
) -> None:
    with pytest.raises(NodeConfigError, match=said):
        settle(file, tmp_path / "clinic", {"listen": ANYWHERE} | settings)
    assert not (tmp_path / "clinic").exists()
    assert settle(file, tmp_path / "clinic", {"listen": ANYWHERE}).exists()


def test_a_key_may_be_there_before(tmp_path: Path, file: Path) -> None:
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / "key.pem.123.part").write_text("of a command that was killed", encoding="utf-8")
    keys(1)[0].save(tmp_path / "clinic" / "key.pem")
    assert settle(file, tmp_path / "clinic", {"listen": ANYWHERE}).exists()


@pytest.mark.parametrize("written", [0, 1, 2])
def test_where_a_disk_was_full_the_same_command_goes_on(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    folder, replaced, replace = tmp_path / "clinic", list[Path](), Path.replace

    def refuse(source: Path, target: Path) -> Path:
        if len(replaced) == written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replaced.append(target)
        return replace(source, target)

    with monkeypatch.context() as full:
        full.setattr(Path, "replace", refuse)
        full.setattr(Path, "unlink", lambda path, missing_ok=False: None)  # a process that is killed removes nothing
        with pytest.raises(NodeConfigError, match="cannot be used: No space left on device"):
            settle(file, folder, {"listen": ANYWHERE})
    assert len(replaced) == written
    config = load_config(settle(file, folder, {"listen": ANYWHERE}), {})
    assert config.listen == ANYWHERE
    assert read_invitation(folder / "invitation") == read_invitation(file)


def test_what_another_invitation_left_is_not_gone_on_with(tmp_path: Path, file: Path) -> None:
    folder = tmp_path / "clinic"
    settle(file, folder, {"listen": ANYWHERE}).unlink()
    other = tmp_path / "other.invitation"
    write_file(other, Host(tmp_path).requests.invite("other").encode())
    with pytest.raises(NodeConfigError, match="holds other things, such as invitation; name an empty folder"):
        settle(other, folder, {"listen": ANYWHERE})


def test_a_pipe_in_the_place_of_the_copy_keeps_nobody_waiting(tmp_path: Path, file: Path) -> None:
    folder = tmp_path / "clinic"
    settle(file, folder, {"listen": ANYWHERE})
    (folder / "invitation").unlink()
    os.mkfifo(folder / "invitation", 0o600)
    with pytest.raises(NodeConfigError, match=f"^{folder / 'invitation'} is a pipe or a device, and no file$"):
        settle(file, folder, {})
    with pytest.raises(NodeConfigError, match=f"^{folder / 'invitation'} is a pipe or a device, and no file$"):
        invitation_in(folder, read_invitation(file).genesis, "genesis.fedchain")


def test_a_copy_of_a_folder_is_not_gone_on_with_in_the_first_one(tmp_path: Path, file: Path) -> None:
    """Its settings name the first one: that one's node was run, or another key made where it had been."""
    first, copy, link = tmp_path / "clinic", tmp_path / "copy", tmp_path / "link"
    path = settle(file, first, {"listen": ANYWHERE})
    shutil.copytree(first, copy)
    with pytest.raises(NodeConfigError, match=f"{copy / 'node.toml'} names {first} as its node's folder"):
        settle(file, copy, {})
    link.symlink_to(first)
    assert settle(file, link, {}) == link / "node.toml"
    text = path.read_text(encoding="utf-8")
    (copy / "node.toml").write_text(text.replace(str(first), str(copy)), encoding="utf-8")
    assert settle(file, copy, {}) == copy / "node.toml"


def test_other_folders_are_left_alone(tmp_path: Path, file: Path) -> None:
    with pytest.raises(NodeConfigError, match=r"holds other things, such as .*; name an empty folder"):
        settle(file, tmp_path, {"listen": ANYWHERE})
    with pytest.raises(NodeConfigError, match="cannot be used: "):
        settle(file, file, {"listen": ANYWHERE})
    settle(file, tmp_path / "clinic", {"listen": ANYWHERE})
    other = tmp_path / "other.invitation"
    write_file(other, Host(tmp_path).requests.invite("other").encode())
    with pytest.raises(NodeConfigError, match="is the folder of another node"):
        settle(other, tmp_path / "clinic", {"listen": ANYWHERE})


def test_nobody_joins_a_closed_federation(tmp_path: Path) -> None:
    closed = Host(tmp_path, admission=Admission.CLOSED, away_after=3).requests.invite("clinic")
    path = tmp_path / "closed"
    write_file(path, replace(closed).encode())
    with pytest.raises(NodeConfigError, match="is of a closed federation: nobody joins"):
        settle(path, tmp_path / "clinic", {"listen": ANYWHERE})
    assert not (tmp_path / "clinic").exists()
