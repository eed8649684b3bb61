"""Ending: a node ends by itself if its model is good enough, or stops improving, if the last round is closed, or if its
member is gone for good."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from fedchain.chain.membership.member import Standing
from fedchain.crypto.keys import PublicKey
from fedchain.node.shell.service import Service

log = logging.getLogger("fedchain.node")

LINGER_S_MIN, LINGER_S_MAX = 3.0, 60.0
"""Bounds of the time for which a finished node serves the last block, until all connected members have it."""

LOOKS = 30
"""How often it looks at the others in the least time."""


@dataclass(slots=True)
class Ending:
    """Decides whether to leave, from the closed rounds. The decision is local: the others go on without this peer."""

    accuracy: float = 0.0
    """Accuracy that is enough for this peer, as a fraction of its own test set; 0 to leave at none."""
    patience: int = 0
    """Rounds without a better model after which the peer leaves; 0 for never."""
    _best: float = field(default=-1.0, init=False)
    _since_best: int = field(default=0, init=False)
    _judged: int = field(default=0, init=False)  # the last round that was judged

    def reason(self, open_round: int, trained_round: int, accuracy: float | None) -> str:
        """The reason to leave now; empty if there is none.

        Args:
            open_round: the round that is open; those before it are closed.
            trained_round: the round in which the model was trained last.
            accuracy: accuracy of that model, as a fraction of this peer's own test set; None if it was not measured.
        """
        if accuracy is None or not self._judged < trained_round < open_round:
            return ""
        self._judged = trained_round
        if self.accuracy and accuracy >= self.accuracy:
            return f"accuracy {accuracy:.4f} has reached {self.accuracy:g} in round {trained_round}"
        self._since_best = 0 if accuracy > self._best else self._since_best + 1
        self._best = max(self._best, accuracy)
        if self.patience and self._since_best >= self.patience:
            return f"accuracy was never above {self._best:.4f} in the last {self._since_best} rounds"
        return ""


class Departure:
    """Watches a service, and ends it in time.

    Args:
        ending: decides when to leave early.
        exits_when_finished: whether to leave after the last round.
    """

    def __init__(self, ending: Ending, *, exits_when_finished: bool) -> None:
        self._ending, self._exits = ending, exits_when_finished

    async def wait(self, service: Service, leave: Callable[[], None]) -> None:
        """Wait for a reason, let the others fetch the last block, and leave."""
        while not (reason := self._reason(service)):  # it may have finished before it was started
            await service.next_head()
        log.info("ending: %s", reason)
        with anyio.move_on_after(LINGER_S_MAX):
            await _linger(service)
        leave()

    def _reason(self, service: Service) -> str:
        """The reason to leave at this head; empty if there is none."""
        head, activity = service.node.head, service.activity
        if (record := service.node.own_record()) is not None and record.standing.is_for_good:
            how = "left" if record.standing is Standing.LEFT else "was removed by the others"
            return f"this member {how}, from round {record.round} on"
        open_round = head.round + 1 if head.finished else head.round
        reason = self._ending.reason(open_round, activity.trained_round, activity.accuracy)
        return reason or ("the last round is closed" if head.finished and self._exits else "")


async def _linger(service: Service) -> None:
    """Wait until those that are connected have the block at the head.

    The vote of a member that is gone may have been needed for that block, and lost on its way: where it is cut off
    before any honest member need be among those that have said that they have the block, or have posted to the phase
    behind it, nobody else may have it.
    """
    height, begun_s, have_it = service.node.head.height, anyio.current_time(), set[PublicKey]()
    while True:
        lagging = service.node.lagging(height)
        head, waited_s = service.node.head, anyio.current_time() - begun_s
        if head.height == height:
            posted = {post.sender for post in service.node.open_posts()}
            have_it |= (service.peers - set(lagging) | posted).intersection(head.roster.counting)
        is_enough = head.height > height or len(have_it) > head.rules.fault_model.faulty(head.roster.active)
        if waited_s >= LINGER_S_MIN and not lagging and (service.peers or is_enough or not _is_gone(service)):
            return
        await anyio.sleep(LINGER_S_MIN / LOOKS)


def _is_gone(service: Service) -> bool:
    """Whether the member is gone for good, and the others go on without it."""
    record = service.node.own_record()
    return record is not None and record.standing.is_for_good
