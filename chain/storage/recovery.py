"""Recovery of a stored chain: the checks of every start, and the blocks that it cuts off if something is broken.

A start judges the head as if it came from the network, and checks how the blocks are linked. That takes milliseconds,
since it does not read the blocks. Only if it finds a fault, states are replayed over the stored blocks until one is
missing or damaged, and the highest block that its own certificate makes final becomes the head. Cutting a chain back is
safe: a node that fetches the end again gets the same blocks, and the key's signing journal still prevents equivocation.

All changes are made in one transaction; if a start is killed before it, the next one finds the same faults.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgpack

from fedchain.chain.applying import apply_unjudged
from fedchain.chain.block import Block, Header
from fedchain.chain.certificate import Certificate, median
from fedchain.chain.encoding import validate_items
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import InvalidBlock, InvalidEncoding, Refused, StoreCorrupt, StoreMismatch
from fedchain.chain.genesis import NEWEST_VERSION, Genesis
from fedchain.chain.light.held import light_block_between, prove_held
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import LaterVersion
from fedchain.chain.membership.change import CHANGES_VERSION, Change
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.post import Post
from fedchain.chain.state import State, decode_state, genesis_state
from fedchain.chain.storage.database import transaction
from fedchain.chain.storage.rows import FINALS, LIGHTS, STATES, from_row
from fedchain.chain.storage.store import Final
from fedchain.chain.transition import judge_stored
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import is_valid_signature

STATE_INTERVAL = 64
"""Blocks from one kept state to the next: the state before any block is at most this many blocks away."""


def recover(connection: sqlite3.Connection, genesis: Genesis) -> list[str]:
    """Make the stored chain one that can be continued, and return a line for each step taken.

    The head is the highest block whose state is known or can be replayed, and that its certificate makes final. Blocks
    above it are dropped. If no state leads to any block, there is no head, and the blocks stay as an archive below the
    head that comes.

    Raises StoreMismatch: nothing is broken, and this program is too old for the chain.
    """
    done = []
    if fault_of_head(connection, genesis):
        _expect_no_later_version(connection, genesis)
        done.append(_cut_back(connection, genesis))
    if (head := head_height(connection)) > 0:
        done += _mend_links(connection, head)
    return done


def head_height(connection: sqlite3.Connection) -> int:
    """Height of the head; 0 if there is none."""
    (height,) = connection.execute("SELECT max(height) FROM states").fetchone()
    return height or 0


def fault_of_head(connection: sqlite3.Connection, genesis: Genesis) -> str:
    """Why the chain cannot continue from the highest block; empty if it can, or if there is no block."""
    try:
        head = read_head(connection)
        if head is not None:
            state = decode_state(genesis, head.state)
            judge_stored(genesis, state, head.block, head.certificate, is_valid_signature)
            _judge_members(connection, genesis, head.block.header)
    except (StoreCorrupt, Refused) as error:
        return str(error)
    return f"no state leads to block {_top_height(connection)}" if head is None and _top_height(connection) else ""


def read_head(connection: sqlite3.Connection) -> Final | None:
    """The head with the state before it; None if there is none. Raises StoreCorrupt."""
    head, top = head_height(connection), _top_height(connection)
    if head == 0:
        return None
    if head != top:
        raise StoreCorrupt(f"the highest block is at height {top}, the last state is the one before height {head}")
    _, data = STATES.read(connection.execute(f"{STATES.select} WHERE height = ?", (head,)).fetchone())
    final = _read_final(connection, head)
    if final.block.header.state_root != sha256(data):
        raise StoreCorrupt(f"the state before height {head} is not the one that its block stands on")
    return replace(final, state=data)


class Linked(NamedTuple):
    """Blocks of which each was found to follow the one before it."""

    base: int
    """Height of the lowest one."""
    top: int
    """Height of the highest one."""
    hash: Hash
    """32 bytes: the highest one; empty if it is not held."""


def find_base(connection: sqlite3.Connection, height: int, known: Linked | None = None) -> int:
    """Lowest height from which on every block up to the one at ``height`` is there and follows the one before it.

    Where ``known`` blocks lie on the way, they are only counted: a final block may be dropped, and is never replaced by
    another one, so those that are there still follow each other.
    """
    query = "SELECT height, hash, parent_hash FROM finals INDEXED BY outline WHERE height <= ? ORDER BY height DESC"
    base, parent = height + 1, None
    for place, block_hash, parent_hash in connection.execute(query, (height,)):
        if place != base - 1 or (parent is not None and block_hash != parent):
            break
        if known is not None and (place, block_hash) == (known.top, known.hash) and _are_held(connection, known):
            return find_base(connection, known.base)
        base, parent = place, parent_hash
    return base


def find_linked(connection: sqlite3.Connection, known: Linked | None) -> Linked:
    """The blocks from the base to the head, given those of an earlier look."""
    top = head_height(connection)
    row = connection.execute("SELECT hash FROM finals INDEXED BY outline WHERE height = ?", (top,)).fetchone()
    return Linked(find_base(connection, top, known), top, b"" if row is None else row[0])


def stored_state(connection: sqlite3.Connection, genesis: Genesis, height: int) -> State | None:
    """The state before the block at ``height``; None if it was not kept, is damaged, or is not the one that the block
    stands on. A row's checksum says nothing of that: anybody that writes to the disk computes it anew."""
    row = connection.execute(f"{STATES.select} WHERE height = ?", (height,)).fetchone()
    if row is None:
        return None
    try:
        _, data = STATES.read(row)
        state = decode_state(genesis, data) if state_root_at(connection, height) == sha256(data) else None
    except (StoreCorrupt, InvalidEncoding):
        return None
    return state if state is not None and state.height == height - 1 else None


