"""``python -m tests.soak aggregator [METHOD …]``: the aggregator is killed in the middle of its phase, and comes back.

The members of `same_knowledge` learn. In the first round the aggregator is killed when its phase opens, in the second
while it trains, and started again at once. The knowledge after each phase is that of a simulation without any kill:
no state of the server was lost, counted twice or made anew.
"""

import sys
from functools import partial

from fedchain.node.operating.local_node import LocalNode
from tests.soak._figures import Figures, campaign
from tests.soak.same_knowledge import compare
from tests.support.node.processes import kill, look
from tests.support.node.shell import wait_until

METHODS = ("fedict", "fedgkt", "feddkc")
TIMEOUT_S = 300.0


def main() -> None:
    """Run the methods that were asked for, or those whose aggregator has a state."""
    for method in sys.argv[1:] or METHODS:
        with campaign(f"aggregator-{method}") as (figures, folder):
            compare(method, folder / "net", figures, kill_in_its_phase)


def kill_in_its_phase(nodes: list[LocalNode], figures: Figures) -> None:
    """Kill the last node, which is the dedicated aggregator, in its phase of two rounds."""
    aggregator = nodes[-1]
    for number, while_training in ((1, False), (2, True)):
        is_time = partial(is_in_its_phase, aggregator, number, while_training=while_training)
        wait_until(is_time, f"its phase of round {number}", TIMEOUT_S)
        kill(aggregator)
        figures.show(f"round {number}: killed {'while it trained' if while_training else 'when its phase had opened'}")
        aggregator.start()


def is_in_its_phase(node: LocalNode, number: int, *, while_training: bool) -> bool:
    """Whether the aggregator's phase of a round is open, as the node says; it must not be missed."""
    now = look(node)
    if not now:
        return False
    assert int(str(now["round"])) <= number, f"its phase of round {number} was over before it was seen"
    is_open = (now["round"], now["phase"]) == (number, "distill")
    return is_open and (bool(now["training"]) or not while_training)


if __name__ == "__main__":
    main()
