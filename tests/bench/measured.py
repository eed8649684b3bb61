"""The measurements, each in a fresh process: ``python -m tests.bench.measured NAME SCENARIO``."""

import base64
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedchain.collector import importing
from fedchain.simulator.scenario import Scenario, scenario_from_dict
from tests.bench.processes import Mark, Trained, mark

if TYPE_CHECKING:
    from fedchain.simulator.engine.measurement import RoundMetrics
    from fedchain.simulator.engine.witness import Witness

HASHES = 20_000


def scenario_of(text: str) -> Scenario:
    """Read a scenario that was handed over as JSON."""
    return scenario_from_dict(json.loads(text))


def training(scenario: Scenario, shares_checks: bool = True) -> dict[str, Any]:
    """A simulation with real training, as ``fedchain simulate`` runs it: in a run folder, with its record."""
    with importing(keeps=True):  # as the command does
        from fedchain.simulator.report import RunFolder
        from fedchain.simulator.resuming.resume import identity
        from fedchain.simulator.run import Run, load_learner

    marks: list[Mark] = []
    rows: list[RoundMetrics] = []

    def on_round(row: "RoundMetrics", witness: "Witness") -> None:
        rows.append(row)
        folder.write_rows(rows, witness.blocks)
        marks.append(mark())

    learner = load_learner(scenario)
    folder = RunFolder(Path(tempfile.mkdtemp()) / "run", scenario)  # whoever measures removes it
    record = folder.open_record(identity(scenario), is_resumed=False)
    with closing(record):
        with Run(scenario, learner, record, shares_checks=shares_checks) as run:
            outcome = run.play(on_round, folder.chain)
        folder.write_outcome(outcome, 0.0)
        record.delete()
    assert not outcome.violations, outcome.violations
    drawn, result = _posted(folder.chain, scenario.rounds)
    updates = sum(map(len, drawn))
    steps = sum(learner.planned_steps(client, "update", 1) for clients in drawn for client in clients)
    return as_printed(Trained(steps, updates, result, tuple(marks))) | {"drawn": drawn}


def bare(
    scenario: Scenario, workers: int = 1, drawn: Sequence[Sequence[int]] | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """The bare loop, with threads and allocator as a training process has them."""
    import torch

    from fedchain.allocator import TRAINING_KEPT_SIZE, TRAINING_MAPPED_SIZE, return_large_blocks
    from fedchain.learning.device import use_threads
    from tests.bench.bare import Loop, draw_as_the_processor

    use_threads()
    return_large_blocks(TRAINING_MAPPED_SIZE, TRAINING_KEPT_SIZE)
    if device != "cpu":
        draw_as_the_processor()
        torch.backends.cudnn.allow_tf32 = False  # as in a simulation
    return as_printed(Loop(scenario, drawn, torch.device(device)).run(workers))


def _posted(folder: Path, rounds: int) -> tuple[list[list[int]], Any]:
    """The posters of each round, and the state after the last one: the model, or the prototypes; flat."""
    import numpy as np

    from fedchain.chain.state import genesis_state
    from fedchain.chain.storage.sqlite import Store
    from fedchain.chains import Chain

    drawn: list[list[int]] = [[] for _ in range(rounds)]
    with closing(Store.open(folder, read_only=True)) as store:
        seats = genesis_state(store.genesis).roster.seats
        height = 0
        while (found := store.final(height := height + 1)) is not None:
            drawn[found[0].header.round - 1] += [seats[post.sender] for post in found[0].transactions]
    with closing(Chain(folder)) as chain:
        left = chain.tensors()
    whole = [left["prototypes"]] if "prototypes" in left else left.values()
    return [sorted(clients) for clients in drawn], np.concatenate([value.ravel() for value in whole])


def as_printed(done: Trained) -> dict[str, Any]:
    """The work that a side did, as its process prints it."""
    return asdict(done) | {"result": base64.b64encode(done.result.astype("<f4").tobytes()).decode()}


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


def traffic(scenario: Scenario, payload: int, shares_checks: bool) -> dict[str, Any]:
    """Bytes by kind and CPU of every round but the first of the protocol alone, with the run's shape."""
    from tests.support.simulator.scale import padded_simulation, sent_by_name, shape_of

    marks: list[float] = []
    simulation = padded_simulation(
        scenario, payload, on_round=lambda row: marks.append(time.process_time()), shares_checks=shares_checks
    )
    outcome = simulation.run()
    assert not outcome.violations, outcome.violations
    return {
        "cpu_s": [after - before for before, after in pairwise(marks)],
        "virtual_s": outcome.virtual_s,
        "began_s": outcome.rows[0].virtual_s,
        "voting_s": [row.voting_s for row in outcome.rows],
        "trace": outcome.trace_hash,
        "sent": sent_by_name(outcome),
        "shape": asdict(shape_of(scenario, simulation, outcome, payload)),
    }


def roster(scenario: Scenario) -> dict[str, float]:
    """CPU seconds and bytes of the state behind a block, which draws committee and contributors and counts turnouts."""
    from fedchain.chain.applying import apply_block
    from fedchain.chain.block import Block
    from fedchain.chain.certificate import certify
    from fedchain.chain.membership.change import CHANGES_VERSION
    from fedchain.chain.membership.turnout import Turnout, mark_seats
    from fedchain.chain.vote import sign_vote
    from tests.support.chain.builders import ChainBuilder, genesis

    drawn = {"committee_size": scenario.committee_size, "contributors_per_round": scenario.contributors_per_round}
    founding, spent, size = genesis(scenario.peers, version=CHANGES_VERSION, **drawn), list[float](), 0
    chain = ChainBuilder(founding)
    parent = chain.extend()
    for _ in range(5):
        seats = chain.states[parent.header.parent_hash].roster.seats
        turnout = Turnout(1_000, 200, mark_seats(seats[post.sender] for post in parent.transactions), b"")
        votes = (
            sign_vote(
                chain.key(vote.voter),
                founding.chain_id,
                vote.slot,
                vote.block_hash,
                clock_ms=vote.clock_ms,
                mining_ms=vote.mining_ms,
                turnout=turnout,
            )
            for vote in chain.certificate(parent).votes
        )
        parent = chain.extend(certificate=certify(votes))
        data, before = parent.encode(), chain.states[parent.header.parent_hash]
        again = Block.decode(data, len(data))  # what followed from the builder's own object is remembered
        begun = time.process_time()
        size = len(apply_block(founding, before, again).encode())
        spent.append(time.process_time() - begun)
    return {"state_s": sorted(spent)[2], "bytes": size}


def sockets(scenario: Scenario) -> dict[str, Any]:
    """Traffic of node processes on loopback; ``rounds`` are those that are counted."""
    from tests.bench.sockets import run

    return run(scenario)


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
    measured = globals()[sys.argv[1]](scenario_of(sys.argv[2]), *map(json.loads, sys.argv[3:]))
    print(json.dumps(measured or {}))


if __name__ == "__main__":
    main()
