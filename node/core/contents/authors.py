"""Authors of parts: which of them work and votes wait for, and which gave a part last."""

from fedchain.chain.roster import Roster
from fedchain.crypto.keys import PublicKey

TIMES_MAX = 30
"""Most doublings of the number of heights for which an author is not waited for, once its parts failed to come."""


class Authors:
    """Remembers how authors of parts kept their promises."""

    def __init__(self) -> None:
        self._gave: dict[PublicKey, int] = {}  # when each of them gave a part last
        self._in_vain: dict[PublicKey, tuple[int, int]] = {}  # how often it was awaited in vain, and until which height
        self._refused: set[PublicKey] = set()  # authors whose parts did not match their lists, this phase

    def is_waited_for(self, author: PublicKey, height: int) -> bool:
        """Whether work and votes wait for the parts of an author; after a wait in vain they do not for a while."""
        _, until = self._in_vain.get(author, (0, 0))
        return height >= until

    def pass_over(self, author: PublicKey, height: int) -> None:
        """The parts of an author were awaited in vain: do not wait for them at the next heights."""
        times, _ = self._in_vain.get(author, (0, 0))
        self._in_vain[author] = times + 1, height + (2 << min(times, TIMES_MAX))

    def on_refused(self, author: PublicKey) -> None:
        """A part did not match its author's list."""
        self._refused.add(author)

    def on_head(self, height: int, roster: Roster) -> None:
        """Another phase is open: authors whose parts were refused in the last one are not waited for.

        A member keeps its record under its next key: otherwise it would be waited for anew with each key.
        """
        for author in self._refused:
            self.pass_over(author, height)
        self._refused.clear()
        if roster.successors:
            self._gave = {roster.current(key): time_ms for key, time_ms in self._gave.items()}
            self._in_vain = {roster.current(key): pause for key, pause in self._in_vain.items()}

    def on_part(self, giver: PublicKey, now_ms: int) -> None:
        """A peer gave the last bytes of a part."""
        self._gave[giver] = now_ms

    def gave_ms(self, author: PublicKey) -> int:
        """When an author gave a part last; 0 if it never did."""
        return self._gave.get(author, 0)
