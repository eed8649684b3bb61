"""Adversaries that say nothing, or stop all the time."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedchain.node.core.effects import Blame, Effect, Publish, Send
from fedchain.simulator.adversaries.adversary import Adversary, Parameter

FALLS_SILENT_MAX = 12
"""Heights of which one is drawn."""


class Silent(Adversary):
    """Listens, and says nothing at all."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Nothing leaves the peer."""
        return () if isinstance(effect, Publish | Send | Blame) else super().say(effect)


class FallsSilent(Adversary):
    """Follows the protocol up to a height, and says nothing from then on."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"height": Parameter(0, 0, 1e9)}
    """The last height at which it speaks; 0: one that is drawn among the first."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Nothing leaves the peer above that height."""
        if not self._last:
            self._last = int(self.parameters["height"]) or self.draw.randint(1, FALLS_SILENT_MAX)
        is_silent = self.height > self._last and isinstance(effect, Publish | Send | Blame)
        return () if is_silent else super().say(effect)

    _last = 0


class CrashLoop(Adversary):
    """Crashes every few seconds and comes back at once, from what it had stored."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"up_s": Parameter(3.0, 1, 1e9)}

    def act(self) -> None:
        """Crash at some ticks."""
        if self.draw.random() < 1 / self.parameters["up_s"]:
            peer = self.peer
            peer.crash()
            self.coalition.loop.call_later(self.draw.random(), peer.start)
