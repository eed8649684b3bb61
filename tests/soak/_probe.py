"""A member that takes no part and measures how fast a node answers it, over the node's real network."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import public_key_from_address
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.limits import Limits
from fedchain.network.messages import Chunk, GetContent, Message
from fedchain.network.verdict import Verdict

ANSWER_TIMEOUT_S = 10.0
"""A question that is not answered for this long counts as answered after it."""


class Probe:
    """Asks a node for a content that nobody has; the answer is an empty chunk."""

    def __init__(self, network: Libp2pNetwork, node: PublicKey) -> None:
        self._network, self._node = network, node
        self._asked: dict[bytes, float] = {}
        self._answered: list[float] = []
        network.attach(self._receive)

    async def measure(self, seconds: float, interval_s: float) -> list[float]:
        """Ask every ``interval_s``, answered or not; how long each answer took, in seconds."""
        self._answered, begun = [], trio.current_time()
        for number in range(round(seconds / interval_s)):
            await trio.sleep_until(begun + number * interval_s)
            name = sha256(b"question %d at %d" % (number, time.time_ns()))
            self._asked[name] = time.perf_counter()
            self._network.send(self._node, GetContent(name, 0))
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            while self._asked:
                await trio.sleep(0.01)
        return self._answered + [ANSWER_TIMEOUT_S] * len(self._asked)

    def _receive(self, _: PublicKey, message: Message) -> Verdict:
        if isinstance(message, Chunk) and (asked_s := self._asked.pop(message.content_hash, None)) is not None:
            self._answered.append(time.perf_counter() - asked_s)
        return Verdict.IGNORE


@asynccontextmanager
async def probing(genesis: Genesis, key: PrivateKey, node: str) -> AsyncIterator[Probe]:
    """Be connected to the node at an address for as long as the context lasts."""
    logging.getLogger("fedchain").setLevel(logging.ERROR)  # that a node is away is no news here
    limits = Limits(redial_min_s=0.1, redial_max_s=0.5, peers_wanted=0)
    peer = public_key_from_address(node.rpartition("/")[2])
    async with open_network(key, genesis.chain_id, genesis.members, bootstrap=[node], limits=limits) as network:
        while peer not in network.peers():
            await trio.sleep(0.05)
        yield Probe(network, peer)
