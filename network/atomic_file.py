"""Small files that survive a crash: what a peer remembers between two runs."""

import os
from pathlib import Path

OWNER_ONLY = 0o600


def write_file(path: Path, text: str) -> None:
    """Let the new text take the old one's place complete and on disk, or not at all; nobody else reads it.

    Raises:
        OSError: it could not be written.
    """
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)  # an old one may be open to others
    with open(new, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, OWNER_ONLY)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
