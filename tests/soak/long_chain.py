"""``python -m tests.soak long_chain [--blocks 10000 --members 50]``: what a node bears after months.

A chain of so many blocks, each with a post and a vote of every member that is needed, is written once. Measured are a
real node's start on it and its resident memory beside those on a chain of a hundredth of the length, ``explorer
status``, the audit, and a node that replays the chain block by block from another one, into a store of its own, while a
process beside it verifies the signatures of the blocks that follow. The other node's answers are there before it asks,
as if that one ran on a machine of its own.
"""

import argparse
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from fedchain.chain.explorer.audit import audit_chain
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE
from fedchain.learning.application import Application
from fedchain.network.messages import GetFinal, GetPayloads, decode_message, encode_message
from fedchain.node.core.effects import Compute, Effect, Persist, Send
from fedchain.node.core.events import Computed, PeersConnected, Tick
from fedchain.node.core.jobs import Verified, VerifySignatures
from fedchain.node.founding.task import found_federation
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import free_ports
from fedchain.node.workers.frames import read_frame, write_frame
from tests.soak._figures import Figures, campaign
from tests.support.chain.builders import CREATED_MS, EASY_BITS, ChainBuilder, SumRules, keys
from tests.support.node.driver import Peer
from tests.support.node.shell import DIGITS

SHORT = 100
"""The chain that is compared has so many times fewer blocks."""

GROWTH_MIB_MAX, START_S_MAX, REPLAY_PER_S_MIN, STATUS_S_MAX = 60, 15, 100, 0.5
BATCH = 50
EXCHANGE_MS = 10
START_TIMEOUT_S = 120
ANSWER_TIMEOUT_S = 60.0


def found(members: int) -> Genesis:
    """A federation of digits with the keys of the tests, whose blocks are mined at once."""
    config = replace(DIGITS, clients=members)
    return found_federation(
        config,
        Application(config),
        [key.public_key for key in keys(members)],
        name="long",
        created_ms=CREATED_MS,
        rounds=2**20,
        initial_bits=EASY_BITS,
        target_mining_time_ms=4_000,
        proof_function="sha256d",
    )


def build(folder: Path, genesis: Genesis, blocks: int) -> None:
    """Write a node's folder with a chain in it, without payloads that a learning method could read."""
    folder.mkdir(parents=True)
    (folder.parent / GENESIS_FILE).write_bytes(genesis.encode())
    keys(1)[0].save(folder / "key.pem")
    with Store.create(folder / CHAIN_FOLDER, genesis) as store:
        chain = ChainBuilder(genesis)
        for first in range(0, blocks, BATCH):
            made = chain.extend_many(min(BATCH, blocks - first))
            store.append([Contents(chain.contents), *(chain.final(block) for block in made)])
            parent = chain.blocks[chain.tip].header.parent_hash  # the next block needs the last one alone
            chain.blocks = {chain.tip: chain.blocks[chain.tip]}
            chain.states = {item: chain.states[item] for item in (parent, chain.tip)}
            chain.contents = {root: chain.contents[root] for root in [chain.state.knowledge_root]}


