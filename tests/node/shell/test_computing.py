"""Jobs leave the loop if they would keep it waiting."""

import os
import threading
from functools import partial

import pytest

from fedchain.crypto import signature_memory
from fedchain.network.messages import (
    FinalMessage,
    GetPayloads,
    Payloads,
    PostMessage,
    Status,
)
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import CheckPost, Job, Recompute, Result
from tests.support.chain.builders import ChainBuilder, SumRules, genesis, payload
from tests.support.node.service import OTHERS, Shell, post_of, serving
from tests.support.node.shell import on_trio, until


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
            patch.setattr("fedchain.node.shell.computing.SMALL_JOB_SIZE", size_max)
            patch.setattr(SumRules, "is_slow_to_check", lambda _, phase, is_slow=is_slow: is_slow and phase == "update")
            async with serving(shell, document):
                for other in OTHERS:
                    post = post_of(other, document, payload(9))
                    shell.receiver(other.public_key, PostMessage(post, payload(9)))
                await until(lambda: any(isinstance(job, Recompute) for job, _ in done), "posts are aggregated")
            assert sum(isinstance(job, CheckPost) for job, _ in done) == 4
            assert {thread != threading.get_ident() for _, thread in done} == {leaves}
