"""Work that keeps a node's loop waiting is done in a thread, as long as the machine gives one."""

import threading
from typing import Any, NoReturn

import pytest
from anyio import to_thread

from fedchain.node.config import NodeFailed
from fedchain.node.shell.threads import REFUSED, in_thread
from tests.support.node.shell import on_trio


def test_the_words_are_python_s() -> None:
    usual = threading.stack_size(2**46)  # more than a process may address
    try:
        with pytest.raises(RuntimeError) as refused:
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(usual)
    assert str(refused.value) == REFUSED


@on_trio
async def test_a_node_that_gets_no_thread_ends_with_a_line_and_not_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*arguments: Any) -> NoReturn:
        raise RuntimeError(REFUSED)

    assert await in_thread(divmod, 7, 2) == (3, 1)
    monkeypatch.setattr(to_thread, "run_sync", refuse)
    with pytest.raises(NodeFailed, match="gives the node no thread now"):
        await in_thread(divmod, 7, 2)


@on_trio
async def test_another_error_of_the_work_is_its_own() -> None:
    def fail() -> NoReturn:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match=r"^a fault$"):
        await in_thread(fail)
