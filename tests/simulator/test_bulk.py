"""Payloads by reference among simulated peers: who fetches what, what is dropped, and who is gone without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.learning.bulk import PartAccess
from fedchain.learning.exceptions import PartMissing
from fedchain.learning.executors.executor import Backend
from fedchain.learning.payload.bulk import PartRef
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.round import Tensors
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.node.founding.task import rules_of
from fedchain.simulator import run as simulator_run
from fedchain.simulator.choices import Training
from fedchain.simulator.disturbances import Fault, Traitors
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.executors import open_backend
from fedchain.simulator.scenario import ScenarioError
from tests.support.simulator.relayed import SCENARIO, posts, run
from tests.support.simulator.relayed import outcome as outcome


def test_everybody_posts_and_the_aggregator_answers(outcome: tuple[Outcome, list[int]]) -> None:
    assert outcome[1] == [4, 4, 1, 4, 1, 4, 1]


def test_workers_change_nothing(outcome: tuple[Outcome, list[int]]) -> None:
    again = run(replace(SCENARIO, workers=2))
    assert (again.trace_hash, again.knowledge_root) == (outcome[0].trace_hash, outcome[0].knowledge_root)


def test_only_what_is_in_force_stays_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    left: dict[str, int] = {}

    def opened(training: Training, plan: LearnerPlan, *others: Any) -> Backend:
        backend = open_backend(training, plan, *others)
        assert plan.parts is not None
        (parts,) = map(Path, plan.parts.arguments)
        close = backend.close

        def count() -> None:
            left.update({folder.name: len(list(PartFolder(folder).hashes())) for folder in parts.iterdir()})
            files = list(parts.glob("*/??/*"))
            left["copies"] = len({path.name for path in files}) - len({path.stat().st_ino for path in files})
            close()

        monkeypatch.setattr(backend, "close", count)
        return backend

    monkeypatch.setattr(simulator_run, "open_backend", opened)
    run(SCENARIO)
    # 4 parts that everybody shows everybody; then of the last round, and of what was in force before its last block,
    # which others may still be fetching: 8 parts that the aggregator read, twice 4 equal answers and a total. Members
    # keep what they sent and were answered.
    assert left == {"0": 4 + 8 + 2 * 2, "1": 4 + 2 + 2, "2": 4 + 2 + 2, "3": 4 + 2 + 2, "copies": 0}


@pytest.mark.slow
def test_bytes_that_nobody_has_are_not_waited_for(
    outcome: tuple[Outcome, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = PartFolder.read_range

    def refuse(folder: PartFolder, part_hash: bytes, start: int, size: int) -> bytes | None:
        return None if folder._folder.name == "3" else serve(folder, part_hash, start, size)

    monkeypatch.setattr(PartFolder, "read_range", refuse)
    scenario = replace(SCENARIO, rounds=8)
    without = run(scenario, tmp_path / "chain")
    assert posts(tmp_path / "chain") == [3, *([3, 1] * 8)], "who lists what it does not give has not posted"
    monkeypatch.setattr(PartFolder, "read_range", serve)
    allowed_s = SCENARIO.phase_timeout_s * (1 + 4) + 2 * run(scenario).virtual_s
    assert without.virtual_s < allowed_s, "and is waited for as a silent member is, while its delays are learned"


def test_an_aggregator_that_crashes_and_comes_back_goes_on_from_its_total(tmp_path: Path) -> None:
    at_s = 4.0
    crashed = run(
        replace(
            SCENARIO,
            faults=(Fault(at_s=at_s, kind="crash", peers=(0,)), Fault(at_s=at_s + 3, kind="restart", peers=(0,))),
        ),
        tmp_path / "chain",
    )
    assert posts(tmp_path / "chain") == [4, 4, 1, 4, 1, 4, 1]
    assert crashed.virtual_s > at_s + 3


def test_an_aggregator_that_comes_back_when_nobody_has_sent_it_anything_waits_for_the_next_round() -> None:
    """While it is down phases close empty: nobody else counts posts."""
    faults = Fault(at_s=4.0, kind="crash", peers=(0,)), Fault(at_s=20.0, kind="restart", peers=(0,))
    found = run(replace(SCENARIO, phase_timeout_s=10.0, faults=faults))
    assert "member 0, round 1: nobody sent anything" in found.not_posted


def test_the_next_aggregator_takes_over_from_the_total_that_the_last_one_posted(tmp_path: Path) -> None:
    run(replace(SCENARIO, aggregator="rotating", centralized=False), tmp_path / "chain")
    assert posts(tmp_path / "chain") == [4, 4, 1, 4, 1, 4, 1]


def test_the_explorer_counts_parts_by_sender_and_reader(tmp_path: Path) -> None:
    folder = tmp_path / "chain"
    run(SCENARIO, folder)
    with Store.open(folder, read_only=True) as store:
        rules = rules_of(store.genesis)
        parts = Explorer(store).kept.knowledge(rules).parts
    members = [address(member) for member in store.genesis.members]
    shown = [(0, member, "everybody", 1) for member in members]
    answered = [(3, members[0], reader, 1) for reader in ("next aggregator", *members)]
    assert [(row.round, row.sender, row.reader, row.count) for row in parts] == [*shown, *answered]
    assert all(row.size_bytes > 0 for row in parts)


@pytest.mark.slow
def test_a_censor_leaves_out_posts_whose_parts_most_do_not_read_and_no_promise_is_broken() -> None:
    censor = Traitors(behaviour="censor", peers=(3,))
    for seed in range(8, 10):
        run(replace(SCENARIO, aggregator="rotating", centralized=False, seed=seed, rounds=4, adversaries=(censor,)))


def test_parts_need_everybody_awake_and_connected_to_all() -> None:
    with pytest.raises(ScenarioError, match="needs every peer connected to all others"):
        run(replace(SCENARIO, peers=6, degree=3))
    asleep = replace(SCENARIO, peers=6, idle_sleep=True, contributors_per_round=3, committee_size=3)
    with pytest.raises(ScenarioError, match="posts by reference, and peers that sleep hand nothing out: no idle_sleep"):
        run(asleep)


def test_whose_parts_are_of_no_use_is_named_once_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The aggregator has their hashes, and lost the bytes."""
    read = PartAccess.read

    def losing(self: PartAccess, ref: PartRef) -> Tensors:
        if (ref.kind, ref.sender) == ("examples", 1):
            raise PartMissing("it is not here")
        return read(self, ref)

    monkeypatch.setattr(PartAccess, "read", losing)
    settings = {"local_epochs": 0, "local_steps": 1}
    chosen = replace(SCENARIO, rounds=2, method="fedgkt", model="split-mlp-1", hyperparameters=settings)
    found = run(chosen)
    assert found.skipped == [f"peer 0, round {number}: nothing of peer 1 is used: it is not here" for number in (1, 2)]
    assert found.not_posted == []
