"""``python -m tests.soak attacks [NAME …]``: one attack after another on a node process that a good peer needs."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import count
from statistics import median

import trio
from rich.console import Console
from rich.table import Table

from fedchain.chain.genesis import Genesis
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.messages import Chunk, GetContent, Message
from fedchain.network.verdict import Verdict
from fedchain.node.operating.status import ask_status
from tests.support.network.assaults import ASSAULTS, STRANGERS, Offender
from tests.support.node.target import Target, target

RSS_MB_MAX = 500.0
LINES_MAX = 300
"""Log lines during one attack."""
AFTER_S_MAX = 1.0
"""How soon a question is answered when the attack is over."""
ANSWERED_MIN = 0.5
"""Share of a good peer's questions that are answered within ``ANSWER_S_MAX`` while the attack lasts."""
ANSWER_S_MAX = 5.0
PAUSE_S = 0.25

HEIGHT = 6
"""Blocks of the chain that the node has."""


@dataclass(slots=True)
class Measured:
    """Effect of an attack on the node."""

    name: str
    sent: int = 0
    disconnects: int = 0
    refused: int = 0
    rss_mb: float = 0.0
    cpu: float = 0.0
    """CPU seconds per second."""
    lines: int = 0
    answers_s: list[float] = field(default_factory=list)
    """How long each answer to the good peer took; infinite where none came."""
    after_s: float = float("inf")
    is_alive: bool = False

    def answered(self) -> float:
        """Share of answers that came."""
        return sum(seconds < float("inf") for seconds in self.answers_s) / max(1, len(self.answers_s))

    def faults(self) -> list[str]:
        """Where it falls short."""
        found = [] if self.is_alive else ["the process ended"]
        found += [f"{self.rss_mb:.0f} MB"] if self.rss_mb > RSS_MB_MAX else []
        found += [f"{self.lines} log lines"] if self.lines > LINES_MAX else []
        found += ["few answers"] if self.answered() < ANSWERED_MIN else []
        return [*found, *(["no answer afterwards"] if self.after_s > AFTER_S_MAX else [])]


