"""Adversaries that fall silent, or keep crashing."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedchain.network.messages import Status
from fedchain.node.core.effects import Blame, Effect, Publish, Send
from fedchain.node.core.events import Event, MessageReceived
from fedchain.node.core.voting.twins import SILENT_HEIGHTS
from fedchain.simulator.adversaries.adversary import Adversary, Parameter


class Silent(Adversary):
    """Listens, and sends nothing at all."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Let nothing leave the peer."""
        return () if isinstance(effect, Publish | Send | Blame) else super().say(effect)


class FallsSilent(Adversary):
    """Follows the protocol up to a height, and sends nothing from then on.

    If no height is given, it waits for a member that has lost its disk. Such a member stays silent for a number of
    heights that everybody knows; at about the time when it speaks again, this adversary falls silent.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"height": Parameter(0, 0, 1e9)}
    """The last height at which it speaks; 0 if none is given, see above."""

    def listen(self, event: Event) -> Sequence[Event]:
        """Notice a peer that lost its chain: it claims height 0."""
        match event:
            case MessageReceived(_, Status(0)) if not self._last and self.height > SILENT_HEIGHTS:
                self._last = self.height - 1 + 2 * SILENT_HEIGHTS + self.draw.choice((-1, 0, 0, 1))
            case _:
                pass
        return (event,)

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Let nothing leave the peer above that height."""
        last = int(self.parameters["height"]) or self._last
        is_silent = 0 < last < self.height and isinstance(effect, Publish | Send | Blame)
        return () if is_silent else super().say(effect)

    _last = 0


class CrashLoop(Adversary):
    """Crashes every few seconds and restarts within a second from its storage."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"up_s": Parameter(3.0, 1, 1e9)}

    def act(self) -> None:
        """Crash at some ticks."""
        if self.draw.random() < 1 / self.parameters["up_s"]:
            peer = self.peer
            peer.crash()
            self.coalition.loop.call_later(self.draw.random(), peer.restart)