def state_root_at(connection: sqlite3.Connection, height: int) -> Hash | None:
    """The root of the state that the block at ``height`` stands on; None if the block is not held or is damaged."""
    row = connection.execute(f"{FINALS.select} WHERE height = ?", (height,)).fetchone()
    try:
        return None if row is None else Header.from_fields(_unpacked(FINALS.read(row)[-2])[0]).state_root
    except (StoreCorrupt, InvalidEncoding, ValueError, TypeError, LookupError):
        return None


def state_before(connection: sqlite3.Connection, genesis: Genesis, height: int) -> State | None:
    """The state before the block at ``height``, held or not; None if no stored state leads there."""
    for state in _starts(connection, genesis, height):
        start = state.height
        for step in replay(connection, genesis, state, height - 1):
            state = step.after
        if state.height == height - 1:
            return state
        if state.height > start:  # the block that stopped this replay stops all that begin lower
            return None
    return None


def time_before(connection: sqlite3.Connection, genesis: Genesis, height: int) -> int | None:
    """Time of the block before the one at ``height``, in milliseconds; None if no stored state leads there.

    It is the time of the state, without the state: of the blocks on the way only the clocks are read.
    """
    start = next(_starts(connection, genesis, height))
    time_ms = start.settled_time_ms
    for place in range(start.height + 1, height + 1):
        row = connection.execute(f"{FINALS.select} WHERE height = ?", (place,)).fetchone()
        try:
            certificates = _unpacked(FINALS.read(row)[-2])[3]
            for *_, votes in certificates:
                time_ms = max(time_ms + 1, median(clock_ms for _, clock_ms, *_ in votes))
        except (StoreCorrupt, InvalidEncoding, ValueError, TypeError, LookupError):
            return None
    return time_ms


@dataclass(frozen=True, slots=True)
class Step:
    """A block between the states around it."""

    before: State
    """The state before the block."""
    block: Block
    after: State
    """The state after the block."""


def replay(connection: sqlite3.Connection, genesis: Genesis, state: State, last: int) -> Iterator[Step]:
    """The blocks after ``state`` up to height ``last``, as far as each is held and stands on the state before it.

    Nothing is validated: the blocks were validated when they were stored, and each commits to the state computed here.
    One that was altered on the disk, and from which no state follows, ends them.
    """
    for height in range(state.height + 1, last + 1):
        block = _read_block(connection, height)
        if block is None or not _stands_on(block.header, state):
            return
        after = apply_unjudged(genesis, state, block)
        if after is None:
            return
        yield Step(state, block, after)
        state = after


def _are_held(connection: sqlite3.Connection, blocks: Linked) -> bool:
    """Whether none of the blocks is missing."""
    query = "SELECT count(*) FROM finals INDEXED BY outline WHERE height BETWEEN ? AND ?"
    (count,) = connection.execute(query, (blocks.base, blocks.top)).fetchone()
    return bool(count == blocks.top - blocks.base + 1)


def _top_height(connection: sqlite3.Connection) -> int:
    """Height of the highest block; 0 if there is none."""
    (height,) = connection.execute("SELECT max(height) FROM finals").fetchone()
    return height or 0


