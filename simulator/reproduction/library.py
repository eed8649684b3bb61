"""The experiments that come with the program, by name."""

from importlib.resources import files
from pathlib import Path

from fedchain.files.tables import nearest, read_toml
from fedchain.simulator.scenario import ScenarioError


def experiment_files() -> dict[str, Path]:
    """Name and file of every installed experiment, in the order of their names."""
    folder = Path(str(files("fedchain.experiments")))
    return {path.stem.replace("_", "-"): path for path in sorted(folder.glob("*.toml"))}


def find_experiment(name: str) -> Path:
    """The file of an installed experiment, or ``name`` itself if it is a file's; otherwise raises ScenarioError."""
    if name.endswith(".toml"):
        return Path(name)
    known = experiment_files()
    if name not in known:
        raise ScenarioError(f"there is no experiment {name!r}{nearest(name, known)}")
    return known[name]


def list_experiments() -> list[tuple[str, str]]:
    """Name and title of every installed experiment."""
    return [(name, str(read_toml(path, ScenarioError).get("title", ""))) for name, path in experiment_files().items()]
