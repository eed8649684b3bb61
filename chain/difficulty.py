"""Difficulty: targets, their compact form, work, and the retarget. Integers only, so everyone agrees.

The retarget follows the *mining* time alone, the median of the times that the voters measured: from the moment when a
voter could have mined itself until the block came (DFPL Eq. 9 calls its mean β). Training time says nothing about hash
power, and waiting for a deadline is not mining.
"""

TARGET_MAX = 2**255 - 1
"""The easiest target: about every second hash meets it."""

ADJUST_MAX = 4
"""One observed mining time counts as at most this many times the target mining time, and at least its inverse."""

DAMPING = 4
"""A block moves the target by this fraction (1/4) of the change that its mining time calls for.

Mining times are exponentially distributed; following each of them fully would make the target a random walk.
"""


def next_bits(bits: int, mining_time_ms: int, target_mining_time_ms: int) -> int:
    """Difficulty of the next block, in compact form, after a block that took ``mining_time_ms`` to mine.

    target' = target · ((DAMPING − 1)·T + clamp(t, T/4, 4·T)) / (DAMPING·T), and never above ``TARGET_MAX``.
    """
    goal = target_mining_time_ms
    observed = min(max(mining_time_ms, goal // ADJUST_MAX), goal * ADJUST_MAX)
    target = target_from_bits(bits) * ((DAMPING - 1) * goal + observed) // (DAMPING * goal)
    return bits_from_target(min(max(target, 1), TARGET_MAX))


def target_from_bits(bits: int) -> int:
    """Expand the compact form: mantissa · 256^(exponent − 3). (Bitcoin: nBits)"""
    exponent, mantissa = bits >> 24, bits & 0xFFFFFF
    return mantissa << 8 * (exponent - 3) if exponent >= 3 else mantissa >> 8 * (3 - exponent)


def bits_from_target(target: int) -> int:
    """Write ``target`` in compact form, rounded down to 23 bits of precision."""
    exponent = (target.bit_length() + 7) // 8
    mantissa = target >> 8 * (exponent - 3) if exponent >= 3 else target << 8 * (3 - exponent)
    if mantissa & 0x800000:  # Bitcoin's sign bit; it stays clear here too
        mantissa, exponent = mantissa >> 8, exponent + 1
    return exponent << 24 | mantissa


def is_canonical_bits(bits: int) -> bool:
    """Whether ``bits`` is the compact form of a target between 1 and ``TARGET_MAX``."""
    if not 0 < bits < 2**32 or bits >> 24 > 32:
        return False
    target = target_from_bits(bits)
    return 0 < target <= TARGET_MAX and bits_from_target(target) == bits


def work_from_bits(bits: int) -> int:
    """Expected number of hashes behind a block of this difficulty."""
    return 2**256 // (target_from_bits(bits) + 1)


def bits_from_attempts(attempts: int) -> int:
    """Difficulty at which a block takes ``attempts`` hashes on average."""
    return bits_from_target(min(2**256 // max(attempts, 2) - 1, TARGET_MAX))
