"""Members killed at random instants while they let noised posts out: the ledger never shrinks, the bytes stay the same.

Args: --kills N, at least so many (10,000); --seed N, the first of the plays.
"""

import argparse

from tests.learning.privacy.crashes import play


def main() -> None:
    """Play until there were enough kills; a play that fails says what did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak privacy_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=10_000, help="at least so many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first play (%(default)s)")
    options = parser.parse_args()
    kills, plays = 0, 0
    while kills < options.kills:
        kills += play(options.seed + plays)
        plays += 1
    print(f"{kills:,} kills of {plays:,} members: no ledger shrank, nothing was sent uncharged, no post changed")


if __name__ == "__main__":
    main()
