"""Following: a node that is behind reaches the head of the chain, and fetches blocks and contents that it lacks."""
