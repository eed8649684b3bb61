"""What to do with a gossip message once it was judged: pass it on, drop it, or hold it against its sender."""

from enum import Enum

from fedchain.chain.exceptions import Invalid, Refused


class Verdict(Enum):
    """As in gossipsub's extended validators."""

    ACCEPT = "accept"
    """It is new and good: pass it on."""
    IGNORE = "ignore"
    """It cannot be used now, and nobody is to blame: drop it."""
    REJECT = "reject"
    """It breaks a rule for ever: drop it and remember who sent it."""


def verdict(error: Refused | None) -> Verdict:
    """What a message deserves after it was judged; None means that nothing was wrong."""
    if error is None:
        return Verdict.ACCEPT
    return Verdict.REJECT if isinstance(error, Invalid) else Verdict.IGNORE
