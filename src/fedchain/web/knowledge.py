"""The knowledge of successive rounds compared: how far class prototypes or models moved."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedchain.chain.exceptions import ChainError
from fedchain.chain.explorer.knowledge_views import KnowledgeRules
from fedchain.chain.explorer.views import KnowledgeView
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import Hash
from fedchain.learning.application import Application
from fedchain.learning.class_prototypes import class_prototypes
from fedchain.learning.exceptions import LearningError
from fedchain.learning.models.parameters import parameter_spec
from fedchain.web.chains import Chain, Reading
from fedchain.web.prototype_map import Dot, prototype_map

ROUNDS_SHOWN = 40
"""Rounds up to the one that is asked for."""

PAGE_CPU_S = 0.03
"""CPU time that a page spends on reading knowledge for the first time; the rest is read in the background."""

KEPT_SIZE_MAX = 16 * 2**20
"""Bytes of prototypes that are kept for the next page."""

VIEWS_KEPT, DISTANCES_KEPT, WANTED_MAX = 128, 4_096, 8
"""Most entries that are remembered: views of knowledge, distances between models, and chains to read in background."""

ELEMENTS_AT_ONCE = 2**18
"""Elements whose distance is calculated at once, in float64."""

K = TypeVar("K")
V = TypeVar("V")

Vector = NDArray[np.float32]
Prototypes = dict[int, Vector]
"""Prototypes by class, (D,) each."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the knowledge moved from round to round."""

    rounds: tuple[int, ...]
    """Rounds that were compared."""
    by_class: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]
    """For each class its label, and (round, L2 distance to the round before)."""
    of_model: tuple[tuple[int, float], ...]
    """(round, L2 distance to the round before) of everything together."""
    places: tuple[Dot, ...]
    """Prototypes of the last round on the plane of their two main directions, each with its earlier places."""
    unread: int
    """Rounds that are still to be read in the background; a later page shows them, too."""
    is_of_model: bool = False
    """Whether the phases of the method leave a whole model behind."""


@dataclass(slots=True)
class _Wanted:
    """Knowledge of a chain that a page lacked."""

    chain: Chain
    rules: Application
    roots: deque[tuple[Hash, Hash]]  # of a round and of the one before it, from the newest round to the oldest


