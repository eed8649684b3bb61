"""``python -m tests.soak capture``: one of ten members tries for three hours of virtual time to take the federation.

In version 1 of the protocol it was the only elector after some 150 seconds. It may have the share that its hash power
gives it: a tenth of the blocks, give or take the chance; it must not suppress anybody's posts.
"""

import argparse
import time

from tests.support.simulator.attacks import attacked, miners
from tests.support.simulator.trivial import trivial_simulation

MEMBERS, ATTACKER = 10, 9
DEVIATIONS = 4
COUNTED_MIN = 0.99


def main() -> None:
    """Play one life for each seed and print its figures; exits with 1 where one falls short."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak capture", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--hours", type=float, default=3.0, help="of virtual time")
    given = parser.parse_args()
    short, rounds_all, own_all = [], 0, 0
    for seed in range(given.first, given.first + given.seeds):
        begun_s = time.process_time()
        simulation = trivial_simulation(
            attacked("capture-attacker", (ATTACKER,), peers=MEMBERS, rounds=100_000, seed=seed)
        )
        simulation.loop.call_at(3600 * given.hours, simulation.stop)
        outcome = simulation.run()
        rounds, own = len(outcome.rows), miners(simulation).count(ATTACKER)
        expected = rounds / MEMBERS
        allowed = expected + DEVIATIONS * (expected * (1 - 1 / MEMBERS)) ** 0.5
        counted = sum(min(row.posts, MEMBERS - 1) for row in outcome.rows) / ((MEMBERS - 1) * rounds)
        node = simulation.peers[0].node
        assert node is not None
        electors = len(node.head.roster.electors)
        print(
            f"seed {seed}: {rounds} rounds in {outcome.rows[-1].virtual_s / 3600:.2f} h, {own} blocks of the attacker's"
            f" (at most {allowed:.0f}), {100 * counted:.2f} % of honest posts counted, {electors} electors,"
            f" {len(outcome.violations)} violations, {time.process_time() - begun_s:.0f} CPU s",
            flush=True,
        )
        rounds_all, own_all = rounds_all + rounds, own_all + own
        if outcome.violations or own > allowed or counted < COUNTED_MIN or electors != MEMBERS:
            short.append(seed)
    print(f"its share of all blocks: {own_all / rounds_all:.4f} of {rounds_all}")
    if short:
        raise SystemExit(f"fell short in seeds {short}")


if __name__ == "__main__":
    main()
