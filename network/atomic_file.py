"""Small files that survive a crash: what a peer remembers between two runs."""

import os
from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Let the new text take the old one's place complete and on disk, or not at all. Raises OSError."""
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
