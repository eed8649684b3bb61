"""The shell of a node: effects are carried out in order, and what is promised is stored before it is sent."""

import threading
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from fedchain.chain.block import Header
from fedchain.chain.exceptions import FutureTimestamp, InvalidPayload, StoreError
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.store import Content, MemoryStore, Record
from fedchain.chain.transaction import Transaction, sign_transaction
from fedchain.crypto.address import address
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    BlockMessage,
    Chunk,
    GetContent,
    GossipMessage,
    Message,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.network import Receiver
from fedchain.network.verdict import Verdict
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Blame
from fedchain.node.core.events import Tick
from fedchain.node.service import WAITING_MAX, Service, now_ms
from fedchain.node.workers.supervisor import MiningWorker, Trained, WorkerFailed
from tests.chain.builders import ChainBuilder, SumRules, genesis, keys, payload
from tests.node.shell import on_trio, until

ME, *OTHERS = keys(4)


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
        self.trained = anyio.Event()
        self.trained.set()
        self.receiver: Receiver
        self.blamed: list[tuple[PublicKey, str]] = []
        self.is_attached = False

    def attach(self, receiver: Receiver) -> None:
        self.receiver, self.is_attached = receiver, True

    def publish(self, message: GossipMessage) -> None:
        self.log.append(("publish", message))

    def send(self, peer: PublicKey, message: Message) -> None:
        self.log.append(("send", message))

    async def prepare(self) -> None:
        self.log.append(("prepare", None))

    async def contribute(self, phase: str, round_number: int, knowledge: bytes) -> Trained:
        self.log.append(("train", round_number))
        await self.trained.wait()
        if self.failure:
            raise WorkerFailed(self.failure)
        return Trained(payload(self.number, round_number), 20, {"local_accuracy": 0.75})

    def append(self, records: Sequence[Record]) -> None:
        self.open.wait()
        if self.full:
            raise StoreError("the disk is full")
        self.store.append(records)
        self.log += [("store", record) for record in records]

    def records(self) -> Any:
        return self.store.records()

    def content(self, content_hash: bytes) -> bytes | None:
        return self.store.content(content_hash)

    def content_part(self, content_hash: bytes, start: int, size: int) -> bytes | None:
        return self.store.content_part(content_hash, start, size)

    def retain(self, needed: Collection[bytes]) -> None:
        self.store.retain(needed)
        self.log.append(("retain", frozenset(needed)))

    def blame(self, peer: PublicKey, reason: str) -> None:
        self.blamed.append((peer, reason))

    def posts(self) -> list[PostMessage]:
        return [what for how, what in self.log if how == "publish" and isinstance(what, PostMessage)]


@asynccontextmanager
async def serving(shell: Shell, document: Genesis, miner: MiningWorker | None = None) -> AsyncIterator[Service]:
    service = Service(document, ME, Verification(document, SumRules()), shell, shell, shell, blame=shell.blame)
    service._miner = miner or service._miner
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.run)
        await until(lambda: shell.is_attached, "the service runs")
        yield service
        tasks.cancel_scope.cancel()


@on_trio
async def test_a_federation_of_one_trains_mines_and_finishes_and_stores_what_it_says_first() -> None:
    shell = Shell()
    async with serving(shell, genesis(1, rounds=3, target_mining_time_ms=1_000)) as service:
        await until(lambda: service.status()["finished"], "the last round is closed")
        status = service.status()
    assert (status["height"], status["round"], status["accuracy"]) == (3, 3, 0.75)
    assert (status["training"], status["mining"], status["waiting_for"]) == (False, False, "nothing, it is finished")
    assert [what for how, what in shell.log if how == "train"] == [1, 2, 3]
    said = [(place, what) for place, (how, what) in enumerate(shell.log) if how == "publish"]
    assert {type(what).__name__ for _, what in said} >= {"PostMessage", "BlockMessage"}
    for place, message in said:
        promise = next(getattr(message, name) for name in ("transaction", "block", "vote") if hasattr(message, name))
        assert ("store", promise) in shell.log[:place]


@on_trio
async def test_nothing_is_sent_while_what_it_promises_is_being_stored() -> None:
    shell = Shell()
    shell.open.clear()
    try:
        async with serving(shell, genesis(4)) as service:
            service.on_peer(OTHERS[0].public_key, True)
            await until(lambda: ("train", 1) in shell.log, "training is asked for")
            await until(lambda: service.activity.accuracy is not None and not service.activity.training, "it trained")
            await anyio.wait_all_tasks_blocked()
            before = list(shell.log)
            service.on_peer(OTHERS[1].public_key, True)  # has a status sent, after the post
            await anyio.wait_all_tasks_blocked()
            held = list(shell.log)
            shell.open.set()
            await until(shell.posts, "the post is sent")
    finally:
        shell.open.set()
    (post,) = shell.posts()
    assert ("store", post.transaction) not in held
    assert ("publish", post) not in held
    assert held == before
    later = shell.log[len(held) :]
    order = [later.index(("store", post.transaction)), later.index(("publish", post))]
    assert order == sorted(order)
    assert sum(how == "send" and isinstance(what, Status) for how, what in later[order[1] :]) >= 1


