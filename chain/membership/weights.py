"""Difficulty for each member: a weight, in whole bits, says how much easier its blocks are than another member's.

A block makes the next one of its miner twice as hard. Members win equally many blocks in the long run, whatever their
hash rates: one that is twice as fast comes to rest where a block takes it twice the hashes. So power buys a burst
alone, of about log2(rate) blocks. Nobody measures rates, and nobody can feign one.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from fedchain.chain.difficulty import TARGET_MAX, bits_from_target, target_from_bits
from fedchain.chain.membership.member import WEIGHT_MAX, WEIGHT_MIN, Member
from fedchain.crypto.keys import PublicKey


def shares_of(weights: Iterable[int]) -> int:
    """The shares of mining of all members that may mine, given their weights: two to the power of each, added up."""
    return sum(count << weight - WEIGHT_MIN for weight, count in Counter(weights).items())


def weigh(bits: int, weight: int, shares: int, members: int) -> int:
    """The difficulty of a member's block, in compact form.

    Targets are in proportion to two to the power of the weight. The members' mean target is the common one, so that
    blocks, which move the weights, do not move the time that the next one takes: that is the retarget's business.

    Args:
        bits: the common difficulty, in compact form.
        weight: the member's weight.
        shares: those of all members that may mine (:func:`shares_of`).
        members: their number.
    """
    target = target_from_bits(bits) * (members << weight - WEIGHT_MIN) // shares
    return bits_from_target(min(max(target, 1), TARGET_MAX))


def reweigh(records: Iterable[Member], active: Container[PublicKey], miner: PublicKey) -> list[Member]:
    """The records after a block.

    Weights are relative: what the miner loses is a gain of all others. They are counted from that of the member at
    place ⌊n/3⌋, from 0, of the n active ones in the order of their weights. It is one that mines, and no liar has moved
    it far: fewer than a third lie, and if they have sunk below all others, it is the lowest honest one; members that
    never mine rise above it, and would pull an average or a median up with them. The bounds on both sides are counted
    from there, so a member that did not mine for long comes back with a few blocks in hand, and no more.

    Args:
        records: those before the block, by seat; the others than the active ones stay.
        active: members that could have mined it.
        miner: the one that did.
    """
    fallen = [record if record.key != miner else replace(record, weight=record.weight - 1) for record in records]
    weights = sorted([record.weight for record in fallen if record.key in active])
    reference = weights[len(weights) // 3] if weights else 0
    if not reference and weights and weights[0] >= WEIGHT_MIN and weights[-1] <= WEIGHT_MAX:
        return fallen  # nobody's changes, as with most blocks
    return [
        replace(record, weight=min(max(record.weight - reference, WEIGHT_MIN), WEIGHT_MAX))
        if record.key in active
        else record
        for record in fallen
    ]


def weight_of_newcomers(records: Sequence[Member], active: Container[PublicKey]) -> int:
    """The weight at which a member begins: the lowest of the active ones. Another key is then worth no blocks."""
    return min((record.weight for record in records if record.key in active), default=0)
