"""Fixtures of all tests of the real network."""

import logging

import pytest

from fedchain.network.libp2p.log import Limit


@pytest.fixture(autouse=True)
def all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to count lines anew: those of the tests before, within the same minute, are not this one's."""
    log = logging.getLogger("fedchain.network")
    filters = [Limit() if isinstance(item, Limit) else item for item in log.filters]
    monkeypatch.setattr(log, "filters", filters)
