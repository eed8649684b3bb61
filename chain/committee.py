"""How likely a drawn committee has more bad members than it can bear.

A federation of n members bears f(n) liars. A committee of c members that is drawn from them bears f(c) liars, and luck
may put more of them into it. The draw is that of a lottery without replacement, so the law is hypergeometric.
"""

from fractions import Fraction
from math import comb

from fedchain.chain.genesis import FaultModel


def captured_share(members: int, liars: int, committee: int) -> Fraction:
    """Of all committees of ``committee`` out of ``members``, the share in which more than f of ``liars`` sit.

    Two blocks of one height may then become final. It is the probability for one height; a chain draws at each.
    """
    bearable = FaultModel.BYZANTINE.faulty(committee)
    honest = members - liars
    bad = sum(comb(liars, count) * comb(honest, committee - count) for count in range(bearable + 1, committee + 1))
    return Fraction(bad, comb(members, committee))
