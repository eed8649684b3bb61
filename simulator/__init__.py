"""Many peers on one machine, in virtual time."""
