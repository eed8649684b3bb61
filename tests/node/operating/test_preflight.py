"""A node reports later failures in one line before slow imports, and its folder is its owner's alone."""

import errno
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from fedchain.chain.exceptions import DiskRefused
from fedchain.chain.storage.content_files import LOCK
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from fedchain.crypto.durable import write_file
from fedchain.crypto.hashing import sha256
from fedchain.files.layout import ADDRESS_FILE, BAN_FILE, CHAIN_FOLDER, DATABASE, SOCKET, TRAINING_FILE
from fedchain.network.limits import Limits
from fedchain.node.config import NodeConfig, NodeConfigError, NodeFailed
from fedchain.node.operating.preflight import (
    FILES_BESIDE_CONNECTIONS,
    LIBP2P_VERSION,
    MAPPED_PER_MEMBER,
    OWN_NAMES,
    check,
    secure_folder,
)
from fedchain.node.operating.status import answer_status
from tests.support.chain.builders import genesis
from tests.support.node.shell import on_trio, until
from tests.support.paths import ROOT


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    """Settings of a node that can start."""
    (tmp_path / "genesis").write_bytes(genesis(2).encode())
    paths = [str(tmp_path / name) for name in ("genesis", "key.pem", "data")]
    return NodeConfig(genesis=paths[0], key=paths[1], data=paths[2], listen="/ip4/127.0.0.1/tcp/0")


@pytest.fixture
def careless() -> Iterator[None]:
    """A process whose files are everybody's."""
    before = os.umask(0)
    yield
    os.umask(before)


def refused(config: NodeConfig, **changes: Any) -> str:
    """The one line of a node that cannot start."""
    with pytest.raises(NodeConfigError) as caught:
        check(replace(config, **changes))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def modes(folder: Path) -> dict[str, int]:
    """Modes of a folder and of everything in it."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in paths}


def test_a_node_that_can_start_leaves_no_trace(config: NodeConfig, tmp_path: Path) -> None:
    check(config)
    assert [item.name for item in tmp_path.iterdir()] == ["genesis"]


def test_nothing_slow_is_imported(config: NodeConfig) -> None:
    Store.create(Path(config.data) / CHAIN_FOLDER, genesis(2)).close()
    code = (
        "import sys; from fedchain.node.config import NodeConfig; from fedchain.node.operating.preflight import check;"
        f"check({config!r}); print(sorted({{'torch', 'numpy', 'libp2p', 'trio'}} & set(sys.modules)))"
    )
    assert python(code) == "[]"


def test_a_node_that_has_run_starts_again(config: NodeConfig) -> None:
    with Store.create(Path(config.data) / CHAIN_FOLDER, genesis(2)):
        pass
    check(config)
    check(config)


# the libraries


def test_a_library_that_judges_signatures_in_another_way_is_not_used(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.crypto.vectors.is_valid_signature", lambda *_: True)
    with pytest.raises(NodeConfigError, match=r"this libsodium: .* takes it: key and R of small order, S = 0; reinst"):
        check(config)


def test_the_library_s_version_is_the_one_that_is_installed_and_pinned() -> None:
    assert f"libp2p=={LIBP2P_VERSION}" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_no_library_or_another_version_of_it(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(version: str | None) -> Callable[[str], str]:
        def answer(name: str) -> str:
            assert name == "libp2p"
            if version is None:
                raise PackageNotFoundError(name)
            return version

        return answer

    remedy = f"run: pip install --no-deps libp2p=={LIBP2P_VERSION}"
    monkeypatch.setattr("importlib.metadata.version", found(None))
    assert refused(config) == f"libp2p is not installed; {remedy}"
    monkeypatch.setattr("importlib.metadata.version", found("0.9.0"))
    assert refused(config) == f"libp2p 0.9.0 is installed, this program needs {LIBP2P_VERSION}; {remedy}"


# open files


NEEDED = Limits().connections_max + Limits().handshakes_max + FILES_BESIDE_CONNECTIONS


@pytest.mark.parametrize(
    ("soft", "hard", "said"),
    [
        (NEEDED - 1, NEEDED, f"({NEEDED}, {NEEDED})"),
        (64, NEEDED + 9, f"({NEEDED}, {NEEDED + 9})"),
        (NEEDED, NEEDED, f"({NEEDED}, {NEEDED})"),
        (NEEDED + 1, NEEDED + 9, f"({NEEDED + 1}, {NEEDED + 9})"),
        (
            64,
            NEEDED - 1,
            f"{NEEDED - 1} files may be open at a time, a node needs {NEEDED}; raise the limit: ulimit -n",
        ),
    ],
)
def test_the_limit_of_open_files_is_raised_or_both_numbers_are_told(
    config: NodeConfig, soft: int, hard: int, said: str
) -> None:
    code = (
        "import resource; from fedchain.node.config import NodeConfig\n"
        "from fedchain.node.operating.preflight import check\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        f"try:\n    check({config!r})\n    print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "except Exception as error:\n    print(error)"
    )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this machine's own limit is lower")
    assert python(code) == said


@pytest.mark.parametrize("beside", [0, 100, MAPPED_PER_MEMBER * 500])
def test_a_large_federation_needs_a_file_for_each_member_and_takes_some_for_each_large_post(beside: int) -> None:
    needed = 500 + Limits().handshakes_max + FILES_BESIDE_CONNECTIONS
    hard = needed + beside + (beside > 100)
    code = (
        "import resource; from fedchain.node.operating.preflight import raise_file_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))\n"
        "raise_file_limit(500)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this machine's own limit is lower")
    assert python(code) == f"({needed + beside}, {hard})"


@pytest.mark.parametrize(("hard", "taken"), [(640, 640), (5_000, 5_000), (15_000, 1_000 + 384 + 12 * 1_000)])
def test_members_that_may_come_have_files_too_as_far_as_the_system_lets_it(hard: int, taken: int) -> None:
    """Those of the founders alone were asked for: a federation that grew ran out of them."""
    code = (
        "import resource; from fedchain.node.operating.preflight import raise_file_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))\n"
        "raise_file_limit(3, 1_000)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this machine's own limit is lower")
    assert python(code) == f"({taken}, {hard})"


def python(code: str) -> str:
    """Output of a fresh process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# addresses


