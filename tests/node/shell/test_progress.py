"""The log tells of large posts on their way, of standstills, and whether this member counts."""

from typing import Any

import pytest

from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.membership.member import Standing
from fedchain.network.messages import CHUNK_SIZE, Chunk, FinalMessage, PostMessage
from fedchain.node.operating.metrics import _readiness
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.progress import Stalls, Standstills
from tests.support.chain.builders import genesis, keys
from tests.support.chain.changes import living, own
from tests.support.node.service import ME, OTHERS, Shell, post_of, serving
from tests.support.node.shell import on_trio, until


@on_trio
async def test_what_has_come_of_a_large_post_is_shown_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fedchain.node.shell.progress.PROGRESS_S", 0.0)
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
async def test_a_disk_that_hangs_is_told_of_while_it_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The node said that it takes part, though nothing that it said left it."""
    monkeypatch.setattr("fedchain.node.shell.activity.SLOW_WRITE_S", 0.2)
    caplog.set_level("INFO")
    shell = Shell()
    shell.open.clear()
    try:
        async with serving(shell, genesis(4)) as service:
            await until(lambda: "has not finished a write for" in caplog.text, "a line in the log")
            found = service.status()
            assert found["waiting_for"].startswith("its disk: a write has not ended for ")
            assert _readiness(found)[1].startswith("it sends nothing: its disk has not finished a write for ")
            shell.open.set()
            await until(lambda: "the disk has finished the write" in caplog.text, "its end")
            await until(lambda: not service.status()["waiting_for"].startswith("its disk"), "it goes on")
    finally:
        shell.open.set()
    assert caplog.text.count("has not finished") == 1


def test_a_node_that_was_held_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """After its disk had hung it said nothing but that its clock is off, by as much."""
    stalls = Stalls()
    stalls.log(Activity())
    assert not caplog.messages
    stalls._looked_s -= 12.0
    for _ in range(2):
        stalls.log(Activity())
    said = "this node was held for 12 s: its disk did not answer, or the machine stood still"
    assert caplog.messages == [said]


@on_trio
async def test_a_standstill_is_logged_once_when_it_lasts_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator without a Prometheus has the log, which told of nothing."""
    caplog.set_level("INFO")
    limit, others, turns = "fedchain.node.shell.progress.STANDSTILL_S", [key.public_key for key in OTHERS], [0]
    look = Standstills.log

    def looking(*seen: Any) -> None:
        look(*seen)
        turns[0] += 1

    async def some_turns() -> None:
        before = turns[0]
        await until(lambda: turns[0] >= before + 3, "the service looked")

    monkeypatch.setattr(Standstills, "log", looking)
    monkeypatch.setattr(limit, 1e9)
    async with serving(Shell(), genesis(4)) as service:
        service.on_peer(others[0], True)
        await some_turns()
        assert "stands still" not in caplog.text
        monkeypatch.setattr(limit, 0.0)
        await some_turns()
        lacks = "votes of 3 members needed, 2 are here; missing: peer 2, peer 3"
        assert caplog.text.count(f"the federation stands still: {lacks}\n") == caplog.text.count("stands still") == 1
        assert "goes on" not in caplog.text
        service.on_peer(others[1], True)
        await some_turns()
        assert caplog.text.count("the federation goes on") == 1
        service.on_peer(others[1], False)
        await some_turns()
        assert caplog.text.count("stands still") == 2


@on_trio
async def test_a_member_that_the_others_let_be_away_reads_so_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    """Only its status said so: its node went on with blocks as if it took part."""
    caplog.set_level("INFO")
    shell, chain = Shell(), living(5)
    place, teacher = chain.state.roster.seats[ME.public_key], OTHERS[0].public_key
    voters = [key.public_key for key in keys(5)[1:]]

    def teach(*changes: Change) -> None:
        block = chain.extend(changes=changes)
        shell.receiver(teacher, FinalMessage(block, chain.certificate(block, voters)))

    async with serving(shell, chain.genesis) as service:
        teach(own(chain, place, ChangeKind.AWAY))
        while chain.state.records[place].standing is Standing.ACTIVE:
            assert "counts no more" not in caplog.text
            teach()
        teach()
        assert caplog.text.count("this member is away, and counts no more") == 1
        assert "this member counts" not in caplog.text
        teach(own(chain, place, ChangeKind.BACK))
        while chain.state.records[place].standing is Standing.AWAY:
            teach()
        assert service.node.head.height == chain.state.height
    assert caplog.text.count("this member counts") == 1
