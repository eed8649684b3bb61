"""Changes of the membership, until a block counts them."""
