"""The kinds of files that a federation has, told apart by their content: for the error that one is not of the kind
that was asked for.
"""

import tomllib

_TABLES = (
    ({"cells", "variants"}, "an experiment"),
    ({"genesis", "key", "listen", "bootstrap"}, "a node's configuration"),
    ({"method", "dataset", "peers", "rounds", "adversaries", "faults", "task"}, "a scenario"),
)
"""Keys of which a TOML file of a kind has at least one, and that kind."""

_BEGINNINGS = (
    (b"\xdc\x00", "a genesis document"),  # a MessagePack array of more than fifteen items
    (b"-----BEGIN", "a key file"),
    (b"SQLite format 3\0", "the database of a chain"),
    (b"{", "JSON"),
)
"""How a file of a kind begins, and that kind."""


def looks_like(content: bytes, wanted: str = "") -> str:
    """Says what a file with this content looks like, such as "it looks like a scenario"; "" if that is not known.

    One of the kind that is ``wanted`` could not be read as it: "it is damaged". One without content: "it is empty".
    """
    if not content:
        return "it is empty"
    try:
        keys = tomllib.loads(content.decode()).keys()
        kind = next((kind for known, kind in _TABLES if known & keys), "TOML" if keys else "")
    except (ValueError, RecursionError):
        kind = next((kind for beginning, kind in _BEGINNINGS if content.startswith(beginning)), "")
    if kind and kind == wanted:
        return "it is damaged"
    return f"it looks like {kind}" if kind else ""
