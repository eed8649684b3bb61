"""Worker processes: one trains, one mines, so that the node's loop always answers.

``python -m fedchain.node.worker train GENESIS FOLDER MEMBER DATA_DIR`` and ``… mine FUNCTION``. They read frames
from standard input and answer on standard output. A trainer checkpoints each contribution before it answers: started
again, it gives the same bytes for the same phase.
"""

import contextlib
import json
import os
import random
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from queue import Queue
from typing import Any, BinaryIO

from fedchain.chain.block import Header
from fedchain.chain.genesis import Genesis
from fedchain.chain.proof_of_work import NONCE_MAX, search_nonce
from fedchain.node.frames import read_frame, write_frame

TRAIN_NICE, MINE_NICE = 10, 19
"""Niceness: the node goes first, then training, then mining."""

MINING_SLICE_S = 0.1
"""How long the miner searches before it looks for a newer header."""

CHECKPOINT, LAST = "checkpoint.safetensors", "contribution.msgpack"


class Trainer:
    """Answers calls for contributions, and survives being killed between any two instructions.

    Args:
        genesis: names the learning task.
        folder: where the checkpoint is kept.
        member: this peer's place among the members, which is its place in the partition.
        data_dir: folder of the data set.
    """

    def __init__(self, genesis: Genesis, folder: Path, member: int, data_dir: str) -> None:
        from fedchain.learning.learner import Learner
        from fedchain.node.task import learning_from_genesis

        self._learner = Learner(learning_from_genesis(genesis, data_dir))
        self._member = member
        self._checkpoint = folder / CHECKPOINT
        self._last = folder / LAST
        if self._checkpoint.exists():
            self._learner.restore(member, self._checkpoint.read_bytes())

    def contribute(self, phase: str, round_number: int, knowledge: bytes) -> list[Any]:
        """Payload, local steps and measurements as JSON of one contribution; the same again if asked again."""
        if self._last.exists():
            with self._last.open("rb") as file:
                asked, answer = read_frame(file)
            if asked == [phase, round_number]:
                return list(answer)
        made = self._learner.contribute(self._member, phase, round_number, knowledge)
        measured = json.dumps(asdict(made.local))
        answer = [made.payload, made.steps, measured]
        _replace(self._checkpoint, self._learner.checkpoint(self._member))
        with self._last.with_suffix(".part").open("wb") as file:
            write_frame(file, [[phase, round_number], answer])
            os.fsync(file.fileno())
        self._last.with_suffix(".part").rename(self._last)
        return answer


def train(genesis_path: str, folder: str, member: str, data_dir: str) -> None:
    """Serve contributions until the node closes the pipe."""
    os.nice(TRAIN_NICE)
    import torch

    torch.set_num_threads(1)
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a method prints must not land among the frames
    trainer = Trainer(Genesis.decode(Path(genesis_path).read_bytes()), Path(folder), int(member), data_dir)
    while True:
        phase, round_number, knowledge = read_frame(source)
        try:
            write_frame(answers, ["done", *trainer.contribute(phase, round_number, knowledge)])
        except Exception as error:  # whatever it is belongs into the node's log
            write_frame(answers, ["failed", f"{type(error).__name__}: {error}"])


def mine(function: str) -> None:
    """Search nonces for the newest header that the node sent, slice by slice."""
    os.nice(MINE_NICE)
    orders: Queue[Any] = Queue()
    threading.Thread(target=_read_orders, args=(sys.stdin.buffer, orders), daemon=True).start()
    draw, slice_size = random.SystemRandom(), 64
    header: Header | None = None
    while True:
        while header is None or not orders.empty():
            order = orders.get()
            if order is None:
                return
            header = Header.from_record(order)
        begun = time.perf_counter()
        header = replace(header, timestamp_ms=max(header.timestamp_ms, time.time_ns() // 1_000_000))
        sealed = search_nonce(function, header, draw.randrange(NONCE_MAX), slice_size)
        if sealed is not None:
            write_frame(sys.stdout.buffer, sealed.to_record())
            header = None
        spent_s = max(time.perf_counter() - begun, 1e-6)
        slice_size = max(1, min(2**20, int(slice_size * MINING_SLICE_S / spent_s)))


def _read_orders(source: BinaryIO, orders: "Queue[Any]") -> None:
    try:
        while True:
            orders.put(read_frame(source))
    except EOFError:
        orders.put(None)


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def main(arguments: list[str]) -> None:
    """Run one worker until the node is gone."""
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        if arguments[0] == "train":
            train(*arguments[1:])
        else:
            mine(*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
