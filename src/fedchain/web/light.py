"""A light client of explorers: it verifies a chain that others serve by headers and certificates, and says what it saw.

The servers are not believed. Their reader has the chain id from elsewhere, or believes the founding document that the
first of them hands out.
"""

import http.client
import json
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidBlock, InvalidEncoding, NotFound, Refused
from fedchain.chain.genesis import GENESIS_SIZE_MAX, Genesis
from fedchain.chain.light.bisection import ConflictingBlocks, Gap, bisect, compare
from fedchain.chain.light.light_block import LightBlock, light_block_size_max
from fedchain.chain.light.verification import Trusted, trust_block, trust_genesis, validate_period
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.state import NUMBER_MAX
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import is_valid_signature
from fedchain.wording import bearable, counted, printable

TIMEOUT_S = 20.0
"""How long a server may be silent."""

ANSWER_S = 600.0
"""How long an answer may take, however often bytes of it come."""

AHEAD = 100
"""Light blocks that are asked for at once where heights are walked one by one."""

ANSWER_SIZE_MAX = 4 * 2**20
"""Most bytes of any other answer that is read."""

VALUES_MAX = 2**16
"""Most values of an answer, about: many small ones take thirty times the memory of their text."""

TRUST = re.compile(r"(?P<chain>[0-9a-f]{64})(?:/(?P<height>[1-9][0-9]{0,17})/(?P<block>[0-9a-f]{64}))?")
"""The part of an address behind its #: the chain id that is trusted, and a height and the hash of its block."""


@dataclass(frozen=True, slots=True)
class LightReport:
    """The result of a light client: a block of a chain that it verified."""

    name: str
    """Name of the federation."""
    chain_id: Hash
    """32 bytes: hash of the founding document."""
    is_compared: bool
    """Whether the reader named the chain id; otherwise the founding document is the first server's."""
    begun_at: int
    """Height of the block that was trusted; 0: the founding document."""
    height: int
    """Height of the block that was verified: the lowest head that a server tells of."""
    block_hash: Hash
    """32 bytes: its hash."""
    time_ms: int
    """When it became final, by its voters' median clock, in milliseconds since the Unix epoch; if it is the block that
    was trusted, when the one below did."""
    round: int
    """Round of the block; 0 also for a chain without blocks."""
    knowledge_root: Hash | None
    """32 bytes: hash of the knowledge that the block leaves behind; None for a chain without blocks."""
    members: int
    """Number of members; of those that counted at this height, where members may change."""
    convicted: int
    """How many of them were convicted."""
    liars_max: int
    """Most members that may lie, if the federation is to be believed."""
    members_change: bool
    """Whether members may change: then as few lie in each set on the way, those that have left included."""
    certificates: int
    """Certificates that were verified."""
    signatures: int
    """Votes in them."""
    skipped: int
    """Heights that were not looked at."""
    servers: int
    """Servers that have the same block."""


