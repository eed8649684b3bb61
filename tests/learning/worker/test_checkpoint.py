"""A checkpoint holds a client's record."""

import torch

from fedchain.learning.worker.checkpoint import copy_state, load_state, restore_state, save_state
from tests.support.learning.everything import FULL, Everything, plain
from tests.support.learning.federation import new_client


def test_a_checkpoint_holds_the_record() -> None:
    client, other = new_client(), new_client()
    client.states["Everything"] = FULL
    load_state(other, save_state(client))
    assert save_state(other) == save_state(client), "before anybody asked for it"
    assert plain(other.state(Everything)) == plain(FULL)
    assert save_state(other) == save_state(client)


def test_what_is_set_aside_is_a_copy() -> None:
    client = new_client()
    client.state(Everything).vector = torch.zeros(2)
    before = copy_state(client)
    vector = client.state(Everything).vector
    assert vector is not None
    vector += 1
    client.state(Everything).count = 7
    restore_state(client, before)
    assert plain(client.state(Everything)) == ([0.0, 0.0], [], {}, -1, None, False)
