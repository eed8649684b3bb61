"""How sums are opened of which nobody sees a term."""