def main() -> None:
    """Run the attacks, print what each did, and exit with 1 where the node suffers more than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak attacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ASSAULTS)} (all)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each attack (%(default)s)")
    parser.add_argument("--against", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in ASSAULTS]:
        parser.error(f"there is no attack {unknown[0]!r}; known are {', '.join(ASSAULTS)}")
    if options.against:
        trio.run(_attack, options.names[0], json.loads(options.against))
        return
    columns = ("attack", "sent", "cut off", "turned away", "RSS MB", "CPU", "lines", "answered")
    table = Table(*columns, "median ms", "worst ms", "after ms", "short of")
    failed = False
    with target(4, HEIGHT) as victim:
        for name in options.names or ASSAULTS:
            measured = _measure(victim, name, options.seconds)
            print(f"{name}: {asdict(measured) | {'answers_s': len(measured.answers_s)}}", file=sys.stderr, flush=True)
            failed |= bool(measured.faults())
            table.add_row(*_cells(measured))
    Console(width=160).print(table)
    sys.exit(1 if failed else 0)


def _cells(measured: Measured) -> list[str]:
    answers = measured.answers_s or [float("inf")]
    return [
        measured.name,
        f"{measured.sent:,}",
        str(measured.disconnects),
        str(measured.refused),
        f"{measured.rss_mb:.0f}",
        f"{measured.cpu:.2f}",
        str(measured.lines),
        f"{measured.answered():.0%}",
        f"{1_000 * median(answers):.0f}",
        f"{1_000 * max(answers):.0f}",
        f"{1_000 * measured.after_s:.0f}",
        ", ".join(measured.faults()) or "-",
    ]


def _measure(victim: Target, name: str, seconds: float) -> Measured:
    """One attack on a fresh process."""
    measured = Measured(name)
    victim.start()
    try:
        trio.run(_watch, victim, measured, seconds)
    finally:
        measured.is_alive = victim.is_alive()
        victim.stop()
    return measured


async def _watch(victim: Target, measured: Measured, seconds: float) -> None:
    """Ask the node as a good peer does, before, during and after the attack."""
    key, peer = victim.keys[1], victim.keys[0].public_key
    places = [victim.node.address]
    async with open_network(key, victim.genesis.chain_id, victim.genesis.members, bootstrap=places) as network:
        asked = Asked(network, peer)
        with trio.fail_after(30):
            while await asked.once() == float("inf"):
                await trio.sleep(PAUSE_S)
        with tempfile.TemporaryFile() as output:
            attack = subprocess.Popen(_command(victim, measured.name), stdout=output)
            try:
                while not os.fstat(output.fileno()).st_size and attack.poll() is None:
                    await trio.sleep(0.05)
                assert attack.poll() is None, f"{measured.name} could not begin"
                victim.forget_peak()
                lines, cpu_s, begun_s = victim.log_lines(), victim.cpu_s(), time.monotonic()
                while time.monotonic() - begun_s < seconds and attack.poll() is None and victim.is_alive():
                    measured.answers_s.append(await asked.once())
                    measured.rss_mb = max(measured.rss_mb, victim.peak_mb())
                    await trio.sleep(PAUSE_S)
            finally:
                attack.kill()
                attack.wait()
            if not victim.is_alive():
                return
            measured.cpu = (victim.cpu_s() - cpu_s) / (time.monotonic() - begun_s)
            output.seek(0)
            told = output.read().splitlines()[-1]
            measured.sent, measured.disconnects, measured.refused = json.loads(told)
        with trio.move_on_after(30):
            while (latency_s := await asked.once()) > AFTER_S_MAX:
                await trio.sleep(PAUSE_S)
            measured.after_s = latency_s
        measured.lines = victim.log_lines() - lines


def _command(victim: Target, name: str) -> list[str]:
    """The attacker is a process of its own, so that its work is not ours."""
    status = ask_status(victim.node.folder)
    assert status is not None, "it answers"
    key = PrivateKey.generate() if name in STRANGERS else victim.keys[-1]
    against = {
        "place": victim.node.address,
        "genesis": victim.genesis.encode().hex(),
        "seed": key.seed.hex(),
        "head": status["head"],
        "height": status["height"],
        "content": status["knowledge_root"],
    }
    return [sys.executable, "-m", "tests.soak.attacks", name, "--against", json.dumps(against)]


async def _attack(name: str, against: dict[str, str | int]) -> None:
    """The attacker's process."""
    os.nice(5)
    offender = Offender(
        str(against["place"]),
        Genesis.decode(bytes.fromhex(str(against["genesis"]))),
        PrivateKey(bytes.fromhex(str(against["seed"]))),
        bytes.fromhex(str(against["head"])),
        int(against["height"]),
        bytes.fromhex(str(against["content"])),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ASSAULTS[name], offender)
        await offender.begun.wait()
        while True:  # until it is killed
            print(json.dumps([offender.sent, offender.disconnects, offender.refused]), flush=True)
            await trio.sleep(0.2)


class Asked:
    """A good peer's questions: a content that nobody has, to which the answer is that."""

    def __init__(self, network: Libp2pNetwork, peer: PublicKey) -> None:
        self._network, self._peer, self._numbers = network, peer, count(1)
        self._heard = trio.Event()
        self._wanted = 0
        network.attach(self._receive)

    async def once(self) -> float:
        """Seconds until the answer; infinite if it does not come in time."""
        self._wanted, self._heard = next(self._numbers), trio.Event()
        begun_s = trio.current_time()
        with trio.move_on_after(ANSWER_S_MAX):
            self._network.send(self._peer, GetContent(sha256(b"nothing"), self._wanted))
            await self._heard.wait()
            return trio.current_time() - begun_s
        return float("inf")

    def _receive(self, sender: PublicKey, message: Message) -> Verdict:
        if isinstance(message, Chunk) and message.offset == self._wanted:
            self._heard.set()
        return Verdict.IGNORE


if __name__ == "__main__":
    main()
