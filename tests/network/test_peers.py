"""Connected peers: each once, in the order in which they were connected, however they are looked up."""

import pytest

from fedchain.network.peers import Peers
from tests.support.chain.builders import keys

A, B, C, D = (key.public_key for key in keys(4))


@pytest.mark.parametrize("is_asked", [False, True])
def test_each_is_connected_once_and_in_order(is_asked: bool) -> None:
    peers = Peers()
    assert (list(peers), len(peers), bool(peers), A in peers) == ([], 0, False, False)
    for given, new in (((B, A), [B, A]), ((A, C, A, C), [C]), ((B,), [])):
        assert peers.add(given) == new
        assert not is_asked or C in peers or given == (B, A)
    assert list(peers) == list(peers.in_order) == [B, A, C]
    assert [peer in peers for peer in (A, B, C, D)] == [True, True, True, False]


@pytest.mark.parametrize("is_asked", [False, True])
def test_one_that_is_disconnected_is_the_last_when_it_is_connected_again(is_asked: bool) -> None:
    peers = Peers()
    peers.add((A, B, C))
    assert not is_asked or A in peers
    peers.drop((A, D))
    assert (list(peers), A in peers, B in peers) == ([B, C], False, True)
    assert peers.add((A,)) == [A]
    assert (list(peers), A in peers) == ([B, C, A], True)
