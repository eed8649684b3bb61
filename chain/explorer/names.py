"""How hashes and members are named in a question: by the beginning of a hash, by a number or the end of an address."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from fedchain.chain.exceptions import NotFound
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.crypto.signatures import PublicKey

DIGITS = frozenset("0123456789abcdef")
"""Digits of hexadecimal numbers."""

NONE_KNOWN: Mapping[str, int] = MappingProxyType({})

PREFIX_SIZE_MIN = 4
"""Fewest hexadecimal digits of a hash, or letters at the end of an address, by which it can be asked for."""


NUMBER_SIZE_MAX = 18
"""Most decimal digits of a height, a round or a member's number: SQLite's integers have room for as many."""


def read_number(text: str) -> int | None:
    """A height, a round or a member's number; None if the text is not a number, or longer than any of them."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= NUMBER_SIZE_MAX else None


def find_hash(name: str, hashes: Iterable[Hash], what: str) -> Hash:
    """The one hash that begins with the hexadecimal digits ``name``. Raises NotFound: none, or several."""
    prefix = read_prefix(name, what)
    found = [item for item in hashes if begins_with(item, prefix)]
    if not found:
        raise NotFound(f"no {what} has a hash that begins with {prefix!r}")
    if len(found) > 1:
        raise NotFound(f"{len(found)} {what}s have a hash that begins with {prefix!r}: give more of it")
    return found[0]


def read_prefix(name: str, what: str) -> str:
    """The digits that a hash must begin with. Raises NotFound if there are too few."""
    prefix = name.lower().rstrip("….")
    if len(prefix) < PREFIX_SIZE_MIN:
        raise NotFound(f"{what} {name!r}: at least {PREFIX_SIZE_MIN} digits of a hash are needed")
    return prefix


def range_of(prefix: str) -> tuple[bytes, bytes] | None:
    """The lowest and the highest hash that begins with the digits ``prefix``; None if these are not hexadecimal."""
    if not prefix or not set(prefix) <= DIGITS or len(prefix) > 2 * HASH_SIZE:
        return None
    return bytes.fromhex(prefix.ljust(2 * HASH_SIZE, "0")), bytes.fromhex(prefix.ljust(2 * HASH_SIZE, "f"))


def begins_with(content_hash: Hash, prefix: str) -> bool:
    """Whether the hexadecimal digits of a hash begin with ``prefix``."""
    return content_hash.hex().startswith(prefix)


def find_member(name: str, members: Sequence[PublicKey], numbers: Mapping[str, int] = NONE_KNOWN) -> PublicKey:
    """The one of ``members`` whose number or address is ``name``, or whose address ends in it.

    ``numbers`` are those of members by their addresses, among them addresses of the keys that they had before.

    Raises:
        NotFound: no member, or several.
        InvalidAddress: not an address at all.
    """
    number = read_number(name)
    if number is not None and number < len(members):
        return members[number]
    if name.isdecimal() and len(name) < PREFIX_SIZE_MIN:
        raise NotFound(f"no member {name}: their numbers are 0 to {len(members) - 1}")
    ending = name.lstrip("….")
    named = {address(member): place for place, member in enumerate(members)} | dict(numbers)
    found = sorted({place for text, place in named.items() if text.endswith(ending)})
    if len(ending) >= PREFIX_SIZE_MIN and len(found) == 1:
        return members[found[0]]
    if len(ending) >= PREFIX_SIZE_MIN and len(found) > 1:
        raise NotFound(f"{len(found)} members have an address that ends in {ending}")
    public_key_from_address(name)
    raise NotFound(f"{name} is not one of the {len(members)} members")
