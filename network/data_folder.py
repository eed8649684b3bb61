"""Files that the network keeps in a node's data folder between two runs; their names can be imported without it."""

ADDRESS_FILE = "addresses.json"
"""File of the addresses at which members were reached."""

BAN_FILE = "bans.json"
"""File of the banned members."""
