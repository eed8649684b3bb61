"""``python -m tests.soak.exploration``: every course of one height, further than the tests have time for.

One traitor of four and two blocks; ``tests/support/node/exploration.py`` says what is explored and why it is enough.
"""

import argparse
import sys
import time

from tests.support.node.exploration import Explorer


def main() -> None:
    """Explore, and print how far it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak exploration", description=__doc__)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--traitors", type=int, default=1)
    parser.add_argument("--attempts", type=int, default=3, help="attempts that are looked at")
    parser.add_argument("--states", type=int, default=5_000_000, help="states after which it ends")
    given = parser.parse_args()
    begun_s = time.monotonic()
    found = Explorer(given.members, given.traitors, given.attempts - 1).explore(states_max=given.states)
    took_s, extent = time.monotonic() - begun_s, "all" if found.is_complete else "not all"
    print(f"{found.states} states, {found.steps} steps, depth {found.depth}, {extent} of them, in {took_s:.0f} s")
    print(f"disagreement: {found.disagreement or 'none'}")
    sys.exit(bool(found.disagreement) != (given.traitors > (given.members - 1) // 3))


if __name__ == "__main__":
    main()
