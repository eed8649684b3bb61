"""Why a post is missing: the block that its member missed, and the state of its node."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from fedchain.chain.state import PUNCTUAL
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.web.chains import Chain, Reading

BLOCKS_TRIED = 3
"""Most blocks that are looked at to find one that a member missed: where contributors are drawn, most blocks
rightly lack its post."""

BLOCKS_SEARCHED = 500
"""Number of blocks below the head that are searched for it."""


def reasons(
    chain: Chain, reading: Reading, absent: Iterable[PublicKey], expected: Collection[PublicKey]
) -> Mapping[PublicKey, str]:
    """Why members have not posted or are not waited for, as far as known; empty if no reason is known.

    Args:
        chain: the chain whose nodes are asked.
        reading: the reading whose blocks are searched.
        absent: contributors of the open phase without a post.
        expected: contributors that are waited for; the others missed a block.
    """
    nodes = _nodes(chain)
    made = {}
    for member in absent:
        parts = [] if member in expected else [_missed(reading, member)]
        parts.append(nodes.get(address(member), ""))
        made[member] = ", ".join(part for part in parts if part)
    return made


def _nodes(chain: Chain) -> Mapping[str, str]:
    """The reason why each member's node has not posted, by the member's address; empty if none is known.

    If no node runs at all, none is called stopped: the whole federation is.
    """
    made = {holder.address: "its node gives no answer" for holder in chain.holders if holder.address and holder.silence}
    for holder in chain.holders:
        if holder.status is not None:
            made[holder.status.get("address", "")] = "its node trains" if holder.status.get("training") else ""
    stopped = (holder.address for holder in chain.holders if holder.status is None)
    return made | {owner: "its node is stopped" for owner in stopped if made and owner and owner not in made}


def _missed(reading: Reading, member: PublicKey) -> str:
    """The phase that a member missed, so that it is not waited for, and how often it has been on time since."""
    state = reading.explorer.state
    place = state.roster.seats[member]
    on_time = state.punctuality[place]
    made_good = f"on time {on_time} of {PUNCTUAL} times since" if on_time else ""
    head = reading.explorer.held.stop - 1
    lines = reading.columns.lines(head - BLOCKS_SEARCHED + 1, head)
    lacking = (line for line in reversed([*lines]) if line.senders and place not in line.senders)
    for line in islice(lacking, BLOCKS_TRIED):
        roster = reading.explorer.roster(line.height, line.round, line.phase)
        if roster is not None and member in roster.contributors:
            summary = reading.columns.summary(line)
            phase = f"{summary.phase} of " if len(reading.store.genesis.phases) > 1 else ""
            return ", ".join(part for part in (f"missed {phase}round {line.round}", made_good) if part)
    return ", ".join(part for part in ("missed an earlier phase", made_good) if part)
