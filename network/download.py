"""One content on its way: which provider is asked for which chunk, which is slow, and which lied. Pure; no I/O.

As long as its signed size is believed, several providers send parts of one copy. A provider sends a copy of its own
where no size was signed, where the provider contradicts the signed one, and after a wrong hash of a copy that several
sent. So the sender of a wrong copy is known, and no provider holds up another that sends the right one.
"""

from collections.abc import Sequence

from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.assembly import Assembly
from fedchain.network.load import Load
from fedchain.network.messages import CHUNK_SIZE, GetContent
from fedchain.network.providers import Providers
from fedchain.network.source import STALL_MS, Source

SOURCES_MAX = 3
"""Providers that send one content at a time, in parts or each a copy of its own."""

PIPELINE = 4
"""Chunks of one content that one provider is asked for ahead."""

REPEATS_MAX = 2
"""How often the time doubles after which one provider is asked for the same chunk again."""

PATIENCE_MAX = 6
"""How often times double, and the lowest rate halves, for providers that send a copy of their own."""

DISK_PAUSE_MS = 4 * STALL_MS
"""How long a content is not asked for after the disk refused it: there may be room again."""

Request = tuple[PublicKey, GetContent]
"""The provider to ask, and the question."""


class Download:
    """One content, the chunks of it that have come, and the providers of the rest.

    Args:
        content_hash: 32 bytes.
        size: signed size in bytes; None if nobody signed one.
        size_max: most bytes that it may have, whatever was signed.
        limit: bytes that any content has at most: a provider that sends more is to blame.
        provider: a peer that should have it.
        load: the chunks of all contents that providers are sending us.
        asks_others: whether other peers than the named providers may have it.
    """

    def __init__(
        self,
        content_hash: Hash,
        size: int | None,
        size_max: int,
        limit: int,
        provider: PublicKey,
        load: Load,
        *,
        asks_others: bool = True,
    ) -> None:
        self.providers = Providers(provider, asks_others=asks_others)
        """Peers that should have it."""
        self.paused_until_ms = 0
        """When to ask again, after the only provider did not have it; 0: it was not asked, or has it."""
        self._hash, self._size, self._size_max, self._limit = content_hash, size, size_max, limit
        self._load = load
        self._shared = load.begin(content_hash, size, size_max)
        self._sources: dict[PublicKey, Source] = {}
        self._asked: dict[tuple[int, PublicKey], tuple[int, int]] = {}  # (chunk, peer): how often, and when last
        self._is_apart = False  # what several sent together was wrong
        self._begun_ms: int | None = None
        self._turns = 0  # how often a provider was replaced

    @property
    def is_idle(self) -> bool:
        """Whether nobody owes us a part of it."""
        return not any(source.owed for source in self._sources.values())

    @property
    def arrived(self) -> int:
        """Bytes that have come of one copy, without a gap."""
        return max(parts.arrived for parts in (self._shared, *(source.parts for source in self._sources.values())))

    def add(self, provider: PublicKey, size_max: int, *, asks_others: bool) -> None:
        """It is wanted once more: of another provider, and with up to ``size_max`` bytes."""
        self._size_max = max(self._size_max, size_max)
        self.providers.asks_others |= asks_others
        if self.providers.add(provider):
            self.paused_until_ms = 0

    def was_asked(self, number: int, peer: PublicKey) -> bool:
        """Whether a peer was asked for a chunk that has not come."""
        return (number, peer) in self._asked

    # whom to ask

    def ask(self, now_ms: int) -> list[Request]:
        """Have the right number of providers owe the right number of chunks; return the questions for them."""
        if now_ms < self.paused_until_ms:
            return []
        self._engage(now_ms)
        requests: list[Request] = []
        taken = {number for source in self._sources.values() if self._shares(source) for number in source.owed}
        for provider, source in self._sources.items():
            others_owe = taken if self._shares(source) else source.owed
            for number in source.parts.wanted():
                if len(source.owed) >= PIPELINE or not self._load.may_owe_more(provider):
                    break
                if number in others_owe or not self._may_ask(number, provider, now_ms):
                    continue
                if not source.owed:
                    source.begin(now_ms)
                source.owed.add(number)
                others_owe.add(number)
                self._load.owe(provider, 1)
                times, _ = self._asked.get((number, provider), (0, 0))
                self._asked[number, provider] = times + 1, now_ms
                requests.append((provider, GetContent(self._hash, number * CHUNK_SIZE)))
        return requests

    def _may_ask(self, number: int, provider: PublicKey, now_ms: int) -> bool:
        """Whether ``provider`` was not asked for a chunk, or so long ago that it must have been lost."""
        times, at_ms = self._asked.get((number, provider), (0, 0))
        return times == 0 or now_ms - at_ms >= STALL_MS << min(times - 1, REPEATS_MAX)

    def _engage(self, now_ms: int) -> None:
        """Let providers that are not busy become sources; those that made way only if there is nobody else."""
        self._begun_ms = now_ms if self._begun_ms is None else self._begun_ms
        for provider in self._waiting(now_ms) or ([] if self._sources else self.providers.known):
            if len(self._sources) >= self._places(now_ms):
                break
            parts = self._copy_for(provider)
            if parts is not None and self._load.may_owe_more(provider) and self._load.has_room(provider, parts):
                if parts is not self._shared:
                    self._forget_asked(provider)
                self._sources[provider] = Source(parts, now_ms)
                self._load.count(provider, parts, 1)
        if not self._sources:
            self._clear()  # beginnings of contents that nobody sends would add up

    def _waiting(self, now_ms: int) -> list[PublicKey]:
        """Providers that could become sources, the most promising first: doubters leave a place for the others."""
        doubters = self.providers.doubters
        room = SOURCES_MAX - 1 - len(doubters & self._sources.keys())
        return [
            provider
            for provider in self.providers.rested(self._sources, now_ms)
            if provider not in doubters or room > 0
        ]

    def _places(self, now_ms: int) -> int:
        """Sources at a time. Without a size each of them sends all of it, so one after the other is asked."""
        assert self._begun_ms is not None, "it was asked for"
        if self._size is not None:
            return SOURCES_MAX
        return min(SOURCES_MAX, 1 + (now_ms - self._begun_ms) // STALL_MS)

    def _copy_for(self, provider: PublicKey) -> Assembly | None:
        """Where the chunks of a provider go; None: as many send parts of the shared copy as it takes."""
        sharing = sum(map(self._shares, self._sources.values()))
        if provider in self.providers.doubters:
            return self._load.begin(self._hash, None, self._size_max)
        if self._is_apart or self._size is None:
            return self._load.begin(self._hash, self._size, self._size_max)
        enough = SOURCES_MAX if self._shared.is_large else 1
        return self._shared if sharing < enough else None

    def _shares(self, source: Source) -> bool:
        return source.parts is self._shared

    # what comes

    def take(self, number: int, data: bytes, peer: PublicKey, now_ms: int) -> bytes | None:
        """Take a chunk that ``peer`` was asked for; the content once it is whole and right.

        Raises:
            InvalidPayload: ``peer`` alone sent what is wrong whatever its size is, or more than any content has.
            LimitReached: the disk refuses what has come. It is fetched anew after a while.
        """
        try:
            return self._take(number, data, peer, now_ms)
        except LimitReached:
            self.stop()
            self.paused_until_ms = now_ms + DISK_PAUSE_MS
            raise

    def _take(self, number: int, data: bytes, peer: PublicKey, now_ms: int) -> bytes | None:
        source = self._sources.get(peer)
        parts = self._shared if source is None else source.parts
        if data:
            try:
                parts.put(number, data, peer)
            except InvalidPayload:
                if self._is_to_blame_for_misfit(data, peer, parts):
                    raise
                return None
            self._on_arrival(number, len(data), peer, parts, now_ms)
            if not parts.is_complete and not (parts.size is None and parts.ends_here()):
                return None
        elif not parts.ends_here():
            self._on_lack(peer, now_ms)
            return None
        if parts.ends_here():
            return parts.content()
        self._on_wrong(peer, parts)
        return None

    def _is_to_blame_for_misfit(self, data: bytes, peer: PublicKey, parts: Assembly) -> bool:
        """Whether a chunk that does not fit to the size of its copy fits to none; go on without it anyway."""
        if len(data) <= CHUNK_SIZE and parts.size is not None:
            self._doubt(peer)
            return False
        self._expose(peer)
        # Beyond a bound of this content alone, others may hold something longer under its hash.
        return len(data) > CHUNK_SIZE or parts.size_bound >= self._limit

    def _on_wrong(self, peer: PublicKey, parts: Assembly) -> None:
        """A copy is whole and has another hash. Raises InvalidPayload if only one peer can be to blame."""
        if parts.senders != {peer}:
            self._is_apart = True
            self.stop()
        elif parts.size is not None and parts.may_go_on:
            self._doubt(peer)
        else:
            try:
                parts.content()
            finally:
                self._expose(peer)

    def _doubt(self, peer: PublicKey) -> None:
        """The signed size or this peer lies: it may send another copy, as long as it likes, behind all others."""
        self.providers.doubt(peer)
        self._put_aside(peer)

    def _expose(self, liar: PublicKey) -> None:
        """Go on without a provider that sent something wrong."""
        self.providers.expose(liar)
        self._put_aside(liar)

    def _put_aside(self, peer: PublicKey) -> None:
        """Forget the chunks that a peer has sent, and those that others have sent to the same copy."""
        if peer in self._shared.senders:
            for provider in [known for known, source in self._sources.items() if self._shares(source)]:
                self._end(provider)
                self._forget_asked(provider)
            self._shared.clear()
        self._end(peer)
        self._forget_asked(peer)

    def _on_arrival(self, number: int, size: int, peer: PublicKey, parts: Assembly, now_ms: int) -> None:
        """A chunk has come: no provider that was asked for it owes it any more."""
        for provider, source in self._sources.items():
            if source.parts is parts and number in source.owed:
                source.owed.discard(number)
                self._load.owe(provider, -1)
            if provider == peer:
                source.note_arrival(size, now_ms)
        if parts is not self._shared:
            self._asked.pop((number, peer), None)
            return
        own = {provider for provider, source in self._sources.items() if not self._shares(source)}
        self._asked = {key: value for key, value in self._asked.items() if key[0] != number or key[1] in own}

    def _on_lack(self, peer: PublicKey, now_ms: int) -> None:
        """A provider does not have it: others go on, or it is asked again in a moment."""
        self._forget_asked(peer)
        if peer in self._sources:
            self._end(peer)
            if len(self.providers) > 1:
                self.providers.drop(peer)
            else:
                self.paused_until_ms = now_ms + STALL_MS

    def on_gone(self, provider: PublicKey, now_ms: int, peers: Sequence[PublicKey]) -> bool:
        """A provider is not connected any more; whether it was asked, so that others have to be."""
        if provider not in self.providers:
            return False
        was_asked = provider in self._sources
        self._end(provider)
        self._forget_asked(provider)
        self.providers.drop(provider)
        if len(self.providers) or self._find_other(peers):
            return was_asked
        self.providers.add(provider)  # it may come back
        self.paused_until_ms = now_ms + STALL_MS
        return False

    def stop(self) -> None:
        """Forget all chunks that have come, and all questions."""
        for provider in list(self._sources):
            self._end(provider)
        self._clear()

    # who is slow

    def review(self, now_ms: int, peers: Sequence[PublicKey]) -> None:
        """Replace sources that are silent or slow, if somebody else can go on, be it one of ``peers``."""
        if 0 < self.paused_until_ms <= now_ms or not len(self.providers):
            self.paused_until_ms = 0
            self._find_other(peers)
        if self._lacks_sources(now_ms):
            self._find_other(peers)
        is_contested = self._size is None or self._is_apart or self.providers.doubters
        if is_contested and len(self._sources) < self._places(now_ms) and not self._waiting(now_ms):
            self._find_other(peers)
        for provider, source in list(self._sources.items()):
            if source.owed:
                self._review_source(provider, source, now_ms, peers)

    def _lacks_sources(self, now_ms: int) -> bool:
        """Whether all known providers have been busy for too long: one liar may be named for everything."""
        has_begun = self._begun_ms is not None and now_ms - self._begun_ms >= STALL_MS
        return has_begun and not self._sources and not self.paused_until_ms

    def _review_source(self, provider: PublicKey, source: Source, now_ms: int, peers: Sequence[PublicKey]) -> None:
        # A provider whose own copy is put aside has to begin again: where all are slow, one must have time to finish.
        patience = 0 if self._shares(source) else min(PATIENCE_MAX, self._turns // len(self.providers))
        is_silent, is_slow = source.is_silent(now_ms, patience), source.is_slow(now_ms, patience)
        is_over = source.has_had_turn(now_ms, patience) and self._may_make_way(source)
        if is_silent or is_over or (is_slow and len(self.providers) == 1):
            self._find_other(peers)
        # A copy of its own is not ended while there is a place for another one beside it.
        may_end = self._shares(source) or len(self._sources) >= SOURCES_MAX
        if (is_over and self._waiting(now_ms)) or (may_end and (is_silent or is_slow) and len(self.providers) > 1):
            self._replace(provider, now_ms)
        elif is_silent:
            self._release(provider, source)  # what it was asked for may have been lost
        elif source.is_measured(now_ms, patience):
            source.measure_again(now_ms)

    def _may_make_way(self, source: Source) -> bool:
        """Whether a source sends a copy of its own, and may make way: no place is free, and another has sent more."""
        most = max(known.parts.arrived for known in self._sources.values())
        return not self._shares(source) and len(self._sources) >= SOURCES_MAX and source.parts.arrived < most

    def _find_other(self, peers: Sequence[PublicKey]) -> bool:
        return self.providers.find_other(peers, self._sources)

    def _replace(self, provider: PublicKey, now_ms: int) -> None:
        """Let others go on. Chunks that the provider owes of a shared copy are taken nevertheless, should they come."""
        self._turns += 1
        self._end(provider)
        self.providers.rest(provider, now_ms)

    def _end(self, provider: PublicKey) -> None:
        if (source := self._sources.pop(provider, None)) is not None:
            self._release(provider, source)
            self._load.count(provider, source.parts, -1)
            if not self._shares(source):
                self._forget_asked(provider)

    def _release(self, provider: PublicKey, source: Source) -> None:
        self._load.owe(provider, -len(source.owed))
        source.owed.clear()

    def _clear(self) -> None:
        self._shared.clear()
        self._asked.clear()

    def _forget_asked(self, provider: PublicKey) -> None:
        self._asked = {key: value for key, value in self._asked.items() if key[1] != provider}
