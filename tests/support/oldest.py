"""The oldest versions that pyproject.toml lets in, one a line, as pip reads them: ``python -m tests.support.oldest``.

torch is left out: without the libraries of graphics cards it comes from an index of its own.
"""

import re
import tomllib

from tests.support.paths import ROOT


def oldest_versions() -> dict[str, str]:
    """The lower bound of each dependency, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in project["dependencies"]]
    return {match[1]: match[2] for match in found if match is not None}


if __name__ == "__main__":
    for name, version in oldest_versions().items():
        if name != "torch":
            print(f"{name}=={version}")
