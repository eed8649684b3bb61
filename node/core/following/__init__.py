"""How a node that is behind comes to the head of the chain, and how it gets back what it lacks."""