def _cut_back(connection: sqlite3.Connection, genesis: Genesis) -> str:
    """Step back to the last block that the chain can continue from; return a line with the fault and its remedy."""
    top = _top_height(connection)
    head, refused = _last_final(connection, genesis, top)
    height = 0 if head is None else head.block.header.height
    above = height + 1 if refused is None else refused.height
    with transaction(connection):
        # Without a head, blocks that no state leads to may still turn out to lie below the block that is joined.
        if head is not None or refused is not None:
            connection.execute("DELETE FROM finals WHERE height >= ?", (above,))
        if head is not None:
            STATES.insert(connection, (height, head.before.encode()), replace=True)
        connection.execute("DELETE FROM states WHERE height > ?", (height,))
        # One that is kept is never written over: a damaged or forged one would end the path of every head to come.
        if genesis.version >= CHANGES_VERSION:
            connection.execute("DELETE FROM lights WHERE height > ?", (height,))
    if top == 0:
        return "a state without a block is dropped"
    if head is None and refused is None:
        return f"no state leads to the stored blocks, the highest at height {top}: the chain is joined anew"
    if height == top:
        return f"the state before the head at height {top} was damaged and is computed again"
    why = "is missing or damaged" if refused is None else f"is not final by what is stored ({refused.error})"
    return f"block {above} {why}: cut back from height {top} to {height}, the rest is fetched"


def _expect_no_later_version(connection: sqlite3.Connection, genesis: Genesis) -> None:
    """Check that the highest block that can be read is of a version that this program speaks, lest blocks be dropped
    that are final and that it cannot judge. Raises StoreMismatch."""
    heights = range(_top_height(connection), 0, -1)
    top = next((block for height in heights if (block := _read_block(connection, height)) is not None), None)
    if top is None or top.header.version <= NEWEST_VERSION:
        return
    try:
        _judge_members(connection, genesis, top.header)
    except LaterVersion as later:
        found = f"the chain has come to version {later.header.version} of the protocol"
        raise StoreMismatch(f"{found}, this program speaks versions up to {NEWEST_VERSION}: use a newer one") from None
    except (StoreCorrupt, Refused):
        return  # no members signed for it


@dataclass(frozen=True, slots=True)
class _NotFinal:
    """A block that is stored as final and is not."""

    height: int
    """Height of the block."""
    error: StoreCorrupt | Refused
    """The reason why it is not final."""


def _last_final(connection: sqlite3.Connection, genesis: Genesis, top: int) -> tuple[Step | None, _NotFinal | None]:
    """The highest block up to ``top`` that a state leads to and its certificate makes final, and the fault above it.

    The fault is None if the block above is missing or damaged, or if there is none.
    """
    refused: _NotFinal | None = None
    while top > 0:
        paths = (replay(connection, genesis, start, top) for start in _starts(connection, genesis, top))
        # The last steps of the first path that leads anywhere; the states of a whole chain would fill the memory.
        steps = next((steps for path in paths if (steps := deque(path, maxlen=STATE_INTERVAL))), None)
        if steps is None:
            break
        for step in reversed(steps):
            error = _fault_of(connection, genesis, step)
            if error is None:
                return step, refused
            refused = _NotFinal(step.block.header.height, error)
        top = steps[0].block.header.height - 1
    return None, refused


def _fault_of(connection: sqlite3.Connection, genesis: Genesis, step: Step) -> StoreCorrupt | Refused | None:
    """Why a replayed block is not final; None if it is."""
    try:
        final = _read_final(connection, step.block.header.height)
        judge_stored(genesis, step.before, final.block, final.certificate, is_valid_signature)
        _judge_members(connection, genesis, final.block.header)
    except (StoreCorrupt, Refused) as error:
        return error
    return None


def _read_final(connection: sqlite3.Connection, height: int) -> Final:
    """The block at ``height``, which must be held, without its state. Raises StoreCorrupt."""
    final: Final = from_row(FINALS, connection.execute(f"{FINALS.select} WHERE height = ?", (height,)).fetchone())
    return final


def _judge_members(connection: sqlite3.Connection, genesis: Genesis, header: Header) -> None:
    """Check that a stored block is final by certificates from the founding document on. Raises Refused.

    Otherwise anybody that can write to the disk could make members that vouch for the rest. Where members are the same
    for ever, the founders themselves vouch for the head.
    """
    if genesis.version < CHANGES_VERSION:
        return
    way = prove_held(genesis, header.height, StoredLights(connection, genesis).look, is_valid_signature)
    if way.trusted.block_hash != header.hash:
        raise InvalidBlock("light path", f"it leads to {way.trusted.block_hash.hex()}, {header.hash.hex()} is stored")


