"""Runs that are interrupted in this process, at any frame of their record, and go on."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.resuming.record import Record
from fedchain.simulator.resuming.resume import identity
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario, scenario_from_dict

importlib.import_module("torch._dynamo")
"""Gradients of single examples load it, which takes seconds: processes that train are forked with it here."""

SMALL: Mapping[str, Any] = {
    "peers": 3,
    "rounds": 3,
    "workers": 1,
    "proof_function": "sha256d",
    "mining_attempts": 4,
    "hyperparameters": {"local_steps": 2},
}

RESTARTED: Mapping[str, Any] = {
    "hyperparameters": {"local_steps": 30},
    "phase_timeout_s": 6.0,
    "faults": [
        {"at_s": 2.0, "kind": "crash", "peers": [1]},  # while it trains, so that it is asked again
        {"at_s": 2.5, "kind": "restart", "peers": [1]},
        {"at_s": 6.0, "kind": "kill", "peers": [2]},
        {"at_s": 9.0, "kind": "restart", "peers": [2]},
    ],
}

ADAMW = {"optimizer": "adamw", "learning_rate": 0.003}
NOISE = {"prototype_noise": 6.0, "gradient_noise": 6.0}

KINDS: Mapping[str, Mapping[str, Any]] = {
    "prototypes, restarted": {"method": "dfpl", "peers": 4, **RESTARTED},
    "models": {"method": "fedavg", "test_every": 0, "hyperparameters": ADAMW | {"compression": "sparse"}},
    "state": {"method": "scaffold", "workers": 2, "hyperparameters": {"compression": "topk"}},
    "noise": {"hyperparameters": NOISE | {"local_steps": 2, "epsilon_budget": 50.0}},
    "encrypted": {
        "method": "tests.support.learning.small_keys:SmallKeyFedPh",
        "hyperparameters": {"encryption": "threshold", "key_bits": KEY_BITS_MIN_TESTING},
        "partition": "iid",
    },
    "distilled from mixed models": {"method": "fedict", "model": "split-mlp-1+split-mlp-2", "partition": "iid"},
    "for one reader": {
        "method": "fededs",
        "model": "plain-cnn",
        "hyperparameters": {"epochs_max": 1, "extractor_epochs": 1, "encryptor_epochs": 1, "batch_size": 4},
        "shots": 12,
        "test_shots": 5,
        "rounds": 2,
        "test_every": 0,
    },
    "together": {"method": "fedavg", "model": "logistic", "vectorize_clients": True, "peers": 5, "workers": 2},
    "liars": {
        "method": "fedavg",
        "peers": 4,
        "adversaries": [{"behaviour": "sign-flipper", "peers": [3]}],
    },
    "asleep": {
        "method": "scaffold",
        "peers": 8,
        "contributors_per_round": 3,
        "committee_size": 4,
        "idle_sleep": True,
    },
}
"""Settings of small runs, one for each way of learning."""


def scenario_of(kind: str, **values: Any) -> Scenario:
    """The small run of a kind."""
    scenario = scenario_from_dict({**SMALL, **KINDS[kind], **values})
    scenario.validate()
    return scenario


class InterruptedRecord(Record):
    """A record whose process ends when so many frames were written since it was opened."""

    frames_left = 0

    def _append(self, content: Any) -> int:
        if not self.frames_left:
            raise KeyboardInterrupt
        self.frames_left -= 1
        return super()._append(content)


def play(
    scenario: Scenario, folder: Path, frames: int | None = None, chain: Path | None = None
) -> dict[str, Any] | None:
    """Run a scenario beside a record, or go on with it.

    Args:
        scenario: validated.
        folder: of the record.
        frames: how many are written until the run is interrupted; None: it is not.
        chain: where peer 0 keeps its chain; None: in memory.

    Returns:
        All that the run found out; None: it was interrupted.
    """
    record: Record
    InterruptedRecord.frames_left = 2 if frames is None else frames + 1
    kind = Record if frames is None else InterruptedRecord
    record = kind.open(folder, identity(scenario)) if folder.exists() else kind.create(folder, identity(scenario))
    try:
        return found(simulate(scenario, load_learner(scenario), chain_folder=chain, record=record))
    except KeyboardInterrupt:
        return None
    finally:
        record.close()


def found(outcome: Outcome) -> dict[str, Any]:
    """All that a run found out."""
    return {
        "trace": outcome.trace_hash,
        "tip": outcome.tip,
        "seen": outcome.seen,
        "knowledge": outcome.knowledge_root,
        "rows": [row.to_dict() for row in outcome.rows],
        "timeline": outcome.timeline,
        "events": outcome.events,
        "virtual_s": outcome.virtual_s,
        "totals": outcome.totals,
        "violations": outcome.violations,
        "not_posted": outcome.not_posted,
        "skipped": outcome.skipped,
    }
