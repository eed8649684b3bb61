"""The folder of a run that was really played."""

from pathlib import Path

from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import MEMBERS_FILE
from fedchain.files.members import members_text
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.report import RunFolder
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.trivial import run_trivial, trivial_genesis


def play(path: Path, scenario: Scenario) -> Outcome:
    """Play a scenario, and write the files that pages read."""
    folder = RunFolder(path, scenario)
    with Store.create(folder.chain, trivial_genesis(scenario)) as store:
        outcome = run_trivial(scenario, store=store)
    folder.write_rows(outcome.rows, lambda: outcome.seen)
    (path / MEMBERS_FILE).write_text(members_text(outcome.members))
    return outcome
