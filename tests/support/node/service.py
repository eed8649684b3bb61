"""A service on a network and a disk that remember what they were told."""

import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import StoreError
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.post import Post, sign_post
from fedchain.chain.storage.store import Final, MemoryStore, Record
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.files.spool import Spools
from fedchain.learning.executors.executor import Answer, Question
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.network.messages import (
    GossipMessage,
    Message,
    PostMessage,
    Status,
)
from fedchain.network.network import NONE_REPLACED, Receiver
from fedchain.node.core.checks import Checks
from fedchain.node.core.parts import Conduct
from fedchain.node.shell.disk import Disk
from fedchain.node.shell.service import Contact, Service
from fedchain.node.shell.timeline import TimelineFile
from fedchain.node.workers.supervisor import MiningWorker, WorkerFailed
from tests.support.chain.builders import SumRules, keys, payload
from tests.support.node.shell import until

ME, *OTHERS = keys(4)
VOTERS = [other.public_key for other in OTHERS]


def post_of(key: PrivateKey, document: Genesis, data: bytes, round_number: int = 1) -> Post:
    """A member's signed post of a payload in the first phase of a round."""
    return sign_post(key, document.chain_id, round_number, 0, data)


class Shell:
    """A fake network, fake training and a store that can be held up; ``log`` has what they did, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.store = MemoryStore()
        self.open = threading.Event()
        self.open.set()
        self.full = False
        self.failure = ""
        self.number = 1
        self.measured: dict[str, Any] = {"local": Evaluation(0.75, 0.0)}
        self.trained = anyio.Event()
        self.trained.set()
        self.receiver: Receiver
        self.blamed: list[tuple[PublicKey, str]] = []
        self.is_attached = False
        self.tracked: list[tuple[int, tuple[PublicKey, ...]]] = []
        self.replaced: dict[PublicKey, PublicKey] = {}
        self.guests: set[PublicKey] = set()
        self.written: bytes | None = None

    @property
    def spools(self) -> Spools:
        return self.store.spools

    # the network

    def attach(self, receiver: Receiver) -> None:
        self.receiver, self.is_attached = receiver, True

    def track(
        self,
        height: int,
        members: Collection[PublicKey],
        replaced: Mapping[PublicKey, PublicKey] = NONE_REPLACED,
        guests: Collection[PublicKey] = (),
    ) -> None:
        self.tracked.append((height, tuple(members)))
        self.replaced, self.guests = dict(replaced), {*guests}

    def publish(self, message: GossipMessage) -> None:
        self.log.append(("publish", message))

    def send(self, peer: PublicKey, message: Message) -> None:
        self.log.append(("send", message))

    # training

    async def prepare(self) -> None:
        self.log.append(("prepare", None))

    async def ask(self, question: Question) -> Answer:
        self.log.append(("train", question.round))
        await self.trained.wait()
        if self.failure:
            raise WorkerFailed(self.failure)
        made = Contribution(payload(self.number, question.round), 20, None, None)
        return replace(made, **self.measured)

    async def foresee(self, question: Question) -> None:
        self.log.append(("foresee", (question.round, question.knowledge)))

    # the store

    def append(self, records: Sequence[Record]) -> None:
        self.open.wait()
        if self.full:
            raise StoreError("the disk is full")
        self.store.append(records)
        self.log += [("store", record) for record in records]

    def head(self) -> Final | None:
        return self.store.head()

    def base(self) -> int:
        return self.store.base()

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        return self.store.final(height)

    def light_below(self, height: int) -> LightBlock | None:
        return self.store.light_below(height)

    def light_above(self, height: int) -> LightBlock | None:
        return self.store.light_above(height)

    def candidates(self) -> Iterator[Block]:
        return self.store.candidates()

    def votes(self, height: int) -> Iterator[Vote]:
        return self.store.votes(height)

    def content(self, content_hash: bytes) -> bytes | None:
        return self.store.content(content_hash)

    def holds_content(self, content_hash: Hash) -> bool:
        return self.store.holds_content(content_hash)

    def content_part(self, content_hash: bytes, start: int, size: int) -> bytes | None:
        return self.store.content_part(content_hash, start, size)

    def retain(self, needed: Collection[bytes]) -> None:
        self.store.retain(needed)
        self.log.append(("retain", frozenset(needed)))

    def size_bytes(self) -> int:
        return self.store.size_bytes()

    def posts(self, round_number: int = 0) -> Iterator[Post]:
        return self.store.posts(round_number)

    def blame(self, peer: PublicKey, reason: str) -> None:
        self.blamed.append((peer, reason))

    def published_posts(self) -> list[PostMessage]:
        return [what for how, what in self.log if how == "publish" and isinstance(what, PostMessage)]


class MemoryJournal:
    """A journal that is written to memory, in the shell's log."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def content(self) -> bytes | None:
        return self._shell.written

    def write(self, content: bytes) -> None:
        self._shell.written = content
        self._shell.log.append(("journal", content))


@asynccontextmanager
async def serving(
    shell: Shell,
    document: Genesis,
    miner: MiningWorker | None = None,
    *,
    hears: int = 1,
    timeline: TimelineFile | None = None,
    replays: bool = False,
    foresees: bool = True,
) -> AsyncIterator[Service]:
    """A service that runs; ``hears`` others say that they are at the start, so that it may speak."""
    disk = Disk(shell, MemoryJournal(shell), timeline=timeline)
    contact = Contact(shell, blame=shell.blame)
    checks, conduct = Checks(document, SumRules()), Conduct(replays=replays, foresees=foresees)
    service = Service(document, ME, checks, disk, contact, shell, conduct)
    service._miner = miner or service._miner
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.run)
        await until(lambda: shell.is_attached, "the service runs")
        for other in OTHERS[: min(hears, len(document.members) - 1)] if hears else ():
            shell.receiver(other.public_key, status_at(document, 0))
        for other in OTHERS[1:3] if hears and len(document.members) > 3 else ():
            shell.receiver(other.public_key, status_at(document, 0))
        yield service
        tasks.cancel_scope.cancel()


def status_at(document: Genesis, height: int) -> Status:
    """Status of a peer that has nothing but a height."""
    return Status(height, document.chain_id, b"", (), (), None)
