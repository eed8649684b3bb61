"""The garbage collector looks less often, and as often as before afterwards."""

import gc
import weakref

import pytest

from fedchain.collector import collecting_rarely, importing


class _Knot:
    """An object that holds itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def default_thresholds() -> None:
    assert gc.isenabled()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()


def test_nothing_is_looked_through_during_imports() -> None:
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled(), "who turned it off may turn it on"
    finally:
        gc.enable()


@pytest.mark.parametrize("keeps", [False, True])
def test_only_what_is_kept_is_never_looked_through(keeps: bool) -> None:
    with importing(keeps=keeps):
        old = weakref.ref(_Knot())
    new = weakref.ref(_Knot())
    gc.collect()
    assert new() is None
    assert (old() is not None) == keeps
    if keeps:
        with importing(keeps=True):
            later = weakref.ref(_Knot())
        gc.collect()
        assert later() is None
    gc.unfreeze()


@pytest.mark.parametrize(("before", "wanted", "found"), [(0, 9, 0), (10**6, 9, 10**6), (700, 10**5, 10**5)])
def test_a_collector_that_is_off_or_rarer_stays_so(before: int, wanted: int, found: int) -> None:
    gc.set_threshold(before, 10, 10)
    try:
        with collecting_rarely(wanted):
            assert gc.get_threshold()[0] == found
        assert gc.get_threshold()[0] == before
    finally:
        gc.set_threshold(700, 10, 10)
