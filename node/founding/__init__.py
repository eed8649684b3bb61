"""Where a genesis document meets a learning method: the task of a federation, and what both say for people."""
