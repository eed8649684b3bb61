"""The log tells of large posts on their way."""

import pytest

from fedchain.network.messages import (
    CHUNK_SIZE,
    Chunk,
    PostMessage,
)
from tests.support.chain.builders import genesis
from tests.support.node.service import OTHERS, Shell, post_of, serving
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
