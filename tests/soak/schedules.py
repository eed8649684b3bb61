"""``python -m tests.soak.schedules``: thousands of random schedules of one height, with traitors.

Each line is one federation; ``tests/support/node/schedules.py`` says what a schedule is. One that fails is run again by
``--first SEED --count 1``.
"""

import argparse
import sys

from tests.support.node.schedules import ATTEMPTS_MORE, Figures, Rules, run_many

ATTEMPTS_99_MAX, AFTER_CALM_S_99_MAX = 8, 8.0
"""The slowest hundredth of schedules may take so many attempts, and so many seconds of calm."""


def main() -> None:
    """Run them, and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="schedules of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    given = parser.parse_args()
    seeds, is_good = range(given.first, given.first + given.count), True
    for two_faced in (False, True):
        for members in (4, 5, 7, 10):
            figures = _run(Rules(members, (members - 1) // 3, two_faced), seeds)
            is_good &= figures.disagreements == figures.undecided == 0
            is_good &= given.count < 100 or (
                figures.attempts_99 <= ATTEMPTS_99_MAX and figures.after_calm_s_99 <= AFTER_CALM_S_99_MAX
            )
    for is_quiet in (False, True):
        for members in (4, 7, 10, 13):
            rules = Rules(members, (members - 1) // 3, tempts=True, is_quiet=is_quiet)
            figures = _run(rules, seeds)
            is_good &= figures.disagreements == figures.undecided == 0
            is_good &= figures.calm_attempts_max <= rules.traitors + ATTEMPTS_MORE
    sys.exit(not is_good)


def _run(rules: Rules, seeds: range) -> Figures:
    figures = run_many(rules, seeds)
    print(f"{rules}: {figures}", flush=True)
    return figures


if __name__ == "__main__":
    main()
