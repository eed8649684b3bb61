"""What to do with a gossip message once it was judged: pass it on, drop it for now, or drop it for ever."""

from enum import Enum

from fedchain.chain.exceptions import Invalid, Refused


class Verdict(Enum):
    """As in gossipsub's extended validators."""

    ACCEPT = "accept"
    """It is new and good: pass it on."""
    PROGRESS = "progress"
    """It was asked for and brought our head forward: nobody is to answer for the time that it took."""
    IGNORE = "ignore"
    """It cannot be used now: drop it. Should it come again, it may be good then."""
    REJECT = "reject"
    """It breaks a rule for ever: drop it, whoever brings it again. That is its author's fault, not a neighbour's."""


def verdict(error: Refused | None) -> Verdict:
    """What a message deserves after it was judged; None means that nothing was wrong."""
    if error is None:
        return Verdict.ACCEPT
    return Verdict.REJECT if isinstance(error, Invalid) else Verdict.IGNORE