def start(folder: Path, blocks: int) -> tuple[float, float]:
    """Start a real node, and stop it; seconds until it says where it is, and its resident memory then in MiB."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "fedchain", "node", "start", "--listen", f"/ip4/127.0.0.1/tcp/{port}"]
    command += ["--genesis", str(folder.parent / GENESIS_FILE), "--key", str(folder / "key.pem"), "--data", str(folder)]
    node, begun_s = LocalNode(0, folder, "", command), time.monotonic()
    try:
        node.start()
        while node.status.get("height") != blocks:
            assert time.monotonic() - begun_s < START_TIMEOUT_S, node.status
            time.sleep(0.02)
            node.look()
        took_s = time.monotonic() - begun_s
        assert node.process is not None
        return took_s, resident_mib(node.process.pid)
    finally:
        stop_all([node])


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def replay(source: Path, target: Path) -> dict[str, Any]:
    """Let a node take the whole chain from another one, block by block; figures of it."""
    with Store.open(source) as held:
        genesis = held.genesis
        key, teacher_key = keys(2)
        teacher = Peer(1, teacher_key, genesis, SumRules())
        teacher.store = held  # type: ignore[assignment]
        teacher.node = teacher.new_node()
        height = teacher.node.head.height
        with Store.create(target, genesis) as empty, Verifier() as verifier, answers_of(teacher, height) as answer:
            pupil = Pupil(key, genesis, verifier)
            pupil.store = empty  # type: ignore[assignment]
            pupil.node = pupil.new_node()
            figures = _exchange(pupil, teacher, answer, height)
            stored = empty.head()
            assert stored is not None
            assert stored.block.hash == pupil.node.head.block_hash
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # one child, which has ended
    return figures | {"verified_per_s": height / (used.ru_utime + used.ru_stime)}


Answer = Callable[[GetFinal | GetPayloads], Iterator[bytes]]
"""The encoded messages that answer a question."""


@contextmanager
def answers_of(teacher: Peer, height: int) -> Iterator[Answer]:
    """Answers of a node about its blocks, encoded before anybody asks: as if it ran on a machine of its own."""
    places: dict[tuple[type, int], tuple[int, int]] = {}
    stranger = keys(1)[0].public_key
    with tempfile.TemporaryFile() as file:
        for question in (item for place in range(1, height + 1) for item in (GetFinal(place, 1), GetPayloads(place))):
            (effect,) = teacher.receive(stranger, question, CREATED_MS)
            assert isinstance(effect, Send)
            data = encode_message(effect.message)
            places[type(question), question.height] = file.tell(), len(data)
            file.write(data)
            teacher.effects.clear()

        def answer(question: GetFinal | GetPayloads) -> Iterator[bytes]:
            count = question.count if isinstance(question, GetFinal) else 1
            for place in range(question.height, min(question.height + count, height + 1)):
                start, size = places[type(question), place]
                file.seek(start)
                yield file.read(size)

        yield answer


class Verifier:
    """The process that verifies signatures beside a node, asked without a node's shell."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "fedchain.node.workers.process", "verify"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.orders = cast(BinaryIO, self._process.stdin)
        # Unbuffered: what was read ahead would not be there for ``select``.
        self.answers = cast(BinaryIO, open(self._process.stdout.fileno(), "rb", buffering=0, closefd=False))
        return self

    def __exit__(self, *_: object) -> None:
        self.orders.close()
        self._process.wait()


class Pupil(Peer):
    """A node that replays, and has signatures verified by another process."""

    def __init__(self, key: PrivateKey, genesis: Genesis, verifier: Verifier) -> None:
        super().__init__(0, key, genesis, SumRules(), replays=True)
        self._verifier = verifier
        self.disk = ThreadPoolExecutor(1)
        self.jobs: deque[VerifySignatures] = deque()

    def has_answer(self, timeout_s: float) -> bool:
        """Whether the other process is done with the oldest job."""
        return bool(self.jobs and select.select([self._verifier.answers], [], [], timeout_s)[0])

    def take_answer(self, now_ms: int) -> list[Effect]:
        """Tell the node what came of that."""
        return self.handle(Computed(self.jobs.popleft(), Verified(read_frame(self._verifier.answers))), now_ms)

    def carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Compute) and isinstance(effect.job, VerifySignatures):
            self.jobs.append(effect.job)
            write_frame(self._verifier.orders, effect.job.signed)
        elif isinstance(effect, Persist):  # a node's shell stores off its loop, too
            self.disk.submit(self.store.append, effect.records)
        else:
            super().carry_out(effect)


def _exchange(pupil: Pupil, teacher: Peer, answer: Answer, height: int) -> dict[str, Any]:
    """Let both talk until the pupil is where the teacher is."""
    now_ms, early_mib, begun_s, begun_wall_s = CREATED_MS + 10**9, 0.0, time.process_time(), time.monotonic()
    queue = deque[tuple[Peer, PublicKey, bytes]]()
    for one, other in ((pupil, teacher), (teacher, pupil)):
        _note(queue, one, other, one.handle(PeersConnected((other.key.public_key,)), now_ms))
    while pupil.node.head.height < height:
        now_ms += EXCHANGE_MS
        if pupil.has_answer(0.0 if queue else ANSWER_TIMEOUT_S):
            _note(queue, pupil, teacher, pupil.take_answer(now_ms))
        elif queue:
            receiver, sender, data = queue.popleft()
            message = decode_message(data)
            if isinstance(message, GetFinal | GetPayloads):
                queue.extend((pupil, teacher.key.public_key, told) for told in answer(message))
            else:
                other = teacher if receiver is pupil else pupil
                _note(queue, receiver, other, receiver.receive(sender, message, now_ms))
        else:
            now_ms += 1_000
            for one, other in ((pupil, teacher), (teacher, pupil)):
                _note(queue, one, other, one.handle(Tick(), now_ms))
        for peer in (pupil, teacher):
            peer.log.clear()
            peer.effects.clear()
            peer.notices.clear()
        if not early_mib and pupil.node.head.height >= height // SHORT:
            early_mib = resident_mib(os.getpid())
    pupil.disk.shutdown()
    return {
        "per_s": height / (time.monotonic() - begun_wall_s),
        "per_cpu_s": height / (time.process_time() - begun_s),
        "growth_mib": resident_mib(os.getpid()) - early_mib,
    }


