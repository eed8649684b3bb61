"""Where the repository lies, for tests that read its pages and files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of pyproject.toml."""

DOCS = ROOT / "docs"
"""The pages."""
