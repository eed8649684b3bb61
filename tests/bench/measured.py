"""The measurements, each in a fresh process: ``python -m tests.bench.measured NAME SCENARIO``."""

import hashlib
import json
import sys
import time
from dataclasses import replace
from itertools import pairwise

from fedchain.simulator.scenario import Scenario, scenario_from_dict

HASHES = 20_000


def scenario_of(text: str) -> Scenario:
    """Read a scenario that was handed over as JSON."""
    return scenario_from_dict(json.loads(text))


def simulation(scenario: Scenario) -> dict[str, float | None]:
    """A simulation with real training, as ``fedchain simulate`` runs it."""
    from fedchain.simulator.run import load_learner, simulate

    outcome = simulate(scenario, load_learner(scenario))
    assert not outcome.violations, outcome.violations
    return {"accuracy": outcome.rows[-1].taa}


def updates(scenario: Scenario) -> dict[str, float]:
    """Updates a second of wall-clock time, and CPU seconds of a round in the simulating process, after five rounds."""
    from fedchain.simulator.run import load_learner, simulate

    marks: list[tuple[float, float]] = []
    outcome = simulate(
        scenario, load_learner(scenario), lambda row: marks.append((time.perf_counter(), time.process_time()))
    )
    assert not outcome.violations, outcome.violations
    (wall_s, cpu_s), (last_wall_s, last_cpu_s), count = marks[4], marks[-1], len(marks) - 5
    posts = sum(row.posts for row in outcome.rows[5:])
    return {"per_s": posts / (last_wall_s - wall_s), "cpu_s": (last_cpu_s - cpu_s) / count}


def bare(scenario: Scenario) -> dict[str, float]:
    """The bare loop."""
    from tests.bench.bare import run

    return {"accuracy": run(scenario)}


def protocol(scenario: Scenario) -> dict[str, float]:
    """The protocol alone."""
    from tests.support.simulator.trivial import run_trivial

    begun = time.perf_counter()
    outcome = run_trivial(scenario)
    assert not outcome.violations, outcome.violations
    return {"events": outcome.events, "wall_s": time.perf_counter() - begun}


def rounds(scenario: Scenario) -> dict[str, list[float]]:
    """CPU seconds of every round of the protocol alone, the first one without what comes before it."""
    from tests.support.simulator.trivial import run_trivial

    marks: list[float] = []
    outcome = run_trivial(scenario, on_round=lambda row: marks.append(time.process_time()))
    assert not outcome.violations, outcome.violations
    return {"cpu_s": [after - before for before, after in pairwise(marks)]}


def local_steps(scenario: Scenario) -> dict[str, list[float]]:
    """The cost of a local step in every method; ``rounds`` are the repetitions."""
    from tests.bench.local_steps import run

    return run(scenario.rounds)


def encryption(scenario: Scenario) -> dict[str, float]:
    """Threshold encryption; ``rounds`` are the repetitions."""
    from tests.bench.encryption import run

    return run(scenario.rounds)


def payload(scenario: Scenario) -> dict[str, float]:
    """The cost of ResNet-18's payload; ``rounds`` are the repetitions."""
    from tests.bench.payload import run

    return run(scenario.rounds)


def memory(scenario: Scenario) -> dict[str, float | str]:
    """The memory of all processes of a simulation with real training."""
    from tests.bench.memory import run

    return run(scenario)


def scrypt(scenario: Scenario) -> dict[str, float]:
    """Hashes per second through ``search_nonce`` and in a bare loop, in turns; the median of the ratios."""
    from fedchain.chain.proof_of_work import search_nonce
    from tests.support.chain.builders import ChainBuilder, genesis

    header = replace(ChainBuilder(genesis()).extend().header, bits=0x03000001)  # nobody meets this target
    seal, ours, theirs = header.seal(), list[float](), list[float]()
    for _ in range(7):
        begun = time.perf_counter()
        assert search_nonce("scrypt", header, 0, HASHES // 7) is None
        middle = time.perf_counter()
        for nonce in range(HASHES // 7):
            data = seal + nonce.to_bytes(8, "big")
            hashlib.scrypt(data, salt=data, n=1024, r=1, p=1, dklen=32)
        ours.append(HASHES // 7 / (middle - begun))
        theirs.append(HASHES // 7 / (time.perf_counter() - middle))
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return {"ratio": ratios[3], "per_s": sorted(ours)[3]}


def main() -> None:
    """Run one and print what it measured itself."""
    measured = globals()[sys.argv[1]](scenario_of(sys.argv[2]))
    print(json.dumps(measured or {}))


if __name__ == "__main__":
    main()
