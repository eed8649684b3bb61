"""Every message that a traitor of four can put together from two heights, handed to one honest member.

In each situation of the member all of them, one at a time; then random ones upon each other, after which the honest
members go on and the member has to follow.
"""

import argparse
import sys
import time

from tests.support.node.recombination import SITUATIONS, Trial, messages, shuffled

UPON_EACH_OTHER = 400
"""Messages of one random sequence."""


def main() -> None:
    """Play all of it; exits with 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak messages", description=__doc__)
    parser.add_argument("--situation", choices=SITUATIONS, help="default: all of them")
    parser.add_argument("--sequences", type=int, default=50, help="random ones of each situation (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first sequence (%(default)s)")
    options = parser.parse_args()
    print(f"{len(messages())} messages, {options.sequences} sequences of {UPON_EACH_OTHER}")
    broken = 0
    for name in [options.situation] if options.situation else SITUATIONS:
        begun, single, upon = time.process_time(), Trial(name), Trial(name)
        for message in messages():
            single.hand(message)
        for seed in range(options.seed, options.seed + options.sequences):
            before = len(upon.broken)
            upon.hand_all(shuffled(messages(), seed, UPON_EACH_OTHER))
            if len(upon.broken) > before:
                print(f"FAILED python -m tests.soak messages --situation '{name}' --sequences 1 --seed {seed}")
        for text in (*single.broken[:5], *upon.broken[:5]):
            print(f"    {text[:1_000]}")
        broken += len(single.broken) + len(upon.broken)
        print(
            f"{name:12} {single.played} alone, {single.anew} did something; {upon.played} upon each other; "
            f"{len(single.broken) + len(upon.broken)} broken; {time.process_time() - begun:.0f} CPU s",
            flush=True,
        )
    if broken:
        sys.exit(f"{broken} messages broke a promise")


if __name__ == "__main__":
    main()
