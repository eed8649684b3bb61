"""Access to a file that holds a secret, by its mode."""

import shlex
from pathlib import Path

OTHERS, GROUP_AND_OTHERS = 0o007, 0o077


def exposure(path: Path, mode: int, closed_to: int = GROUP_AND_OTHERS) -> str | None:
    """Describe what is wrong with a secret file that others may use, and what to do about it; None if nothing is.

    Args:
        path: of the file.
        mode: of the file, as `os.stat` has it.
        closed_to: bits of its mode that must not be set.
    """
    if not mode & closed_to:
        return None
    return f"{path} has mode {mode & 0o777:04o}, others may read it; run: chmod 600 {shlex.quote(str(path))}"
