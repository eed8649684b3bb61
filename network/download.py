"""One content on its way: who is asked for which chunk, who is slow, and who lied. Pure; no I/O."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.assembly import Assembly
from fedchain.network.messages import CHUNK_SIZE, GetContent

PROVIDERS_MAX = 8
"""Peers remembered for one content."""

SOURCES_MAX = 3
"""Providers that send parts of one large content at a time."""

PIPELINE = 4
"""Chunks of one content that one provider is asked for ahead."""

OWED_MAX = 64
"""Chunks that one provider owes us, of all contents together: as much as waits for one peer on its side."""

LARGE_AT_ONCE_MAX = 4
"""Contents of several chunks that one provider sends at a time: more would only compete, and fill memory."""

LARGE_BYTES_MAX = 32 * 2**20
"""Bytes that these may have together, unless it is a single one."""

STALL_MS = 2_000
"""A provider of which nothing has come for this long is replaced, or asked again. (Bitcoin: block stalling timeout)"""

REPEATS_MAX = 2
"""How often the time doubles after which one provider is asked for the same chunk again."""

RATE_MIN = 256 * 2**10
"""Bytes per second below which a provider makes way for another one."""

RATE_WINDOW_MS = 4_000
"""Time over which that is measured."""

REST_MS = 8_000
"""How long a provider that made way is passed over, if there are others."""

PATIENCE_MAX = 6
"""How often times double, and the lowest rate halves, while a content has to come from one provider alone."""

Request = tuple[PublicKey, GetContent]
"""Whom to ask for what."""


class Load:
    """What each provider is sending us, all contents together."""

    def __init__(self) -> None:
        self._owed, self._large, self._large_bytes = Counter[PublicKey](), Counter[PublicKey](), Counter[PublicKey]()

    def may_owe_more(self, provider: PublicKey) -> bool:
        """Whether a provider may be asked for another chunk."""
        return self._owed[provider] < OWED_MAX

    def owe(self, provider: PublicKey, change: int) -> None:
        """A provider owes us more chunks, or fewer."""
        self._owed[provider] += change

    def has_room(self, provider: PublicKey, parts: Assembly) -> bool:
        """Whether a provider may send a content beside those that it sends already."""
        if not parts.is_large or self._large[provider] == 0:
            return True
        fits = self._large_bytes[provider] + parts.size_bound <= LARGE_BYTES_MAX
        return fits and self._large[provider] < LARGE_AT_ONCE_MAX

    def count(self, provider: PublicKey, parts: Assembly, change: int) -> None:
        """A provider begins (1) or ends (-1) to send a content."""
        if parts.is_large:
            self._large[provider] += change
            self._large_bytes[provider] += change * parts.size_bound


@dataclass(slots=True)
class _Source:
    """A provider that is being asked for parts of one content."""

    owed: set[int] = field(default_factory=set)
    """Numbers of chunks that it was asked for and has not sent."""
    heard_ms: int = 0
    """When its last chunk came, or it was asked while it owed none."""
    since_ms: int = 0
    """When the measurement of its rate began."""
    arrived: int = 0
    """Bytes that came since then."""


class Download:
    """One content, what has come of it, and those who have the rest.

    Args:
        content_hash: 32 bytes.
        parts: what has come.
        provider: somebody who should have it.
        load: what providers are sending us altogether.
    """

    def __init__(self, content_hash: Hash, parts: Assembly, provider: PublicKey, load: Load) -> None:
        self.parts = parts
        self.providers = [provider]
        """Peers that should have it, the most promising first."""
        self.paused_until_ms = 0
        """When to ask again, after the only provider did not have it; 0: it was not asked, or has it."""
        self._hash, self._load = content_hash, load
        self._sources: dict[PublicKey, _Source] = {}
        self._asked: dict[tuple[int, PublicKey], tuple[int, int]] = {}  # (chunk, peer): how often, and when last
        self._resting_until_ms: dict[PublicKey, int] = {}
        self._liars: set[PublicKey] = set()
        self._is_alone = False  # one provider has to send all of it
        self._signed_size = parts.size
        self._turns = 0  # how often a provider was replaced
        self._next_peer = 0  # place of the peer that is tried next

    @property
    def is_idle(self) -> bool:
        """Whether nobody owes us a part of it."""
        return not any(source.owed for source in self._sources.values())

    def add(self, provider: PublicKey) -> None:
        """Somebody else should have it, too."""
        if provider not in self.providers and provider not in self._liars and len(self.providers) < PROVIDERS_MAX:
            self.providers.append(provider)
            self.paused_until_ms = 0

    def was_asked(self, number: int, peer: PublicKey) -> bool:
        """Whether a peer was asked for a chunk that has not come."""
        return (number, peer) in self._asked

    def ask(self, now_ms: int) -> list[Request]:
        """Have as many providers as should owe as many chunks as they should; what to ask them for."""
        if now_ms < self.paused_until_ms:
            return []
        self._engage(now_ms)
        requests: list[Request] = []
        taken = {number for source in self._sources.values() for number in source.owed}
        for provider, source in self._sources.items():
            for number in self.parts.wanted():
                if len(source.owed) >= PIPELINE or not self._load.may_owe_more(provider):
                    break
                if number in taken or not self._may_ask(number, provider, now_ms):
                    continue
                if not source.owed:
                    source.heard_ms, source.since_ms, source.arrived = now_ms, now_ms, 0
                taken.add(number)
                source.owed.add(number)
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
        is_single = self._is_alone or self.parts.size is None or not self.parts.is_large
        others = [provider for provider in self.providers if provider not in self._sources]
        fresh = [provider for provider in others if now_ms >= self._resting_until_ms.get(provider, 0)]
        for provider in fresh or ([] if self._sources else others):
            if len(self._sources) >= (1 if is_single else SOURCES_MAX):
                break
            if self._load.has_room(provider, self.parts):
                self._sources[provider] = _Source()
                self._load.count(provider, self.parts, 1)
        if not self._sources:
            self._clear()  # beginnings of contents that nobody sends would add up

    # what happens

    def on_arrival(self, number: int, size: int, peer: PublicKey, now_ms: int) -> None:
        """A chunk has come: nobody owes it any more, whoever was asked for it."""
        for provider, source in self._sources.items():
            if number in source.owed:
                source.owed.discard(number)
                self._load.owe(provider, -1)
            if provider == peer:
                source.heard_ms = now_ms
                source.arrived += size
        self._asked = {key: value for key, value in self._asked.items() if key[0] != number}

    def on_lack(self, peer: PublicKey, now_ms: int) -> None:
        """A provider does not have it: others go on, or it is asked again in a moment."""
        self._forget_asked(peer)
        if peer in self._sources:
            self._end(peer)
            if len(self.providers) > 1:
                self.providers.remove(peer)
            else:
                self.paused_until_ms = now_ms + STALL_MS

    def on_gone(self, provider: PublicKey, now_ms: int, peers: Sequence[PublicKey]) -> bool:
        """A provider is not connected any more; whether it was asked, so that others have to be."""
        if provider not in self.providers:
            return False
        was_asked = provider in self._sources
        self._end(provider)
        self._forget_asked(provider)
        self.providers.remove(provider)
        if self.providers or self.find_other(peers):
            return was_asked
        self.providers.append(provider)  # it may come back
        self.paused_until_ms = now_ms + STALL_MS
        return False

    def expose(self, liar: PublicKey) -> None:
        """Begin again without somebody who sent something wrong. So the size may have been right after all."""
        self._liars.add(liar)
        if liar in self.providers:
            self.providers.remove(liar)
        self.stop()
        self.parts.size = self._signed_size if self.parts.size is None else self.parts.size

    def doubt_size(self) -> None:
        """Begin again without a size: whoever signed it may have lied, and only the hash says what is right."""
        self.begin_alone()
        self._signed_size, self.parts.size = self.parts.size, None

    def begin_alone(self) -> None:
        """Begin again with one provider after another: several sent parts, and one of them lied."""
        self._is_alone = True
        self.stop()

    def stop(self) -> None:
        """Forget what has come, and that anybody was asked."""
        for provider in list(self._sources):
            self._end(provider)
        self._clear()

    # who is slow

    def review(self, now_ms: int, peers: Sequence[PublicKey]) -> None:
        """Replace sources that are silent or slow, if somebody else can go on, be it one of ``peers``."""
        if 0 < self.paused_until_ms <= now_ms or not self.providers:
            self.paused_until_ms = 0
            self.find_other(peers)
        for provider, source in list(self._sources.items()):
            if not source.owed:
                continue
            # Who is alone and replaced has to begin again: where all are slow, one must have the time to finish.
            patience = min(PATIENCE_MAX, self._turns // len(self.providers)) if self._is_alone else 0
            passed_ms = now_ms - source.since_ms
            is_silent = now_ms - source.heard_ms >= STALL_MS << patience
            has_passed = passed_ms >= RATE_WINDOW_MS << patience
            is_slow = has_passed and source.arrived * 1_000 < (RATE_MIN >> patience) * passed_ms
            if is_silent or (is_slow and len(self.providers) == 1):
                self.find_other(peers)
            if (is_silent or is_slow) and len(self.providers) > 1:
                self._replace(provider, now_ms)
            elif is_silent:
                self._release(provider, source)  # what it was asked for may have been lost
            elif has_passed:
                source.since_ms, source.arrived = now_ms, 0

    def find_other(self, peers: Sequence[PublicKey]) -> bool:
        """Take one of ``peers`` for a provider, another one each time; False: there is none that is not one."""
        if peers and not self.providers and self._liars.issuperset(peers):
            self._liars.clear()  # whoever it is, there is nobody else
        for place in range(self._next_peer, self._next_peer + len(peers)):
            other = peers[place % len(peers)]
            if other not in self.providers and other not in self._liars:
                if len(self.providers) >= PROVIDERS_MAX:
                    self.providers.remove(next(known for known in self.providers[::-1] if known not in self._sources))
                self.providers.append(other)
                self._next_peer = place + 1
                return True
        return False

    def _replace(self, provider: PublicKey, now_ms: int) -> None:
        """Let others go on. What the provider owes is taken nevertheless, should it come."""
        self._turns += 1
        self._end(provider)
        self._resting_until_ms[provider] = now_ms + REST_MS
        self.providers = [*(known for known in self.providers if known != provider), provider]

    def _end(self, provider: PublicKey) -> None:
        if (source := self._sources.pop(provider, None)) is not None:
            self._release(provider, source)
            self._load.count(provider, self.parts, -1)
            if self._is_alone:
                self._clear()

    def _release(self, provider: PublicKey, source: _Source) -> None:
        self._load.owe(provider, -len(source.owed))
        source.owed.clear()

    def _clear(self) -> None:
        self.parts.clear()
        self._asked.clear()

    def _forget_asked(self, provider: PublicKey) -> None:
        self._asked = {key: value for key, value in self._asked.items() if key[1] != provider}
