"""``python -m tests.soak forgeries``: decryption shares forged in every way are refused, and their authors blamed."""

import argparse

from tests.crypto.threshold.dealt import full_key, small_key
from tests.crypto.threshold.test_share_proof import refusals


def main() -> None:
    """Forge shares of short keys, and of the default length; the first one that is taken ends it with an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak forgeries", description=__doc__)
    parser.add_argument("--short", type=int, default=10_000, help="shares of short keys")
    parser.add_argument("--full", type=int, default=200, help="shares of 2048 bits")
    given = parser.parse_args()
    print(f"{refusals(small_key(), given.short):,} forged shares of short keys refused and blamed", flush=True)
    print(f"{refusals(full_key(), given.full):,} of 2048 bits", flush=True)


if __name__ == "__main__":
    main()
