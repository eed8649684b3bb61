"""Common parts of campaigns: figures printed as they come, and a folder that is kept if one falls short."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Figures:
    """Prints what was measured, and remembers whether it was good enough."""

    def __init__(self) -> None:
        self.short: list[str] = []
        """Figures that fell short."""

    def show(self, text: str) -> None:
        """Print a figure that nothing is asked of."""
        print(f"      {text}", flush=True)

    def require(self, holds: bool, text: str) -> None:
        """Print a figure, and whether it is what it must be."""
        print(f"{'ok' if holds else 'SHORT':5} {text}", flush=True)
        if not holds:
            self.short.append(text)


@contextmanager
def campaign(name: str) -> Iterator[tuple[Figures, Path]]:
    """Figures and a folder for one campaign; exits with 1, and leaves the folder behind, where it fell short."""
    figures, folder = Figures(), Path(tempfile.mkdtemp(prefix=f"fedchain-{name}-"))
    figures.show(f"{os.getloadavg()[0]:.1f} processes wanted the {os.cpu_count()} cores before this began")
    try:
        yield figures, folder
    except BaseException:
        print(f"what it left is in {folder}", file=sys.stderr)
        raise
    if figures.short:
        print(f"what it left is in {folder}", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of ``values`` that at least ``percent`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]
