"""The loop: damage an input, run a target on it, keep what behaves in a new way, and report what must not happen."""

import re
import time
import traceback
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.mutation import mutate, mutate_text

CORPUS = Path(__file__).parent / "corpus"
"""One folder of inputs per target."""

POOL_MAX = 512
"""Inputs that are mutated further."""

MEASURED_EVERY = 8
"""One execution in so many has its allocations measured, which makes it slower."""

ALLOCATED_PER_BYTE_MAX = 192
"""An empty list is one byte on the wire and 80 in memory; a decoder also writes it anew to compare."""

CPU_S_MAX = 5.0
"""An input that takes longer is a finding."""

FINDINGS_MAX = 5
"""A target is left after so many different findings."""


@dataclass(frozen=True, slots=True)
class Session:
    """A target that is ready to run."""

    seeds: Sequence[bytes]
    """Valid inputs."""
    check: Callable[[bytes], str]
    """Runs one input and says how it ended; whatever it raises is a finding."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that takes bytes from strangers."""

    name: str
    open: Callable[[], Session]
    """Prepares it; costly imports happen here."""
    is_text: bool = False
    """Whether lines and numbers are mutated, rather than msgpack."""
    allocated_base: int = 2**19
    """Bytes that may be allocated whatever the size of the input."""
    weight: int = 1
    """Share of the time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that did what must not happen."""

    data: bytes = field(repr=False)
    """The input."""
    what: str
    """The error and where it was raised."""
    trace: str = field(repr=False)
    """The whole traceback."""


@dataclass(slots=True)
class Outcome:
    """Behaviour of a target under a number of inputs."""

    executions: int = 0
    seconds: float = 0.0
    behaviours: set[str] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)


def fuzz(target: Target, seed: int, *, seconds: float = 1e9, executions_max: int = 10**9) -> Outcome:
    """Run ``target`` on mutated inputs until the time or the number of executions is over."""
    session, rng, outcome = target.open(), Random(f"{target.name} {seed}"), Outcome()
    pool = [*session.seeds, *stored_inputs(target.name)]
    for data in pool:
        _execute(target, session, data, outcome, measured=False)  # it also fills caches, which are not to be measured
    damage = mutate_text if target.is_text else mutate
    begun = time.perf_counter()
    while outcome.executions < executions_max and len(outcome.findings) < FINDINGS_MAX:
        outcome.seconds = time.perf_counter() - begun
        if outcome.seconds >= seconds:
            break
        data = damage(rng.choice(pool), rng.choice(pool), rng)
        if _execute(target, session, data, outcome, measured=outcome.executions % MEASURED_EVERY == 0):
            if len(pool) < POOL_MAX:
                pool.append(data)
            else:
                pool[rng.randrange(len(session.seeds), POOL_MAX)] = data
    outcome.seconds = time.perf_counter() - begun
    return outcome


def replay(target: Target, data: bytes) -> Finding | None:
    """Run one input."""
    outcome, session = Outcome(), target.open()
    for item in (*session.seeds, data):
        _execute(target, session, item, outcome, measured=item is data)
    return next(iter(outcome.findings.values()), None)


def stored_inputs(name: str) -> list[bytes]:
    """Regression inputs of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]


def _execute(target: Target, session: Session, data: bytes, outcome: Outcome, *, measured: bool) -> bool:
    """Run one input; whether it behaved as none before it."""
    outcome.executions += 1
    begun = time.process_time()
    if measured:
        tracemalloc.start()
    try:
        behaviour = _outline(session.check(data))
        allocated = tracemalloc.get_traced_memory()[1] if measured else 0
        cpu_s = time.process_time() - begun
        allowed = target.allocated_base + ALLOCATED_PER_BYTE_MAX * len(data)
        assert allocated <= allowed, f"{allocated} bytes allocated for {len(data)}, at most {allowed}"
        assert cpu_s <= CPU_S_MAX, f"{cpu_s:.1f} s of CPU for {len(data)} bytes"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}"[:300] + f" ({place.name}, {Path(place.filename).name}:{place.lineno})"
        key = f"{type(error).__name__} {place.filename}:{place.lineno} {_outline(str(error))[:40]}"
        outcome.findings.setdefault(key, Finding(data, what, traceback.format_exc()))
        return False
    finally:
        if measured:
            tracemalloc.stop()
    if behaviour in outcome.behaviours:
        return False
    outcome.behaviours.add(behaviour)
    return True


def _outline(text: str) -> str:
    """A message without its numbers, hashes and quotations, so that equal causes look alike."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[0-9a-f]{8,}…?|\d+", "*", text)[:160]
