"""``fedchain keys``: key files and signing journals. Nothing heavy is imported before a command runs."""

import logging
import os
import resource
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.shared import Sharing

if TYPE_CHECKING:
    from fedchain.crypto.keys import PrivateKey

log = logging.getLogger("fedchain.keys")

PASSPHRASE_VARIABLE = "FEDCHAIN_PASSPHRASE"

PASSPHRASE_FILE_VARIABLE = "FEDCHAIN_PASSPHRASE_FILE"
"""Names a file that holds the passphrase; used if the passphrase itself is not in the environment."""

NEW_PASSPHRASE_VARIABLE = "FEDCHAIN_NEW_PASSPHRASE"
"""Holds the passphrase with which ``protect`` encrypts; without it, one is asked for or, without a terminal, that of
the other variables is taken."""


def _shared(
    path: Annotated[Path, typer.Argument(help="Key file.")],
    genesis: Annotated[Path, typer.Option(help="Genesis document.")],
) -> None:
    """Arguments and options of several commands."""


keys_app = Sharing(_shared, help="Make and show key files.")


@keys_app.command("new")
def new_key(
    path: Path,
    plain: Annotated[
        bool, typer.Option("--plain", help="Do not encrypt it; for machines without an operator.")
    ] = False,
) -> None:
    """Make a key and write it to a new file, encrypted with a passphrase.

    That is FEDCHAIN_PASSPHRASE, or the first line of the file that FEDCHAIN_PASSPHRASE_FILE names, or it is asked for.
    """
    from fedchain.crypto.address import address
    from fedchain.crypto.key_file import expect_free
    from fedchain.crypto.keys import PrivateKey

    with clear_errors():
        expect_free(path)
        passphrase = None if plain else new_passphrase(path, "take --plain")
        key = PrivateKey.generate()
        key.save(path, passphrase)
        typer.echo(address(key.public_key))


@keys_app.command("show")
def show_key(path: Path) -> None:
    """Show the address of a key, which is also its libp2p peer id."""
    from fedchain.crypto.address import address

    with clear_errors():
        typer.echo(address(load_key(path).public_key))


@keys_app.command("protect")
def protect_key(path: Path) -> None:
    """Encrypt a key file anew: a plain one, one of an older version, or one whose passphrase is to change.

    The new passphrase is FEDCHAIN_NEW_PASSPHRASE, or is asked for; without a terminal it is FEDCHAIN_PASSPHRASE.
    """
    from fedchain.crypto.address import address
    from fedchain.crypto.threshold.share_file import protect_shares
    from fedchain.node.config import NodeConfigError
    from fedchain.node.membership.next_key import protect_keys_beside

    with clear_errors():
        key, old = unlock_key(path, hint=False)
        passphrase = _variable(NEW_PASSPHRASE_VARIABLE)
        if passphrase is None and sys.stdin.isatty():
            passphrase = ask_passphrase(twice=True, text="New passphrase")
        passphrase = passphrase or _passphrase_of_environment()
        if not passphrase:
            raise NodeConfigError(f"{path} stays as it is: no passphrase; set {NEW_PASSPHRASE_VARIABLE}")
        protect_shares(path, key.public_key, old, passphrase)
        protect_keys_beside(path, old, passphrase)
        key.save(path, passphrase, replace=True)
        typer.echo(address(key.public_key))


@keys_app.command("install-share")
def install_key_share(
    path: Path,
    dealing: Annotated[Path, typer.Argument(help="Sealed shares, which `fedchain genesis new` wrote.")],
    genesis: Path,
) -> None:
    """Open this member's share of a federation's decryption key and keep it beside the key, protected as that is."""
    with clear_errors():
        from fedchain.crypto.address import address
        from fedchain.node.config import NodeConfigError
        from fedchain.node.custody.dealing import install_share, read_dealing
        from fedchain.node.founding.genesis_file import read_genesis

        document = read_genesis(genesis)
        found = read_dealing(dealing, document)
        key, passphrase = unlock_key(path)
        if key.public_key not in document.index:
            raise NodeConfigError(f"{path} is the key of {address(key.public_key)}, which is no member of the genesis")
        typer.echo(install_share(path, key, passphrase, found, document.index[key.public_key]))


@keys_app.command("export-journal")
def export_signing_journal(path: Path, genesis: Path) -> None:
    """Print a key's signing journal, to import it on the key's next machine; the node must not run here afterwards.

    Private randomness and privacy ledger, if there are any, are included, sealed so that only the key opens them.
    """
    with clear_errors():
        from fedchain.node.custody.journal_file import journal_path
        from fedchain.node.custody.journal_transfer import Owner, export_journal
        from fedchain.node.founding.genesis_file import read_genesis

        document = read_genesis(genesis)
        owner = Owner(lambda: load_key(path), document.index)
        typer.echo(export_journal(journal_path(path, document.chain_id), owner), nl=False)