class KnowledgeReader:
    """Reads the knowledge that rounds left behind, and keeps a bounded part of it. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[tuple[int, Hash], KnowledgeView] = OrderedDict()
        self._prototypes: OrderedDict[Hash, Prototypes] = OrderedDict()
        self._size_bytes = 0
        self._distances: OrderedDict[tuple[Hash, Hash], float] = OrderedDict()
        self._wanted: OrderedDict[str, _Wanted] = OrderedDict()
        self._held: tuple[Hash, Mapping[str, Any]] | None = None  # the model that was read last in the background

    def view(self, reading: Reading, rules: KnowledgeRules, round_number: int) -> KnowledgeView:
        """The explorer's view of the knowledge that a round left behind. Raises as ``KeptContents.knowledge`` does."""
        heights = reading.store.heights_of_round(round_number)
        lines = reading.columns.lines(heights[-1], heights[-1]) if heights else iter(())
        key = next(((round_number, line.knowledge_root) for line in lines), None)
        with self._lock:
            if key is not None and key in self._views and round_number < reading.explorer.state.round:
                self._views.move_to_end(key)
                return self._views[key]
        found = reading.explorer.kept.knowledge(rules, round_number)
        with self._lock:
            _remember(self._views, (round_number, found.knowledge_root), found, VIEWS_KEPT)
        return found

    def drift(self, chain: Chain, reading: Reading, rules: KnowledgeRules, view: KnowledgeView) -> Drift:
        """Compare the rounds up to the viewed one, as far as their knowledge is kept and can be read."""
        roots, last = dict[int, Hash](), view.round
        for line in reversed([*reading.columns.lines_of_rounds(max(1, last - ROUNDS_SHOWN + 1), last)]):
            roots.setdefault(line.round, line.knowledge_root)
        if not roots or not isinstance(rules, Application):
            return Drift((), (), (), (), 0)
        if view.prototypes is None:
            left = _names_left(rules)
            if not left:  # only parts, or numbers without meaning by themselves: they have no distance
                return Drift((), (), (), (), 0)
            is_model = {spec.name for spec in parameter_spec(rules.info)} <= left
            return replace(self._of_models(chain, reading.store, rules, roots), is_of_model=is_model)
        found = dict[int, Prototypes]()
        for number, root in roots.items():
            prototypes = self._of_classes(reading.store, rules, root)
            if prototypes is None:
                break
            found[number] = prototypes
        return _compare(dict(reversed(found.items())))

    def work(self) -> bool:
        """Compare two rounds that a page lacked; return whether there were any. In one thread only."""
        with self._lock:
            if not self._wanted:
                return False
            key, wanted = next(iter(self._wanted.items()))
            after, before = wanted.roots.popleft()
            is_last = not wanted.roots
            if is_last:
                del self._wanted[key]
        try:
            with wanted.chain.apart() as store:
                held = self._held if self._held is not None and self._held[0] == after else None
                newer = _read(store, wanted.rules, after) if held is None else held[1]
                older = _read(store, wanted.rules, before)
        except ChainError:  # it was moved away, or is damaged: its pages say so
            newer = older = None
        if newer is not None and older is not None:
            with self._lock:
                _remember(self._distances, (after, before), _distance(newer, older), DISTANCES_KEPT)
        self._held = None if is_last or older is None else (before, older)
        if is_last:
            wanted.chain.compared += 1
        return True

    def _of_models(self, chain: Chain, store: Store, rules: Application, roots: Mapping[int, Hash]) -> Drift:
        """Compare models. They are large: a page reads few of them, and leaves the others to :meth:`work`."""
        begun_s = time.thread_time()
        moved, lacking = dict[int, float](), list[tuple[Hash, Hash]]()
        held: tuple[Hash, Mapping[str, Any] | None] | None = None
        for (number, after), before in zip(roots.items(), [*roots.values()][1:], strict=False):
            with self._lock:
                known = self._distances.get((after, before))
            if known is not None:
                moved[number] = known
                continue
            if not (store.holds_content(after) and store.holds_content(before)):
                break
            if time.thread_time() - begun_s > PAGE_CPU_S:
                lacking.append((after, before))
                continue
            newer = held[1] if held is not None and held[0] == after else _read(store, rules, after)
            older = _read(store, rules, before)
            if newer is None or older is None:
                break
            moved[number], held = _distance(newer, older), (before, older)
            with self._lock:
                _remember(self._distances, (after, before), moved[number], DISTANCES_KEPT)
        if lacking:
            with self._lock:
                _remember(self._wanted, chain.key, _Wanted(chain, rules, deque(lacking)), WANTED_MAX)
        points = tuple(sorted(moved.items()))
        return Drift(tuple(number for number, _ in points), (), points, (), len(lacking))

    def _of_classes(self, store: Store, rules: Application, root: Hash) -> Prototypes | None:
        """The class prototypes in knowledge; None if there are none, or it cannot be read."""
        with self._lock:
            if root in self._prototypes:
                self._prototypes.move_to_end(root)
                return self._prototypes[root]
        tensors = _read(store, rules, root)
        try:
            found = None if tensors is None else class_prototypes(rules.method, tensors)
        except LearningError:  # a user's own method may give those of some rounds only
            found = None
        if found is None:
            return None
        rows = found["prototypes"].astype(np.float32)  # (n, D)
        prototypes = {int(k): row.reshape(-1) for k, row in zip(found["labels"].tolist(), rows, strict=True)}
        with self._lock:
            if root not in self._prototypes:
                self._prototypes[root] = prototypes
                self._size_bytes += _size(prototypes)
            while self._size_bytes > KEPT_SIZE_MAX:
                self._size_bytes -= _size(self._prototypes.popitem(last=False)[1])
        return prototypes


def _names_left(rules: Application) -> set[str]:
    """Names of the float tensors that phases of the learning method leave behind, beside the parts that they list."""
    specs = (spec for phase in rules.method.phases for spec in rules.method.knowledge_spec(phase, rules.info))
    return {spec.name for spec in specs if spec.dtype.startswith("float")}


def _read(store: Store, rules: Application, root: Hash) -> Mapping[str, Any] | None:
    """Knowledge by its hash; None if it is not kept or cannot be read."""
    data = store.content(root)
    if data is None:
        return None
    try:
        return rules.read_knowledge(data)
    except (LearningError, ValueError):
        return None


def _remember(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def _size(prototypes: Prototypes) -> int:
    return sum(row.nbytes for row in prototypes.values())


def _compare(found: Mapping[int, Prototypes]) -> Drift:
    by_class = dict[int, list[tuple[int, float]]]()
    for (_, before), (number, after) in pairwise(found.items()):
        for label, row in after.items():
            old = before.get(label)
            if old is not None and old.shape == row.shape:
                by_class.setdefault(label, []).append((number, _norm(row, old) ** 0.5))
    return Drift(
        rounds=tuple(found),
        by_class=tuple((label, tuple(points)) for label, points in sorted(by_class.items())),
        of_model=(),
        places=prototype_map([*found.values()]),
        unread=0,
    )


def _distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """L2 distance of two models; tensors that only one of them has, or that differ in shape, are ignored."""
    total = 0.0
    for name, rows in a.items():
        if name in b and rows.dtype.kind == "f" and rows.shape == b[name].shape:
            one, other = rows.reshape(-1), b[name].reshape(-1)
            for start in range(0, one.size, ELEMENTS_AT_ONCE):
                end = start + ELEMENTS_AT_ONCE
                total += _norm(one[start:end], other[start:end])
    return float(total**0.5)


def _norm(a: Vector, b: Vector) -> float:
    """Square of the L2 distance."""
    difference = a.astype(np.float64) - b
    return float(difference @ difference)
