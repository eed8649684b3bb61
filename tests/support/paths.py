"""Where the repository and its files lie, for tests that read them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of pyproject.toml."""

DOCS = ROOT / "docs"
"""The pages."""

FOLDERS = ("chain", "crypto", "experiments", "learning", "network", "node", "simulator")
"""The folders at the root that are installed with the package, to which it has links."""

PRODUCT = sorted(path for folder in (*FOLDERS, "src/fedchain") for path in (ROOT / folder).glob("**/*.py"))
"""All modules of the product; a link is not followed."""
