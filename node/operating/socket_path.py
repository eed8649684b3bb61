"""The path of the local socket on which a node answers its operator; the system takes short ones alone."""

import os
from pathlib import Path

from fedchain.files.layout import SOCKET
from fedchain.node.config import NodeConfigError

SOCKET_PATH_MAX = 107
"""Most bytes of a local socket's path."""


def socket_path(folder: Path) -> Path:
    """The socket's path, or its relative path if that is shorter; raises NodeConfigError."""
    paths = [folder / SOCKET, Path(os.path.relpath(folder / SOCKET))]
    shortest = min(paths, key=lambda path: len(os.fsencode(path)))
    if len(os.fsencode(shortest)) > SOCKET_PATH_MAX:
        raise NodeConfigError(f"{folder} is too long a path for the node's local socket; choose a shorter one")
    return shortest
