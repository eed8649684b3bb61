"""Worker processes: one trains, one mines, one verifies signatures, so that the node's loop always answers.

``python -m fedchain.node.workers.process train GENESIS FOLDER MEMBER SECRETS DATA_DIR TASK DEVICE WEIGHTS``,
``… mine FUNCTION`` and ``… verify``.
They read frames from standard input and answer on standard output. A trainer first receives the secrets that the member
was dealt, and the members where they are not the founders. It stores each contribution before it answers, so after a
restart it gives the same bytes for the same phase.
"""

import os

if __name__ == "__main__":  # before anything that takes time, so that only the node handles Ctrl-C in the terminal
    os.setpgid(0, 0)

import contextlib
import errno
import faulthandler
import io
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn, Self

from fedchain.allocator import TRAINING_KEPT_SIZE, TRAINING_MAPPED_SIZE, return_large_blocks
from fedchain.chain.block import Header
from fedchain.chain.exceptions import ChainError
from fedchain.chain.genesis import Genesis
from fedchain.chain.proof_of_work import NONCE_MAX, search_nonce
from fedchain.chain.signatures import count_valid
from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import TRAINING_FILE, TRAINING_SPOOL
from fedchain.learning.exceptions import LearningError, NothingToPost, TrainingDiverged, one_line
from fedchain.learning.executors.executor import Answer, Question
from fedchain.learning.executors.inbox import CONTRIBUTE, FORESEE, Inbox
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.config import FULL, NodeConfigError
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.operating.preflight import UMASK
from fedchain.node.workers.frames import PipeBroken, read_frame, take_over, write_frame
from fedchain.node.workers.local import DEFAULTS, Local
from fedchain.node.workers.training_file import KeptAnswer, write_answer

TRAIN_NICE, MINE_NICE = 10, 19
"""Niceness: the node goes first, then training, then mining.

It takes effect because a worker stays in its node's session: Linux schedules sessions against each other first
("autogroup", see sched(7)), and applies niceness only within a session. With all three busy on one core, the node gets
89 %, training 10 % and mining 1 %; in separate sessions each got a third. To other programs the three count as one.
"""

REFUSED = FULL | {errno.EFBIG, errno.EIO, errno.EROFS}
"""Errors of a disk that refuses: no line of a program is to blame, so none is shown."""

MINING_SLICE_S = 0.1
"""How long the miner searches before it checks for a newer header."""


class Trainer:
    """Answers calls for contributions, and survives being killed between any two instructions.

    Args:
        genesis: states the learning task.
        folder: folder of the file with the last answer.
        member: this peer's place among the members, which is its place in the partition.
        local: what the member chooses for itself.
        secrets: file of this member's private randomness, read when the method first asks; empty if there is none. The
            privacy ledger lies beside it.
        dealt: secrets that this member was dealt, by name, such as its share of a key.
        members: public keys by place; none for those of the founding document.

    Raises:
        LearningError: the data cannot be used.
        PipeBroken: the kept file cannot be read.
    """

    def __init__(
        self,
        genesis: Genesis,
        folder: Path,
        member: int,
        local: Local = DEFAULTS,
        secrets: str = "",
        dealt: Mapping[str, bytes] = MappingProxyType({}),
        members: Sequence[PublicKey] = (),
    ) -> None:
        from fedchain.learning.device import DEVICE, describe_device
        from fedchain.learning.executors.inline import InlineExecutor
        from fedchain.learning.payload.part_folder import PARTS
        from fedchain.learning.registry import use_current_folder
        from fedchain.learning.worker.plan import LearnerPlan, Named
        from fedchain.node.founding.task import learning_from_genesis, require_weights

        return_large_blocks(TRAINING_MAPPED_SIZE, TRAINING_KEPT_SIZE)
        use_current_folder()
        custody = "fedchain.node.custody"
        config = learning_from_genesis(genesis, local.data_dir, local.task, local.weights)
        require_weights(config)
        plan = LearnerPlan(
            config=config,
            device=local.device,
            members=tuple(members) or genesis.members,
            chain_id=genesis.chain_id,
            secrets=Named(f"{custody}.secrets_file:secrets_in", (secrets, sorted(dealt.items()))) if secrets else None,
            ledger=Named(f"{custody}.ledger_file:ledger_beside", (secrets,)) if secrets else None,
            parts=Named("fedchain.learning.payload.part_folder:parts_in", (str(folder / PARTS),)),
            spools=Named("fedchain.files.spool:cleared_folder", (str(folder / TRAINING_SPOOL),)),
        )
        backend = InlineExecutor(plan, report=lambda error, client: error)
        learner = backend.learner
        learner.prepare(member)
        learner.release_examples()  # this member's are a small part of them
        if local.device != DEVICE:
            print("training on", *describe_device(learner.device).values(), file=sys.stderr)  # the node logs it
        answers = KeptAnswer(folder / TRAINING_FILE, genesis.chain_id, member, lambda: learner.checkpoint(member))
        if answers.kept is not None:
            learner.restore(member, answers.kept.checkpoint)
        self._answers, self._forecasts = answers, backend.ahead
        self._forecasts.on_end = lambda number, outcome: print("trained ahead:", outcome.value, file=sys.stderr)
        self._executor = Remembering(backend, answers)

    def ask(self, question: Question) -> Answer:
        """Answer what the member is asked; the same if it is asked again. Raises what the work raises."""
        return self._executor.ask(question).result()

    def foresee(self, question: Question, is_asked: Callable[[int], bool] = lambda member: False) -> None:
        """Compute ahead what the member may be asked next. Nothing is kept of it on disk before it is asked.

        Args:
            question: what it may be asked.
            is_asked: whether by now somebody waits for an answer; called when the work is done.
        """
        if self._answers.recall(question.id) is None:
            self._forecasts.make(0, question, is_asked)


