"""Taking a signing journal to another machine, as EIP-3076 does it for validators of Ethereum.

A key that moves takes its journal along, or it may sign for a second time what it has signed on the old machine.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.journal_file import CONTENT_SIZE_MAX, JournalError, JournalFile, read_identity

EXPORT_VERSION = 1

EXPORT_SIZE_MAX = 2 * CONTENT_SIZE_MAX + 4_096
"""Characters of an exported journal."""

IsBehind = Callable[[bytes, bytes], bool]
"""``is_behind(old, new)``: whether ``new`` would allow to sign what ``old`` forbids."""


def export_journal(path: Path) -> str:
    """What a journal holds, as JSON, to be imported beside the same key on another machine.

    The node must not run, and must not run on this machine afterwards.

    Raises:
        JournalError: there is none, a node has it open, or it is damaged.
    """
    chain_id, public_key = read_identity(path)
    with JournalFile.open(path, chain_id, public_key) as journal:
        content = journal.content()
        document = {
            "version": EXPORT_VERSION,
            "chain_id": chain_id.hex(),
            "address": address(public_key),
            "sequence": journal.sequence,
            "content": None if content is None else content.hex(),
        }
    return json.dumps(document, indent=1) + "\n"


def import_journal(path: Path, text: str, is_behind: IsBehind) -> None:
    """Put what :func:`export_journal` gave into the journal at ``path``, which is made if there is none.

    A journal never goes back: who could make it forget could have it sign twice.

    Args:
        path: see :func:`journal_path`.
        text: JSON.
        is_behind: whether its second argument would allow to sign what its first forbids.

    Raises:
        JournalError: not an exported journal, another chain's or key's, behind what is there, or the disk refuses.
    """
    chain_id, public_key, content = _parse_export(text)
    if not path.name.endswith(f".{chain_id.hex()[:8]}.journal"):
        raise JournalError(f"{path} is not the journal of chain {chain_id.hex()}, of which the exported one is")
    with JournalFile.open(path, chain_id, public_key) as journal:
        old = journal.content()
        if old is not None and (content is None or is_behind(old, content)):
            raise JournalError(f"{path} knows of more that was signed than what is to be imported; it stays as it is")
        if content is not None:
            journal.write(content)


def _parse_export(text: str) -> tuple[Hash, PublicKey, bytes | None]:
    if len(text) > EXPORT_SIZE_MAX:
        raise JournalError(f"an exported journal has at most {EXPORT_SIZE_MAX} characters, not {len(text)}")
    try:
        document: Any = json.loads(text)
        version = document["version"]
        if version != EXPORT_VERSION:
            raise JournalError(f"the exported journal has version {version!r}, this program reads {EXPORT_VERSION}")
        chain_id, public_key = bytes.fromhex(document["chain_id"]), public_key_from_address(document["address"])
        content = None if document["content"] is None else bytes.fromhex(document["content"])
    except JournalError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidAddress) as error:
        raise JournalError(f"this is no exported journal: {type(error).__name__}: {error}") from None
    if len(chain_id) != HASH_SIZE:
        raise JournalError(f"this is no exported journal: a chain id has {HASH_SIZE} bytes, not {len(chain_id)}")
    if content is not None and len(content) > CONTENT_SIZE_MAX:
        raise JournalError(f"a journal takes {CONTENT_SIZE_MAX} bytes, the exported one has {len(content)}")
    return chain_id, public_key, content
