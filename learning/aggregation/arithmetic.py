"""A known-answer test: a process that judges aggregates must compute to the bit what all others compute.

Any IEEE 754 machine passes it. A process fails it if some library has set its floating-point unit to flush subnormals
to zero or to round differently: it would call honest blocks false. Numbers stand here as their bits, in hexadecimal,
because such a process does not even read them correctly.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import WrongArithmetic

_LEFT = """
    3FD5555555555555 3FB999999999999A 400921FB54442D18 3FF0000000000001 433FFFFFFFFFFFFF 7FDC000000000000
    C4DFE185CA57C517 419D6F34547DF3B6 0010000000000000 16687E92154EF7AC 00003739A252B281 0000000000000001"""
_RIGHT = """
    4008000000000000 3FC999999999999A C005BF0A8B145769 3FEFFFFFFFFFFFFF 3FF0000000000001 4000000000000000
    401C000000000000 3E7AD7F29ABCAF48 3FD3333333333333 2704A8729FC3DDB7 8010000000000000 4008000000000000"""
"""1/3 and 3; 0.1 and 0.2; pi and -e; above and below 1; 2^53 - 1; 7.9e307 and 2; -6e23 and 7; 1.2e8 and 1e-7; the
smallest normal number and 0.3; 1e-200 and 1e-120; a subnormal number and the smallest normal one; 5e-324 and 3."""

_RESULTS = {
    "add": """
    400AAAAAAAAAAAAB 3FD3333333333334 3FDB1786497EAD78 4000000000000000 4340000000000000 7FDC000000000000
    C4DFE185CA57C517 419D6F34547DF3BD 3FD3333333333333 2704A8729FC3DDB7 800FC8C65DAD4D7F 4008000000000000""",
    "subtract": """
    C005555555555555 BFB999999999999A 40177082EFAC4240 3CB8000000000000 433FFFFFFFFFFFFE 7FDC000000000000
    C4DFE185CA57C517 419D6F34547DF3AF BFD3333333333333 A704A8729FC3DDB7 00103739A252B281 C008000000000000""",
    "multiply": """
    3FF0000000000000 3F947AE147AE147C C02114580B45D474 3FF0000000000000 4340000000000000 7FEC000000000000
    C50BE555110CCC74 4028B0FCD38E7D9E 0004CCCCCCCCCCCD 00000000000007E8 8000000000000000 0000000000000003""",
    "divide": """
    3FBC71C71C71C71C 3FE0000000000000 BFF27DDBF6271DBE 3FF0000000000002 433FFFFFFFFFFFFD 7FCC000000000000
    C4B237BA2A7B4C0D 43118B54F26E74C0 002AAAAAAAAAAAAB 2F52F8AC174D6123 BF8B9CD129594080 0000000000000000""",
}
_ROOTS = """
    3FE279A74590331C 3FD43D136248490F 3FFC5BF891B4EF6A 3FF0000000000000 4196A09E667F3BCC 5FE52A7FA9D2F8EA
    426695D5550FAB2E 40C5B38E3769E551 2000000000000000 2B2BFF2EE48E0530 1FCDB9B6D15869B2 1E60000000000000"""
"""Square roots of the left numbers without their sign."""

_WIDE = """
    3FD5555555555555 3FF0000010000000 3FF0000030000000 BFF0000010000004 4170000010000000 47EFFFFFE0000000
    380FFFFFF0000000 3800000000000000 366244CE242C5561"""
_NARROW = "3EAAAAAB 3F800000 3F800002 BF800001 4B800000 7F7FFFFF 00800000 00400000 00000000"
"""Float64 and its float32: 1/3; half-way down and up, to even; beyond half-way; 2^24 + 1; the largest; rounded up to
the smallest normal number; 2^-127, which is subnormal; 1e-46, which is too small."""

_SUMS = {
    "54B249AD2594C37D 3FF0000000000000 D4B249AD2594C37D": "3FF0000000000000",  # 1e100 + 1 - 1e100
    "3FB999999999999A " * 10: "3FF0000000000000",  # ten times 0.1
    "0010000000000000 800FFFFFFFFFFFFE": "0000000000000002",  # subnormal
}

_COPIES = 7
"""How often an array has each number: vector units take up to eight at a time, and the rest one by one."""


def check_arithmetic() -> None:
    """Raise `WrongArithmetic`, which names the first difference, if this process computes other bytes."""
    left, right = _float64(_LEFT), _float64(_RIGHT)
    with np.errstate(all="ignore"):
        for operation, results in _RESULTS.items():
            _compare(operation, getattr(np, operation)(left, right), results)
        _compare("sqrt", np.sqrt(np.abs(left)), _ROOTS)
        _compare("rounding to float32", _float64(_WIDE).astype(np.float32), _NARROW)
    for terms, result in _SUMS.items():
        numbers = _bits(terms, np.uint64).view(np.float64).tolist()
        _compare("fsum", np.full(_COPIES, math.fsum(numbers)), result)


def _compare(operation: str, found: NDArray[np.float64] | NDArray[np.float32], expected: str) -> None:
    kind: type[Any] = np.uint32 if found.dtype == np.float32 else np.uint64
    wanted = np.tile(_bits(expected, kind), _COPIES)
    differs = np.flatnonzero(found.view(kind) != wanted)
    if len(differs):
        place = differs[0]
        computed, right = (f"{int(bits[place]):0{2 * bits.itemsize}x}" for bits in (found.view(kind), wanted))
        number = place % (len(wanted) // _COPIES) + 1
        raise WrongArithmetic(
            f"this machine computes {computed} instead of {right} ({operation}, example {number}): it would disagree "
            "with every other one; look for a library that sets the floating-point unit to flush subnormal numbers"
        )


def _float64(numbers: str) -> NDArray[np.float64]:
    return np.tile(_bits(numbers, np.uint64).view(np.float64), _COPIES)


def _bits(numbers: str, kind: type[Any]) -> NDArray[Any]:
    return np.array([int(number, 16) for number in numbers.split()], dtype=kind)
