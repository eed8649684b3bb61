"""A member that takes no part: it hears all gossip, asks everybody for everything, and remembers who signed what."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from fedchain.chain.genesis import Genesis
from fedchain.chain.vote import VoteKind
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.bitmaps import to_bitmap
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.limits import Limits
from fedchain.network.messages import (
    CandidateMessage,
    FinalMessage,
    GetFinal,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.verdict import Verdict
from tests.support.node.processes import Promises

ASK_INTERVAL_S = 0.3
"""How often each peer is asked; a node answers less than a budget's worth of this."""


class Observer:
    """Statements of all nodes, as far as one peer that is connected to all of them can see."""

    def __init__(self, genesis: Genesis, network: Libp2pNetwork) -> None:
        self.heard = Promises()
        self.messages = 0
        """Posts, blocks and votes that arrived, repetitions included."""
        self._network, self._everyone = network, to_bitmap(range(len(genesis.members)), len(genesis.members))
        self._height = 0
        network.attach(self._receive)

    async def ask(self) -> None:
        """Ask everybody, again and again: an answer after a restart must be the one before it."""
        while True:
            for peer in self._network.peers():
                for kind in VoteKind:
                    self._network.send(peer, GetVotes(self._height + 1, kind, 0, self._everyone))
                for round_number in (self._height, self._height + 1, self._height + 2):  # one block a round
                    self._network.send(peer, GetPosts(round_number, 0, self._everyone))
                self._network.send(peer, GetFinal(max(1, self._height - 1), 2))
            await trio.sleep(ASK_INTERVAL_S)

    def _receive(self, _: PublicKey, message: Message) -> Verdict:
        match message:
            case PostMessage(post, _):
                self.heard.add([post])
            case VoteMessage(vote):
                self.heard.add([vote])
            case CandidateMessage(block):
                self.heard.add([block])
            case FinalMessage(block, certificate):
                self.heard.add([block, certificate])
            case Status():
                self._height = max(self._height, message.height)
                return Verdict.ACCEPT
            case _:
                return Verdict.IGNORE
        self.messages += 1
        return Verdict.ACCEPT


@asynccontextmanager
async def observing(genesis: Genesis, key: PrivateKey, nodes: Sequence[str]) -> AsyncIterator[Observer]:
    """Listen in on a federation for as long as the context lasts.

    Args:
        genesis: of the federation.
        key: of the member in whose name to connect.
        nodes: addresses of all that run.
    """
    logging.getLogger("fedchain").setLevel(logging.ERROR)  # that a node is away is no news here
    limits = Limits(redial_min_s=0.1, redial_max_s=0.5, gossip_degree=len(nodes))
    async with (
        open_network(key, genesis.chain_id, genesis.members, bootstrap=nodes, limits=limits) as network,
        trio.open_nursery() as nursery,
    ):
        observer = Observer(genesis, network)
        nursery.start_soon(observer.ask)
        yield observer
        nursery.cancel_scope.cancel()
