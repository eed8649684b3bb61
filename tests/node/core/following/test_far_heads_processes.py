"""A node process whose first neighbours lie about the head: it follows nobody before enough members say the same."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio

from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.messages import CHUNK_SIZE, Chunk, FinalMessage, GetContent, GetFinal, Message, Status
from fedchain.network.verdict import Verdict
from fedchain.node.operating.status import ask_status
from tests.support.chain.builders import ChainBuilder
from tests.support.node.crowd import forge_head
from tests.support.node.target import Target, target

MEMBERS, COMMITTEE, LIARS, HONEST = 10, 3, 3, 4
HEIGHT, FAR = 20, 10**6

Finals = Callable[[int, int], Sequence[FinalMessage]]
"""Blocks that somebody hands out, from a height on, so many."""

pytestmark = pytest.mark.slow


def test_a_process_that_starts_among_liars_comes_to_the_real_chain() -> None:
    # in version 3 no parent changes who is drawn, so that liars could not choose themselves
    with target(MEMBERS, committee_size=COMMITTEE, contributors_per_round=3, version=2) as victim:
        victim.start()
        try:
            trio.run(_surround, victim)
        finally:
            victim.stop()
        assert f"a far head is not confirmed height={FAR}: {LIARS} of {LIARS + 1} members" in victim.log.read_text()
        assert "Traceback" not in victim.log.read_text()


async def _surround(victim: Target) -> None:
    builder = ChainBuilder(victim.genesis)
    builder._keys = {key.public_key: key for key in victim.keys}
    miners = [victim.keys[number % MEMBERS] for number in range(HEIGHT)]  # each one's next block is harder
    blocks = [builder.extend(posts=(), miner=miner) for miner in miners]  # whoever is drawn trains too slowly
    contents = {state.root: state.encode() for state in builder.states.values()} | builder.contents
    finals = [FinalMessage(block, builder.certificate(block)) for block in blocks]
    liars = sorted(key.public_key for key in victim.keys[1 : LIARS + 1])
    block, certificate, state = forge_head(builder, liars, FAR)
    lie = [FinalMessage(block, certificate)]
    async with AsyncExitStack() as stack:
        for key in victim.keys[1 : LIARS + 1]:
            claim = Status(FAR, block.hash, b"", (), (), None)
            neighbour = _neighbour(victim, key, claim, lambda *_: lie, {block.header.state_root: state})
            await stack.enter_async_context(neighbour)
        await _until(victim, lambda height: "a far head is not confirmed" in victim.log.read_text(), 60)
        assert _height(victim) == 0
        for key in victim.keys[LIARS + 1 : LIARS + 1 + HONEST]:
            claim = Status(HEIGHT, blocks[-1].hash, b"", (), (), None)
            honest = _neighbour(victim, key, claim, lambda first, number: finals[first - 1 :][:number], contents)
            await stack.enter_async_context(honest)
        await _until(victim, lambda height: height == HEIGHT, 60)
        status = ask_status(victim.node.folder)
        assert status is not None
        assert status["head"] == blocks[-1].hash.hex()


def _height(victim: Target) -> int:
    status = ask_status(victim.node.folder)
    return 0 if status is None else int(status["height"])


async def _until(victim: Target, holds: Callable[[int], bool], seconds: float) -> None:
    with trio.fail_after(seconds):
        while True:
            height = await trio.to_thread.run_sync(_height, victim)
            assert height <= HEIGHT, "it never stands on what the liars made"
            if holds(height):
                return
            await trio.sleep(0.2)


@asynccontextmanager
async def _neighbour(
    victim: Target, key: PrivateKey, claim: Status, finals: Finals, contents: dict[Hash, bytes]
) -> AsyncIterator[None]:
    """A member that says where it is twice a second, and answers questions."""
    members, chain_id = victim.genesis.members, victim.genesis.chain_id
    async with (
        open_network(key, chain_id, members, bootstrap=[victim.node.address]) as network,
        trio.open_nursery() as nursery,
    ):
        network.attach(partial(_answer, network, finals, contents))
        nursery.start_soon(_say, network, victim.keys[0].public_key, claim)
        yield
        nursery.cancel_scope.cancel()


async def _say(network: Libp2pNetwork, peer: PublicKey, claim: Status) -> None:
    while True:
        network.send(peer, claim)
        await trio.sleep(0.5)


def _answer(
    network: Libp2pNetwork, finals: Finals, contents: dict[Hash, bytes], peer: PublicKey, message: Message
) -> Verdict:
    match message:
        case GetFinal(height, count):
            for final in finals(height, count):
                network.send(peer, final)
        case GetContent(content_hash, offset):
            network.send(peer, Chunk(content_hash, offset, contents.get(content_hash, b"")[offset:][:CHUNK_SIZE]))
    return Verdict.IGNORE