class Server:
    """An explorer that serves a chain, as a provider of light blocks. Use it in a ``with`` statement.

    Args:
        url: its address, ``http://HOST:PORT`` or ``http://HOST:PORT/CHAIN``.

    Raises NotFound: it is no such address.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            parts = urlsplit(url)
            name = (parts.hostname or "").encode("idna")  # which refuses names that no server can have
            is_address = parts.scheme in ("http", "https") and bool(name) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or parts.username is not None or parts.query:
            found = f"{printable(url)} is not the address of an explorer"
            raise NotFound(f"{found}: http://HOST:PORT or http://HOST:PORT/CHAIN")
        self._parts = parts
        self._connection = _connect(parts)
        self._ahead = dict[int, LightBlock]()
        self._key = parts.path.strip("/")
        self._genesis: Genesis | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    @property
    def fragment(self) -> str:
        """The part of the address behind its #."""
        return self._parts.fragment

    def genesis(self) -> Genesis:
        """The founding document that the server hands out; raises NotFound or InvalidEncoding."""
        if self._genesis is None:
            self._genesis = Genesis.decode(self._get(f"/{self._chain()}/genesis.fedchain", GENESIS_SIZE_MAX))
        return self._genesis

    def height(self) -> int:
        """The height of the head, as the server says."""
        found = self._ask("status").get("height")
        if type(found) is not int or not 0 <= found <= NUMBER_MAX:
            raise InvalidEncoding("status", "its height is no number")
        return found

    def light_block(self, height: int, *, with_proof: bool, gap: Gap | None = None) -> LightBlock:
        """The final block of a height, or another one in a gap; where no proof is wanted, the next heights are asked
        for, too.
        """
        near = "" if gap is None or gap[0] < 0 else f"?low={gap[0]}&high={gap[1]}"
        if with_proof:
            return self._read(self._ask(f"light/{height}{near}"))
        if height not in self._ahead:
            self._ahead = {}
            for item in self._ask(f"light?from={height}&limit={AHEAD}", list)[:AHEAD]:
                block = self._read(item)
                self._ahead[block.header.height] = block
        if height not in self._ahead and near:
            return self._read(self._ask(f"light/{height}{near}"))
        if height not in self._ahead:
            raise NotFound(f"{printable(self.url)} has no block at height {height}")
        return self._ahead.pop(height)

    def certificate_below(self, height: int) -> Certificate | None:
        """The certificate of the block below, as the block of a height holds it; None for the first block."""
        data = _bytes_in(self._ask(f"light/{height}/below"))
        return Certificate.from_record(decode(data, light_block_size_max(self.genesis()))) if data else None

    def _read(self, item: Any) -> LightBlock:
        return LightBlock.decode(_bytes_in(item), light_block_size_max(self.genesis()))

    def _chain(self) -> str:
        """The chain's name in addresses."""
        if not self._key:
            chains = self._json("/api/v1/chains", ANSWER_SIZE_MAX, list)
            keys = [item.get("key") for item in chains if isinstance(item, Mapping)]
            if len(keys) != 1 or not isinstance(keys[0], str):
                named = ", ".join(printable(str(key)) for key in keys[:8])
                raise NotFound(f"{printable(self.url)} serves {len(keys)} chains; put one of {named} behind it")
            self._key = keys[0]
        if not re.fullmatch(r"[\w.~-]{1,200}", self._key, re.ASCII):
            raise NotFound(f"{printable(self.url)} names no chain")
        return self._key

    def _ask(self, path: str, kind: type = dict) -> Any:
        size_max = ANSWER_SIZE_MAX
        if path.startswith("light"):  # in hexadecimal
            size_max += 2 * light_block_size_max(self.genesis())
        return self._json(f"/api/v1/{self._chain()}/{path}", size_max, kind)

    def _json(self, path: str, size_max: int, kind: type) -> Any:
        data = self._get(path, size_max)
        try:
            found = json.loads(data) if data.count(b",") < VALUES_MAX else None
        except (ValueError, RecursionError):
            found = None
        if type(found) is not kind:
            raise InvalidEncoding("answer", f"{printable(self.url)} answers {path} as no explorer does")
        return found

    def _get(self, path: str, size_max: int) -> bytes:
        for is_last in (False, True):
            exchange = _Exchange(self._connection, path, size_max)
            try:
                exchange.start()
                is_late = not exchange.is_over.wait(ANSWER_S)
            finally:  # also of an interrupt: to close a connection takes as long as somebody reads from it
                exchange.end()
            if is_late:
                raise NotFound(f"{printable(self.url)} does not answer: {path} takes longer than {ANSWER_S:g} s")
            if (error := exchange.error) is None:
                break
            # A server closes a connection that was silent for long; the next one is new.
            self._connection.close()
            if not isinstance(error, OSError | http.client.HTTPException | ValueError):
                raise error
            if is_last:
                raise NotFound(f"{printable(self.url)} does not answer: {_why(error)}") from None
        if len(exchange.data) > size_max:
            raise InvalidEncoding("answer", f"{printable(self.url)} answers {path} with more than {size_max} bytes")
        if exchange.status != 200:
            raise NotFound(f"{printable(self.url)} answers {path} with status {exchange.status}")
        return exchange.data


