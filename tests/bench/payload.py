"""Cost of ResNet-18's payload: decoded and checked, encoded, and eight of them aggregated, on one core.

The posts are encoded before the clock starts. `aggregate` is the application's, from bytes to bytes: it decodes,
checks, averages, and encodes the knowledge. Memory is the peak of what numpy and Python allocate beside the posts.
"""

import time
import tracemalloc
from collections.abc import Callable
from statistics import median

import numpy as np

from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.round import OffChain, Tensors

POSTS = 8


def run(repetitions: int) -> dict[str, float]:
    """Medians in milliseconds, and the peak of memory in payloads."""
    rules = Application(LearningConfig(method="blade-fl", dataset="cifar10", model="resnet18", clients=POSTS))
    phase = rules.method.phases[0]
    specs = rules.method.payload_spec(phase, rules.info)
    rng = np.random.default_rng(0)
    tensors: list[Tensors] = [
        {
            spec.name: np.abs(rng.standard_normal(spec.shape, dtype=np.float32))
            if spec.minimum == 0
            else rng.standard_normal(spec.shape, dtype=np.float32)
            for spec in specs
        }
        for _ in range(POSTS)
    ]
    posts = [(bytes([place]), encode(one)) for place, one in enumerate(tensors)]
    size_bytes, decoded = len(posts[0][1]), decode(posts[0][1], specs)
    del tensors
    found = {
        "payload_mb": size_bytes / 1e6,
        "decode_and_check_ms": _median_ms(lambda: decode(posts[0][1], specs), repetitions),
        "encode_ms": _median_ms(lambda: encode(decoded), repetitions),
        # a new round each time: in the same one, decoded posts would be found again
        "aggregate_ms": _median_ms(iter_rounds(rules, phase.name, posts), repetitions),
    }
    tracemalloc.start()
    rules.aggregate(OffChain(phase.name, 1 << 30), b"", posts)
    found["memory_payloads"] = tracemalloc.get_traced_memory()[1] / size_bytes
    tracemalloc.stop()
    return found


def iter_rounds(rules: Application, phase: str, posts: list[tuple[bytes, bytes]]) -> Callable[[], bytes]:
    """A function that aggregates the posts in the next round, each time that it is called."""
    numbers = iter(range(1, 1 << 30))
    return lambda: rules.aggregate(OffChain(phase, next(numbers)), b"", posts)


def _median_ms(function: Callable[[], object], repetitions: int) -> float:
    spent = []
    for _ in range(repetitions):
        begun = time.process_time()
        function()
        spent.append(time.process_time() - begun)
    return 1000 * median(spent)
