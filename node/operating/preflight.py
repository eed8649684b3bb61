"""Preflight: faults that would stop a node later are found before anything slow is imported, with one line each."""

import importlib.metadata
import itertools
import os
import re
import resource
import shlex
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedchain.files.layout import (
    ADDRESS_FILE,
    BAN_FILE,
    CHAIN_FOLDER,
    DATABASE,
    INVITATION_FILE,
    INVITATIONS_FILE,
    KEY_FILE,
    LOG_FILE,
    SETTINGS_FILE,
    SOCKET,
    TIMELINE_FILE,
    TRAINING_FILE,
)
from fedchain.network.ports import PORT_MAX, REASONS, ListenError, NotFree, check_free, parse_listen, why_not_free
from fedchain.node.config import MAY_PASS, NodeConfig, NodeConfigError, NodeFailed
from fedchain.node.operating.socket_path import socket_path

if TYPE_CHECKING:
    from fedchain.crypto.keys import PublicKey

LIBP2P_VERSION = "0.8.1"
"""The required version; ``network/libp2p/`` replaces parts of it."""

FILES_BESIDE_CONNECTIONS = 128
"""Descriptors for everything except connections: the store, the workers' pipes, the event loop, libraries."""

MAPPED_PER_MEMBER = 12
"""Descriptors for each member's large posts, which are read in place from files: those of the blocks in memory, of the
open phase and of the next one, and late ones."""

OWN_NAMES = (
    *(CHAIN_FOLDER, TRAINING_FILE, ADDRESS_FILE, BAN_FILE),
    *(TIMELINE_FILE, LOG_FILE, SOCKET, KEY_FILE),
    *(INVITATION_FILE, INVITATIONS_FILE, SETTINGS_FILE),
)
"""Names of a node's files and folders in its data folder."""

READ_ONLY = "its disk is mounted read-only"

UMASK = 0o077
"""The file mode mask of a node: only the owner may use its files."""


def check(config: NodeConfig) -> None:
    """Check that a node can start with these settings; only this process's own file limit is changed.

    Raises:
        NodeConfigError: it cannot; the message states the reason and the remedy, in one line.
    """
    check_libp2p()
    check_signatures()
    raise_file_limit()
    check_addresses(config)
    check_folder(Path(config.data))
    check_chain(Path(config.data) / CHAIN_FOLDER, Path(config.genesis))


def secure_folder(path: Path) -> None:
    """Create the data folder, or make an existing one private, so that nobody else can look into it, now or later.

    From here on, files that this process and its children create are for their owner alone.

    Raises:
        NodeConfigError: the folder cannot be made, is another user's, or holds other things and is open to others.
        NodeFailed: there is no room for it, or the disk does not answer.
    """
    os.umask(UMASK)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(path)
        _close(path)
        for name in OWN_NAMES:
            _close_all(path / name)
    except OSError as error:
        raise _refusal(error)(f"{error.filename or path} cannot be made private: {error.strerror}") from None


def check_libp2p() -> None:
    """Raise NodeConfigError unless libp2p has the version of which we replace parts.

    It is installed without its dependencies, because they need a compiler; see the documentation on installing.
    """
    remedy = f"run: pip install --no-deps libp2p=={LIBP2P_VERSION}"
    try:
        version = importlib.metadata.version("libp2p")
    except importlib.metadata.PackageNotFoundError:
        raise NodeConfigError(f"libp2p is not installed; {remedy}") from None
    if version != LIBP2P_VERSION:
        raise NodeConfigError(f"libp2p {version} is installed, this program needs {LIBP2P_VERSION}; {remedy}")


def check_signatures() -> None:
    """Raise NodeConfigError if this libsodium judges signatures differently from the other peers'.

    A single signature made for that purpose would split such a peer from the others.
    """
    from fedchain.crypto.exceptions import WrongSignatures
    from fedchain.crypto.vectors import check_signatures

    try:
        check_signatures()
    except WrongSignatures as error:
        raise NodeConfigError(f"signatures cannot be judged with this libsodium: {error}; reinstall PyNaCl") from None


