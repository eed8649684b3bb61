"""Arrival: the folder of a newcomer, made from its invitation, with all that its node needs beside a key."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedchain.chain.genesis import Admission
from fedchain.crypto.durable import write_file
from fedchain.files.layout import GENESIS_FILE, INVITATION_FILE, KEY_FILE, LOG_FILE, SETTINGS_FILE, START_FILE
from fedchain.files.tables import read_toml
from fedchain.node.config import NodeConfigError, load_config
from fedchain.node.membership.invitation import read_invitation
from fedchain.node.operating.preflight import check_addresses

BEFORE = frozenset({KEY_FILE, LOG_FILE, START_FILE})
"""Files that a newcomer's folder may hold before."""


def settle(file: Path, folder: Path, settings: Mapping[str, Any]) -> Path:
    """Make a newcomer's folder, or go on with it.

    Args:
        file: the invitation.
        folder: the newcomer's, where it keeps everything.
        settings: of its node, beside those that follow from the folder.

    Returns:
        The settings file of its node.

    Raises:
        NodeConfigError: the invitation cannot be used, a setting is wrong, or the folder is another node's, or has
            another place than its settings name.
    """
    invitation, path, copy = read_invitation(file), folder / SETTINGS_FILE, folder / INVITATION_FILE
    if invitation.genesis.admission is Admission.CLOSED:
        raise NodeConfigError(f"{file} is of a closed federation: nobody joins")
    if path.exists():
        if not copy.exists() or read_invitation(copy, again=True) != invitation:
            raise NodeConfigError(f"{folder} is the folder of another node; name another one")
        there = read_toml(path, NodeConfigError)
        if (named := Path(str(there.get("data", "")))).resolve() != folder.resolve():
            raise NodeConfigError(
                f"{path} names {named} as its node's folder: if this is a copy, or was moved, write its own paths there"
            )
        if changed := [name for name, value in settings.items() if json.dumps(there.get(name)) != json.dumps(value)]:
            raise NodeConfigError(f"{path} has another {changed[0]} of this node already; change it there")
        return path
    own = {"genesis": GENESIS_FILE, "key": KEY_FILE, "data": ""}
    values = {name: str((folder / place).absolute()) for name, place in own.items()} | dict(settings)
    config = load_config(None, values)  # before they are written down: the command can be given again
    check_addresses(config)
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    # The settings come last: as long as they are not there, what an attempt that was broken off has left is ours.
    contents = {folder / GENESIS_FILE: invitation.genesis.encode(), copy: invitation.encode(), path: text.encode()}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if wrong := [item.name for item in folder.iterdir() if not _may_be_there(item, contents)]:
            raise NodeConfigError(f"{folder} holds other things, such as {wrong[0]}; name an empty folder")
        for place, content in contents.items():
            write_file(place, content)
    except OSError as error:
        raise NodeConfigError(f"{folder} cannot be used: {error.strerror}") from None
    return path


def _may_be_there(item: Path, contents: Mapping[Path, bytes]) -> bool:
    """Whether a newcomer's folder may hold something before it has settings."""
    if item in contents:
        return item.is_file() and item.read_bytes() == contents[item]
    return item.name in BEFORE or any(
        item.match(f"{place.name}.*.part") for place in (*contents, item.with_name(KEY_FILE))
    )
