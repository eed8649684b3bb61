"""Worker processes: they answer, they are replaced when they die, and they end when nobody needs them."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import anyio
import numpy as np
import pytest
import safetensors.torch

from fedchain.chain.block import Header
from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.genesis import Genesis
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.signatures import signatures_of
from fedchain.files.layout import TRAINING_FILE
from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError, NothingToPost
from fedchain.learning.executors.executor import Answer, Question
from fedchain.learning.executors.outcomes import Outcome
from fedchain.learning.knowledge import write_knowledge
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.weights import hash_file
from fedchain.learning.payload.codec import document
from fedchain.learning.round import OffChain
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.node.core.jobs import Verified, VerifySignatures
from fedchain.node.founding.task import learning_from_genesis
from fedchain.node.operating.json_log import JsonFormatter
from fedchain.node.operating.local_node import has_ended
from fedchain.node.workers import supervisor
from fedchain.node.workers.frames import PipeBroken, read_frame, to_frame, write_frame
from fedchain.node.workers.local import Local
from fedchain.node.workers.process import MINE_NICE, TRAIN_NICE, Trainer
from fedchain.node.workers.supervisor import (
    MiningWorker,
    TrainingWorker,
    VerifyingWorker,
    WorkerFailed,
    WorkerProcess,
    WorkerStopped,
)
from fedchain.node.workers.training_file import read_answer, write_answer
from tests.support.campaigns import some
from tests.support.chain.builders import EASY_BITS, ChainBuilder, genesis
from tests.support.node.shell import (
    DIGITS,
    TIMEOUT_S,
    is_worker,
    kill_worker,
    on_trio,
    until,
    wait_until,
    workers_of,
    write_genesis,
)
from tests.support.paths import ROOT

HEADER = ChainBuilder(genesis(2)).extend().header
HARD_BITS = bits_from_attempts(2**60)


@asynccontextmanager
async def training(path: Path, folder: Path, data_dir: str = "") -> AsyncIterator[TrainingWorker]:
    worker = TrainingWorker(path, folder, 1, Local(data_dir))
    try:
        yield worker
    finally:
        await worker.close()


@asynccontextmanager
async def mining(on_sealed: Callable[[Header], None]) -> AsyncIterator[MiningWorker]:
    worker = MiningWorker("sha256d", on_sealed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield worker
        tasks.cancel_scope.cancel()


@pytest.mark.long
@on_trio
async def test_training_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "genesis")
    learner = Learner(learning_from_genesis(Genesis.decode(path.read_bytes())))
    expected = [learner.contribute(1, "update", number, b"") for number in (1, 2)]
    answers: list[Answer] = []
    async with training(path, tmp_path) as worker:
        answers.append(await worker.ask(Question(1, "update", 1, b"")))
        answers.append(await worker.ask(Question(1, "update", 1, b"")))
        await kill_worker("train")  # between two contributions
        answers.append(await worker.ask(Question(1, "update", 1, b"")))

        async def ask() -> None:
            answers.append(await worker.ask(Question(1, "update", 2, b"")))

        (process,) = workers_of(os.getpid(), "train")
        os.kill(process, signal.SIGSTOP)  # so that it does not answer before it is killed
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            os.kill(process, signal.SIGKILL)
    assert answers == [expected[0]] * 3 + [expected[1]]
    assert not is_worker(process, "train")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["genesis", "training.msgpack"]
    assert (tmp_path / TRAINING_FILE).stat().st_mode & 0o777 == 0o600


def test_a_member_whose_weights_are_not_the_agreed_ones_posts_nothing(tmp_path: Path) -> None:
    files = [tmp_path / "ours", tmp_path / "others"]
    for seed, path in enumerate(files):
        state = build_model("digits-mlp", seed).state_dict()
        safetensors.torch.save_file({name: value.contiguous() for name, value in state.items()}, path)
    agreed = hash_file(files[0])
    document = write_genesis(tmp_path / "genesis", replace(DIGITS, weights_hash=agreed)).read_bytes()
    decoded = Genesis.decode(document)
    with pytest.raises(ConfigurationError, match=f"models begin with weights from a file with SHA-256 {agreed}"):
        Trainer(decoded, tmp_path, 1)
    with pytest.raises(ConfigurationError, match=f"{files[1]} have SHA-256 {hash_file(files[1])}, .* {agreed}"):
        Trainer(decoded, tmp_path, 1, Local(weights=str(files[1])))
    Trainer(decoded, tmp_path, 1, Local(weights=str(files[0]))).ask(Question(1, "update", 1, b""))


def test_a_full_disk_leaves_the_last_answer_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = Genesis.decode(write_genesis(tmp_path / "genesis").read_bytes())
    trainer = Trainer(decoded, tmp_path, 1)
    first = trainer.ask(Question(1, "update", 1, b""))
    kept = (tmp_path / TRAINING_FILE).read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail_as_a_full_disk)
        with pytest.raises(OSError, match="No space left on device"):
            trainer.ask(Question(1, "update", 2, b""))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["genesis", TRAINING_FILE]
    assert (tmp_path / TRAINING_FILE).read_bytes() == kept
    assert Trainer(decoded, tmp_path, 1).ask(Question(1, "update", 1, b"")) == first


def test_after_a_restart_a_question_has_its_first_answer_and_another_knowledge_another_one(tmp_path: Path) -> None:
    decoded = Genesis.decode(write_genesis(tmp_path / "genesis").read_bytes())
    rules, question = Application(DIGITS), Question(1, "update", 1, b"")
    first = Trainer(decoded, tmp_path, 1).ask(question)
    known = rules.aggregate(OffChain("update", 1), b"", [(b"a", contributed(first).payload)])
    trainer = Trainer(decoded, tmp_path, 1)
    assert trainer.ask(question) == trainer.ask(question) == first
    other = trainer.ask(Question(1, "update", 1, known))
    assert other != first
    assert Trainer(decoded, tmp_path, 1).ask(Question(1, "update", 1, known)) == other


def test_a_file_without_the_knowledge_still_answers_its_phase(tmp_path: Path) -> None:
    decoded = Genesis.decode(write_genesis(tmp_path / "genesis").read_bytes())
    first, path = Trainer(decoded, tmp_path, 1).ask(Question(1, "update", 1, b"")), tmp_path / TRAINING_FILE
    with path.open("rb") as file:
        whose, asked, answer, checkpoint = read_frame(file)
    path.write_bytes(to_frame([whose, asked[:2], answer, checkpoint]))
    assert Trainer(decoded, tmp_path, 1).ask(Question(1, "update", 1, b"")) == first


def test_what_a_trainer_foresees_is_its_answer_or_leaves_no_trace(tmp_path: Path) -> None:
    decoded = Genesis.decode(write_genesis(tmp_path / "genesis").read_bytes())
    rules, plain, ahead = Application(DIGITS), tmp_path / "plain", tmp_path / "ahead"
    for folder in (plain, ahead):
        folder.mkdir()
    first = contributed(Trainer(decoded, plain, 1).ask(Question(1, "update", 1, b"")))
    known = rules.aggregate(OffChain("update", 1), b"", [(b"a", first.payload)])
    trainer, ended = Trainer(decoded, ahead, 1), list[Outcome]()
    trainer._forecasts.on_end = lambda number, outcome: ended.append(outcome)
    trainer.foresee(Question(1, "update", 1, known))
    assert not (ahead / TRAINING_FILE).exists(), "it is on no disk before it is asked"
    assert trainer.ask(Question(1, "update", 1, b"")) == first
    trainer.foresee(Question(1, "update", 1, b""))  # it is answered
    trainer.foresee(Question(1, "update", 2, known))
    found = trainer.ask(Question(1, "update", 2, known))
    assert found == Trainer(decoded, plain, 1).ask(Question(1, "update", 2, known))
    assert ended == [Outcome.THROWN_AWAY, Outcome.READY]
    assert (ahead / TRAINING_FILE).read_bytes() == (plain / TRAINING_FILE).read_bytes()


@pytest.mark.slow
@pytest.mark.long
@on_trio
async def test_a_process_that_dies_ahead_of_a_question_answers_it_all_the_same(tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "genesis")
    question = Question(1, "update", 1, b"")
    async with training(path, tmp_path) as worker:
        await worker.foresee(question)  # nothing runs yet
        await worker.prepare()
        (process,) = workers_of(os.getpid(), "train")
        os.kill(process, signal.SIGSTOP)
        await worker.foresee(question)
        await kill_worker("train")
        await worker.foresee(question)
        answer = await worker.ask(question)
        await worker.foresee(Question(1, "update", 2, b""))
        again = await worker.ask(Question(1, "update", 2, b""))
    learner = Learner(learning_from_genesis(Genesis.decode(path.read_bytes())))
    assert [answer, again] == [learner.contribute(1, "update", number, b"") for number in (1, 2)]


@on_trio
async def test_of_the_forecasts_that_wait_for_an_answer_the_newest_is_sent(tmp_path: Path) -> None:
    sent = list[list[Any]]()

    class Pipe:
        async def send(self, order: list[Any]) -> None:
            sent.append(order)

    worker = TrainingWorker(tmp_path / "genesis", tmp_path, 1)
    worker._process = cast(Any, Pipe())
    async with anyio.create_task_group() as tasks, worker._lock:
        for number in range(1, 4):
            tasks.start_soon(worker.foresee, Question(1, "update", number, b""))
            await anyio.wait_all_tasks_blocked()
        assert worker._lock.statistics().tasks_waiting == 1
    await worker.foresee(Question(1, "update", 4, b""))
    assert [number for is_ahead, phase, number, *_ in sent] == [3, 4]


def test_an_answer_whose_file_cannot_be_read_is_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(worker: TrainingWorker, request: object) -> list[Any]:
        return ["done", [str(tmp_path / "gone"), bytes(32)], 1, "{}"]

    monkeypatch.setattr(TrainingWorker, "_ask", answer)
    with pytest.raises(WorkerFailed, match="gone was handed over, but cannot be read"):
        anyio.run(TrainingWorker(tmp_path / "genesis", tmp_path, 1).ask, Question(1, "update", 1, b""), backend="trio")


def contributed(answer: Answer) -> Contribution:
    assert isinstance(answer, Contribution)
    return answer


def test_whom_a_contribution_skips_is_in_the_trainer_s_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contribute = Learner.contribute

    def skipping(self: Learner, *arguments: Any, **more: Any) -> Contribution:
        return replace(contribute(self, *arguments, **more), skipped=((0, "part 00 is not here"),))

    decoded = Genesis.decode(write_genesis(tmp_path / "genesis").read_bytes())
    trainer = Trainer(decoded, tmp_path, 1)
    assert contributed(trainer.ask(Question(1, "update", 1, b""))).skipped == ()
    monkeypatch.setattr(Learner, "contribute", skipping)
    made = trainer.ask(Question(1, "update", 2, b""))
    assert contributed(made).skipped == ((0, "part 00 is not here"),)
    assert read_answer(write_answer(contributed(made))) == made, "the node reads what the trainer wrote"


def fail_as_a_full_disk(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


OWN = """
import os
from dataclasses import dataclass
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.methods.blade_fl import BladeFl

