"""A member that loses first its journal and then its store takes back nothing that it said."""

import pytest

from fedchain.chain.storage.store import MemoryStore
from fedchain.network.messages import PostMessage
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import LISTENING_MS
from tests.support.chain.builders import genesis
from tests.support.node.driver import check_promises
from tests.support.node.stage import PREVOTE, Stage, published, votes


@pytest.mark.parametrize("is_heard", [False, True])
def test_what_the_store_remembered_outlives_the_store(is_heard: bool) -> None:
    """Everything that a node learns from its store at the start is in the journal before anything else happens."""
    stage = Stage(genesis(4))
    block, rival = stage.block(), stage.block(without=stage.others[:1], miner=stage.chain.key(stage.others[1]))
    assert votes(stage.candidate(block)) == [(PREVOTE, 0, block.hash)]
    (said,) = {message.post for message in published(stage.victim.effects, PostMessage)}
    stage.victim.journal = Journal()
    stage.restart(is_heard=is_heard)
    assert stage.victim.journal.slot == (1, 0, int(PREVOTE))
    assert stage.victim.journal.posts == (said,)
    stage.victim.store = MemoryStore()
    stage.restart()
    stage.wait(LISTENING_MS / 1_000)
    effects = [*stage.candidate(rival), *stage.wait(200)]
    assert (PREVOTE, 0, rival.hash) not in votes(effects)
    check_promises(stage.victim)
