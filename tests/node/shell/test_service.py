"""The shell of a node: effects are carried out in order, and what is promised is stored before it is sent."""

import json
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from fedchain.chain.block import Block, Header
from fedchain.chain.exceptions import InvalidPayload, StoreError
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post, sign_post
from fedchain.chain.storage.store import Candidate, Content
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto import signature_memory
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.network.messages import (
    CHUNK_SIZE,
    CandidateMessage,
    Chunk,
    FinalMessage,
    GetContent,
    GetPayloads,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.verdict import Verdict
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Blame, Contribute
from fedchain.node.core.events import Tick
from fedchain.node.core.jobs import CheckPost, Job, Recompute, Result
from fedchain.node.core.notices import NotCounted, Skipped
from fedchain.node.shell.service import WAITING_MAX, NodeStopped
from fedchain.node.shell.timeline import TimelineFile
from fedchain.node.workers.supervisor import MiningWorker
from tests.support.chain.builders import ChainBuilder, SumRules, genesis, payload
from tests.support.node.service import ME, OTHERS, Shell, serving, status_at
from tests.support.node.shell import on_trio, until

VOTERS = [other.public_key for other in OTHERS]


def post_of(key: PrivateKey, document: Genesis, data: bytes, round_number: int = 1) -> Post:
    return sign_post(key, document.chain_id, round_number, 0, data)


@on_trio
async def test_a_federation_of_one_trains_mines_and_finishes_and_stores_what_it_says_first() -> None:
    shell = Shell()
    async with serving(shell, genesis(1, rounds=3, target_mining_time_ms=1_000), hears=0) as service:
        await until(lambda: service.status()["finished"], "the last round is closed")
        status = service.status()
    assert (status["height"], status["round"], status["accuracy"]) == (3, 3, 0.75)
    assert (status["training"], status["mining"], status["waiting_for"]) == (False, False, "nothing, it is finished")
    assert [what for how, what in shell.log if how == "train"] == [1, 2, 3]
    said = [(place, what) for place, (how, what) in enumerate(shell.log) if how == "publish"]
    assert {type(what).__name__ for _, what in said} == {"PostMessage", "CandidateMessage", "VoteMessage"}
    for place, message in said:
        promise: Any = next(getattr(message, name) for name in ("post", "block", "vote") if hasattr(message, name))
        record = Candidate(promise, is_own=True) if isinstance(promise, Block) else promise
        before = shell.log[:place]
        assert ("store", record) in before
        assert isinstance(promise, Block) or any(
            how == "journal" for how, _ in before[before.index(("store", record)) :]
        )


@on_trio
async def test_what_was_seen_of_a_block_is_written_down(tmp_path: Path) -> None:
    shell, chain = Shell(), ChainBuilder(genesis(4))
    shell.measured["epsilon"] = 1.5
    final = chain.extend()
    lost = chain.extend(chain.genesis.chain_id, miner=OTHERS[1])
    path = tmp_path / "timeline.jsonl"
    shell.store.append([Content(key, data) for key, data in chain.contents.items()])
    async with serving(shell, chain.genesis, timeline=TimelineFile(path)) as service:
        await until(shell.published_posts, "it has trained")
        for block in (lost, final):
            shell.receiver(OTHERS[0].public_key, CandidateMessage(block))
        shell.receiver(OTHERS[0].public_key, FinalMessage(final, chain.certificate(final)))
        await until(path.exists, "the line is written")
        assert service.node.head.height == 1
    line = json.loads(path.read_text())
    assert (line["height"], line["hash"]) == (1, final.hash.hex())
    assert {item["hash"] for item in line["candidates"]} >= {final.hash.hex(), lost.hash.hex()}
    assert line["trained_ms"] is not None
    assert line["training"] == {"round": 1, "accuracy": 0.75, "epsilon": 1.5}


@on_trio
async def test_who_replays_has_another_process_verify_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    shell, chain = Shell(), ChainBuilder(genesis(4))
    blocks, teacher = chain.extend_many(3), OTHERS[0].public_key
    async with serving(shell, chain.genesis, replays=True) as service:
        monkeypatch.setattr(signature_memory, "is_valid_signature", None)
        shell.receiver(teacher, Status(3, blocks[-1].hash, b"", (), (), None))
        for block in blocks:
            shell.receiver(teacher, FinalMessage(block, chain.certificate(block)))
        assert service.node.head.height == 0
        for block in blocks:
            question = "send", GetPayloads(block.header.height)
            await until(partial(shell.log.__contains__, question), "it is judged, and its payloads are asked for")
            payloads = tuple(chain.contents[post.payload_hash] for post in block.transactions)
            shell.receiver(teacher, Payloads(block.header.height, payloads))
        await until(lambda: service.node.head.block_hash == blocks[-1].hash, "all are followed")
        monkeypatch.undo()


@on_trio
async def test_nobody_answers_for_the_time_in_which_a_message_brings_the_head_forward() -> None:
    shell, chain = Shell(), ChainBuilder(genesis(4))
    block, teacher = chain.extend(), OTHERS[0].public_key
    final = FinalMessage(block, chain.certificate(block))
    async with serving(shell, chain.genesis) as service:
        assert shell.receiver(teacher, Status(1, block.hash, b"", (), (), None)) is Verdict.ACCEPT
        assert shell.receiver(teacher, final) is Verdict.PROGRESS
        assert service.node.head.block_hash == block.hash
        assert shell.receiver(teacher, final) is Verdict.IGNORE, "once"


@on_trio
async def test_votes_are_passed_on_though_the_head_moves_with_them() -> None:
    shell, chain = Shell(), ChainBuilder(genesis(4))
    block = chain.extend()
    async with serving(shell, chain.genesis) as service:
        shell.receiver(OTHERS[0].public_key, CandidateMessage(block))
        verdicts = [shell.receiver(vote.voter, VoteMessage(vote)) for vote in chain.certificate(block).votes]
        assert service.node.head.block_hash == block.hash
        assert Verdict.PROGRESS not in verdicts


@on_trio
async def test_nothing_is_sent_while_what_it_promises_is_being_stored() -> None:
    shell = Shell()
    shell.open.clear()
    try:
        async with serving(shell, genesis(4)) as service:
            await until(lambda: service.activity.accuracy is not None and not service.activity.training, "it trained")
            await anyio.wait_all_tasks_blocked()
            before = list(shell.log)
            service.on_peer(OTHERS[1].public_key, True)  # has a status sent, after the post
            await anyio.wait_all_tasks_blocked()
            held = list(shell.log)
            shell.open.set()
            await until(shell.published_posts, "the post is sent")
    finally:
        shell.open.set()
    (post,) = shell.published_posts()
    assert ("store", post.post) not in held
    assert ("publish", post) not in held
    assert held == before
    later = shell.log[len(held) :]
    names = [how for how, what in later if how == "journal" or what in (post, post.post)]
    assert names == ["store", "journal", "publish"]


@on_trio
async def test_answers_do_not_pile_up_behind_a_slow_disk() -> None:
    shell, document = Shell(), genesis(4)
    shell.open.clear()
    question = GetContent(bytes(32), 0)
    try:
        async with serving(shell, document) as service:
            await until(lambda: service.activity.accuracy is not None and not service.activity.training, "it trained")
            await anyio.wait_all_tasks_blocked()
            asker = OTHERS[0].public_key
            for _ in range(3 * WAITING_MAX):
                assert shell.receiver(asker, question) is not Verdict.REJECT
            assert shell.receiver(asker, status_at(document, 0)) is Verdict.ACCEPT, "all else is heard"
            shell.open.set()
            await until(lambda: not len(service._queue), "all is said")
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
    assert shell.published_posts() == []


@on_trio
async def test_what_is_refused_is_counted_by_its_name_and_held_against_who_could_have_known() -> None:
    shell, document = Shell(), genesis(4)
    author, relay = OTHERS[0], OTHERS[1].public_key
    far, wrong = post_of(author, document, payload(9), 99), post_of(author, document, b"no payload")
    forged = Post(1, 0, author.public_key, wrong.payload_hash, 10, bytes(64))
    async with serving(shell, document) as service:
        verdicts = [
            shell.receiver(relay, PostMessage(far, payload(9))),
            shell.receiver(relay, PostMessage(wrong, b"no payload")),
            shell.receiver(relay, PostMessage(forged, b"no payload")),
        ]
        await until(lambda: shell.blamed, "the author is blamed")
        refused = service.status()["refused"]
    assert verdicts == [Verdict.IGNORE, Verdict.ACCEPT, Verdict.REJECT]
    assert refused == {"OutOfWindow": 1, "InvalidPayload": 1, "InvalidSignature": 1}
    assert [member for member, _ in shell.blamed] == [author.public_key]
    assert shell.blamed[0][1].startswith("InvalidPayload: ")


@on_trio
async def test_what_has_come_of_a_large_post_is_shown_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fedchain.node.shell.service.PROGRESS_S", 0.0)
    caplog.set_level("INFO")
    shell, document = Shell(), genesis(4)
    author, data = OTHERS[0].public_key, bytes(3 * CHUNK_SIZE)
    post = post_of(OTHERS[0], document, data)
    async with serving(shell, document) as service:
        await until(shell.published_posts, "our own post is sent")
        service.on_peer(author, True)
        shell.receiver(author, PostMessage(post, None))
        for number in range(2):
            shell.receiver(author, Chunk(post.payload_hash, number * CHUNK_SIZE, bytes(CHUNK_SIZE)))
        assert service.status()["waiting_for"] == "1 post: 1 of 1 MB are here"
        await until(lambda: "fetching" in caplog.text, "a line on its progress")
        assert f"fetching round=1 peer=1 bytes={2 * CHUNK_SIZE} of={3 * CHUNK_SIZE}" in caplog.text
        shell.receiver(author, Chunk(post.payload_hash, 2 * CHUNK_SIZE, bytes(CHUNK_SIZE)))
        assert "MB are here" not in service.status()["waiting_for"]
    assert caplog.text.count("fetching") == 1, "only what has changed is told"


@on_trio
async def test_nobody_is_blamed_for_our_own_faults() -> None:
    shell, document = Shell(), genesis(4)
    invalid = InvalidPayload("payload", "10 found, 32 expected")
    async with serving(shell, document) as service:
        service.node.handle = lambda event, now: [Blame(ME.public_key, invalid)]  # type: ignore[method-assign]
        service.handle(Tick())
        await until(lambda: service.status()["refused"], "it is counted")
    assert shell.blamed == []


@on_trio
async def test_training_that_fails_is_told_and_the_node_goes_on() -> None:
    shell, document = Shell(), genesis(4)
    shell.failure = "TrainingDiverged: the loss is infinite"
    async with serving(shell, document) as service:
        await until(lambda: service.activity.failure, "the failure is known")
        assert service.status()["waiting_for"] == "the next phase: round 1: TrainingDiverged: the loss is infinite"
        assert service.status()["failing"] == "round 1: TrainingDiverged: the loss is infinite"
        assert service.activity.training_failures == 1
        service.node.observations.not_counted = NotCounted(1, 1, "it was not ready when the block was mined")
        assert service.status()["not_counted"] == service.status()["failing"], "which is why"
        service.node.observations.not_counted = NotCounted(2, 2, "it was not sent")
        assert service.status()["not_counted"] == "round 2: it was not sent"
        other = OTHERS[0]
        post = post_of(other, document, payload(9))
        assert shell.receiver(other.public_key, PostMessage(post, payload(9))) is Verdict.ACCEPT
        assert address(other.public_key) not in service.status()["missing_posts"]
        assert shell.published_posts() == []
        shell.failure = ""
        await service._train(Contribute(1, 0, "update", b""))
        assert service.status()["failing"] == "", "it can train again"


@pytest.mark.long
@on_trio
async def test_started_again_it_sends_its_own_post_again_byte_by_byte_and_trains_no_other() -> None:
    first, document = Shell(), genesis(4)
    async with serving(first, document):
        await until(first.published_posts, "the post is sent")
    again = Shell()
    again.store, again.written, again.number = first.store, first.written, 2
    async with serving(again, document):
        await until(again.published_posts, "the post is sent again")
    assert first.published_posts() == again.published_posts()
    assert not [what for how, what in again.log if how == "train"]
    assert [post.hash for post in first.store.posts(0)] == [first.published_posts()[0].post.hash]


@on_trio
async def test_who_catches_up_trains_for_the_open_phase_and_not_for_those_it_has_missed() -> None:
    shell, builder = Shell(), ChainBuilder(genesis(4))
    blocks = builder.extend_many(6)
    shell.trained = anyio.Event()
    shell.store.append([Content(key, data) for key, data in builder.contents.items()])
    async with serving(shell, builder.genesis) as service:
        await until(lambda: ("train", 1) in shell.log, "the first phase is trained for")
        for other in OTHERS:
            shell.receiver(other.public_key, status_at(builder.genesis, 6))
        for block in blocks:
            shell.receiver(OTHERS[0].public_key, FinalMessage(block, builder.certificate(block.hash)))
        assert service.node.head.round == 7
        await until(lambda: service._asked_for is not None and service._asked_for.round == 7, "its turn is waited for")
        assert service._training_turn.statistics().tasks_waiting == 1, "what is given up is held no longer"
        shell.trained.set()
        await until(lambda: ("train", 7) in shell.log, "the open phase is trained for")
    assert [what for how, what in shell.log if how == "train"] == [1, 7]


@on_trio
async def test_what_is_large_or_slow_to_check_leaves_the_loop_and_the_rest_does_not() -> None:
    document = genesis(4)
    done: list[tuple[Job, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        run = Checks.run

        def noting(self: Checks, job: Job) -> Result:
            done.append((job, threading.get_ident()))
            return run(self, job)

        patch.setattr(Checks, "run", noting)
        for size_max, is_slow, leaves in ((0, False, True), (2**20, False, False), (2**20, True, True)):
            done.clear()
            shell = Shell()
            patch.setattr("fedchain.node.shell.service.SMALL_JOB_SIZE", size_max)
            patch.setattr(SumRules, "is_slow_to_check", lambda _, phase, is_slow=is_slow: is_slow and phase == "update")
            async with serving(shell, document):
                for other in OTHERS:
                    post = post_of(other, document, payload(9))
                    shell.receiver(other.public_key, PostMessage(post, payload(9)))
                await until(lambda: any(isinstance(job, Recompute) for job, _ in done), "posts are aggregated")
            assert sum(isinstance(job, CheckPost) for job, _ in done) == 4
            assert {thread != threading.get_ident() for _, thread in done} == {leaves}


@on_trio
async def test_who_only_helps_to_open_sums_has_no_accuracy_to_tell_of(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell()
    shell.measured = {}
    caplog.set_level("INFO", "fedchain.node")
    async with serving(shell, genesis(4)) as service:
        await until(shell.published_posts, "the post is sent")
        assert service.status()["accuracy"] is None
    (told,) = (line for line in caplog.messages if line.startswith("trained"))
    assert told.partition(" seconds=")[0] == "trained round=1 steps=20"


@on_trio
async def test_who_is_skipped_is_named_once_in_a_round(caplog: pytest.LogCaptureFixture) -> None:
    """Its trainer says whose contribution is of no use; the node says it to its operator."""
    shell, document = Shell(), genesis(4)
    shell.measured = {"skipped": ((2, "part 00 is not here"),)}
    caplog.set_level("WARNING", "fedchain.node")
    async with serving(shell, document) as service:
        await until(shell.published_posts, "the post is sent")
        assert [notice for notice in service.activity.notices if isinstance(notice, Skipped)] == [
            Skipped(1, document.members[2], "part 00 is not here")
        ]
    said = f"a contribution was skipped round=1 member={address(document.members[2])} (peer 2): part 00 is not here"
    assert [line for line in caplog.messages if "skipped" in line] == [said]


@on_trio
async def test_a_twin_that_goes_on_ends_the_service_with_a_clear_message() -> None:
    shell, builder = Shell(), ChainBuilder(genesis(4))
    blocks = builder.extend_many(3)
    relay, voters = OTHERS[0].public_key, [other.public_key for other in OTHERS]

    async def run() -> None:
        async with serving(shell, builder.genesis) as service:
            await until(lambda: not service.node.is_silent(), "it speaks")
            for height, block in enumerate(blocks, 1):
                vote = sign_vote(ME, builder.genesis.chain_id, (height, 5, VoteKind.PREVOTE), block.hash)
                shell.receiver(relay, VoteMessage(vote))
                shell.receiver(relay, FinalMessage(block, builder.certificate(block.hash, voters)))
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(NodeStopped, match="this key speaks elsewhere")


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
        await until(shell.published_posts, "the post is sent")
        for other, post in zip(OTHERS, (p for p in builder.posts() if p.sender != ME.public_key), strict=True):
            content = builder.contents[post.payload_hash]
            shell.receiver(other.public_key, PostMessage(post, content))
        await until(lambda: service.status()["mining"], "a search")
        assert [header.height for header in miner.asked] == [1]
        block = builder.extend(posts=[p for p in builder.posts() if p.sender != ME.public_key])
        voters = [other.public_key for other in OTHERS]
        shell.receiver(OTHERS[0].public_key, FinalMessage(block, builder.certificate(block.hash, voters)))
        assert service.status()["height"] == 1
        assert not service.status()["mining"]
        assert service.status()["not_counted"].startswith("round 1: ")
        assert not miner.stop_unless(lambda _: False)  # it was told already


@on_trio
async def test_peers_come_and_go_and_the_status_says_who_is_missing() -> None:
    shell = Shell()
    async with serving(shell, genesis(4)) as service:
        assert not service.status()["quorum_reachable"]
        for other in OTHERS:
            service.on_peer(other.public_key, True)
        assert service.status()["quorum_reachable"]
        service.on_peer(OTHERS[0].public_key, False)
        status = service.status()
    assert status["peers"] == sorted(address(other.public_key) for other in OTHERS[1:])
    assert (status["electors"], status["quorum"], status["quorum_reachable"]) == (4, 3, True)
    assert status["electors_missing"] == [address(OTHERS[0].public_key)]


@on_trio
async def test_a_candidate_is_trained_on_while_votes_travel_and_nothing_is_said_of_it() -> None:
    """Another block is decided, so what was foreseen of the first one is of no use; both are trained on in order."""
    shell, chain = Shell(), ChainBuilder(genesis(4))
    teacher, start = OTHERS[0].public_key, chain.genesis.chain_id
    ours = next(post for post in chain.posts() if post.sender == ME.public_key)
    shell.measured["payload"] = chain.contents[ours.payload_hash]
    posts = [ours if post.sender == ME.public_key else post for post in chain.posts(payload_of=5)]
    first, other = chain.extend(), chain.extend(start, posts=posts, miner=OTHERS[1])
    shell.store.append([Content(key, data) for key, data in chain.contents.items()])
    async with serving(shell, chain.genesis) as service:
        await until(shell.published_posts, "it has trained")
        shell.receiver(teacher, CandidateMessage(first))
        await until(lambda: foreseen(shell) != [], "it trains ahead")
        assert foreseen(shell) == [(2, chain.contents[first.header.knowledge_root])]
        assert service.node.head.height == 0
        assert [message.post.round for message in shell.published_posts()] == [1]
        shell.receiver(teacher, CandidateMessage(other))
        shell.receiver(teacher, FinalMessage(other, chain.certificate(other, VOTERS)))
        await until(lambda: len(shell.published_posts()) == 2, "it contributes to the next round")
        assert service.node.head.block_hash == other.hash
    assert [how for how, what in shell.log if how == "train"] == ["train"] * 2, "it is asked as if nothing was foreseen"
    assert [message.post.round for message in shell.published_posts()] == [1, 2]


def foreseen(shell: Shell) -> list[tuple[int, bytes]]:
    """Round and knowledge of what the trainer was to compute ahead."""
    return [what for how, what in shell.log if how == "foresee"]


@on_trio
async def test_a_node_that_is_not_to_train_ahead_does_not() -> None:
    shell, chain = Shell(), ChainBuilder(genesis(4))
    ours = next(post for post in chain.posts() if post.sender == ME.public_key)
    shell.measured["payload"] = chain.contents[ours.payload_hash]
    block = chain.extend()
    shell.store.append([Content(key, data) for key, data in chain.contents.items()])
    async with serving(shell, chain.genesis, foresees=False) as service:
        await until(shell.published_posts, "it has trained")
        shell.receiver(OTHERS[0].public_key, CandidateMessage(block))
        shell.receiver(OTHERS[0].public_key, FinalMessage(block, chain.certificate(block, VOTERS)))
        await until(lambda: len(shell.published_posts()) == 2, "it contributes to the next round")
        assert service.node.head.height == 1
    assert foreseen(shell) == []
