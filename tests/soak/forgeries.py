"""``python -m tests.soak forgeries``: decryption shares, and posts made of others' ciphertexts, forged in every way."""

import argparse

from tests.crypto.threshold.dealt import full_key, small_key
from tests.support import forged_plaintexts, forged_shares


def main() -> None:
    """Forge with short keys and with those of 2048 bits. The first share that is taken ends it with an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak forgeries", description=__doc__)
    parser.add_argument("--short", type=int, default=10_000, help="of each kind, with short keys")
    parser.add_argument("--full", type=int, default=200, help="of each kind, with 2048 bits")
    given = parser.parse_args()
    for length, dealt, count in (("short keys", small_key(), given.short), ("2048 bits", full_key(), given.full)):
        print(f"{length}: {forged_shares.refusals(dealt, count):,} forged shares refused and blamed", flush=True)
        print(f"{length}: {forged_plaintexts.refusals(dealt, count):,} of {count:,} forged posts refused", flush=True)


if __name__ == "__main__":
    main()
