"""Objects that the peers of a simulation have in common, since one process plays all of them."""
