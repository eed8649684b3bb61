"""Heads that wait to be joined at: each peer has one, there are few of them, and those that many hand out stay."""

from dataclasses import replace

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.state import state_size_max
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import CHUNK_SIZE, Chunk, FinalMessage, GetContent, GetFinal
from fedchain.network.sync import AT_ONCE
from fedchain.node.core.effects import Send
from fedchain.node.core.events import Moment
from fedchain.node.core.following.catching_up import JOIN_GAP
from fedchain.node.core.following.joining import CONFIRM_MS, WAITING_MAX, Joining
from fedchain.node.core.notices import HeadUnconfirmed
from tests.support.chain.builders import genesis
from tests.support.node.stage import Stage, blamed, sent

MEMBERS, COMMITTEE = 40, 7
FAR = 10**6


def _stage() -> tuple[Stage, Joining]:
    """A node of a federation in which so few vote that a head has to be confirmed, and what it may join at."""
    stage = Stage(genesis(MEMBERS, committee_size=COMMITTEE, contributors_per_round=5), contributes=False)
    joining = stage.node._parts.catching_up._joining
    assert isinstance(joining, Joining)
    return stage, joining


def _head(stage: Stage, number: int) -> tuple[Block, Certificate]:
    """A head that nothing is wrong with as far as can be told, on a state that nobody has."""
    first = stage.chain.blocks.get(stage.chain.tip) or stage.chain.extend()
    block = stage.chain.remake(first, height=FAR + number, state_root=sha256(b"state %d" % number))
    return block, stage.chain.certificate(block, stage.others[:5])


def _fetched(stage: Stage) -> set[Hash]:
    """States that are on their way."""
    return {*stage.node._context.contents.downloads._downloads}


def test_a_peer_has_one_head_that_waits_and_one_state_fetched_however_many_it_hands_out() -> None:
    stage, joining = _stage()
    for number in range(5):
        block, certificate = _head(stage, number)
        joining.on_final(stage.others[0], block, certificate)
        assert _fetched(stage) == joining.states_wanted() == {block.header.state_root}


def test_few_heads_wait_and_those_that_most_hand_out_are_among_them() -> None:
    stage, joining = _stage()
    real = _head(stage, 0)
    for peer in stage.others[:2]:
        joining.on_final(peer, *real)
    for number, peer in enumerate(stage.others[2 : 2 + 2 * WAITING_MAX], 1):
        joining.on_final(peer, *_head(stage, number))
        assert len(_fetched(stage)) == min(number + 1, WAITING_MAX)
    assert real[0].header.state_root in _fetched(stage)


def test_a_head_that_another_peer_hands_out_is_not_lost_with_the_first_ones_next_head() -> None:
    stage, joining = _stage()
    first, second = _head(stage, 0), _head(stage, 1)
    joining.on_final(stage.others[0], *first)
    joining.on_final(stage.others[1], *first)
    joining.on_final(stage.others[0], *second)
    assert _fetched(stage) == {first[0].header.state_root, second[0].header.state_root}
    joining.on_final(stage.others[1], *second)
    assert _fetched(stage) == {second[0].header.state_root}
    joining.forget_up_to(FAR + 1)
    assert _fetched(stage) == set()


def test_peers_that_hand_out_a_head_which_proves_nothing_make_way_at_once() -> None:
    """Both places are theirs; without it they would be for as long as an answer may take."""
    stage = Stage(genesis(4), contributes=False)
    blocks = stage.chain.extend_many(20)
    other = stage.chain.states[blocks[3].hash]
    forged = stage.chain.remake(blocks[-1], state_root=other.root)
    asked = [
        effect.peer
        for peer in stage.others
        for effect in stage.receive(stage.status(height=20, head_hash=forged.hash), peer)
        if isinstance(effect, Send) and effect.message == GetFinal(20, 1)
    ]
    assert len(asked) == AT_ONCE
    for liar in asked:
        stage.receive(FinalMessage(forged, stage.chain.certificate(forged)), liar)
    effects = stage.receive(Chunk(other.root, 0, other.encode()), asked[0])
    assert {member for member, _ in blamed(effects)} == {*asked}
    assert dict(stage.node.sizes())["joinings"] == 0, "or they would be blamed for it ever after"
    assert [effect.peer for effect in effects if isinstance(effect, Send) and effect.message == GetFinal(20, 1)] == [
        peer for peer in stage.others if peer not in asked
    ]


