"""Consensus under everything at once: thousands of short, drawn lives of small federations, in virtual time.

Each plays chaos and then calm, with traitors that never stop. A schedule that breaks a promise, or does not get on in
the calm, is printed as the one command that plays it again.
"""

import argparse
import time
from collections import defaultdict
from itertools import count, islice

from tests.soak._figures import percentile
from tests.support.simulator.schedules import CHANGERS, SIZES, Played, Schedule, behaviours, play

SHOWN_MAX = 20
"""Failing schedules that are printed."""

PROGRESS_EVERY = 500
"""Schedules after which a line says how far it is."""


def main() -> None:
    """Play schedules and print figures for each behaviour; exits with 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak consensus", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one's")
    parser.add_argument("--behaviour", choices=(*behaviours(), *CHANGERS), help="of the traitors; default: all in turn")
    parser.add_argument(
        "--peers", type=int, nargs="+", default=list(SIZES), help="members, in turn (default: %(default)s)"
    )
    parser.add_argument("--losses", action="store_true", help="members lose their disks, too")
    parser.add_argument("--changes", action="store_true", help="members come, go and change keys, and rules change")
    parser.add_argument("--excess", type=int, default=0, help="traitors above f: agreement has to break in some")
    options = parser.parse_args()
    names = [options.behaviour] if options.behaviour else [*behaviours(), *(CHANGERS if options.changes else ())]
    kinds = [(peers, name) for name in names for peers in options.peers]
    begun, played = time.perf_counter(), list[Played]()
    for number in islice(count(), options.schedules):
        peers, name = kinds[number % len(kinds)]
        seed = options.seed + number // len(kinds)
        result = play(Schedule(seed, peers, name, options.excess, options.changes, options.losses))
        played.append(result)
        if result.violations and sum(bool(item.violations) for item in played) <= SHOWN_MAX:
            print(f"FAILED {result.schedule.command}", *result.violations[:5], sep="\n    ", flush=True)
        if len(played) % PROGRESS_EVERY == 0:
            broken = sum(bool(item.violations) for item in played)
            print(f"{len(played)} played, {broken} broken, {time.perf_counter() - begun:.0f} s", flush=True)
    show(played)
    print(f"{len(played)} schedules in {time.perf_counter() - begun:.0f} s")
    broken = sum(bool(item.violations) for item in played)
    if bool(broken) != bool(options.excess):
        raise SystemExit(f"{broken} of {len(played)} schedules broke a promise")


def show(played: list[Played]) -> None:
    """A line for each behaviour."""
    by_name: dict[str, list[Played]] = defaultdict(list)
    for result in played:
        by_name[result.schedule.behaviour].append(result)
    numbers = "attempts p50 p99 max  healing s p50  p99  cpu s"
    print(f"{'behaviour':18} {'played':>6} {'broken':>6} {'undecided':>9}  {numbers}")
    for name, results in by_name.items():
        attempts = [attempt for result in results for attempt in result.attempts] or [0]
        healed_s = [result.healed_s for result in results if result.healed_s is not None] or [0.0]
        broken = sum(any("progress" not in text for text in result.violations) for result in results)
        print(
            f"{name:18} {len(results):6} {broken:6} {sum(r.healed_s is None for r in results):9}"
            f"  {percentile(attempts, 50):12} {percentile(attempts, 99):3} {max(attempts):3}"
            f"  {percentile(healed_s, 50):13.1f} {percentile(healed_s, 99):4.1f}"
            f"  {sum(result.cpu_s for result in results) / len(results):5.2f}"
        )


if __name__ == "__main__":
    main()
