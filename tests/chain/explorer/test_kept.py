"""Contents that a store keeps: the knowledge of rounds, payloads, and knowledge that is recomputed from them."""

import pytest

from fedchain.chain.exceptions import InvalidPayload, NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import PartsView, Recomputation
from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, SumRules
from tests.support.chain.explored import GENESIS, Explore, FakeRules, main_chain
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer


def test_knowledge_is_the_newest_rounds_or_any(explorer: Explorer, chain: ChainBuilder) -> None:
    newest, second = explorer.kept.knowledge(FakeRules()), explorer.kept.knowledge(FakeRules(), 2)
    assert (newest.round, newest.height, newest.size_bytes) == (4, 4, 64)
    assert newest.knowledge_root == chain.states[chain.tip].knowledge_root
    assert second.knowledge_root == main_chain(chain)[1].header.knowledge_root
    assert newest.prototypes is not None
    assert [(item.label, item.holders, item.norm, item.cosines) for item in newest.prototypes] == [
        (2, 4, 1.5, (1.0, 0.25)),
        (5, 1, 2.0, (0.25, 1.0)),
    ]
    assert explorer.kept.knowledge(FakeRules(None)).prototypes is None
    assert b"".join(explorer.kept.safetensors(FakeRules())) == b"tensors:" + chain.contents[newest.knowledge_root]


def test_knowledge_that_is_not_there_is_not_found(chain: ChainBuilder, explore: Explore) -> None:
    root = chain.states[chain.tip].knowledge_root
    with pytest.raises(NotFound, match=f"knowledge of round 4, {root.hex()}, is not kept"):
        explore(chain, without=[root]).kept.knowledge(FakeRules())
    with pytest.raises(NotFound, match="no knowledge of round 1"):
        explore(ChainBuilder(GENESIS)).kept.knowledge(FakeRules())


def test_knowledge_that_the_method_cannot_read_is_named(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend(posts=())
    explorer = explore(chain)
    for ask in (explorer.kept.knowledge, explorer.kept.safetensors):
        with pytest.raises(InvalidPayload, match="0 bytes are not a sum"):
            ask(FakeRules())


def test_a_payload_is_found_by_its_sender_and_phase(explorer: Explorer, chain: ChainBuilder) -> None:
    third = main_chain(chain)[2]
    for post in third.transactions:
        assert explorer.kept.payload(3, "update", post.sender) == chain.contents[post.payload_hash]
    with pytest.raises(NotFound, match="has no post in update of round 3"):
        explorer.kept.payload(3, "update", GENESIS.members[3])
    with pytest.raises(NotFound, match="no block closed global of round 3"):
        explorer.kept.payload(3, "global", GENESIS.members[0])


def test_members_work_with_the_knowledge_below_their_block(explorer: Explorer, chain: ChainBuilder) -> None:
    below = main_chain(chain)[0].header.knowledge_root
    assert explorer.kept.known_before(1, "update") == b""
    assert explorer.kept.known_before(2, "update") == chain.contents[below]


def test_recomputed_knowledge_is_what_the_block_says(explorer: Explorer, chain: ChainBuilder) -> None:
    root = main_chain(chain)[2].header.knowledge_root
    assert explorer.kept.recompute(SumRules(), 3) == Recomputation(3, root, root, (), "")


def test_knowledge_without_its_payloads_is_not_recomputed(chain: ChainBuilder, explore: Explore) -> None:
    block = main_chain(chain)[2]
    lost = block.transactions[1].payload_hash
    found = explore(chain, without=[lost]).kept.recompute(SumRules(), 3)
    assert found == Recomputation(3, block.header.knowledge_root, None, (lost,), "")


def test_parts_that_knowledge_refers_to_are_counted_by_round_sender_and_reader(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [(2, (bytes(32), size, reader), 1) for size, reader in ((5, EVERYBODY), (7, EVERYBODY), (9, 3))]
    listed.append((1, (bytes(32), 11, AGGREGATOR), 0))
    monkeypatch.setattr(FakeRules, "parts_known", lambda self, knowledge: listed)
    senders = [address(member) for member in GENESIS.members]
    assert explorer.kept.knowledge(FakeRules()).parts == (
        PartsView(1, senders[0], "aggregator", 1, 11),
        PartsView(2, senders[1], "everybody", 2, 12),
        PartsView(2, senders[1], senders[3], 1, 9),
    )
