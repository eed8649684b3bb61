"""Privacy leakage: attacks that recover a member's images from posts of real clients, and the attacks' scores."""
