"""``fedchain keys``: what is done with a key file once it is made. Nothing heavy is imported before a command runs."""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedchain.node.command import clear_errors

if TYPE_CHECKING:
    from fedchain.crypto.keys import PrivateKey
    from fedchain.node.journal_transfer import IsBehind

log = logging.getLogger("fedchain.keys")

PASSPHRASE_VARIABLE = "FEDCHAIN_PASSPHRASE"

NEW_PASSPHRASE_VARIABLE = "FEDCHAIN_NEW_PASSPHRASE"
"""What ``protect`` encrypts with; without it, with the old passphrase or one that is asked for."""


def protect_key(path: Annotated[Path, typer.Argument(help="Key file.")]) -> None:
    """Encrypt a key file anew: one that is plain, that an older version wrote, or whose passphrase is to change.

    The new passphrase is FEDCHAIN_NEW_PASSPHRASE, or is asked for; without a terminal the old one stays.
    """
    from fedchain.crypto.address import address
    from fedchain.node.config import NodeConfigError

    with clear_errors():
        key = load_key(path, hint=False)
        passphrase = os.environ.get(NEW_PASSPHRASE_VARIABLE)
        if passphrase is None and sys.stdin.isatty():
            passphrase = ask_passphrase(twice=True, text="New passphrase")
        passphrase = passphrase or os.environ.get(PASSPHRASE_VARIABLE)
        if not passphrase:
            raise NodeConfigError(f"{path} stays as it is: no passphrase; set {NEW_PASSPHRASE_VARIABLE}")
        key.save(path, passphrase, replace=True)
        typer.echo(address(key.public_key))


def export_signing_journal(
    path: Annotated[Path, typer.Argument(help="Key file.")],
    genesis: Annotated[Path, typer.Option(help="Genesis document.")],
) -> None:
    """Print what a key has signed, to be imported where the key goes; the node must not run here afterwards."""
    with clear_errors():
        from fedchain.node.journal_file import journal_path
        from fedchain.node.journal_transfer import export_journal

        typer.echo(export_journal(journal_path(path, _chain_id(genesis))), nl=False)


def import_journal_command(is_behind: "IsBehind") -> Callable[..., None]:
    """The command that takes over an exported journal.

    Args:
        is_behind: whether its second argument would allow to sign what its first forbids.
    """

    def import_signing_journal(
        path: Annotated[Path, typer.Argument(help="Key file.")],
        exported: Annotated[Path, typer.Argument(help="What `fedchain keys export-journal` printed elsewhere.")],
        genesis: Annotated[Path, typer.Option(help="Genesis document.")],
    ) -> None:
        """Take over what a key has signed on another machine, before its node starts here."""
        with clear_errors():
            from fedchain.node.journal_file import JournalError, journal_path
            from fedchain.node.journal_transfer import EXPORT_SIZE_MAX, import_journal

            try:
                with exported.open(encoding="utf-8") as file:
                    text = file.read(EXPORT_SIZE_MAX + 1)
            except ValueError:
                raise JournalError(f"{exported} is no exported journal: it is not text") from None
            import_journal(journal_path(path, _chain_id(genesis)), text, is_behind)

    return import_signing_journal


def load_key(path: Path, *, hint: bool = True) -> "PrivateKey":
    """Read a key file; the passphrase comes from FEDCHAIN_PASSPHRASE or, on a terminal, from the operator.

    Args:
        path: of the file.
        hint: log how a file that is encrypted as older versions did it becomes safer.

    Raises:
        KeyFileError: it cannot be read, or the passphrase is wrong or absent.
    """
    from fedchain.crypto.key_file import is_encrypted, weakness
    from fedchain.crypto.keys import PrivateKey

    passphrase = None
    if is_encrypted(path):
        passphrase = os.environ.get(PASSPHRASE_VARIABLE)
        if passphrase is None and sys.stdin.isatty():
            passphrase = ask_passphrase(twice=False)
    key = PrivateKey.load(path, passphrase)
    if hint and (found := weakness(path)):
        log.warning("%s is encrypted by %s, which is fast to guess; run: fedchain keys protect %s", path, found, path)
    return key


def ask_passphrase(*, twice: bool, text: str = "Passphrase") -> str:
    """Ask on the terminal, without showing what is typed."""
    passphrase: str = typer.prompt(text, hide_input=True, confirmation_prompt=twice, err=True)
    return passphrase


def _chain_id(genesis: Path) -> bytes:
    from fedchain.chain.exceptions import InvalidEncoding
    from fedchain.chain.genesis import Genesis
    from fedchain.node.config import NodeConfigError

    try:
        return Genesis.decode(genesis.read_bytes()).chain_id
    except OSError as error:
        raise NodeConfigError(f"{genesis} cannot be read: {error.strerror}") from None
    except InvalidEncoding as error:
        raise NodeConfigError(f"{genesis} is no genesis document: {error}") from None
