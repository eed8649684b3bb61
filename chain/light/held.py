"""Light blocks of a chain that is held, where members change: how they are made, and which of them have to be kept.

A block's header names the set of the next height by its hash alone. The set itself is in no block: it follows from the
state, which is kept for a few heights. So a light block is kept for the first height that another set decides. The set
of every height above, up to the next one that is kept, is the same, which the header below shows.
"""

from collections.abc import Callable
from typing import Protocol

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import UnknownParent
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.bisection import Bisection, Gap
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import trust_genesis
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.state import genesis_state
from fedchain.crypto.signatures import SignatureCheck


class Kept(Protocol):
    """Light blocks that are kept."""

    def light_below(self, height: int) -> LightBlock | None:
        """The highest one that is not above a height; None if there is none."""

    def light_above(self, height: int) -> LightBlock | None:
        """The lowest one above a height; None if there is none."""


Proven = Callable[[int], tuple[Block, Certificate] | None]
"""The final block of a height with a certificate that proves it; None if it is not held."""


def held_light_block(genesis: Genesis, height: int, final: Proven, kept: Kept) -> LightBlock | None:
    """The light block of a height, with the header below; None if the block, or the set that decides it, is not held.

    Nothing is computed for it: three blocks are read at most, and one light block that is kept.
    """
    below_it = kept.light_below(height)
    if below_it is not None and below_it.header.height == height and not below_it.is_alone:
        return below_it
    found, below = final(height), final(height - 1)
    if found is None or (below is None and height > 1):
        return None
    parent = None if below is None else below[0].header
    members = _set_named(genesis, None if parent is None else parent.members_root, below_it)
    if members is None:
        return None
    return LightBlock(genesis.chain_id, found[0].header, found[1], members=members, below=parent)


def light_block_between(genesis: Genesis, height: int, gap: Gap, final: Proven, kept: Kept) -> LightBlock | None:
    """The light block of a height, or else the nearest one that is kept in a gap, those below first.

    None: there is none. A peer that came to a head by a light path has that path, and no other block below its head at
    first. It led the peer there, so it leads others there, too.
    """
    low, high = gap
    if not low < height < high:
        return None
    if (found := held_light_block(genesis, height, final, kept)) is not None:
        return found
    below, above = kept.light_below(height), kept.light_above(height)
    if below is not None and low < below.header.height:
        return below
    return above if above is not None and above.header.height < high else None


def prove_held(
    genesis: Genesis,
    height: int,
    look: Callable[[int, Gap], LightBlock | None],
    is_valid_signature: SignatureCheck,
) -> Bisection:
    """Verify a height of a chain that is held, from the founding document on, by certificates alone.

    Args:
        genesis: the founding document.
        height: the height that is wanted.
        look: finds the light block of a height, or another one in a gap.
        is_valid_signature: checks signatures.

    Raises:
        UnknownParent: a light block that is needed is not held.
        Invalid: one of them is wrong.
    """
    way = Bisection(genesis, trust_genesis(genesis), height, is_valid_signature)
    while not way.is_done:
        block = look(way.wanted, way.gap)
        if block is None:
            low, high = way.gap
            raise UnknownParent("light path", f"no light block between heights {low} and {high} is held")
        way.take(block)
    return way


def _set_named(genesis: Genesis, root: bytes | None, below_it: LightBlock | None) -> MemberSet | None:
    """The set that a header names, or that founded the chain; None if neither is the named one."""
    founders = genesis_state(genesis).member_set
    if root is None or root == founders.root:
        return founders
    last = None if below_it is None else below_it.members
    return last if last is not None and last.root == root else None