@keys_app.command("import-journal")
def import_signing_journal(
    path: Path,
    exported: Annotated[Path, typer.Argument(help="Output of `fedchain keys export-journal` on the other machine.")],
    genesis: Path,
) -> None:
    """Import a key's signing journal and private files from another machine, before its node starts here."""
    with clear_errors():
        from fedchain.crypto.key_file import is_encrypted
        from fedchain.node.core.voting.journal import is_behind
        from fedchain.node.custody.journal_file import BadExport, JournalError, journal_path
        from fedchain.node.custody.journal_transfer import EXPORT_SIZE_MAX, Owner, import_journal
        from fedchain.node.founding.genesis_file import read_genesis

        try:
            with exported.open(encoding="utf-8") as file:
                text = file.read(EXPORT_SIZE_MAX + 1)
        except ValueError:
            raise JournalError(f"{exported} is no exported journal: it is not text") from None
        document = read_genesis(genesis)
        is_encrypted(path)  # it has to be a key: beside a name that was misspelt, no node would look for its journal
        owner = Owner(lambda: load_key(path), document.index)
        try:
            import_journal(journal_path(path, document.chain_id), text, is_behind, owner)
        except BadExport as error:
            raise BadExport(f"{exported}: {error}") from None


def load_key(path: Path) -> "PrivateKey":
    """Read a key file; the passphrase comes from the environment or, on a terminal, from the operator.

    Raises KeyFileError: it cannot be read, or the passphrase is wrong or absent.
    """
    return unlock_key(path)[0]


def unlock_key(path: Path, *, hint: bool = True, passphrase_file: str = "") -> "tuple[PrivateKey, str | None]":
    """Like :func:`load_key`, but return the passphrase, too: the files beside the key are encrypted with the same.

    If ``passphrase_file`` is given, the passphrase is read from it; otherwise from the environment, from a credential
    of systemd's, or from the operator. Raises NodeConfigError, too, if the file cannot be used. With ``hint``, it logs
    how a file that an older version encrypted can be made safer.
    """
    from fedchain.crypto.key_file import is_encrypted, weakness
    from fedchain.crypto.keys import PrivateKey

    leave_no_core_file()
    passphrase = _find_passphrase(passphrase_file) if is_encrypted(path) else None
    key = PrivateKey.load(path, passphrase)
    if hint and (found := weakness(path)):
        run = f"fedchain keys protect {shlex.quote(str(path))}"
        log.warning("%s is encrypted by %s, which is fast to guess; run: %s", path, found, run)
    return key, passphrase


def leave_no_core_file() -> None:
    """Let this process and its children leave no core file from here on: secrets would stand in it as they are.

    Linux hands cores to a program, where the system has one for them, also at a limit of 0. One byte is too few for a
    file, and the one limit at which no program is asked (do_coredump in its fs/coredump.c).
    """
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))


def _find_passphrase(passphrase_file: str) -> str | None:
    from fedchain.node.custody.passphrase import passphrase_from_file, passphrase_from_systemd

    if passphrase_file:
        return passphrase_from_file(Path(passphrase_file))
    passphrase = _passphrase_of_environment()
    if passphrase is None:
        passphrase = passphrase_from_systemd()
    if passphrase is None and sys.stdin.isatty():
        passphrase = ask_passphrase(twice=False)
    return passphrase


def ask_passphrase(*, twice: bool, text: str = "Passphrase") -> str:
    """Ask on the terminal, without echo. Raises NodeConfigError: what is typed is no text."""
    from fedchain.node.config import NodeConfigError

    try:
        passphrase: str = typer.prompt(text, hide_input=True, confirmation_prompt=twice, err=True)
    except UnicodeDecodeError:
        raise NodeConfigError("what was typed is no passphrase: it is not text in UTF-8") from None
    return passphrase


def new_passphrase(path: Path, instead: str) -> str:
    """A passphrase for a key that is about to be made, from the environment or, on a terminal, from the operator.

    Raises NodeConfigError: there is neither; the message says what to do ``instead``.
    """
    from fedchain.node.config import NodeConfigError

    leave_no_core_file()
    passphrase = _passphrase_of_environment()
    if not passphrase and not sys.stdin.isatty():
        raise NodeConfigError(
            f"{path} is not made: no terminal to ask for a passphrase; set {PASSPHRASE_VARIABLE}, or {instead}"
        )
    return passphrase or ask_passphrase(twice=True)


def _passphrase_of_environment() -> str | None:
    """The passphrase in a variable, or in the file that another one names; raises NodeConfigError."""
    from fedchain.node.custody.passphrase import passphrase_from_file

    passphrase, file = _variable(PASSPHRASE_VARIABLE), os.environ.get(PASSPHRASE_FILE_VARIABLE)
    return passphrase_from_file(Path(file)) if passphrase is None and file else passphrase


def _variable(name: str) -> str | None:
    """The passphrase in a variable; None if it is not set. Raises NodeConfigError: it is no text."""
    from fedchain.node.config import NodeConfigError

    passphrase = os.environ.get(name)
    try:
        (passphrase or "").encode()
    except UnicodeEncodeError:
        raise NodeConfigError(f"{name} holds no passphrase: it is not text in UTF-8") from None
    return passphrase