@on_trio
async def test_answers_do_not_pile_up_behind_a_slow_disk() -> None:
    shell = Shell()
    shell.open.clear()
    question = GetContent(bytes(32), 0)
    try:
        async with serving(shell, genesis(4)) as service:
            await until(lambda: service.activity.accuracy is not None and not service.activity.training, "it trained")
            await anyio.wait_all_tasks_blocked()
            asker = OTHERS[0].public_key
            for _ in range(3 * WAITING_MAX):
                assert shell.receiver(asker, question) is not Verdict.REJECT
            assert shell.receiver(asker, Status(bytes(32), 0, b"", ())) is Verdict.ACCEPT, "all else is heard"
            shell.open.set()
            await until(lambda: not service._waiting, "all is said")
    finally:
        shell.open.set()
    answers = [what for how, what in shell.log if how == "send" and isinstance(what, Chunk)]
    assert WAITING_MAX // 2 < len(answers) <= WAITING_MAX


@on_trio
async def test_a_full_disk_ends_the_service_before_anything_is_sent() -> None:
    shell = Shell()
    shell.full = True
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(shell, genesis(4)):
            await anyio.sleep_forever()
    assert caught.group_contains(StoreError, match="the disk is full")
    assert shell.posts() == []


@on_trio
async def test_what_is_refused_is_counted_by_its_name() -> None:
    shell, document = Shell(), genesis(4)
    other = OTHERS[0]
    early = sign_transaction(other, document.chain_id, 1, 0, payload(9), now_ms() + 3_600_000)
    far = sign_transaction(other, document.chain_id, 99, 0, payload(9), now_ms())
    wrong = sign_transaction(other, document.chain_id, 1, 0, b"no payload", now_ms())
    async with serving(shell, document) as service:
        verdicts = [
            shell.receiver(OTHERS[1].public_key, PostMessage(early, payload(9))),
            shell.receiver(OTHERS[1].public_key, PostMessage(early, payload(9))),
            shell.receiver(OTHERS[1].public_key, PostMessage(far, payload(9))),
            shell.receiver(OTHERS[1].public_key, PostMessage(wrong, b"no payload")),
        ]
        refused = service.status()["refused"]
    assert verdicts == [Verdict.IGNORE, Verdict.IGNORE, Verdict.IGNORE, Verdict.REJECT]
    assert refused == {"FutureTimestamp": 2, "OutOfWindow": 1, "InvalidPayload": 1}


@on_trio
async def test_what_waited_and_turned_out_bad_is_held_against_its_author_and_not_against_who_brought_the_rest() -> None:
    shell, document = Shell(), genesis(4)
    author, bringer = OTHERS[0].public_key, OTHERS[1].public_key
    wrong = sign_transaction(OTHERS[0], document.chain_id, 1, 0, b"no payload", now_ms())
    async with serving(shell, document) as service:
        assert shell.receiver(bringer, PostMessage(wrong, None)) is Verdict.ACCEPT
        assert shell.receiver(bringer, Chunk(wrong.payload_hash, 0, b"no payload")) is Verdict.ACCEPT
        assert service.status()["refused"] == {"InvalidPayload": 1}
    assert [peer for peer, _ in shell.blamed] == [author]
    assert shell.blamed[0][1].startswith("InvalidPayload: ")


@on_trio
async def test_nobody_is_blamed_for_our_own_faults_or_for_what_may_heal() -> None:
    shell, document = Shell(), genesis(4)
    other = OTHERS[0].public_key
    invalid, early = InvalidPayload("payload", "10 found, 32 expected"), FutureTimestamp("timestamp", "2 found, 1 now")
    async with serving(shell, document) as service:
        service.node.handle = lambda event, now_ms: [Blame(ME.public_key, invalid), Blame(other, early)]  # type: ignore[method-assign]
        service.handle(Tick())
        assert service.status()["refused"] == {"InvalidPayload": 1, "FutureTimestamp": 1}
        assert shell.blamed == []
        service.node.handle = lambda event, now_ms: [Blame(other, invalid)]  # type: ignore[method-assign]
        service.handle(Tick())
    assert [peer for peer, _ in shell.blamed] == [other]


@on_trio
async def test_training_that_fails_is_told_and_the_node_goes_on() -> None:
    shell, document = Shell(), genesis(4)
    shell.failure = "TrainingDiverged: the loss is infinite"
    async with serving(shell, document) as service:
        await until(lambda: service.activity.failure, "the failure is known")
        assert service.status()["waiting_for"] == "the next phase: round 1: TrainingDiverged: the loss is infinite"
        other = OTHERS[0]
        post = sign_transaction(other, document.chain_id, 1, 0, payload(9), now_ms())
        assert shell.receiver(other.public_key, PostMessage(post, payload(9))) is Verdict.ACCEPT
        assert address(other.public_key) not in service.status()["missing_posts"]
    assert shell.posts() == []


