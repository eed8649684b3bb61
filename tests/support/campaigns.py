"""Campaigns: cases that differ in nothing but what was drawn, or in little else."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], *, first: int = 0, chosen: Container[Any] = ()) -> list[Any]:
    """All cases of a campaign, for `parametrize`: slow but for the ``first`` and those that are ``chosen``."""
    return [
        pytest.param(case, marks=() if place < first or case in chosen else pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
