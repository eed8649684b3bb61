"""The file of a genesis document."""

from pathlib import Path

from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis
from fedchain.chain.genesis import GENESIS_SIZE_MAX, Genesis
from fedchain.files.kinds import looks_like
from fedchain.node.config import NodeConfigError


def read_genesis(path: Path, *, again: bool = False) -> Genesis:
    """Read a genesis document.

    Args:
        path: its file.
        again: whether it is to be read again: a pipe, which is empty then, is refused.

    Raises:
        NodeConfigError: the file cannot be read.
        InvalidGenesis: it is no genesis document, or one that contradicts itself. Either message names the file.
    """
    try:
        if again and path.is_fifo():
            raise NodeConfigError(f"{path} is a pipe, and a node reads its genesis document more than once")
        with path.open("rb") as file:
            data = file.read(GENESIS_SIZE_MAX + 1)
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return Genesis.decode(data)
    except InvalidEncoding as error:
        raise InvalidGenesis(
            f"{path} is no genesis document: {looks_like(data, 'a genesis document') or error}"
        ) from None
    except InvalidGenesis as error:
        raise InvalidGenesis(f"{path}: {error}") from None