@on_trio
async def test_started_again_it_sends_its_own_post_again_byte_by_byte_and_trains_no_other() -> None:
    first, document = Shell(), genesis(4)
    async with serving(first, document):
        await until(first.posts, "the post is sent")
    again = Shell()
    again.store, again.number = first.store, 2
    async with serving(again, document) as service:
        await until(again.posts, "the post is sent again")
        assert service.status()["waiting_for"] == "3 posts, or the phase's timeout"
    assert first.posts() == again.posts()
    assert not [what for how, what in again.log if how == "train"]
    stored = {record.hash for record in first.store.records() if isinstance(record, Transaction)}
    assert stored == {first.posts()[0].transaction.hash}


@on_trio
async def test_who_catches_up_trains_for_the_open_phase_and_not_for_those_it_has_missed() -> None:
    shell, builder = Shell(), ChainBuilder(genesis(4))
    blocks = builder.extend_many(6)
    shell.trained = anyio.Event()
    shell.store.append([Content(key, data) for key, data in builder.contents.items()])
    async with serving(shell, builder.genesis) as service:
        await until(lambda: ("train", 1) in shell.log, "the first phase is trained for")
        for block in blocks:
            shell.receiver(OTHERS[0].public_key, BlockMessage(block))
        assert service.node.head.round == 6  # the votes for the last block are yet to come
        shell.trained.set()
        await until(
            lambda: [post for post in shell.posts() if post.transaction.round == 6], "a post for the open phase"
        )
    assert [what for how, what in shell.log if how == "train"] == [1, 6]


@on_trio
async def test_records_that_nothing_waits_for_are_stored_together_and_in_the_end() -> None:
    shell, builder = Shell(), ChainBuilder(genesis(9))  # so many that three votes and our own accept nothing
    shell.trained = anyio.Event()
    block = builder.extend()
    shell.store.append([Content(key, data) for key, data in builder.contents.items()])
    votes = [vote for vote in builder.votes(block.hash) if vote.voter != ME.public_key][:3]

    def stored() -> list[object]:
        return [what for how, what in shell.log if how == "store" and what in votes]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedchain.node.service.STORE_PAUSE_S", 1e6)
        patch.setattr("fedchain.node.service.TICK_S", 1e6)  # a tick may have something to say
        async with serving(shell, builder.genesis) as service:
            shell.receiver(OTHERS[0].public_key, BlockMessage(block))
            for vote in votes[:2]:
                shell.receiver(vote.voter, VoteMessage(vote))
                await anyio.wait_all_tasks_blocked()
            assert stored() == []
            service.on_peer(OTHERS[1].public_key, True)  # has a status sent
            await until(lambda: any(how == "send" for how, _ in shell.log), "a status is sent")
            before = [what for how, what in shell.log[: [how for how, _ in shell.log].index("send")] if how == "store"]
            assert [record for record in before if record in votes] == votes[:2]
            shell.receiver(votes[2].voter, VoteMessage(votes[2]))
            await anyio.wait_all_tasks_blocked()
            assert stored() == votes[:2]
    assert stored() == votes


class RestingMiner(MiningWorker):
    """A miner that finds nothing and knows what it was asked for."""

    def __init__(self) -> None:
        super().__init__("sha256d", lambda _: None)
        self.asked: list[Header] = []

    def mine(self, header: Header) -> None:
        self.asked.append(header)
        super().mine(header)

    async def run(self) -> None:
        await anyio.sleep_forever()


@on_trio
async def test_mining_ends_when_somebody_else_s_block_is_the_head() -> None:
    shell, builder, miner = Shell(), ChainBuilder(genesis(4, rounds=1)), RestingMiner()
    async with serving(shell, builder.genesis, miner) as service:
        await until(shell.posts, "the post is sent")
        posts = [post.transaction for post in shell.posts()]
        for other in OTHERS:
            posts.append(sign_transaction(other, builder.genesis.chain_id, 1, 0, payload(9), now_ms()))
            shell.receiver(other.public_key, PostMessage(posts[-1], payload(9)))
        await until(lambda: service.status()["mining"], "a search")
        assert [header.height for header in miner.asked] == [1]
        builder.contents[sha256(payload(9))] = payload(9)
        builder.contents[posts[0].payload_hash] = payload(shell.number, 1)
        block = builder.extend(
            posts=sorted(posts, key=lambda post: post.sender), miner=OTHERS[0], timestamp_ms=now_ms()
        )
        shell.receiver(OTHERS[0].public_key, BlockMessage(block))
        for vote in builder.votes(block.hash):
            if vote.voter != ME.public_key:
                shell.receiver(vote.voter, VoteMessage(vote))
        assert service.status()["height"] == 1
        assert not service.status()["mining"]
        assert not miner.stop_unless(lambda _: False)  # it was told already


@on_trio
async def test_peers_come_and_go() -> None:
    shell = Shell()
    async with serving(shell, genesis(4)) as service:
        for other in OTHERS:
            service.on_peer(other.public_key, True)
        service.on_peer(OTHERS[0].public_key, False)
        assert service.status()["peers"] == sorted(address(other.public_key) for other in OTHERS[1:])
