"""What the network keeps in a node's data folder between two runs. Whoever looks for the files need not import it."""

ADDRESS_FILE = "addresses.json"
"""Where members were reached."""

BAN_FILE = "bans.json"
"""Who is banned."""
