"""A member that is killed at any instant, and what others hear of it: the play behind the test and the long campaign.

A life is a row of rounds: compute a value, charge the ledger, add the noise, keep the post, send it. The disk counts
the steps of its writes and cuts the power in one of them, which leaves a write torn as a disk may: each sector of it is
old or new, in any order; and a plain kill leaves all that was written. The next life reads what is left.
"""

import random
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from fedchain.learning.privacy.ledger import Budget, Entry, PrivacyLedger
from fedchain.learning.privacy.noise import add_noise, fingerprint
from fedchain.learning.privacy.releases import Release
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets

SECTOR_SIZE = 512
ROUNDS = 4
UNLIMITED = Budget(0.0, 1e-5)
RELEASE = Release("prototypes", 3.0, 1.0)


class Killed(BaseException):
    """The process is gone."""


class CrashingDisk:
    """Bytes that survive the crash which comes at a step of a write.

    Args:
        draw: which sectors a torn write leaves.
        crash_at: the step, counted over all writes of a life, from 0.
    """

    def __init__(self, draw: random.Random, crash_at: int) -> None:
        self.data = bytearray()
        self.draw, self.crash_at, self.steps = draw, crash_at, 0

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def step(self) -> None:
        """An instant at which the process may end."""
        self.steps += 1
        if self.steps > self.crash_at:
            raise Killed

    def write(self, data: bytes, offset: int) -> None:
        self.step()  # before anything was written
        try:
            for begin in range(0, len(data), SECTOR_SIZE):
                self.step()  # after so many sectors
                self._put(data[begin : begin + SECTOR_SIZE], offset + begin)
            self.step()  # after all of them, and before they are known to be durable
        except Killed:
            if self.draw.random() < 0.5:  # a power cut: sectors reach the disk in any order
                for begin in range(0, len(data), SECTOR_SIZE):
                    if self.draw.random() < 0.5:
                        self._put(data[begin : begin + SECTOR_SIZE], offset + begin)
            raise

    def _put(self, part: bytes, offset: int) -> None:
        self.data.extend(bytes(max(0, offset + len(part) - len(self.data))))
        self.data[offset : offset + len(part)] = part


class Member:
    """A member over all its lives: what it computes, keeps and sends."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.secrets = Secrets(0, self.draw.randbytes(ROOT_SIZE))
        self.disk = CrashingDisk(self.draw, 0)
        self.kept: dict[int, bytes] = {}
        self.sent: dict[int, set[bytes]] = {}
        self.epsilon = 0.0
        self.recorded = 0

    def live(self, crash_at: int) -> bool:
        """Start, and go on until the crash; whether the member got through all rounds before it."""
        self.disk.crash_at, self.disk.steps = crash_at, 0
        ledger = PrivacyLedger(0, self.disk)
        try:
            for number in range(1, ROUNDS + 1):
                self._play(number, ledger)
        except Killed:
            return False
        return True

    def check(self) -> None:
        """Assert what must hold between two lives."""
        ledger = PrivacyLedger(0, self.disk)
        self.disk.crash_at = 1 << 30
        entries = ledger.entries()
        epsilon = ledger.epsilon(UNLIMITED.delta)
        assert epsilon >= self.epsilon, f"the ledger shrank from {self.epsilon} to {epsilon}"
        assert len(entries) >= self.recorded
        assert {entry.round for entry in entries} >= set(self.sent), "something was sent that is not in the ledger"
        assert len({entry.round for entry in entries}) == len(entries), "the same release was charged twice"
        assert all(len(posts) == 1 for posts in self.sent.values()), "two different posts of one round were sent"
        self.epsilon, self.recorded = epsilon, len(entries)

    def _play(self, number: int, ledger: PrivacyLedger) -> None:
        """One round: as a trainer does it, whose answer is kept before it is sent."""
        if number not in self.kept:
            value = np.full(4, number / 7)
            identity = self.secrets.draw(16, "ledger", fingerprint(value, RELEASE.sigma)).hex()
            ledger.charge(Entry(number, "update", identity, RELEASE), UNLIMITED)
            self.disk.step()
            noised = add_noise(value, RELEASE.sigma, self.secrets, "update", number).tobytes()
            self.disk.step()
            self.kept[number] = noised
        self.disk.step()
        self.sent.setdefault(number, set()).add(self.kept[number])


def play(seed: int) -> int:
    """Kill a member again and again until it got through; return how often that was. Raises AssertionError."""
    member, kills = Member(seed), 0
    while not member.live(member.draw.randrange(60)):
        kills += 1
        member.check()
    member.check()
    assert member.recorded == ROUNDS
    return kills