@pytest.mark.parametrize(
    "listen",
    [
        "",
        "localhost:4001",
        "/ip4/127.0.0.1/udp/4001",
        "/ip4/127.0.0.1/tcp/65536",
        "/ip4/127.0.0.1/tcp/-1",
        "/ip4/127.0.0.1/tcp/",
        "/ip4/127.0.0.1/tcp/4001/",
        "/ip4/127.0.0.1/tcp/٤",
        "/ip4/127.0.0.1/tcp/4001/p2p/x",
        "/ip4/127.0.0.256/tcp/4001",
        "/ip4/::1/tcp/4001",
        "/ip6/127.0.0.1/tcp/4001",
        "/dns/localhost/tcp/4001",
        "/ip4/127.0.0.1/tcp/1\n",
    ],
)
def test_an_address_that_is_none(config: NodeConfig, listen: str) -> None:
    assert refused(config, listen=listen) == f"listen is {listen!r}, which is not of the form /ip4/…/tcp/…"


@pytest.mark.parametrize("listen", ["/ip4/0.0.0.0/tcp/0", "/ip6/::1/tcp/0", "/ip6/::/tcp/0"])
def test_an_address_that_is_one(config: NodeConfig, listen: str) -> None:
    if "ip6" in listen and not has_ip6():
        pytest.skip("no IPv6 on this machine")
    check(replace(config, listen=listen))


def has_ip6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_addresses_of_others_are_read_before_anything_is_made(config: NodeConfig) -> None:
    assert refused(config, announce=("/ip4/1.2.3.4/tcp/0",)).endswith("cannot be announced: nobody can dial port 0")
    assert refused(config, announce=("/ip4/1.2.3.4/udp/1",)).startswith("'/ip4/1.2.3.4/udp/1' cannot be announced")
    assert "does not end with /p2p/ and a peer id" in refused(config, bootstrap=("/ip4/1.2.3.4/tcp/1",))


