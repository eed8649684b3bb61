"""`fedchain compare` without training: what it ran is noted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.simulator.reproduction import reproduce as reproduction
from fedchain.simulator.scenario import Scenario

Keep = Callable[[int, dict[str, Any]], str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """Scenarios that were run: in place of simulations, accuracies that say what they are of."""
    found: list[Scenario] = []

    def run_all(scenarios: Sequence[Scenario], jobs: int, keep: Keep, *others: object) -> None:
        for place, scenario in enumerate(scenarios):
            found.append(scenario)
            last = 0.5 + 0.1 * scenario.seed + (0.05 if scenario.method == "dfpl" else 0.0)
            taa = {number: last - 0.1 * (2 - number) for number in (1, 2)}
            rows = [{"round": number, "taa": taa[number], "taa_worst": taa[number] / 2, "tal": None} for number in taa]
            keep(place, {"scenario": scenario.to_dict(), "rows": rows})

    monkeypatch.setattr(reproduction, "run_all", run_all)
    return found


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures, which take a second for each table, where a test looks at words and runs alone."""
    monkeypatch.setattr(reproduction, "draw", lambda *given: None)


def compare(tmp_path: Path, *words: str, exit_code: int = 0) -> Any:
    out = () if "--out" in words else ("--out", str(tmp_path / "out"))
    result = CliRunner().invoke(app, ["compare", *words, *out], env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, result.output
    return result
