"""Every message that a traitor of four can put together from two heights, handed to one honest member.

In each situation of the member all of them, one at a time; then random ones upon each other, after which the honest
members go on and the member has to follow.
"""

import argparse
import sys
import time

from tests.support.node.recombination import SITUATIONS, VERSIONS, Trial, messages, shuffled

UPON_EACH_OTHER = 400
"""Messages of one random sequence."""


def main() -> None:
    """Play all of it; exits with 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak messages", description=__doc__)
    parser.add_argument("--version", type=int, choices=VERSIONS, help="of the federation; default: each of them")
    parser.add_argument("--situation", choices=SITUATIONS, help="default: all of them")
    parser.add_argument("--sequences", type=int, default=50, help="random ones of each situation (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first sequence (%(default)s)")
    options = parser.parse_args()
    versions = [options.version] if options.version else VERSIONS
    situations = [options.situation] if options.situation else SITUATIONS
    broken = sum(_play(version, name, options) for version in versions for name in situations)
    if broken:
        sys.exit(f"{broken} messages broke a promise")


def _play(version: int, name: str, options: argparse.Namespace) -> int:
    """Play all in one situation; returns the number of messages that broke a promise."""
    told, begun = messages(version), time.process_time()
    single, upon = Trial(version, name), Trial(version, name)
    for message in told:
        single.hand(message)
    for seed in range(options.seed, options.seed + options.sequences):
        before = len(upon.broken)
        upon.hand_all(shuffled(told, seed, UPON_EACH_OTHER))
        if len(upon.broken) > before:
            which = f"--version {version} --situation '{name}'"
            print(f"FAILED python -m tests.soak messages {which} --sequences 1 --seed {seed}")
    for text in (*single.broken[:5], *upon.broken[:5]):
        print(f"    {text[:1_000]}")
    broken = len(single.broken) + len(upon.broken)
    print(
        f"version {version}, {name:12} {single.played} of {len(told)} messages alone, {single.anew} did something; "
        f"{upon.played} in {options.sequences} sequences of {UPON_EACH_OTHER}; "
        f"{broken} broken; {time.process_time() - begun:.0f} CPU s",
        flush=True,
    )
    return broken


if __name__ == "__main__":
    main()