@dataclass(frozen=True, kw_only=True)
class Faulty(BladeFl):
    def update(self, client, round):
        if round.number == 2:
            raise NothingToPost("as it should be")
        if number := {3: 28, 4: 5, 5: 30}.get(round.number):
            raise OSError(number, os.strerror(number), "a file")
        print("from Python")
        os.write(2, b"from elsewhere" + b"." * 9000 + b"\\n")
        raise RuntimeError("boom")
"""


@pytest.mark.long
@on_trio
async def test_what_own_code_prints_and_raises_is_logged_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own_faulty.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    caplog.set_level(logging.INFO, "fedchain.worker")
    caplog.handler.setFormatter(JsonFormatter())
    path = write_genesis(tmp_path / "genesis", replace(DIGITS, method="own_faulty:Faulty", hyperparameters={}))
    async with training(path, tmp_path) as worker:
        refusal = await worker.ask(Question(1, "update", 2, b""))
        assert isinstance(refusal, NothingToPost)
        assert str(refusal) == "NothingToPost: as it should be"
        with pytest.raises(WorkerFailed, match=r"^RuntimeError: boom \(.*own_faulty.py, line 16\)$"):
            await worker.ask(Question(1, "update", 1, b""))
        await until(lambda: "RuntimeError: boom" in caplog.text, "its last words")
        lines = [json.loads(line) for line in caplog.text.splitlines()]
        reasons = "No space left on device", "Input/output error", "Read-only file system"
        for number, reason in enumerate(reasons, 3):
            with pytest.raises(WorkerStopped, match=f"^a file: {reason}$"):
                await worker.ask(Question(1, "update", number, b""))
    last = [json.loads(line)["message"] for line in caplog.text.splitlines()][len(lines) :]
    assert not [message for message in last if "Traceback" in message], "where a disk refuses no program is wrong"
    assert {(line["logger"], line["worker"]) for line in lines} == {("fedchain.worker", "train")}
    messages = [line["message"].removeprefix("worker=train ") for line in lines]
    assert messages[0] == "from Python"
    assert messages[1].startswith("from elsewhere...")
    assert messages[2] == "." * (9014 - 8192)
    assert messages[3] == "Traceback (most recent call last):"
    assert messages[-1] == "RuntimeError: boom"


@pytest.mark.long
@on_trio
async def test_a_file_that_the_system_refuses_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / TRAINING_FILE).mkdir()
    async with training(write_genesis(tmp_path / "genesis"), tmp_path) as worker:
        with pytest.raises(WorkerFailed, match=rf"^{tmp_path / TRAINING_FILE}: Is a directory$"):
            await worker.prepare()


@pytest.mark.long
@on_trio
async def test_training_that_diverges_names_peer_round_and_loss_and_keeps_the_checkpoint_before_it(
    tmp_path: Path,
) -> None:
    chosen = replace(DIGITS, method="fedavg")
    rules, learner = Application(chosen), Learner(chosen)
    sound = rules.aggregate(OffChain("update", 1), b"", [(b"a", learner.contribute(1, "update", 1, b"").payload)])
    known = rules.read_knowledge(sound)
    assert known is not None
    draw, ends = np.random.default_rng(0), np.array([-1e6, 1e6], np.float32)
    damaging = write_knowledge(
        [("update", 1, document({name: draw.choice(ends, value.shape) for name, value in known.items()}))]
    )
    async with training(write_genesis(tmp_path / "genesis", chosen), tmp_path) as worker:
        await worker.ask(Question(1, "update", 1, b""))
        checkpoint = (tmp_path / TRAINING_FILE).read_bytes()
        with pytest.raises(WorkerFailed, match=r"^TrainingDiverged: peer 1, round 2: "):
            await worker.ask(Question(1, "update", 2, damaging))
        assert (tmp_path / TRAINING_FILE).read_bytes() == checkpoint
        again = await worker.ask(Question(1, "update", 2, sound))
    assert again == learner.contribute(1, "update", 2, sound)


@pytest.mark.slow
@pytest.mark.long
@on_trio
async def test_data_and_a_card_that_are_not_there_are_named_before_anything_is_asked(tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "genesis", replace(DIGITS, dataset="fashion-mnist"))
    async with training(path, tmp_path, str(tmp_path / "nowhere")) as worker:
        with pytest.raises(WorkerFailed, match="train-images-idx3-ubyte"):
            await worker.prepare()
    worker = TrainingWorker(path, tmp_path, 1, Local(device="cuda:999"))
    with pytest.raises(WorkerFailed, match=r"^device is cuda:999, but torch .* take cpu, or auto$"):
        await worker.prepare()
    await worker.close()


@on_trio
async def test_a_miner_that_always_ends_is_started_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, sleep = list[float](), anyio.sleep

    async def note(pause_s: float) -> None:
        if pause_s >= 1.0:
            pauses.append(pause_s)
        await sleep(0.0)

    monkeypatch.setattr(supervisor, "WITHOUT_INTERRUPTS", ("/bin/sh", "-c", "exit 7", "sh"))
    monkeypatch.setattr(supervisor, "SAID_WAIT_S", 0.5)
    monkeypatch.setattr(anyio, "sleep", note)
    async with mining(lambda header: None):
        with anyio.fail_after(TIMEOUT_S):
            while len(pauses) < 8:
                await sleep(0.01)
    assert pauses[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.long
@on_trio
async def test_the_miner_finds_a_nonce_for_the_newest_header_also_after_a_kill() -> None:
    found: list[Header] = []
    async with mining(found.append) as worker:
        worker.mine(replace(HEADER, bits=HARD_BITS))  # nobody ever seals this one
        first = await kill_worker("mine")
        await until(
            lambda: first not in workers_of(os.getpid(), "mine") and workers_of(os.getpid(), "mine"), "a new one"
        )
        worker.mine(replace(HEADER, bits=EASY_BITS, round=7))
        await until(lambda: found, "a nonce")
        second = await kill_worker("mine")
        worker.mine(replace(HEADER, bits=EASY_BITS, round=8))
        await until(lambda: found[-1].round == 8, "a nonce after a kill")
    assert {header.round for header in found} == {7, 8}
    assert all(is_sealed("sha256d", header) for header in found)
    assert not is_worker(second, "mine")
    assert workers_of(os.getpid(), "mine") == []


@on_trio
async def test_a_worker_that_a_busy_machine_does_not_start_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    started, refusals = anyio.open_process, [errno.EAGAIN, errno.ENOMEM, errno.EMFILE]

    async def start(*arguments: Any, **given: Any) -> Any:
        if refusals:
            raise OSError(refusals[0], os.strerror(refusals.pop(0)))
        return await started(*arguments, **given)

    begun, threads = threading.Thread.start, [RuntimeError("can't start new thread")]

    def begin(thread: threading.Thread) -> None:
        if threads:
            raise threads.pop()
        begun(thread)

    monkeypatch.setattr(supervisor, "RESTART_PAUSE_S", 0.0)
    monkeypatch.setattr(anyio, "open_process", start)
    monkeypatch.setattr(threading.Thread, "start", begin)
    found, files = list[Header](), len(os.listdir("/proc/self/fd"))
    async with mining(found.append) as worker:
        worker.mine(replace(HEADER, bits=EASY_BITS))
        await until(lambda: found, "a nonce")
    assert (refusals, threads) == ([], [])
    assert len(os.listdir("/proc/self/fd")) <= files
    refusals.append(errno.EAGAIN)
    counted = list[Verified]()
    verifier = VerifyingWorker(lambda job, result: counted.append(result))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(verifier.run)
        verifier.verify(VerifySignatures(HEADER.hash, ()))
        await until(lambda: counted, "an answer")
        tasks.cancel_scope.cancel()
    assert counted == [Verified(0)]  # the node checks for itself


@pytest.mark.parametrize(
    ("ends", "said"),
    [("kill -9 $$", "was ended by signal 9, as for want of memory;"), ("exit 7", "ended with exit code 7;")],
)
@on_trio
async def test_a_worker_that_ends_is_told_of_by_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, said: str
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "WITHOUT_INTERRUPTS", ("/bin/sh", "-c", ends, "sh"))
    with anyio.fail_after(TIMEOUT_S), pytest.raises(WorkerStopped, match=f"^the training process died 3 .*{said}"):
        await TrainingWorker(tmp_path / "genesis", tmp_path, 1).prepare()


@on_trio
async def test_a_worker_that_is_gone_is_noticed_although_what_it_began_holds_its_pipe_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    monkeypatch.setattr(supervisor, "RESTART_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "SAID_WAIT_S", 0.1)
    monkeypatch.setattr(
        supervisor, "WITHOUT_INTERRUPTS", ("/bin/sh", "-c", f"sleep 600 & echo $! >>{begun}; exit 0", "sh")
    )
    try:
        with anyio.fail_after(TIMEOUT_S), pytest.raises(WorkerStopped, match="died 3 times"):
            await TrainingWorker(tmp_path / "genesis", tmp_path, 1).prepare()
    finally:
        for process in begun.read_text().split():
            os.kill(int(process), signal.SIGKILL)


LEAVES = """
import os, sys, time
from fedchain.node.workers.frames import write_frame
os.setpgid(0, 0)
if forked := os.fork():
    write_frame(sys.stdout.buffer, forked)
