"""Views of what nodes and simulations observed beside the chain: lost blocks, and the parts of members in rounds."""
