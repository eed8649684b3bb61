"""The providers of one content: those that should have it, those that rest, and those that lied. Pure; no I/O."""

from collections.abc import Collection, Sequence

from fedchain.crypto.keys import PublicKey

PROVIDERS_MAX = 8
"""Peers remembered for one content."""

REST_MS = 8_000
"""How long a provider that made way is passed over, if there are others."""


class Providers:
    """Peers that should have a content, the most promising first.

    Args:
        first: the one that is known.
        asks_others: whether peers that nobody named may have it, too.
    """

    def __init__(self, first: PublicKey, *, asks_others: bool) -> None:
        self.known = [first]
        """At most ``PROVIDERS_MAX``."""
        self.asks_others = asks_others
        """Whether peers that nobody named may have it, too."""
        self.doubters: set[PublicKey] = set()
        """Providers that sent a content that contradicts the signed size: one of the two is wrong."""
        self._resting_until_ms: dict[PublicKey, int] = {}
        self._liars: set[PublicKey] = set()
        self._next_peer = 0  # place of the peer that is tried next

    def __len__(self) -> int:
        return len(self.known)

    def __contains__(self, provider: PublicKey) -> bool:
        return provider in self.known

    def add(self, provider: PublicKey) -> bool:
        """Somebody else should have it, too; whether that is news."""
        if provider in self.known or provider in self._liars or len(self.known) >= PROVIDERS_MAX:
            return False
        self.known.append(provider)
        return True

    def drop(self, provider: PublicKey) -> None:
        """A provider does not have it, or is gone."""
        self.known = [known for known in self.known if known != provider]

    def expose(self, liar: PublicKey) -> None:
        """A provider sent something wrong: it is not asked again."""
        self._liars.add(liar)
        self.drop(liar)

    def doubt(self, provider: PublicKey) -> None:
        """A provider contradicts the signed size: others come first."""
        self.doubters.add(provider)
        self._put_last(provider)

    def rest(self, provider: PublicKey, now_ms: int) -> None:
        """A provider made way for others."""
        self._resting_until_ms[provider] = now_ms + REST_MS
        self._put_last(provider)

    def rested(self, busy: Collection[PublicKey], now_ms: int) -> list[PublicKey]:
        """Those that could be asked beside the ``busy`` ones: doubters come last."""
        found = [known for known in self.known if known not in busy and now_ms >= self._resting_until_ms.get(known, 0)]
        return sorted(found, key=self.doubters.__contains__)

    def find_other(self, peers: Sequence[PublicKey], busy: Collection[PublicKey]) -> bool:
        """Take one of ``peers`` for a provider, another one each time; False: there is none that is not one.

        It takes the place of one that is not ``busy``, if there are too many.
        """
        if not self.asks_others:
            return False
        if peers and not self.known and self._liars.issuperset(peers):
            self._liars.clear()  # liars or not, there is nobody else
        for place in range(self._next_peer, self._next_peer + len(peers)):
            other = peers[place % len(peers)]
            if other not in self.known and other not in self._liars:
                if len(self.known) >= PROVIDERS_MAX:
                    self.known.remove(next(known for known in self.known[::-1] if known not in busy))
                self.known.append(other)
                self._next_peer = place + 1
                return True
        return False

    def _put_last(self, provider: PublicKey) -> None:
        self.known = [*(known for known in self.known if known != provider), provider]
