"""How likely a drawn committee has more faulty members than it tolerates.

A federation of n members tolerates f(n) liars. A committee of c members drawn from them tolerates f(c) liars, and
chance may put more of them into it. The draw is without replacement, so the number of liars is hypergeometric.
"""

from fractions import Fraction
from math import comb

from fedchain.chain.genesis import FaultModel


def captured_share(members: int, liars: int, committee: int) -> Fraction:
    """Share of all committees of ``committee`` out of ``members`` that contain more than f(``committee``) liars.

    Such a committee could finalize two blocks at one height. The probability is for one height; a chain draws at each.
    """
    bearable = FaultModel.BYZANTINE.faulty(committee)
    honest = members - liars
    bad = sum(comb(liars, count) * comb(honest, committee - count) for count in range(bearable + 1, committee + 1))
    return Fraction(bad, comb(members, committee))
