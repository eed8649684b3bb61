"""How much of a member's images the others could see: attacks on posts that the real clients make, and their scores."""
