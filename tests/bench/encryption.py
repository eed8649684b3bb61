"""Cost of threshold encryption at 2048 bits: operations on one core, and a whole round of FedPH on two.

FedPH's Table 3 gives 0.039 s for 384 numbers, its embeddings, and 3.37 s for 33,200, its model, one number in a
ciphertext; that fits a key of 128 bits. Here 68 numbers lie in a ciphertext, with 24 bits behind the point and room for
five summands of magnitude 4.

A round: each of 5 members encrypts prototypes of 10 classes × 512 numbers and proves that it knows them, everybody
checks all five posts and multiplies the ciphertexts, each makes its decryption shares with a proof, each checks all
five posts, and each combines three of them. Nobody takes another's word for anything. Each member is a process, as it
is in a federation; all of them have the same two cores.
"""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.threshold import (
    Decryption,
    Encryptor,
    FixedPoint,
    KeyShare,
    Packing,
    PlaintextProof,
    PlaintextStatement,
    SharePost,
    ThresholdPublicKey,
    add,
    are_plaintexts_known,
    deal,
    prove_plaintexts,
)
from fedchain.crypto.threshold.encryption import Randomizer
from fedchain.learning.sums.threshold import FRACTION_BITS

MEMBERS, THRESHOLD = 5, 3
CLASSES, D = 10, 512
EMBEDDINGS, MODEL = 384, 33_200
"""Numbers of FedPH's Table 3."""

CORES = 2
POINT = FixedPoint(FRACTION_BITS, 4.0)
SENDERS = [PrivateKey(bytes([member]) * 32).public_key for member in range(1, MEMBERS + 1)]

Dealt = tuple[ThresholdPublicKey, tuple[KeyShare, ...]]


def run(repetitions: int) -> dict[str, float]:
    """Seconds: operations, of one core's CPU, and parts of a round, wall time on `CORES` cores and CPU of both.

    On a machine that does other work, wall time says more of that; half of a part's CPU is what two free cores need.
    """
    begun = time.process_time()
    dealt = deal(MEMBERS, THRESHOLD, os.urandom)
    seconds = {"deal": time.process_time() - begun}
    return seconds | operations(dealt, repetitions) | whole_round(dealt)


def operations(dealt: Dealt, repetitions: int) -> dict[str, float]:
    """CPU seconds of one core, medians."""
    key, shares = dealt
    packing = Packing(key.plaintext_bits, POINT.integer_max, MEMBERS)
    encryptor = Encryptor(key)

    def encrypt(numbers: NDArray[np.float64], ready: list[Randomizer] | None = None) -> list[mpz]:
        plaintexts = packing.pack(POINT.encode(numbers))
        return encryptor.encrypt(plaintexts, ready or encryptor.randomizers(len(plaintexts), os.urandom))

    few, many, prototypes = (unit_numbers(0, count) for count in (EMBEDDINGS, MODEL, CLASSES * D))
    ready = encryptor.randomizers(packing.plaintexts_of(MODEL), os.urandom)
    decryption = Decryption(key, bytes(32), 1, "decryption_share", encrypt(prototypes))
    posts = [decryption.share(share, SENDERS[share.index - 1], os.urandom) for share in shares[:THRESHOLD]]
    return {
        "encryptor": cpu_s(lambda: Encryptor(key), repetitions),
        "encrypt 384": cpu_s(lambda: encrypt(few), repetitions),
        "encrypt 33,200": cpu_s(lambda: encrypt(many), repetitions),
        "encrypt 384, randomizers ready": cpu_s(lambda: encrypt(few, ready[: packing.plaintexts_of(384)]), repetitions),
        "encrypt 33,200, randomizers ready": cpu_s(lambda: encrypt(many, ready), repetitions),
        "ciphertexts of 10 × 512": len(decryption.ciphertexts),
        "share post": cpu_s(lambda: decryption.share(shares[0], SENDERS[0], os.urandom), repetitions),
        "verify post": cpu_s(lambda: decryption.validate(posts[0]), repetitions),
        "combine": cpu_s(lambda: decryption.combine(posts), repetitions),
    }


