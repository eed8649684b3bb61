"""One memory of checks for all peers."""

import pytest

from tests.support.simulator.quirks import QUIRKS
from tests.support.simulator.trivial import run_trivial, trivial_scenario


@pytest.mark.long
@pytest.mark.parametrize("quirk", QUIRKS)
def test_sharing_verification_changes_no_trace(quirk: str) -> None:
    """None that is traced; peers that share take fewer turns, for an aggregate is recomputed by the first alone."""
    own, shared = (
        run_trivial(trivial_scenario(peers=8, rounds=2, shared_verification=shared, **QUIRKS[quirk]))
        for shared in (False, True)
    )
    assert own.trace_hash == shared.trace_hash
