"""Why a post is not in: the block that its member missed, and what its node does."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from fedchain.chain.state import PUNCTUAL
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.web.chains import Chain, Reading

BLOCKS_TRIED = 3
"""Blocks that are read for a member to find the one it missed: where contributors are drawn, most lack it rightly."""

BLOCKS_SEARCHED = 500
"""Blocks below the head among which it is looked for."""


def reasons(
    chain: Chain, reading: Reading, absent: Iterable[PublicKey], expected: Collection[PublicKey]
) -> Mapping[PublicKey, str]:
    """Why members have not posted or are not waited for, as far as it is known; empty where nothing is.

    Args:
        chain: whose nodes are looked at.
        reading: whose blocks are.
        absent: contributors of the open phase without a post.
        expected: those that are waited for; the others missed a block.
    """
    nodes = _nodes(chain)
    made = {}
    for member in absent:
        parts = [] if member in expected else [_missed(reading, member)]
        parts.append(nodes.get(address(member), ""))
        made[member] = ", ".join(part for part in parts if part)
    return made


def _nodes(chain: Chain) -> Mapping[str, str]:
    """What the node of each member does that keeps its post back, by the member's address.

    Where no node runs at all, nobody is said to be stopped: the whole federation is.
    """
    made = dict[str, str]()
    for holder in chain.holders:
        if holder.status is not None:
            made[holder.status.get("address", "")] = "its node trains" if holder.status.get("training") else ""
    stopped = (holder.address for holder in chain.holders if holder.status is None)
    return made | {owner: "its node is stopped" for owner in stopped if made and owner and owner not in made}


def _missed(reading: Reading, member: PublicKey) -> str:
    """Which block a member that is not waited for missed, and what it has made good since."""
    state = reading.explorer.state
    place = state.roster.seats[member]
    on_time = state.punctuality[place]
    made_good = f"on time {on_time} of {PUNCTUAL} times since" if on_time else ""
    head = reading.explorer.held.stop - 1
    lines = reading.columns.lines(head - BLOCKS_SEARCHED + 1, head)
    lacking = (line for line in reversed([*lines]) if line.senders and place not in line.senders)
    for line in islice(lacking, BLOCKS_TRIED):
        if address(member) in (reading.explorer.block(str(line.height)).missing or ()):
            summary = reading.columns.summary(line)
            phase = f"{summary.phase} of " if len(reading.store.genesis.phases) > 1 else ""
            return ", ".join(part for part in (f"missed {phase}round {line.round}", made_good) if part)
    return ", ".join(part for part in ("missed an earlier phase", made_good) if part)
