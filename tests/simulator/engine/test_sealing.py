"""A simulated block has a real proof of work."""

from dataclasses import replace

from fedchain.chain.proof_of_work import search_nonce
from fedchain.simulator.engine.sealing import SEARCH_SLICE, sealing
from tests.support.chain.records import FIRST


def test_the_nonce_is_the_first_that_meets_the_target_from_where_the_search_begins() -> None:
    header = replace(FIRST.header, nonce=0)
    sealed = sealing("sha256d")(header, 5)
    assert sealed == search_nonce("sha256d", header, 5, SEARCH_SLICE)
    assert sealed.nonce >= 5
    assert replace(sealed, nonce=0) == header
