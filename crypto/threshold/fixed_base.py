"""Powers of one base, over and over: a table takes most of the work out of each.

The exponent's bits are written into `ROWS` rows, one below the other, and each row is cut into `BLOCKS` blocks. A table
holds, for each block, the product of every choice of rows; a power then takes a product per column, and squarings only
for the columns of one block. At an exponent of 1024 bits that is 144 products instead of some 1,200.

Source: Lim, Lee, "More flexible exponentiation with precomputation", CRYPTO 1994.
"""

from gmpy2 import mpz

ROWS, BLOCKS = 8, 8
"""The table holds BLOCKS · 2^ROWS numbers: 1 MiB at a modulus of 4096 bits."""


class FixedBase:
    """A base, and the table for its powers up to a largest exponent.

    Which entries a power reads depends on the exponent. A process on the same machine that watches the caches could
    learn from that; what must withstand it takes :func:`fedchain.crypto.threshold.power.power`.
    """

    def __init__(self, base: mpz, modulus: mpz, exponent_bits: int) -> None:
        self._modulus = modulus
        self._exponent_bits = exponent_bits
        self._columns = -(-exponent_bits // (ROWS * BLOCKS))
        self._tables = self._build(base)

    def power(self, exponent: int) -> mpz:
        """``base`` to the power of ``exponent``, modulo the modulus.

        Raises:
            ValueError: the exponent is negative, or has more bits than the table is for.
        """
        if exponent < 0 or exponent.bit_length() > self._exponent_bits:
            raise ValueError(f"an exponent of {exponent.bit_length()} bits, the table is for {self._exponent_bits}")
        chosen = self._choices(exponent)
        result, modulus = mpz(1), self._modulus
        for column in range(self._columns - 1, -1, -1):
            result = result * result % modulus
            for block, table in enumerate(self._tables):
                if choice := chosen[block * self._columns + column]:
                    result = result * table[choice] % modulus
        return result

    def _choices(self, exponent: int) -> bytes:
        """For each column of all blocks, which rows have a one there, as bits of a byte."""
        width = self._columns * BLOCKS
        digits = format(exponent, "b").zfill(width * ROWS)
        rows = [digits[len(digits) - (row + 1) * width : len(digits) - row * width] for row in range(ROWS)]
        return bytes(int("".join(column), 2) for column in zip(*reversed(rows), strict=True))[::-1]

    def _build(self, base: mpz) -> list[list[mpz]]:
        """For each block, the product of every choice of rows, at the place that the choice's bits name."""
        modulus, tables = self._modulus, list[list[mpz]]()
        starts = [base % modulus]  # base^(2^k) for each k at which a block of a row begins
        for _ in range(ROWS * BLOCKS - 1):
            square = starts[-1]
            for _ in range(self._columns):
                square = square * square % modulus
            starts.append(square)
        for block in range(BLOCKS):
            table = [mpz(1)]
            for row in range(ROWS):
                table += [entry * starts[row * BLOCKS + block] % modulus for entry in table]
            tables.append(table)
        return tables