def whole_round(dealt: Dealt) -> dict[str, float]:
    """Wall seconds of each part of a round in which everybody does everything itself, on `CORES` cores.

    A process is told the keys once, before the clock starts; that it makes its tables of powers is counted.
    """
    everybody = range(MEMBERS)
    with ProcessPoolExecutor(MEMBERS, get_context("spawn"), initializer=_take, initargs=(dealt,)) as pool:
        list(pool.map(_idle, everybody))
        seconds = dict[str, float]()

        def part(name: str, work: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
            begun = time.perf_counter()
            answers = list(pool.map(partial(_timed, work), *arguments))
            seconds[f"round: {name}"] = time.perf_counter() - begun
            seconds[f"round: {name}, CPU"] = sum(spent for _, spent in answers)
            return [result for result, _ in answers]

        posted = part("encrypt and prove", _encrypt, everybody)
        part("verify what was encrypted", _verify_encrypted, [posted] * MEMBERS)
        sums = part("add", _add, [[ciphertexts for ciphertexts, _ in posted]] * MEMBERS)
        posts = part("shares and proofs", _share, everybody, sums)
        part("verify", _verify, sums, [posts] * MEMBERS)
        found = part("combine", _combine, sums, [posts[:THRESHOLD]] * MEMBERS)
    expected = sum(POINT.encode(unit_numbers(member, CLASSES * D)) for member in everybody)
    assert all((each == expected).all() for each in found)
    cpu = sum(spent for name, spent in seconds.items() if name.endswith("CPU"))
    return seconds | {"round": sum(seconds.values()) - cpu, "round, CPU": cpu}


def unit_numbers(seed: int, count: int) -> NDArray[np.float64]:
    """Numbers as they stand in prototypes, from −1 to 1."""
    return np.random.default_rng(seed).uniform(-1, 1, count)


def cpu_s(work: Callable[[], object], repetitions: int) -> float:
    """Median CPU time of this process."""
    spent = []
    for _ in range(repetitions):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return median(spent)


def _take(dealt: Dealt) -> None:
    """Keep the keys in a process of the pool, which has no other place for them, and have it use few cores."""
    global _DEALT  # noqa: PLW0603
    _DEALT = dealt
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def _timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Result of a piece of work, and its CPU seconds."""
    begun = time.process_time()
    result = work(*arguments)
    return result, time.process_time() - begun


def _idle(_: int) -> None:
    """Make sure that a process has started: it takes longer than the answer of one that has."""
    time.sleep(0.5)


@cache
def _encryptor() -> Encryptor:
    return Encryptor(_DEALT[0])


def _packing() -> Packing:
    return Packing(_DEALT[0].plaintext_bits, POINT.integer_max, MEMBERS)


def _encrypt(member: int) -> tuple[list[mpz], PlaintextProof]:
    plaintexts = _packing().pack(POINT.encode(unit_numbers(member, CLASSES * D)))
    randomizers = _encryptor().randomizers(len(plaintexts), os.urandom)
    ciphertexts = _encryptor().encrypt(plaintexts, randomizers)
    return ciphertexts, prove_plaintexts(_statement(member, ciphertexts), plaintexts, randomizers, os.urandom)


def _statement(member: int, ciphertexts: list[mpz]) -> PlaintextStatement:
    return PlaintextStatement(_DEALT[0], bytes(32), 1, "update", SENDERS[member], ciphertexts)


def _verify_encrypted(posted: list[tuple[list[mpz], PlaintextProof]]) -> None:
    for member, (ciphertexts, proof) in enumerate(posted):
        assert are_plaintexts_known(_statement(member, ciphertexts), proof)


def _add(posted: list[list[mpz]]) -> Decryption:
    return Decryption(_DEALT[0], bytes(32), 1, "decryption_share", add(_DEALT[0], posted))


def _share(member: int, decryption: Decryption) -> SharePost:
    return decryption.share(_DEALT[1][member], SENDERS[member], os.urandom)


def _verify(decryption: Decryption, posts: list[SharePost]) -> None:
    for post in posts:
        decryption.validate(post)


def _combine(decryption: Decryption, posts: list[SharePost]) -> NDArray[np.int64]:
    return _packing().unpack(decryption.combine(posts), CLASSES * D)


_DEALT: Dealt
