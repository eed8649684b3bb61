"""A passphrase that nobody types: in a private file, or among the credentials that systemd gives a service."""

import os
from pathlib import Path

from fedchain.crypto.file_mode import GROUP_AND_OTHERS, OTHERS, exposure
from fedchain.node.config import NodeConfigError

CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
"""Environment variable in which systemd names the folder of a service's credentials. (systemd.exec(5))"""

CREDENTIAL = "passphrase"
"""Name of the credential: ``LoadCredential=passphrase:…``."""

PASSPHRASE_SIZE_MAX = 4_096
"""Most bytes of a passphrase file."""


def passphrase_from_file(path: Path, *, closed_to: int = GROUP_AND_OTHERS) -> str:
    """The first line of a file that only its owner may use.

    Args:
        path: path of the file.
        closed_to: bits of its mode that must not be set.

    Raises:
        NodeConfigError: the file cannot be read, others may use it, or its first line is empty.
    """
    try:
        with path.open("rb") as file:
            exposed = exposure(path, os.fstat(file.fileno()).st_mode, closed_to)
            data = file.read(PASSPHRASE_SIZE_MAX + 1)
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be read: {error.strerror}") from None
    if exposed is not None:
        raise NodeConfigError(f"passphrase: {exposed}")
    if len(data) > PASSPHRASE_SIZE_MAX:
        raise NodeConfigError(f"{path} has more than {PASSPHRASE_SIZE_MAX} bytes, that is no passphrase")
    try:
        line = data.decode("utf-8").partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        raise NodeConfigError(f"{path} holds no passphrase: it is not text in UTF-8") from None
    if not line:
        raise NodeConfigError(f"{path} holds no passphrase: its first line is empty")
    return line


def passphrase_from_systemd() -> str | None:
    """The passphrase among the service's credentials; None if there is none.

    The credential's folder is private to the service, and the group bits of its mode may be an access list's mask.

    Raises:
        NodeConfigError: the credential is there and cannot be used.
    """
    folder = os.environ.get(CREDENTIALS_VARIABLE)
    path = None if not folder else Path(folder) / CREDENTIAL
    return None if path is None or not path.exists() else passphrase_from_file(path, closed_to=OTHERS)
