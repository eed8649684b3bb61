"""The outcome of a simulation: the results that a finished run gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedchain.files.links import Link
from fedchain.files.members import MemberAccuracy
from fedchain.learning.training.measured import Evaluation
from fedchain.node.shell.timeline import SeenBlock
from fedchain.simulator.engine.measurement import RoundMetrics, Span


@dataclass(slots=True)
class Outcome:
    """Results of a simulation."""

    rows: list[RoundMetrics]
    """One per round."""
    timeline: dict[tuple[int, int], Span]
    """Times of each peer's work, by (peer number, round)."""
    tip: str
    """Hash of the head, in hexadecimal."""
    knowledge_root: str
    """Hash of the final knowledge, in hexadecimal."""
    trace_hash: str
    """SHA-256 over every delivery, contribution, seal, head and fault, in order, stretch by stretch, in hexadecimal."""
    virtual_s: float
    """Duration of the run, in virtual seconds."""
    events: int
    """Number of events that the nodes handled."""
    violations: list[str]
    """Violations that the checker found; empty if all is well."""
    last_local: dict[int, tuple[int, Evaluation | None]] = field(default_factory=dict)
    """By number of each honest peer that trained: its last round of training, even if it was down before it could post,
    and its model's evaluation then; None: it was not measured."""
    members: list[MemberAccuracy] = field(default_factory=list)
    """Accuracies of the members' models, by round and member."""
    totals: dict[str, Any] = field(default_factory=dict)
    """Blocks, attempts, bans, bytes and the like."""
    not_posted: list[str] = field(default_factory=list)
    """Reasons for which peers had nothing to post: one line for each peer and round, in order."""
    skipped: list[str] = field(default_factory=list)
    """Contributions that a peer could not use, and why: one line for each receiver, sender and round, in order."""
    knowledge: bytes = field(default=b"", repr=False)
    """The final knowledge itself, as the learning method's rules read it."""
    links: list[Link] = field(default_factory=list)
    """Traffic between the members; none of very many members."""
    seen: list[SeenBlock] = field(default_factory=list)
    """Observations of blocks before they were final, by all honest peers."""
    trained_on: Mapping[str, str] = field(default_factory=dict)
    """Device, card, driver and torch that trained, where the scenario names a device other than the processor."""