else:
    time.sleep(600)
"""


@on_trio
async def test_an_order_is_not_kept_by_what_a_worker_that_is_gone_has_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A knowledge is more than a pipe takes that nobody reads."""
    monkeypatch.setattr(supervisor, "WITHOUT_INTERRUPTS", (sys.executable, "-c", LEAVES))
    monkeypatch.setattr(supervisor, "SAID_WAIT_S", 0.1)
    process = await WorkerProcess.start(["train"])
    forked = await process.receive()
    try:
        with anyio.fail_after(TIMEOUT_S), pytest.raises(PipeBroken):
            await process.send(bytes(2**20))
        await process.close()
        await until(lambda: has_ended(forked), "its end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(forked, signal.SIGKILL)


FORKS = """
import os, sys, time
from fedchain.node.workers.frames import write_frame
os.setpgid(0, 0)
forked = os.fork()
if forked:
    write_frame(sys.stdout.buffer, forked)
time.sleep(600)
"""


@on_trio
async def test_what_own_code_has_forked_ends_with_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "WITHOUT_INTERRUPTS", (sys.executable, "-c", FORKS))
    process = await WorkerProcess.start(["train"])
    forked = await process.receive()
    assert not has_ended(forked)
    await process.close()
    try:
        await until(lambda: has_ended(forked), "its end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(forked, signal.SIGKILL)


@on_trio
async def test_a_worker_is_ended_where_the_machine_gives_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")

    process = await WorkerProcess.start(["verify"])
    await process.send([])
    assert await process.receive() == 0
    monkeypatch.setattr(anyio.to_thread, "run_sync", refuse)
    await process.close()
    assert workers_of(os.getpid(), "verify") == []


@on_trio
async def test_the_miner_rests_when_nothing_is_wanted_any_more() -> None:
    found: list[Header] = []
    async with mining(found.append) as worker:
        worker.mine(replace(HEADER, bits=HARD_BITS))
        await until(lambda: workers_of(os.getpid(), "mine"), "a process")
        (process,) = workers_of(os.getpid(), "mine")
        await until(lambda: state_of(process) == "R" and is_worker(process, "mine"), "a search")
        assert not worker.stop_unless(lambda header: header.bits == HARD_BITS)
        assert worker.stop_unless(lambda _: False)
        assert not worker.stop_unless(lambda _: False)
        await until(lambda: state_of(process) == "S", "a rest")
        worker.mine(replace(HEADER, bits=EASY_BITS))
        await until(lambda: found, "a nonce")
        assert not worker.stop_unless(lambda _: False)  # it is found, so nothing is searched
        assert workers_of(os.getpid(), "mine") == [process]


def test_a_nonce_that_comes_too_late_or_twice_is_nobody_s_business() -> None:
    found: list[Header] = []
    worker = MiningWorker("sha256d", found.append)
    worker.mine(replace(HEADER, round=7))
    worker.mine(replace(HEADER, round=8))
    for number in (7, 8, 8):
        worker._on_answer(replace(HEADER, round=number, nonce=number))
    assert [header.round for header in found] == [8]


def state_of(process: int) -> str:
    """R: it computes; S: it waits. As the kernel has it."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def signatures(*heights: int) -> list[VerifySignatures]:
    """Jobs for blocks of a chain; where a height is negative, the second signature is not what was signed."""
    builder = ChainBuilder(genesis(4))
    blocks = [builder.extend() for _ in range(max(map(abs, heights)))]
    jobs = []
    for height in heights:
        block = blocks[abs(height) - 1]
        signed = list(signatures_of(builder.genesis, block, builder.certificate(block)))
        if height < 0:
            signed[1] = *signed[1][:2], b"something else"
        jobs.append(VerifySignatures(block.hash, tuple(signed)))
    return jobs


@on_trio
async def test_signatures_are_verified_in_order_also_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "IDLE_S", 0.05)
    jobs = signatures(1, -2, 3)
    found: list[tuple[VerifySignatures, Verified]] = []
    worker = VerifyingWorker(lambda job, result: found.append((job, result)))
    expected = [Verified(len(jobs[0].signed)), Verified(1), Verified(len(jobs[2].signed))]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await anyio.wait_all_tasks_blocked()
        assert workers_of(os.getpid(), "verify") == [], "who replays nothing needs none"
        for job in jobs:
            worker.verify(job)
        await until(lambda: len(found) == len(jobs), "all answers")
        assert found == list(zip(jobs, expected, strict=True))
        await until(lambda: not workers_of(os.getpid(), "verify"), "the end of a process that nobody needs")
        monkeypatch.setattr(supervisor, "IDLE_S", 10.0)
        worker.verify(jobs[0])
        await until(lambda: len(found) == len(jobs) + 1, "an answer")
        await kill_worker("verify")
        for job in jobs[1:]:  # nobody looks at them
            worker.verify(job)
        await until(lambda: len(found) == 2 * len(jobs), "as many answers")
        assert found[-2:] == [(job, Verified(0)) for job in jobs[1:]]
        worker.verify(jobs[0])
        await until(lambda: found[-1] == (jobs[0], expected[0]), "another process")
        tasks.cancel_scope.cancel()
    assert workers_of(os.getpid(), "verify") == []


@contextmanager
def started(*arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", BinaryIO, BinaryIO]]:
    """A worker process with its input and its output."""
    command = [sys.executable, "-m", "fedchain.node.workers.process", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process, cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)


def test_a_miner_ends_with_its_pipe() -> None:
    with started("mine", "sha256d") as (process, orders, _):
        write_frame(orders, replace(HEADER, bits=HARD_BITS).to_record())
        orders.close()
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.long
def test_a_worker_that_fails_ends_with_its_error_and_does_not_abort(tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "genesis")
    with started("train", str(path), str(tmp_path), "0", "") as (process, orders, answers):
        write_frame(orders, [[], []])
        assert read_frame(answers) == ["ready"]
        write_frame(orders, [0, "no such phase", 1, b"", 0, []])
        assert read_frame(answers) == ["failed", "KeyError: 'no such phase'"]
        assert process.wait(TIMEOUT_S) == 1, "a signal would be below 0"


@pytest.mark.long
def test_a_trainer_ends_with_its_pipe_in_the_middle_of_training(tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "genesis", replace(DIGITS, hyperparameters={"local_steps": 1_000_000}))
    with started("train", str(path), str(tmp_path), "0", "") as (process, orders, answers):
        write_frame(orders, [[], []])  # it was dealt nothing, and the members are the founders
        assert read_frame(answers) == ["ready"]
        write_frame(orders, [0, "update", 1, b"", 0, []])
        orders.close()
        assert process.wait(TIMEOUT_S) == 0
    assert [item.name for item in tmp_path.iterdir()] == ["genesis"]


POOL = """
import multiprocessing, time
from fedchain.node.workers.process import _orders
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
child.start()
print(child.pid, flush=True)
_orders()
time.sleep(600)
"""


def test_what_own_code_has_begun_ends_with_its_worker_s_pipe() -> None:
    with subprocess.Popen([sys.executable, "-c", POOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        child = int(line_of(worker))
        try:
            assert worker.stdin is not None
            worker.stdin.close()
            assert worker.wait(TIMEOUT_S) == 0
            wait_until(lambda: has_ended(child), "its end")
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


ANSWERING = """
import multiprocessing, os, time
from fedchain.node.workers import process

def answer(arguments):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    os.write(1, f"{child.pid}\\n".encode())
    raise BrokenPipeError

process._run = answer
process.main([])
"""


def test_what_own_code_has_begun_ends_with_a_worker_whose_answer_nobody_takes() -> None:
    """The node is gone, which it sees in what it writes before it sees it in what it reads."""
    with subprocess.Popen([sys.executable, "-c", ANSWERING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        child = int(line_of(worker))
        try:
            assert worker.wait(TIMEOUT_S) == 0
            wait_until(lambda: has_ended(child), "its end")
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


NODE = """
import os, signal, sys
import anyio
from fedchain.node.workers.supervisor import WorkerProcess
from tests.support.chain.builders import EASY_BITS, ChainBuilder, genesis
from dataclasses import replace

async def main():
    interrupted = anyio.Event()
    async with anyio.create_task_group() as tasks:
        async def wait():
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                print("listening", flush=True)
                async for _ in signals:
                    return interrupted.set()
        tasks.start_soon(wait)
        process = await WorkerProcess.start(sys.argv[1:])
        print("started", flush=True)
        await interrupted.wait()
        await process.send(replace(ChainBuilder(genesis(2)).extend().header, bits=EASY_BITS).to_record())
        await process.receive()
        print("sealed", flush=True)
        await anyio.sleep_forever()

anyio.run(main, backend="trio")
"""


@contextmanager
def node(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with a worker, in a session of its own as under a terminal."""
    command = [sys.executable, "-c", NODE, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as process:
        try:
            assert {line_of(process), line_of(process)} == {b"listening\n", b"started\n"}
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def worker_of(process: "subprocess.Popen[bytes]", kind: str) -> int:
    """Its worker, once it has left the node's process group."""
    found: list[int] = []

    def has_left() -> bool:
        found[:] = workers_of(process.pid, kind)
        return len(found) == 1 and os.getpgid(found[0]) == found[0]

    wait_until(has_left, "a worker")
    return found[0]


@pytest.mark.parametrize("kind", some(["train", "mine", "verify"], first=1))
def test_a_node_that_is_killed_leaves_no_worker(tmp_path: Path, kind: str) -> None:
    path = write_genesis(tmp_path / "genesis")
    arguments = {"mine": ["sha256d"], "train": [str(path), str(tmp_path), "0", ""], "verify": []}[kind]
    with node(kind, *arguments) as process:
        worker = worker_of(process, kind)
        process.kill()
        process.wait()
        wait_until(lambda: not is_worker(worker, kind), "the worker's end")


def test_ctrl_c_in_the_terminal_is_not_for_the_workers() -> None:
    with node("mine", "sha256d") as process:
        worker = worker_of(process, "mine")
        os.killpg(process.pid, signal.SIGINT)
        assert line_of(process) == b"sealed\n"
        assert workers_of(process.pid, "mine") == [worker]


def test_a_worker_ignores_ctrl_c_while_python_starts() -> None:
    """From the beginning on: here before it has left the node's process group."""
    with node("mine", "sha256d") as process:
        found: list[int] = []

        def is_python() -> bool:
            found[:] = workers_of(process.pid, "mine")
            return bool(found) and Path(f"/proc/{found[0]}/cmdline").read_bytes().startswith(sys.executable.encode())

        wait_until(is_python, "a worker")
        lines = Path(f"/proc/{found[0]}/status").read_text(encoding="utf-8").splitlines()
        (ignored,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
        assert ignored >> signal.SIGINT - 1 & 1
        os.killpg(process.pid, signal.SIGINT)
        assert line_of(process) == b"sealed\n"


def test_a_worker_s_niceness_counts_because_it_is_in_its_node_s_session() -> None:
    with node("mine", "sha256d") as process:
        worker = worker_of(process, "mine")
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, worker) == MINE_NICE, "a nice worker")
        assert os.getsid(worker) == os.getsid(process.pid)
        group = Path(f"/proc/{worker}/autogroup")
        assert not group.exists() or group.read_text() == Path(f"/proc/{process.pid}/autogroup").read_text()


def test_the_node_goes_first_then_training_then_mining() -> None:
    assert 0 < TRAIN_NICE < MINE_NICE <= 19