def test_nothing_is_fetched_for_a_state_that_is_longer_than_any() -> None:
    stage, joining = _stage()
    block, certificate = _head(stage, 0)
    joining.on_final(stage.others[0], block, certificate)
    root = block.header.state_root
    assert state_size_max(stage.genesis) < CHUNK_SIZE
    effects = stage.receive(Chunk(root, 0, bytes(CHUNK_SIZE)), stage.others[0])
    assert GetContent(root, CHUNK_SIZE) not in sent(effects, GetContent)


def test_a_state_for_which_there_was_no_room_is_fetched_later() -> None:
    stage, joining = _stage()
    downloads = stage.node._context.contents.downloads
    count_max, downloads._count_max = downloads._count_max, 0
    block, certificate = _head(stage, 0)
    joining.on_final(stage.others[0], block, certificate)
    assert _fetched(stage) == set()
    downloads._count_max = count_max
    joining.on_tick()
    assert _fetched(stage) == {block.header.state_root}


def test_a_peer_that_handed_out_the_head_is_asked_for_the_knowledge_and_the_blocks_above_at_once() -> None:
    """The chain went on while the state was on its way."""
    stage = Stage(genesis(4), contributes=False)
    blocks, peer = stage.chain.extend_many(23), stage.others[0]
    head, before = blocks[19], stage.chain.states[blocks[18].hash]
    for block in (head, blocks[-1]):
        stage.receive(stage.status(height=block.header.height, head_hash=block.hash), peer)
    stage.receive(FinalMessage(head, stage.chain.certificate(head)), peer)
    effects = stage.receive(Chunk(before.root, 0, before.encode()), peer)
    assert stage.node.head.block_hash == head.hash
    assert [question.height for question in sent(effects, GetFinal)] == [21]
    assert GetContent(head.header.knowledge_root, 0) in sent(effects, GetContent)


def test_the_operator_hears_of_an_unconfirmed_head_once_at_each_height() -> None:
    document = genesis(MEMBERS, committee_size=COMMITTEE, contributors_per_round=5)
    stage = Stage(document, contributes=False, is_heard=False)
    block, peer = stage.chain.extend(), stage.others[0]
    stage.receive(stage.status(height=FAR, head_hash=block.hash), peer)
    for height in (0, 1):
        stage.wait(3 * CONFIRM_MS / 1_000)
        told = [item for item in stage.victim.notices if isinstance(item, HeadUnconfirmed)]
        assert [item.height for item in told] == [FAR] * (height + 1)
        stage.final(block, peer)
        assert stage.node.head.height == 1


def test_time_to_confirm_a_head_begins_anew_with_each_that_is_far() -> None:
    stage, joining = _stage()
    context = stage.node._context
    members = stage.others[: context.catch_up.enough]

    def is_asked_for(height: int) -> bool:
        for member in members:
            context.catch_up.claim(member, height)
        return joining.may_join(JOIN_GAP)

    assert is_asked_for(FAR)
    context.ledger.head = replace(context.head, height=FAR)
    assert not joining.may_join(JOIN_GAP)
    context.now = Moment(context.now.ms + CONFIRM_MS, context.now.clock_ms)
    assert is_asked_for(2 * FAR)
    context.now = Moment(context.now.ms + CONFIRM_MS, context.now.clock_ms)
    assert not is_asked_for(2 * FAR), "the chain is followed block by block"