class StoredLights:
    """Light blocks of a chain whose members change, from its database; damaged rows count as not held."""

    def __init__(self, connection: sqlite3.Connection, genesis: Genesis) -> None:
        self._connection, self._genesis = connection, genesis

    def look(self, height: int, gap: tuple[int, int]) -> LightBlock | None:
        """The light block of a height, or another one in a gap; None if there is none."""
        found = light_block_between(self._genesis, height, gap, self._final, self)
        return found or self._computed(height)

    def light_below(self, height: int) -> LightBlock | None:
        """See :class:`Kept`."""
        return self._read("height <= ? ORDER BY height DESC", height)

    def light_above(self, height: int) -> LightBlock | None:
        """See :class:`Kept`."""
        return self._read("height > ? ORDER BY height", height)

    def _read(self, where: str, height: int) -> LightBlock | None:
        for row in self._connection.execute(f"{LIGHTS.select} WHERE {where}", (height,)):
            with suppress(StoreCorrupt):
                found: LightBlock = from_row(LIGHTS, row)
                return found
        return None

    def _final(self, height: int) -> tuple[Block, Certificate] | None:
        row = self._connection.execute(f"{FINALS.select} WHERE height = ?", (height,)).fetchone()
        with suppress(StoreCorrupt):
            found: Final | None = None if row is None else from_row(FINALS, row)
            return None if found is None else (found.block, found.certificate)
        return None

    def _computed(self, height: int) -> LightBlock | None:
        """The light block of a height by the state below it, where the one that has its set is lost.

        No state is believed for it: the header below names the set by its hash.
        """
        found, below = self._final(height), self._final(height - 1)
        state = None if found is None else state_before(self._connection, self._genesis, height)
        if found is None or state is None or (below is None and height > 1):
            return None
        parent = None if below is None else below[0].header
        chain_id, (block, certificate) = self._genesis.chain_id, found
        return LightBlock(chain_id, block.header, certificate, members=state.member_set, below=parent)


def _mend_links(connection: sqlite3.Connection, head: int) -> list[str]:
    """Look below the lowest linked block: a missing block is fetched again, a foreign one is dropped."""
    base = find_base(connection, head)
    if connection.execute("SELECT 1 FROM finals NOT INDEXED WHERE height = ?", (base - 1,)).fetchone() is not None:
        # The block is there, but the index lacks it or names another one: look at the rows themselves.
        connection.execute("REINDEX outline")
        base = find_base(connection, head)
        if connection.execute("DELETE FROM finals WHERE height = ?", (base - 1,)).rowcount > 0:
            return [f"block {base - 1} is not the parent of block {base}: it is dropped and fetched again"]
    if connection.execute("SELECT 1 FROM finals NOT INDEXED WHERE height < ?", (base,)).fetchone() is not None:
        return [f"block {base - 1} is missing: the chain is kept from height {base} on, the rest is fetched again"]
    return []


def _starts(connection: sqlite3.Connection, genesis: Genesis, height: int) -> Iterator[State]:
    """States that may lead to the one before ``height``: the nearest stored one first, the founding one last."""
    query = "SELECT height FROM states WHERE height <= ? ORDER BY height DESC"
    for (place,) in connection.execute(query, (height,)).fetchall():
        if (state := stored_state(connection, genesis, place)) is not None:
            yield state
    yield genesis_state(genesis)


def _stands_on(header: Header, state: State) -> bool:
    found = header.parent_hash, header.height, header.state_root, header.bits
    return found == (state.block_hash, state.height + 1, state.root, state.bits_of(header.miner))


def _read_block(connection: sqlite3.Connection, height: int) -> Block | None:
    """The parts of the block at ``height`` that a state depends on; None if its row is not as it was written.

    We wrote these bytes and their checksum matches, so only their items are counted: to validate them again would take
    twice as long as everything else.
    """
    row = connection.execute(f"{FINALS.select} WHERE height = ?", (height,)).fetchone()
    if row is None:
        return None
    try:
        data: bytes = FINALS.read(row)[-2]
        header, signature, posts, certificates, evidence, *changes = _unpacked(data)
        return Block(
            Header.from_fields(header),
            signature,
            tuple(Post(*post) for post in posts),
            _read_certificate(certificates[0]) if certificates else None,
            tuple(Evidence.from_record(record) for record in evidence),
            tuple(Change.from_record(record) for record in (changes[0] if changes else ())),
        )
    except (StoreCorrupt, InvalidEncoding, ValueError, TypeError, AttributeError, LookupError):
        return None


def _unpacked(data: bytes) -> Any:
    """The record in the bytes of a block. Somebody else's folder may hold a block of many small items, which take
    seventy times the memory of their bytes. Raises InvalidEncoding or ValueError."""
    validate_items(data)
    return msgpack.unpackb(data)


def _read_certificate(record: list[Any]) -> Certificate:
    kind, height, attempt, block_hash, entries = record
    if not entries:
        raise ValueError("a certificate without votes has no medians")
    votes = (
        Vote(kind, height, attempt, block_hash, clock, mining, voter, said[-1], *(Turnout(*item) for item in said[:-1]))
        for voter, clock, mining, *said in entries
    )
    return Certificate(kind, height, attempt, block_hash, tuple(votes))
