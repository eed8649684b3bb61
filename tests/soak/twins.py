"""``python -m tests.soak.twins``: nodes that share a key or lost their memory, in a thousand small federations.

An honest owner is never accused, a node that is alone is never stopped, and of two the second one ends.
"""

import argparse
import sys
from collections import Counter

from tests.node.twin_scenarios import MEMORIES, Outcome, doubled, restarted


def main() -> None:
    """Run them, and print what became of the nodes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak twins", description=__doc__)
    parser.add_argument("--count", type=int, default=24, help="federations of each kind, of which there are 42")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    given = parser.parse_args()
    seeds, is_good = range(given.first, given.first + given.count), True
    for members in (1, 2, 3, 4):
        for kind in MEMORIES:
            outcomes = [restarted(members, seed, kind) for seed in seeds]
            is_good &= not any(outcome.accused or any(outcome.stopped) for outcome in outcomes)
            _show(f"n={members} restarted with {kind}", outcomes)
            if members > 1:
                outcomes = [doubled(members, seed, kind) for seed in seeds]
                is_good &= not any(outcome.accused or outcome.stopped[0] for outcome in outcomes)
                _show(f"n={members} a second one with {kind}", outcomes)
    sys.exit(not is_good)


def _show(title: str, outcomes: list[Outcome]) -> None:
    stopped = Counter(outcome.stopped for outcome in outcomes)
    accused = [seed for seed, outcome in enumerate(outcomes) if outcome.accused]
    heard = sorted(outcome.heard_after for outcome in outcomes)
    ended = sorted(outcome.stopped_after for outcome in outcomes)
    print(f"{title}: stopped {dict(stopped)}, accused in seeds {accused}", end="; ")
    print(f"heights to the alarm {heard[len(heard) // 2]} (at most {heard[-1]}), to the end {ended[-1]}", flush=True)


if __name__ == "__main__":
    main()