class _Exchange(threading.Thread):
    """A question and its answer, in a thread: an answer may have no end, nor may what comes before or behind it."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, size_max: int) -> None:
        super().__init__(name="fedchain-light", daemon=True)
        self._connection, self._path, self._size_max = connection, path, size_max
        self._socket: socket.socket | None = None  # which the connection lets go of where the answer is its last one
        self.status, self.data = 0, b""
        self.is_over = threading.Event()
        """Set at the end; whether a thread is alive is not known for sure behind an interrupt."""
        self.error: Exception | None = None
        """Why there is no answer; ValueError for a number that is none, such as a negative size."""

    def run(self) -> None:
        """See `threading.Thread`."""
        try:
            self._connection.request("GET", self._path)
            self._socket = self._connection.sock
            answer = self._connection.getresponse()
            self.status, self.data = answer.status, answer.read(self._size_max + 1)
        except Exception as error:  # whoever asked raises it
            self.error = error
        finally:
            self.is_over.set()

    def end(self) -> None:
        """Have it end soon, unless it has."""
        if self._socket is not None and not self.is_over.is_set():
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def verify_served(urls: Sequence[str], now_ms: int) -> LightReport:
    """Verify the chain that explorers serve: the lowest of their heads, by the first of them, and that all have it.

    Args:
        urls: addresses of explorers. Behind the # of the first stands what is trusted: the chain id, or the chain id, a
            height and the hash of its block, with / between. An address without # believes its founding document.
        now_ms: this machine's clock, in milliseconds since the Unix epoch.

    Raises:
        NotFound: an address is wrong, or a server does not answer or lacks something.
        ConflictingBlocks: two servers have different blocks that are both certified.
        Refused: a server lies.
    """
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(url)) for url in urls]
        first = servers[0]
        trust = TRUST.fullmatch(first.fragment)
        if first.fragment and trust is None:
            raise NotFound(f"#{printable(first.fragment)} is neither CHAIN-ID nor CHAIN-ID/HEIGHT/BLOCK-HASH")
        genesis = first.genesis()
        for server in servers:
            _expect_chain(server, bytes.fromhex(trust["chain"]) if trust else genesis.chain_id)
        begin, block = _begin(genesis, first, trust)
        validate_period(begin, now_ms)
        height, lowest = min(((server.height(), server) for server in servers), key=itemgetter(0))
        if height < begin.height:
            words = f"its head is at height {height}, below block {begin.height}, which you named"
            raise NotFound(f"{printable(lowest.url)} is behind: {words}")
        found = bisect(genesis, begin, first, height, is_valid_signature)
        for witness in servers[1:]:
            _ask_witness(genesis, begin, found.block or block, witness)
    header, members = found.trusted.header, len(found.trusted.members)
    return LightReport(
        name=genesis.name,
        chain_id=genesis.chain_id,
        is_compared=trust is not None,
        begun_at=begin.height,
        height=found.trusted.height,
        block_hash=found.trusted.block_hash,
        time_ms=found.trusted.time_ms,
        round=0 if header is None else header.round,
        knowledge_root=None if header is None else header.knowledge_root,
        members=members,
        convicted=len(found.trusted.culprits),
        liars_max=genesis.fault_model.faulty(members),
        members_change=genesis.version >= CHANGES_VERSION,
        certificates=found.certificates,
        signatures=found.signatures,
        skipped=found.skipped,
        servers=len(servers),
    )


def tell(report: LightReport) -> tuple[str, str, str, str, str]:
    """Five lines that say what was verified and what was believed."""
    r = report
    begin = f"block {r.begun_at}, which you named," if r.begun_at else "the founding document"
    seen = f"{counted(r.certificates, 'certificate')} with {counted(r.signatures, 'vote')}, from {begin} on"
    skipped = f", {counted(r.skipped, 'height')} skipped" if r.skipped else ""
    convicted = f", {r.convicted} of them convicted" if r.convicted else ""
    left = "none yet" if r.knowledge_root is None else f"{r.knowledge_root.hex()} after round {r.round}"
    same = f"{counted(r.servers, 'server')} {'have' if r.servers > 1 else 'has'} it"
    compared = "it is the one that you gave" if r.is_compared else "compare it with one from elsewhere"
    lie = bearable(r.liars_max, r.members, earlier=r.members_change)
    return (
        f"federation  {printable(r.name)}, {counted(r.members, 'member')}{convicted}; chain id {r.chain_id.hex()}",
        f"verified    height {r.height}, block {r.block_hash.hex()}; {same}",
        f"verified    {seen}{skipped}",
        f"verified    knowledge {left}: the votes are for its hash",
        f"believed    the chain id: {compared}; that {lie}, that the voters recomputed what they voted for, "
        "and that no newer block is kept back",
    )


def plain_conflict(conflict: ConflictingBlocks) -> dict[str, Any]:
    """Two certified blocks of one height, for programs: who signed both, and the bytes that prove it to others."""
    return {
        "error": str(conflict),
        "signers": [address(member) for member in conflict.signers],
        "evidence": [encode(crime.to_record()).hex() for crime in conflict.crimes],
        "blocks": [block.encode().hex() for block in conflict.blocks],
    }


def _begin(genesis: Genesis, server: Server, trust: re.Match[str] | None) -> tuple[Trusted, LightBlock | None]:
    """The block that is trusted; None and the founding document if that is."""
    if trust is None or trust["height"] is None:
        return trust_genesis(genesis), None
    height, block_hash = int(trust["height"]), bytes.fromhex(trust["block"])
    block, below = server.light_block(height, with_proof=True), server.certificate_below(height)
    return trust_block(genesis, block_hash, block, below, is_valid_signature), block


def _ask_witness(genesis: Genesis, begin: Trusted, block: LightBlock | None, witness: Server) -> None:
    """Check that another server has the same block, unless nothing but the founding document was verified."""
    if block is None:
        return
    try:
        compare(genesis, begin, block, witness, is_valid_signature)
    except Refused as error:
        raise InvalidBlock("another server", f"{printable(witness.url)} has another block, {error}") from None


def _expect_chain(server: Server, chain_id: Hash) -> None:
    found = server.genesis().chain_id
    if found != chain_id:
        raise InvalidBlock("chain", f"{printable(server.url)} serves {found.hex()}, {chain_id.hex()} expected")


def _bytes_in(item: Any) -> bytes:
    try:
        return bytes.fromhex(item["bytes"])
    except (TypeError, KeyError, ValueError):
        raise InvalidEncoding("light block", "the answer holds no bytes") from None


def _connect(parts: SplitResult) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)


def _why(error: Exception) -> str:
    return printable(getattr(error, "strerror", None) or str(error) or type(error).__name__)
