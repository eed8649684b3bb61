"""Verdicts on messages: gossip is passed on, dropped for now, or dropped for ever."""

from enum import Enum

from fedchain.chain.exceptions import Invalid, Refused


class Verdict(Enum):
    """As in gossipsub's extended validators, and one more for messages that are no gossip."""

    ACCEPT = "accept"
    """It is new and good: pass it on."""
    PROGRESS = "progress"
    """It is no gossip, and our head moved with it: the time that it took is not charged to its sender."""
    IGNORE = "ignore"
    """It cannot be used now: drop it. Should it come again, it may be good then."""
    REJECT = "reject"
    """It breaks a rule for ever: drop it, from any neighbour. That is its author's fault, not a neighbour's."""


def verdict(error: Refused | None) -> Verdict:
    """Return the verdict on a message that was judged; an ``error`` of None means that nothing was wrong."""
    if error is None:
        return Verdict.ACCEPT
    return Verdict.REJECT if isinstance(error, Invalid) else Verdict.IGNORE
