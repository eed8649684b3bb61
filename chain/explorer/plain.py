"""Answers of the explorer as plain values, which ``--json`` prints and the web pages' interface sends."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedchain.chain.block import Header
from fedchain.chain.encoding import encode
from fedchain.chain.explorer.views import TransactionProof
from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address

NOBODY: Mapping[str, int] = MappingProxyType({})


def plain(value: Any, numbers: Mapping[str, int] = NOBODY) -> Any:
    """The answer as JSON shows it: objects by field, hashes in hexadecimal.

    Args:
        value: the answer.
        numbers: number of each member by its address. If a field holds one address, the member's number follows as
            ``FIELD_number``; if it holds several addresses, their numbers follow as ``FIELD_numbers``. A header's miner
            is shown in this way, too; without numbers it is the public key, as it is hashed.
    """
    if is_dataclass(value):
        names = [item.name for item in fields(value)]
        if isinstance(value, Header):
            names = [name for name in names if value.writes(name)]
        shown = dict[str, Any]()
        for name in names:
            item = getattr(value, name)
            if name == "miner" and isinstance(value, Header) and numbers:
                item = address(item)
            shown[name] = found = plain(item, numbers)
            if name == "address" and "number" in names:
                continue
            if isinstance(found, str) and found in numbers:
                shown[f"{name}_number"] = numbers[found]
            elif isinstance(found, list) and found and all(isinstance(item, str) and item in numbers for item in found):
                shown[f"{name}_numbers"] = [numbers[item] for item in found]
        return shown
    if isinstance(value, tuple | list):
        return [plain(item, numbers) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return plain(value.value)
    return str(value) if isinstance(value, Path) else value


def plain_proof(proof: TransactionProof) -> dict[str, Any]:
    """A proof that can be checked with nothing but SHA-256: the header comes as the bytes that are hashed, too."""
    return {**plain(proof), "header_bytes": encode(proof.header.to_record()).hex()}


def numbers_of(genesis: Genesis) -> dict[str, int]:
    """Number of each member by its address."""
    return {address(member): number for number, member in enumerate(genesis.members)}
