"""Settings of ``fedchain plan``, beside those of the scenario. Nothing heavy is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fedchain.files.tables import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The numbers by which the budget is divided."""

    total_s: float = 100.0
    """Seconds that all rounds have together, t_sum."""
    alpha: float | None = None
    """Seconds of a local step; without: measured here."""
    beta: float | None = None
    """Seconds that a block takes to mine; without: measured here, for the scenario's mining_attempts."""
    rounds_max: Annotated[int, Range(1, 10_000)] = 20
    """Largest number of rounds, R."""
    chi: float | None = None
    """Mean squared gradient that Corollary 2 is asked about; without: the measured one."""
    bounds: bool = True
    """Whether the constants of the corollaries are estimated, and the corollaries applied."""
    seeds: Annotated[int, Range(1, 1_000)] = 1
    """Seeds of what --out writes, from the scenario's on."""
    out: Path | None = None
    """File for the experiment that simulates each R; without: none is written."""
