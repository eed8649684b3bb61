"""The processes beside a node: one that trains and one that mines."""
