"""Common to the pages: numbers and names in addresses, members, and the troubles of a scenario by round."""

from collections.abc import Mapping
from typing import Any

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.columns import Columns, Line
from fedchain.chain.explorer.member_views import PeerView
from fedchain.chain.explorer.names import find_member, read_number
from fedchain.chain.explorer.units import duration
from fedchain.crypto.keys import PublicKey
from fedchain.web.chains import Chain, Reading
from fedchain.web.course.scenario import placed, rows_of

Context = dict[str, Any]
"""Values that a template shows, by name."""

Question = Mapping[str, str]
"""Names and values behind the question mark of an address."""

MEMBERS_MAX = 200
"""Members in the list of a page; the interface has all."""


def number_in(question: Question, name: str, default: int) -> int:
    """A number behind the question mark; any other text counts as not given."""
    number = read_number(question.get(name, ""))
    return default if number is None else number


def number_named(text: str, what: str) -> int:
    """The number of a height or a round in a page's address. Raises NotFound."""
    number = read_number(text)
    if number is None and text.isascii() and text.isdecimal():
        raise NotFound(f"no {what} has a number of {len(text)} digits")
    if number is None:
        raise NotFound(f"{what} {text!r} is not a number")
    return number


def member_named(reading: Reading, name: str) -> PublicKey:
    """A member by its number, an address that it has or had, or the end of it. Raises NotFound or InvalidAddress."""
    members = reading.explorer.state.roster.members
    if name.isascii() and name.isdecimal() and len(name) < 7:
        if int(name) < len(members):
            return members[int(name)]
        raise NotFound(f"no peer {name}: the peers are 0 to {len(members) - 1}")
    return find_member(name, members, reading.numbers)


def peer(reading: Reading, key: PublicKey) -> PeerView:
    """One member, as ``explorer peer`` shows it, counted from lines that are in memory."""
    return reading.explorer.peer_of(key, reading.columns)


def whole(reading: Reading) -> Columns | None:
    """The lines of all blocks; None if not all were read yet."""
    return reading.columns if reading.is_complete else None


def newest_round(reading: Reading) -> int:
    """The round of the highest block that was read; 0 if there is none."""
    return max((line.round for line in reading.columns.lines(reading.columns.height)), default=0)


def has_block(reading: Reading, round_number: int) -> bool:
    """Whether a block of the round is held; then the round has a page."""
    return any(height in reading.explorer.held for height in reading.store.heights_of_round(round_number))


def happened(chain: Chain, reading: Reading, peer: int | None = None) -> list[tuple[Line, int, str]]:
    """Faults of a simulation and their ends, of all peers or one; empty for any other chain.

    Each is the block that was made meanwhile, the time in virtual milliseconds, and a text.
    """
    if chain.scenario is None:
        return []
    found = chain.scenario.troubles if peer is None else chain.scenario.of_peer(peer)
    return [
        (line, moment.at_ms, f"{moment.text} ({duration(moment.at_ms)})")
        for line, moment in placed(found, [*reading.columns.lines()], chain.genesis.created_ms)
    ]


def marks_by_round(chain: Chain, reading: Reading, peer: int | None = None) -> list[tuple[float, str]]:
    """The same as marks of a chart by round."""
    return [(float(line.round), text) for line, _, text in happened(chain, reading, peer)]


def troubles_of(chain: Chain, reading: Reading, peer: int | None = None) -> list[Any]:
    """The troubles of all peers of a simulation or of one, in words; see :func:`rows_of`."""
    if chain.scenario is None:
        return []
    found = chain.scenario.troubles if peer is None else chain.scenario.of_peer(peer)
    return [*rows_of(found, [*reading.columns.lines()], chain.genesis.created_ms)]
