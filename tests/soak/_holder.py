"""A process that runs a node whose training gives what it is told: it posts a payload, or waits until it holds one."""

import sys
import time
from random import Random

import trio

from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.hashing import sha256
from fedchain.learning.executors.executor import Answer, Question
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.network.libp2p.network import open_network
from fedchain.node.core.checks import Checks
from fedchain.node.shell.disk import Disk
from fedchain.node.shell.service import Contact, Service
from tests.soak._processes import answer, told
from tests.support.chain.builders import genesis, keys
from tests.support.node.driver import BlobRules

PHASE_TIMEOUT_MS = 3_600_000
"""Nobody mines a block over a part of the posts."""


class ToldTraining:
    """Gives the payload that it is told, once."""

    def __init__(self) -> None:
        self.give, self.take = trio.open_memory_channel[bytes](1)

    async def prepare(self) -> None:
        """There is nothing to prepare."""

    async def foresee(self, question: Question) -> None:
        """It gives what it is told."""

    async def ask(self, question: Question) -> Answer:
        """Wait for a payload."""
        return Contribution(await self.take.receive(), 1, Evaluation(0.0, 0.0), None)


class NoJournal:
    """A key that is never used again needs no journal."""

    def content(self) -> bytes | None:
        """Nothing was written."""
        return None

    def write(self, content: bytes) -> None:
        """Nothing is kept."""


def blob(size: int) -> bytes:
    """The payload of ``size`` bytes."""
    return Random(size).randbytes(size)


async def run(number: int, count: int) -> None:
    """Do as told."""
    document, key = genesis(count, phase_timeout_ms=PHASE_TIMEOUT_MS), keys(count)[number]
    training = ToldTraining()
    commands = told()
    bootstrap = (await anext(commands))["dial"]
    async with (
        open_network(key, document.chain_id, document.members, bootstrap=bootstrap) as network,
        trio.open_nursery() as nursery,
    ):
        checks = Checks(document, BlobRules())
        service = Service(document, key, checks, Disk(MemoryStore(), NoJournal()), Contact(network), training)
        network.watch(service.on_peer)
        nursery.start_soon(service.run)
        answer(network.listen_addresses())
        async for command in commands:
            match command:
                case {"neighbours": _}:
                    answer(len(network.peers()))
                case {"post": size}:
                    payload = blob(size)
                    answer(time.time())
                    await training.give.send(payload)
                case {"sent": _}:
                    answer(network.counters.bytes_out)
                case {"hold": content_hash}:
                    nursery.start_soon(hold, service, bytes.fromhex(content_hash))
        nursery.cancel_scope.cancel()


async def hold(service: Service, content_hash: bytes) -> None:
    """Tell when a content is held, and that it is the right one."""
    while (content := service.node.content(content_hash)) is None:
        await trio.sleep(0.01)
    held_s = time.time()
    answer(held_s if sha256(content) == content_hash else None)


if __name__ == "__main__":
    trio.run(run, int(sys.argv[1]), int(sys.argv[2]))
