"""Adversaries that say nothing, or stop all the time."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedchain.node.core.effects import Blame, Effect, Publish, Send
from fedchain.simulator.adversaries.adversary import Adversary, Parameter


class Silent(Adversary):
    """Listens, and says nothing at all."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Nothing leaves the peer."""
        return () if isinstance(effect, Publish | Send | Blame) else super().say(effect)


class CrashLoop(Adversary):
    """Crashes every few seconds and comes back at once, from what it had stored."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"up_s": Parameter(3.0, 1, 1e9)}

    def act(self) -> None:
        """Crash at some ticks."""
        if self.draw.random() < 1 / self.parameters["up_s"]:
            peer = self.peer
            peer.crash()
            self.coalition.loop.call_later(self.draw.random(), peer.start)