def raise_file_limit(members: int = 0, members_max: int = 0) -> None:
    """Raise this process's limit of open files to a node's needs; raises NodeConfigError if the system does not let it.

    A node that runs out of descriptors drops connections and cannot open its own files. Those for large posts, which
    most federations do not have, are taken as far as the system lets it, and so are those for members that may come.

    Args:
        members: founders, each of which may be connected; 0: they are not known yet, and taken for few.
        members_max: most members that there may ever be; 0: there are never more.
    """
    from fedchain.network.limits import Limits

    limits = Limits()
    most, others = max(members, members_max), limits.handshakes_max + FILES_BESIDE_CONNECTIONS
    needed = max(limits.connections_max, members) + others
    wanted = max(limits.connections_max, most) + others + MAPPED_PER_MEMBER * most
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise NodeConfigError(f"{hard} files may be open at a time, a node needs {needed}; raise the limit: ulimit -n")
    taken = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))


def check_addresses(config: NodeConfig) -> None:
    """Raise NodeConfigError unless we can listen at our addresses, and others can be dialled at theirs."""
    check_listen(config.listen)
    if config.metrics:
        check_metrics(config.metrics, config.listen)
    if config.announce:
        check_announced(config.announce)
    for place in config.bootstrap:
        check_bootstrap(place, None)


def check_listen(listen: str) -> None:
    """Raise NodeConfigError unless we can listen at the address, and NodeFailed if we may later."""
    try:
        check_free(listen)
    except NotFree as error:
        raise NodeFailed(str(error)) from None
    except ListenError as error:
        raise NodeConfigError(str(error)) from None


def check_announced(places: Sequence[str]) -> None:
    """Raise NodeConfigError unless others can be told these addresses."""
    from fedchain.network.libp2p import addresses  # slow to import

    try:
        addresses.check_announced(places)
    except ListenError as error:
        raise NodeConfigError(str(error)) from None


def check_bootstrap(text: str, members: "Collection[PublicKey] | None") -> str:
    """The place that an address to start from names; raises NodeConfigError if it is none, or nobody's in ``members``,
    if these are known."""
    from fedchain.network.libp2p.addresses import InvalidBootstrap, parse_bootstrap  # slow to import

    try:
        return parse_bootstrap(text, members)[1]
    except InvalidBootstrap as error:
        raise NodeConfigError(str(error)) from None


def check_metrics(place: str, listen: str) -> None:
    """Raise NodeConfigError unless metrics can be served on ``place``, HOST:PORT, beside a node at ``listen``.

    Raises NodeFailed if they may be later.
    """
    name, port = parse_metrics(place)
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise NodeConfigError(f"metrics cannot be served on {place}: {error.strerror}") from None
    except ValueError:  # two dots in a row, as an example
        raise NodeConfigError(f"metrics is {place!r}, and {name!r} is no name of a machine") from None
    family, _, _, _, (host, *_) = found[0]
    _, node_host, node_port = parse_listen(listen) or (0, "", 0)
    if 0 < port == node_port and ({node_host, host} & {"0.0.0.0", "::"} or node_host == host):
        raise NodeConfigError(f"metrics cannot be served on {place}: the node listens on {listen}")
    if reason := why_not_free(family, str(host), port, is_dual=False):
        kind = NodeFailed if reason in REASONS.values() else NodeConfigError
        raise kind(f"metrics cannot be served on {place}: {reason}")