def test_an_address_of_another_machine(config: NodeConfig) -> None:
    listen = "/ip4/192.0.2.1/tcp/4001"  # RFC 5737: nobody's
    assert refused(config, listen=listen) == f"cannot listen on {listen}: this machine does not have that address"
    for other in (replace(config, listen=listen), replace(config, metrics="192.0.2.1:9100")):
        with pytest.raises(NodeFailed):  # a network may come up later
            check(other)


@pytest.mark.parametrize("shares", [False, True])
def test_a_port_in_use_also_by_one_who_would_share_it(config: NodeConfig, shares: bool) -> None:
    with socket.socket() as other:
        if shares:  # as libp2p does
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        assert refused(config, listen=listen) == f"cannot listen on {listen}: the port is in use"
        place = f"127.0.0.1:{port}"
        assert refused(config, metrics=place) == f"metrics cannot be served on {place}: the port is in use"
    check(replace(config, listen=listen))
    check(replace(config, metrics=place))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_metrics_on_the_port_of_the_node_itself(config: NodeConfig, host: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listen, place = f"/ip4/{host}/tcp/{port}", f"127.0.0.1:{port}"
    expected = f"metrics cannot be served on {place}: the node listens on {listen}"
    assert refused(config, listen=listen, metrics=place) == expected


def test_a_port_of_a_connection_that_lingers_is_free(config: NodeConfig) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # we hang up first: our side lingers
    check(replace(config, listen=f"/ip4/127.0.0.1/tcp/{port}"))


def test_the_system_chooses_one_port_for_the_node_and_another_for_its_metrics(config: NodeConfig) -> None:
    check(replace(config, metrics="127.0.0.1:0"))


@pytest.mark.parametrize("metrics", ["localhost", ":9", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:-1"])
def test_a_place_for_metrics_that_is_none(config: NodeConfig, metrics: str) -> None:
    assert refused(config, metrics=metrics) == f"metrics is {metrics!r}, which is not of the form HOST:PORT"


@pytest.mark.parametrize("name", ["a..b", f"{'a' * 64}.org"])
def test_a_name_that_no_machine_can_have_is_no_place_for_metrics(config: NodeConfig, name: str) -> None:
    """It ended the node with a traceback."""
    place = f"{name}:9100"
    assert refused(config, metrics=place) == f"metrics is {place!r}, and {name!r} is no name of a machine"


# the data folder


def test_a_folder_of_another_chain(config: NodeConfig) -> None:
    other = genesis(3)
    Store.create(Path(config.data) / CHAIN_FOLDER, other).close()
    said = refused(config)
    assert other.chain_id.hex()[:8] in said
    assert genesis(2).chain_id.hex()[:8] in said


def test_a_folder_that_another_process_writes(config: NodeConfig) -> None:
    with Store.create(Path(config.data) / CHAIN_FOLDER, genesis(2)):
        assert "in use by another process" in refused(config)
    check(config)


@pytest.mark.parametrize("name", [DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", ".", "contents", "contents/ab"])
def test_a_chain_that_may_only_be_read(name: str, config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, usual = Path(config.data) / CHAIN_FOLDER, os.access
    Path(config.data).mkdir(mode=0o700)
    with Store.create(Path(config.genesis).with_name("running"), genesis(2)) as store:
        shutil.copytree(store.folder, folder)  # with what SQLite keeps beside it meanwhile
    (folder / "contents" / "ab").mkdir(parents=True)
    check(config)
    path, me = folder / name, os.geteuid()
    path.chmod(0o500)

    def access(place: Path, mode: int) -> bool:  # the administrator may write everywhere
        return place != path and usual(place, mode)

    monkeypatch.setattr("os.access", access)
    owner = f"it belongs to user {me}, this process runs as {me}"
    found = refused(config)
    mode = path.stat().st_mode & 0o777  # of a log that the administrator's SQLite made anew: another one
    assert found == f"{path} cannot be written to: {owner}, and its mode is {mode:04o}"


def test_a_chain_of_another_user_is_not_taken_for_a_disk_that_refuses(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service was started again every ten seconds for ever, with Permission denied."""
    folder, usual = Path(config.data) / CHAIN_FOLDER, os.access
    Store.create(folder, genesis(2)).close()

    def deny(*arguments: object, **named: object) -> None:
        raise DiskRefused(f"{folder / DATABASE}: Permission denied")

    monkeypatch.setattr(Store, "open", deny)
    monkeypatch.setattr("os.access", lambda place, mode: place != folder and usual(place, mode))
    assert refused(config).startswith(f"{folder} cannot be written to: it belongs to user ")


def test_a_damaged_chain(config: NodeConfig) -> None:
    folder = Path(config.data) / CHAIN_FOLDER
    Store.create(folder, genesis(2)).close()
    (folder / DATABASE).write_bytes(b"not a database")
    assert str(folder) in refused(config)


def test_a_genesis_document_that_is_none(config: NodeConfig) -> None:
    assert "cannot be read: No such file" in refused(config, genesis="none")
    Path(config.genesis).write_text("a text")
    assert "is no genesis document" in refused(config)
    Path(config.genesis).write_text("-----BEGIN PRIVATE KEY-----")
    assert refused(config) == f"{config.genesis} is no genesis document: it looks like a key file"
    Path(config.genesis).unlink()
    os.mkfifo(config.genesis)
    assert refused(config) == f"{config.genesis} is a pipe, and a node reads its genesis document more than once"


def test_a_folder_that_is_a_file_or_in_one(config: NodeConfig) -> None:
    path = Path(config.data)
    path.write_text("precious")
    assert refused(config) == f"{path} is a file, the node's data need a folder"
    assert refused(config, data=f"{path}/below") == f"{path}/below cannot be made: {path} is a file"
    with pytest.raises(NodeConfigError):
        secure_folder(path)
    assert path.read_text() == "precious"


def test_a_folder_whose_path_is_too_long_for_the_socket_in_it(config: NodeConfig, tmp_path: Path) -> None:
    """The node began its chain, listened, and ended; a check of it had found nothing wrong."""
    folder = tmp_path / ("x" * 120)
    expected = f"{folder} is too long a path for the node's local socket; choose a shorter one"
    assert refused(config, data=str(folder)) == expected
    assert not folder.exists()


def test_a_folder_that_cannot_be_written(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(config.data)
    monkeypatch.setattr("os.access", lambda place, mode: False)  # the administrator may write everywhere
    assert refused(config) == f"{path} cannot be made: {path.parent} cannot be written to"
    path.mkdir(mode=0o700)
    assert refused(config) == f"{path} cannot be written to, its mode is 0700"


def test_a_folder_on_a_disk_that_is_mounted_read_only(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(config.data)
    path.mkdir(mode=0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NOSUID))
    assert refused(config) == f"{path} cannot be written to, its disk is mounted read-only"


def test_what_lies_in_the_place_of_a_chain_s_file_is_named(config: NodeConfig) -> None:
    """The folder that cannot be used was said to be a directory."""
    folder = Path(config.data) / CHAIN_FOLDER
    Store.create(folder, genesis(2)).close()
    (folder / LOCK).unlink()
    (folder / LOCK).mkdir()
    assert refused(config) == f"{folder / LOCK} cannot be used: Is a directory"


def test_a_chain_on_a_disk_that_is_mounted_read_only(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that lies elsewhere than the data folder: its owner and its mode say nothing of the reason."""
    folder, usual = Path(config.data) / CHAIN_FOLDER, os.access
    Path(config.data).mkdir(mode=0o700)
    Store.create(folder, genesis(2)).close()
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder and usual(path, mode))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NOSUID))
    assert refused(config) == f"{folder} cannot be written to: its disk is mounted read-only"


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, NodeFailed), (errno.EROFS, NodeConfigError)])
def test_a_disk_without_room_for_the_folder_may_have_some_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[NodeConfigError]
) -> None:
    def refuse(*given: Any, **others: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NodeConfigError, match=f"cannot be made private: {os.strerror(number)}") as caught:
        secure_folder(tmp_path / "data")
    assert type(caught.value) is kind


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, NodeFailed), (errno.ENAMETOOLONG, NodeConfigError)])
def test_a_disk_that_does_not_answer_may_do_so_later(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[NodeConfigError]
) -> None:
    """A service that ended when its disk failed was started again once, and was then down for good."""
    path, usual = Path(config.data), Path.iterdir
    path.mkdir(mode=0o700)

    def refuse(folder: Path) -> Iterator[Path]:
        if folder == path:
            raise OSError(number, os.strerror(number))
        return usual(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(NodeConfigError, match=f"cannot be used: {os.strerror(number)}") as caught:
        check(config)
    assert type(caught.value) is kind


def test_somebody_else_s_folder(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    path, me = Path(config.data), os.geteuid()
    path.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: me + 1)
    said = f"{path} belongs to user {me}, this process runs as {me + 1}"
    assert refused(config) == said
    with pytest.raises(NodeConfigError, match=said):
        secure_folder(path)


# privacy


@pytest.mark.usefixtures("careless")
@on_trio
async def test_everything_that_a_node_keeps_is_its_owner_s_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    secure_folder(folder)
    data = bytes(ROW_SIZE_MAX + 1)
    async with anyio.create_task_group() as tasks:
        with Store.create(folder / CHAIN_FOLDER, genesis(2)) as store:
            store.append([Contents({sha256(data): data})])
            assert (folder / CHAIN_FOLDER / f"{DATABASE}-wal").exists()
            for name in (ADDRESS_FILE, BAN_FILE, TRAINING_FILE):
                write_file(folder / name, b"state")
            tasks.start_soon(answer_status, folder, nobody())
            await until(lambda: (folder / SOCKET).exists(), "a socket")
            found = modes(tmp_path / "new")
        tasks.cancel_scope.cancel()
    assert len(found) >= 12
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}


