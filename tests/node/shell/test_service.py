"""The shell of a node: effects are carried out in order, and what is promised is stored before it is sent."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from fedchain.chain.block import Block, Header
from fedchain.chain.exceptions import InvalidPayload
from fedchain.chain.post import Post
from fedchain.chain.storage.store import Candidate
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.address import address
from fedchain.network.messages import (
    CandidateMessage,
    Chunk,
    FinalMessage,
    GetContent,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.verdict import Verdict
from fedchain.node.core.effects import Blame
from fedchain.node.core.events import Tick
from fedchain.node.core.voting.journal import Journal
from fedchain.node.shell.service import WAITING_MAX, NodeStopped
from fedchain.node.shell.timeline import TimelineFile
from fedchain.node.workers.supervisor import MiningWorker
from tests.support.chain.builders import ChainBuilder, genesis, payload
from tests.support.node.service import ME, OTHERS, Shell, post_of, serving, status_at
from tests.support.node.shell import on_trio, until


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
        written = [what for how, what in before[: before.index(("store", record))] if how == "journal"]
        signed = [item for journal in map(Journal.decode, written) for item in (*journal.votes, *journal.posts)]
        assert isinstance(promise, Block) or promise in signed


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
async def test_nobody_is_blamed_for_our_own_faults() -> None:
    shell, document = Shell(), genesis(4)
    invalid = InvalidPayload("payload", "10 found, 32 expected")
    async with serving(shell, document) as service:
        service.node.handle = lambda event, now: [Blame(ME.public_key, invalid)]  # type: ignore[method-assign]
        service.handle(Tick())
        await until(lambda: service.status()["refused"], "it is counted")
    assert shell.blamed == []


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


@on_trio
async def test_what_comes_between_the_end_of_a_service_and_that_of_its_network_is_ignored(tmp_path: Path) -> None:
    shell, builder = Shell(), ChainBuilder(genesis(4))
    block, relay = builder.extend(), OTHERS[0].public_key
    async with serving(shell, builder.genesis, timeline=TimelineFile(tmp_path / "timeline")) as service:
        await until(lambda: not service.node.is_silent(), "it speaks")
    assert shell.receiver(relay, FinalMessage(block, builder.certificate(block))) is Verdict.IGNORE
    assert service.node.head.height == 0


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
