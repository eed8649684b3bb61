"""A node stores its promises before it sends them."""

import anyio
import pytest

from fedchain.chain.exceptions import StoreError
from tests.support.chain.builders import genesis
from tests.support.node.service import OTHERS, Shell, serving
from tests.support.node.shell import on_trio, until


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
    assert names == ["journal", "store", "publish"]


@on_trio
async def test_a_full_disk_ends_the_service_before_anything_is_sent() -> None:
    shell = Shell()
    shell.full = True
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(shell, genesis(4)):
            await anyio.sleep_forever()
    assert caught.group_contains(StoreError, match="the disk is full")
    assert shell.published_posts() == []
