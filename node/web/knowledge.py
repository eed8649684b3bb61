"""What the rounds left behind, side by side: how far class prototypes or models moved."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.chain.explorer.explorer import KnowledgeRules
from fedchain.crypto.hashing import Hash
from fedchain.learning.application import Application
from fedchain.learning.exceptions import LearningError
from fedchain.node.web.chains import Reading
from fedchain.node.web.prototype_map import Dot, prototype_map

ROUNDS_SHOWN = 40
"""Rounds up to the one that is asked for."""

READ_SIZE_MAX = 96 * 2**20
"""Bytes of knowledge that are read for one page; of larger models fewer rounds are compared."""

KEPT_SIZE_MAX = 16 * 2**20
"""Bytes of what was read that are kept for the next page."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Seen:
    """A round's knowledge as far as it is compared."""

    round: int
    """The round."""
    prototypes: dict[int, Vector] | None
    """By class, (D,) each; None for a method without."""
    model: Vector | None
    """All tensors in one row; None where there are prototypes."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        rows = [self.model] if self.model is not None else [*(self.prototypes or {}).values()]
        return sum(row.nbytes for row in rows)


@dataclass(frozen=True, slots=True)
class Drift:
    """How what the rounds left behind moved."""

    rounds: tuple[int, ...]
    """Rounds that were compared."""
    by_class: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]
    """For each class its label, and (round, L2 distance to the round before)."""
    of_model: tuple[tuple[int, float], ...]
    """(round, L2 distance to the round before) of everything together."""
    places: tuple[Dot, ...]
    """Prototypes of the last round on the plane of their two main directions, each with where it was before."""


class KnowledgeReader:
    """Reads what rounds left behind, and keeps a bounded part of it. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hash, Seen] = OrderedDict()
        self._size_bytes = 0

    def drift(self, reading: Reading, rules: KnowledgeRules, last: int) -> Drift:
        """Compare the rounds up to ``last`` as far as their knowledge is kept and can be read."""
        roots = dict[int, Hash]()
        for line in reversed([*reading.columns.lines()]):
            if 0 < line.round <= last and line.round not in roots:
                roots[line.round] = line.knowledge_root
            if len(roots) == ROUNDS_SHOWN:
                break
        seen, left = list[Seen](), READ_SIZE_MAX
        with self._lock:
            for number, root in roots.items():  # the newest first: a large model leaves no room for old ones
                found = self._read(reading, rules, number, root)
                if found is None or (left := left - found.size_bytes) < 0:
                    break
                seen.append(found)
        return _compare(seen[::-1])

    def _read(self, reading: Reading, rules: KnowledgeRules, number: int, root: Hash) -> Seen | None:
        if root in self._kept:
            self._kept.move_to_end(root)
            return replace(self._kept[root], round=number)
        data = reading.store.content(root)
        if data is None or not isinstance(rules, Application):
            return None
        try:
            tensors = rules.read_knowledge(data)
            found = None if tensors is None else rules.method.prototypes(tensors)
        except (LearningError, ValueError):
            return None
        if tensors is None:
            return None
        seen = Seen(number, None, _flat(tensors)) if found is None else Seen(number, _by_class(found), None)
        self._kept[root] = seen
        self._size_bytes += seen.size_bytes
        while self._size_bytes > KEPT_SIZE_MAX:
            self._size_bytes -= self._kept.popitem(last=False)[1].size_bytes
        return seen


def _by_class(found: Any) -> dict[int, Vector]:
    rows = found["prototypes"].astype(np.float32)  # (n, D)
    return {int(label): row.reshape(-1) for label, row in zip(found["labels"].tolist(), rows, strict=True)}


def _flat(tensors: Any) -> Vector:
    rows = [
        np.asarray(value, np.float32).reshape(-1) for _, value in sorted(tensors.items()) if value.dtype.kind == "f"
    ]
    return np.concatenate(rows) if rows else np.zeros(0, np.float32)


def _compare(seen: list[Seen]) -> Drift:
    moved, by_class = list[tuple[int, float]](), dict[int, list[tuple[int, float]]]()
    for before, after in pairwise(seen):
        if before.model is not None and after.model is not None and before.model.shape == after.model.shape:
            moved.append((after.round, _distance(before.model, after.model)))
        for label, row in (after.prototypes or {}).items():
            old = (before.prototypes or {}).get(label)
            if old is not None and old.shape == row.shape:
                by_class.setdefault(label, []).append((after.round, _distance(old, row)))
    return Drift(
        rounds=tuple(item.round for item in seen),
        by_class=tuple((label, tuple(points)) for label, points in sorted(by_class.items())),
        of_model=tuple(moved),
        places=prototype_map([item.prototypes for item in seen if item.prototypes]),
    )


def _distance(a: Vector, b: Vector) -> float:
    return float(np.linalg.norm(a.astype(np.float64) - b))
