"""``fedchain node invite``, ``recover`` and ``join``: how a newcomer, or a member without its key, comes in."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.settings import NodeSet


def invite(
    folder: Path,
    file: Annotated[Path, typer.Argument(help="File to write; its name without the ending is the newcomer's.")],
) -> None:
    """Write an invitation for one newcomer, of which this member approves with it."""
    with clear_errors():
        _write(folder, file, {"ask": "invite", "name": file.stem})


def recover(
    folder: Path,
    member: Annotated[str, typer.Argument(help="Number or address of the member.")],
    file: Annotated[Path, typer.Argument(help="File to write; its name without the ending is shown with the change.")],
) -> None:
    """Write an invitation for a member whose key was lost or stolen, of whose next key this member approves with it.

    The member's owner uses it with `fedchain node join`, in a new folder.
    """
    with clear_errors():
        _write(folder, file, {"ask": "recover", "member": member, "name": file.stem})


def _write(folder: Path, file: Path, question: Mapping[str, Any]) -> None:
    """Have the node that runs in a folder make an invitation; raises NodeConfigError."""
    from fedchain.crypto.durable import write_file
    from fedchain.node.config import NodeConfigError
    from fedchain.node.operating.status import ask

    if file.exists():
        raise NodeConfigError(f"{file} exists already; each newcomer has an invitation of its own")
    if not file.absolute().parent.is_dir():
        raise NodeConfigError(f"{file} cannot be written: its folder does not exist")
    if (answer := ask(folder, question)) is None:
        raise NodeConfigError(f"no node answers in {folder}; is it running?")
    write_file(file, bytes.fromhex(answer["invitation"]))
    typer.echo(f"{file}: {answer['said']}")


def join(
    file: Annotated[Path, typer.Argument(help="Invitation, which a member wrote.")],
    folder: Path,
    setting: NodeSet = None,
) -> None:
    """Join a federation on an invitation, or come back with another key: make key and folder, ask, and run the node.

    Ctrl-C stops it, and the same command goes on. Once there is a place, so does `fedchain node start
    FOLDER/node.toml`.
    """
    with clear_errors() as complaints:
        from fedchain.cli.common.running import run
        from fedchain.cli.common.start_options import node_settings
        from fedchain.node.config import load_config
        from fedchain.node.membership.arrival import settle

        config = load_config(settle(file, folder, node_settings(setting or [])), {})
        _make_key(Path(config.key))
        run(config, complaints, verbose=False)


def _make_key(path: Path) -> None:
    """Make the newcomer's key, unless it is there, and show its address: members compare it before they approve."""
    from fedchain.cli.keys import new_passphrase
    from fedchain.crypto.address import address
    from fedchain.crypto.keys import PrivateKey

    if not path.exists():
        passphrase = new_passphrase(path, f"make it before: fedchain keys new {shlex.quote(str(path))} --plain")
        key = PrivateKey.generate()
        key.save(path, passphrase)
        typer.echo(f"{path} is made, {address(key.public_key)}: this is what members approve of")
