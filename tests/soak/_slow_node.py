"""A node whose disk is slow now and then: ``python -m tests.soak._slow_node SECONDS_MAX fedchain-arguments``."""

import random
import sys
import time
from collections.abc import Sequence

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Record
from fedchain.cli.main import main


def slow_down(seconds_max: float) -> None:
    """Let every commit take up to so long, as a busy disk's fsync does."""
    append, draw = Store.append, random.Random()

    def slow_append(self: Store, records: Sequence[Record]) -> None:
        time.sleep(draw.uniform(0.0, seconds_max))
        append(self, records)

    Store.append = slow_append  # type: ignore[method-assign]


if __name__ == "__main__":
    slow_down(float(sys.argv.pop(1)))
    main()
