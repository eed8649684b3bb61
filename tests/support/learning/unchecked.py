"""Small files in place of the published ones, whose checksums and sizes they cannot have."""

import pytest


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that a test made stand for the published ones."""
    monkeypatch.setattr("fedchain.learning.datasets.files.Files.validate_checksum", lambda *arguments: None)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of a few examples stand for the published ones."""
    monkeypatch.setattr("fedchain.learning.datasets.files.Files.validate_count", lambda *arguments: None)
