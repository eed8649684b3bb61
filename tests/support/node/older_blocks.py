"""A node that joined late and wants all older blocks: what it asks for, and what others hand out."""

from fedchain.chain.block import Block
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Chunk, FinalMessage, GetFinal
from fedchain.node.core.effects import Effect, Send
from fedchain.node.core.events import PeersConnected
from tests.support.chain.builders import genesis
from tests.support.node.stage import Stage

HEIGHT = 20


def joined(height: int = HEIGHT, *, is_wanted: bool = True) -> tuple[Stage, list[Block]]:
    """A node that stands at the newest block of a chain, has none below it, and wants them all, or none."""
    stage = Stage(genesis(4))
    blocks = chain_of_others(stage, height)
    victim = stage.victim
    victim.node = victim.new_node()
    victim.node._parts.catching_up._backfill._is_wanted = is_wanted
    for other in stage.others:
        stage.handle(PeersConnected((other,)))
    join(stage, blocks[-1])
    return stage, blocks


def chain_of_others(stage: Stage, count: int) -> list[Block]:
    """More blocks by the others alone."""
    members = [member for member in stage.chain.state.roster.contributors if member != stage.me]
    miner, blocks = stage.chain.key(stage.others[0]), list[Block]()
    for _ in range(count):
        parent = stage.chain.blocks.get(stage.chain.tip)
        certificate = None if parent is None else stage.certificate(parent)
        blocks.append(
            stage.chain.extend(posts=stage.chain.posts(members=members), certificate=certificate, miner=miner)
        )
    return blocks


def join(stage: Stage, head: Block) -> None:
    """All others have a head, and hand it out with the state before it."""
    before = stage.chain.states[head.header.parent_hash]
    for other in stage.others:
        stage.receive(stage.status(height=head.header.height, head_hash=head.hash), other)
    for other in stage.others:
        stage.receive(FinalMessage(head, stage.certificate(head)), other)
        stage.receive(Chunk(before.root, 0, before.encode()), other)
    assert stage.node.head.block_hash == head.hash
    assert stage.victim.store.base() == head.header.height


def asked(effects: list[Effect], height: int) -> list[PublicKey]:
    """Peers that are asked for blocks of which one has this height."""
    questions = ((item.peer, item.message) for item in effects if isinstance(item, Send))
    return [
        peer
        for peer, question in questions
        if isinstance(question, GetFinal) and question.height <= height < question.height + question.count
    ]


def next_asked(stage: Stage, height: int) -> PublicKey:
    """The peer that is asked next for the block of a height."""
    for _ in range(60):
        if peers := asked(stage.tick(1), height):
            return peers[-1]
    raise AssertionError(f"nobody is asked for height {height}")


def answer(stage: Stage, blocks: list[Block], peer: PublicKey) -> list[Effect]:
    """A peer hands out what it was asked for, the lowest first."""
    base, effects = stage.victim.store.base(), list[Effect]()
    for block in blocks[max(0, base - 17) : base - 1]:
        effects += stage.receive(FinalMessage(block, stage.certificate(block)), peer)
    return effects