@dataclass(frozen=True, slots=True)
class Order:
    """An order to a trainer."""

    method: str
    question: Question

    @classmethod
    def read(cls, frame: Sequence[Any], member: int) -> Self:
        """The order in a frame."""
        is_ahead, phase, round_number, knowledge, clients, pairs = frame
        amended = tuple((name, text) for name, text in pairs)
        given = take_over(knowledge)
        question = Question(member, phase, round_number, given, clients=clients, amended=amended)
        return cls(FORESEE if is_ahead else CONTRIBUTE, question)

    @property
    def client(self) -> int:
        """Place among the members."""
        return self.question.client


def train(genesis_path: str, folder: str, member: str, secrets: str, *local: str) -> None:
    """Report whether the data can be used, then compute contributions until the node closes the pipe.

    Args:
        genesis_path: genesis document of the federation.
        folder: the node's data folder.
        member: place among the members.
        secrets: the file of its secrets; empty: it has none.
        local: the values of `Local`.
    """
    os.nice(TRAIN_NICE)
    answers, orders = _take_stdout(), _orders()
    from fedchain.learning.device import use_threads

    use_threads()
    try:
        genesis = read_genesis(Path(genesis_path))
        dealt, members = orders.get()
        trainer = Trainer(genesis, Path(folder), int(member), Local(*local), secrets, dict(dealt), members)
    except OSError as error:
        write_frame(answers, ["full" if error.errno in FULL else "failed", _words_of(error, folder)])
        return
    except (LearningError, ChainError, NodeConfigError, PipeBroken) as error:
        write_frame(answers, ["failed", str(error)])
        return
    write_frame(answers, ["ready"])
    inbox = Inbox[Order](lambda: [[Order.read(orders.get(), int(member))]], lambda: not orders.empty())
    while True:
        order = inbox.take()[0]
        if order.method == FORESEE:
            trainer.foresee(order.question, inbox.is_asked)
            continue
        try:
            made = trainer.ask(order.question)
            answer = ["done", *write_answer(made)] if isinstance(made, Contribution) else _refusal(made)
        except LearningError as error:  # the client is unchanged
            answer = ["failed", f"{type(error).__name__}: {error}"]
        except Exception as error:  # the client's state is unknown now: the next process reads the stored one
            if isinstance(error, OSError) and error.errno in REFUSED:
                write_frame(answers, ["full", _words_of(error, folder)])
                return
            write_frame(answers, ["failed", one_line(error)])
            raise
        write_frame(answers, answer)


def mine(function: str) -> None:
    """Search for nonces for the newest header that the node sent, in slices; an empty order pauses the search."""
    os.nice(MINE_NICE)
    answers, orders = _take_stdout(), _orders()
    draw, slice_size = random.SystemRandom(), 64
    header: Header | None = None
    while True:
        while header is None or not orders.empty():
            order = orders.get()
            header = Header.from_record(order) if order else None
        begun = time.perf_counter()
        sealed = search_nonce(function, header, draw.randrange(NONCE_MAX), slice_size)
        if sealed is not None:
            write_frame(answers, sealed.to_record())
            header = None
        spent_s = max(time.perf_counter() - begun, 1e-6)
        slice_size = max(1, min(2**20, int(slice_size * MINING_SLICE_S / spent_s)))


def verify() -> None:
    """Answer each list of signatures with the number of valid ones before the first invalid one."""
    answers, orders = _take_stdout(), _orders()
    while True:
        write_frame(answers, count_valid(orders.get()))


def _take_stdout() -> BinaryIO:
    """Reserve standard output for frames: all other output, Python's or not, goes to standard error from now on."""
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the node logs lines as they come
    return frames


def _orders() -> "Queue[Any]":
    """The queue of the node's orders. The process ends with the pipe, so a killed node leaves no process behind."""
    orders: Queue[Any] = Queue()

    def read() -> None:
        try:
            while True:
                orders.put(read_frame(sys.stdin.buffer))
        except PipeBroken:
            _end(0)

    threading.Thread(target=read, daemon=True).start()
    return orders


def _end(exit_code: int) -> NoReturn:
    """Exit at once, and end what own code has begun, such as a pool: without its parent it would wait for ever."""
    try:
        if (known := sys.modules.get("multiprocessing")) is not None:
            for child in known.active_children():
                child.kill()
    finally:
        os._exit(exit_code)


def _words_of(error: OSError, folder: str) -> str:
    """The file that the system refuses, and why."""
    return f"{error.filename or folder}: {error.strerror or error}"


def _refusal(made: NothingToPost) -> list[Any]:
    """The frame of a refusal. A training that diverged has failed: the member's operator can do something about it."""
    return ["failed" if isinstance(made, TrainingDiverged) else "refused", f"{type(made).__name__}: {made}"]


def main(arguments: list[str]) -> NoReturn:
    """Run one worker until the node is gone.

    The process exits at once: the thread that reads orders holds the lock of standard input, for which Python's own
    shutdown would wait in vain, and abort. A signal that ends it, such as of a mapped file cut short, says where.
    """
    faulthandler.enable(2)
    os.umask(UMASK)
    exit_code = 0
    try:
        _run(arguments)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException:
        exit_code = 1
        traceback.print_exc()
    with contextlib.suppress(OSError):  # the node is gone
        sys.stdout.flush()
        sys.stderr.flush()
    _end(exit_code)


def _run(arguments: list[str]) -> None:
    if arguments[0] == "train":
        train(*arguments[1:])
    elif arguments[0] == "verify":
        verify()
    else:
        mine(*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