def parse_metrics(place: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 address loses its brackets. Raises NodeConfigError."""
    parts = re.fullmatch("(.+):([0-9]{1,5})", place)
    if parts is None or int(parts[2]) > PORT_MAX:
        raise NodeConfigError(f"metrics is {place!r}, which is not of the form HOST:PORT")
    return parts[1].strip("[]"), int(parts[2])


def check_folder(path: Path) -> None:
    """Raise NodeConfigError unless the data folder can be used, or made, and NodeFailed if it may be later.

    Nothing is made.
    """
    socket_path(path)
    try:
        if not path.exists():
            _check_parent(path)
            return
        if not path.is_dir():
            raise NodeConfigError(f"{path} is a file, the node's data need a folder")
        status = path.stat()
        if status.st_uid != os.geteuid():
            raise NodeConfigError(f"{path} belongs to user {status.st_uid}, this process runs as {os.geteuid()}")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            why = READ_ONLY if _is_mounted_read_only(path) else f"its mode is {status.st_mode & 0o777:04o}"
            raise NodeConfigError(f"{path} cannot be written to, {why}")
        names = {item.name for item in path.iterdir()}
        if CHAIN_FOLDER in names and not (path / CHAIN_FOLDER).is_dir():
            raise NodeConfigError(f"{path / CHAIN_FOLDER} is no folder, the chain needs one; move it away")
    except OSError as error:
        raise _refusal(error)(f"{path} cannot be used: {error.strerror}") from None
    if status.st_mode & 0o077 and names and names.isdisjoint(OWN_NAMES):
        # Its mode is not ours to change: it might be a home or a temporary folder.
        raise NodeConfigError(
            f"{path} holds other things and has mode {status.st_mode & 0o777:04o}, others may look into it; "
            f"name another folder, or run: chmod 700 {shlex.quote(str(path))}"
        )


def _check_parent(path: Path) -> None:
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise NodeConfigError(f"{path} cannot be made: {parent} is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise NodeConfigError(f"{path} cannot be made: {parent} cannot be written to")


def check_chain(folder: Path, genesis_path: Path) -> None:
    """Raise NodeConfigError if the folder holds another federation's chain, or one that cannot be written to, as while
    another process does.

    If the disk refuses, the error is NodeFailed: a later start may work.
    """
    from fedchain.chain.exceptions import ChainError, DiskRefused, InvalidGenesis, NotFound
    from fedchain.chain.storage.content_files import take_lock
    from fedchain.chain.storage.sqlite import Store
    from fedchain.node.founding.genesis_file import read_genesis

    try:
        genesis = read_genesis(genesis_path, again=True)
    except InvalidGenesis as error:
        raise NodeConfigError(str(error)) from None
    try:
        _expect_writable(folder)  # first: a chain of another user cannot be opened either
        Store.open(folder, genesis, read_only=True).close()
        os.close(take_lock(folder))
    except NotFound:
        return
    except DiskRefused as error:
        raise NodeFailed(str(error)) from None
    except ChainError as error:
        raise NodeConfigError(str(error)) from None
    except OSError as error:
        raise _refusal(error)(f"{error.filename or folder} cannot be used: {error.strerror}") from None


def _expect_writable(chain: Path) -> None:
    """Raise NodeConfigError for what may only be read of a chain, as after a copy from a read-only place."""
    from fedchain.chain.storage.content_files import CONTENTS
    from fedchain.chain.storage.database import COMPANIONS

    files, contents = [chain / f"{DATABASE}{end}" for end in ("", *COMPANIONS)], chain / CONTENTS
    for path in itertools.chain((chain, *files, contents), contents.glob("*")):  # which looks into it only then
        if path.exists() and not os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0)):
            found = path.stat()
            owner = f"it belongs to user {found.st_uid}, this process runs as {os.geteuid()}"
            why = READ_ONLY if _is_mounted_read_only(path) else f"{owner}, and its mode is {found.st_mode & 0o777:04o}"
            raise NodeConfigError(f"{path} cannot be written to: {why}")


def _refusal(error: OSError) -> type[NodeConfigError]:
    """The class of the error of a node that a disk refuses."""
    return NodeFailed if error.errno in MAY_PASS else NodeConfigError


def _is_mounted_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _close_all(path: Path) -> None:
    """Make a file, or a folder with its whole content, private; links are skipped, since their targets are not ours."""
    if path.is_symlink() or not path.exists():
        return
    _close(path)
    if path.is_dir():
        for item in path.iterdir():
            _close_all(item)


def _close(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        path.chmod(mode & 0o700)
