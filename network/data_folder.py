"""Files that the network keeps in a node's data folder between two runs; a reader of the files need not import it."""

ADDRESS_FILE = "addresses.json"
"""File of the addresses at which members were reached."""

BAN_FILE = "bans.json"
"""File of the banned members."""
