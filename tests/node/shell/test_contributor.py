"""This member's training: ahead, in its turn, skipped, and failed."""

import anyio
import pytest

from fedchain.chain.storage.store import Contents
from fedchain.crypto.address import address
from fedchain.network.messages import (
    CandidateMessage,
    FinalMessage,
    PostMessage,
)
from fedchain.network.verdict import Verdict
from fedchain.node.core.effects import Contribute
from fedchain.node.core.notices import NotCounted, Skipped
from tests.support.chain.builders import ChainBuilder, genesis, payload
from tests.support.node.service import ME, OTHERS, VOTERS, Shell, post_of, serving, status_at
from tests.support.node.shell import on_trio, until


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
        await service._contributor.contribute(Contribute(1, 0, "update", b""))
        assert service.status()["failing"] == "", "it can train again"


@on_trio
async def test_who_catches_up_trains_for_the_open_phase_and_not_for_those_it_has_missed() -> None:
    shell, builder = Shell(), ChainBuilder(genesis(4))
    blocks = builder.extend_many(6)
    shell.trained = anyio.Event()
    shell.store.append([Contents(builder.contents)])
    async with serving(shell, builder.genesis) as service:
        await until(lambda: ("train", 1) in shell.log, "the first phase is trained for")
        for other in OTHERS:
            shell.receiver(other.public_key, status_at(builder.genesis, 6))
        for block in blocks:
            shell.receiver(OTHERS[0].public_key, FinalMessage(block, builder.certificate(block.hash)))
        assert service.node.head.round == 7
        contributor = service._contributor
        await until(lambda: contributor._waiting is not None and contributor._waiting.round == 7, "it waits")
        assert contributor._turn.statistics().tasks_waiting == 1, "what is given up is held no longer"
        shell.trained.set()
        await until(lambda: ("train", 7) in shell.log, "the open phase is trained for")
    assert [what for how, what in shell.log if how == "train"] == [1, 7]


@on_trio
async def test_a_phase_that_is_not_open_at_its_turn_is_not_trained_for() -> None:
    shell = Shell()
    async with serving(shell, genesis(4)) as service:
        await until(shell.published_posts, "the post is sent")
        await service._contributor.contribute(Contribute(2, 0, "update", b""))
    assert [what for how, what in shell.log if how == "train"] == [1]


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
async def test_a_candidate_is_trained_on_while_votes_travel_and_nothing_is_said_of_it() -> None:
    """Another block is decided, so what was foreseen of the first one is of no use; both are trained on in order."""
    shell, chain = Shell(), ChainBuilder(genesis(4))
    teacher, start = OTHERS[0].public_key, chain.genesis.chain_id
    ours = next(post for post in chain.posts() if post.sender == ME.public_key)
    shell.measured["payload"] = chain.contents[ours.payload_hash]
    posts = [ours if post.sender == ME.public_key else post for post in chain.posts(payload_of=5)]
    first, other = chain.extend(), chain.extend(start, posts=posts, miner=OTHERS[1])
    shell.store.append([Contents(chain.contents)])
    async with serving(shell, chain.genesis) as service:
        await until(shell.published_posts, "it has trained")
        shell.receiver(teacher, CandidateMessage(first))
        await until(lambda: foreseen(shell) != [], "it trains ahead")
        assert foreseen(shell) == [(2, chain.contents[first.header.knowledge_root])]
        assert service._contributor.next_question() is None, "it is asked at each event"
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
    shell.store.append([Contents(chain.contents)])
    async with serving(shell, chain.genesis, foresees=False) as service:
        await until(shell.published_posts, "it has trained")
        shell.receiver(OTHERS[0].public_key, CandidateMessage(block))
        shell.receiver(OTHERS[0].public_key, FinalMessage(block, chain.certificate(block, VOTERS)))
        await until(lambda: len(shell.published_posts()) == 2, "it contributes to the next round")
        assert service.node.head.height == 1
    assert foreseen(shell) == []