def _note(queue: deque[tuple[Peer, PublicKey, bytes]], sender: Peer, receiver: Peer, effects: list[Any]) -> None:
    for effect in effects:
        if isinstance(effect, Send):
            queue.append((receiver, sender.key.public_key, encode_message(effect.message)))


def judge(figures: Figures, folder: Path, blocks: int, members: int) -> None:
    """Build, measure and say what came of it."""
    genesis, begun_s = found(members), time.monotonic()
    short, long = folder / "short" / "node", folder / "long" / "node"
    build(short, genesis, blocks // SHORT)
    build(long, genesis, blocks)
    figures.show(f"{blocks:,} blocks of {members} members written in {time.monotonic() - begun_s:.0f} s")
    (_, before_mib), (took_s, after_mib) = start(short, blocks // SHORT), start(long, blocks)
    figures.require(took_s < START_S_MAX, f"a node starts in {took_s:.1f} s, {START_S_MAX} s allowed")
    growth_mib = after_mib - before_mib
    text = f"{before_mib:.0f} MiB resident with {blocks // SHORT} blocks, {after_mib:.0f} with {blocks:,}"
    figures.require(growth_mib < GROWTH_MIB_MAX, f"{text}; {GROWTH_MIB_MAX} more allowed")
    status = [sys.executable, "-m", "fedchain", "explorer", "status", str(long)]
    times_s = []
    for _ in range(5):
        begun_s = time.monotonic()
        subprocess.run(status, check=True, capture_output=True)
        times_s.append(time.monotonic() - begun_s)
    figures.require(min(times_s) < STATUS_S_MAX, f"explorer status in {min(times_s):.2f} s, {STATUS_S_MAX} s allowed")
    with Store.open(long / CHAIN_FOLDER, read_only=True) as store:
        begun_s, cpu_s = time.monotonic(), time.process_time()
        audit = audit_chain(store, 1, blocks, SumRules(), store.content)
        took_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
    text = f"{blocks / took_s:.0f} blocks a second on {os.cpu_count()} cores, {blocks / cpu_s:.0f} a CPU second"
    figures.require(audit.is_valid, f"the audit finds the chain valid, {text}")
    child = [sys.executable, "-m", "tests.soak.long_chain", "--replay", str(long / CHAIN_FOLDER), str(folder / "copy")]
    found_figures = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    text = (
        f"{found_figures['per_cpu_s']:.0f} a CPU second of the node, {found_figures['verified_per_s']:.0f} of the other"
    )
    text = f"replayed at {found_figures['per_s']:.0f} blocks a second, {text}; {REPLAY_PER_S_MIN} a second wanted"
    figures.require(found_figures["per_s"] >= REPLAY_PER_S_MIN, text)
    text = f"memory of the replaying process grew by {found_figures['growth_mib']:.0f} MiB from block {blocks // SHORT}"
    figures.require(found_figures["growth_mib"] < GROWTH_MIB_MAX, f"{text}; {GROWTH_MIB_MAX} allowed")


def main() -> None:
    """Measure all, or only the replay (in a process of its own)."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak long_chain", description=__doc__)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--replay", nargs=2, type=Path, metavar=("SOURCE", "TARGET"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay:
        print(json.dumps(replay(*given.replay)))
        return
    with campaign("long-chain") as (figures, folder):
        judge(figures, folder, given.blocks, given.members)


if __name__ == "__main__":
    main()
