"""The gate of a node with three members, and the clocks that it is given."""

from pathlib import Path

from fedchain.network.admission import Gate
from fedchain.network.limits import Limits
from fedchain.network.membership import Membership
from tests.support.chain.builders import keys

MEMBERS = [key.public_key for key in keys(3)]

LIMITS = Limits(
    messages_per_s=2.0,
    messages_burst=4.0,
    bytes_per_s=10.0,
    bytes_burst=100.0,
    cpu_share=0.25,
    cpu_burst_s=5.0,
    answer_bytes_per_s=100.0,
    answer_bytes_burst=1_000.0,
    blame_max=10.0,
    blame_decay_per_s=1.0,
    ban_s=60.0,
)

NOON_S = 1_700_000_000.0


class Calendar:
    """A clock that people set."""

    def __init__(self, now_s: float = NOON_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def gate(folder: Path | None = None, calendar: Calendar | None = None, now_s: float = 0.0) -> Gate:
    return Gate(Membership(MEMBERS), LIMITS, folder, wall=calendar or Calendar(), now_s=now_s)