def nobody() -> Any:
    """A service that is not asked."""
    return None


@pytest.mark.usefixtures("careless")
def test_a_folder_of_an_older_version_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    data = bytes(ROW_SIZE_MAX + 1)
    with Store.create(folder / CHAIN_FOLDER, genesis(2)) as store:
        store.append([Contents({sha256(data): data})])
    for name in OWN_NAMES[1:]:
        (folder / name).write_text("kept")
    assert folder.stat().st_mode & 0o777 == 0o777
    secure_folder(folder)
    found = modes(folder)
    assert len(found) >= 10
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
    assert set(found.values()) == {0o600, 0o700}
    assert Store.open(folder / CHAIN_FOLDER, genesis(2), read_only=True).content(sha256(data)) == data


@pytest.mark.usefixtures("careless")
def test_what_is_not_the_node_s_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "node.log").write_text("kept")
    (folder / "photos").mkdir()
    (folder / "bans.json").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("not ours")
    secure_folder(folder)
    assert (folder / "photos").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o666
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("careless")
def test_an_empty_folder_that_others_may_look_into_is_taken_and_closed(config: NodeConfig) -> None:
    folder = Path(config.data)
    folder.mkdir()
    check(config)
    secure_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("careless")
def test_a_folder_that_holds_other_things_is_closed_by_its_owner_alone(config: NodeConfig) -> None:
    folder = Path(config.data)
    folder.mkdir()
    (folder / "photos").mkdir()
    said = f"{folder} holds other things and has mode 0777, others may look into it; name another folder, or run: "
    assert refused(config) == f"{said}chmod 700 {folder}"
    with pytest.raises(NodeConfigError, match="holds other things"):
        secure_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o777
    folder.chmod(0o700)
    check(config)
    secure_folder(folder)
