"""Posts that say in few bytes by how much a model changed: how they are packed, and what all members unpack."""
