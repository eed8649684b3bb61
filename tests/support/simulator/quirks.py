"""Scenarios with something odd in each."""

from fedchain.simulator.disturbances import Fault, Traitors

QUIRKS: dict[str, dict[str, object]] = {
    "quiet": {"delay_min_ms": 0, "delay_max_ms": 3},
    "losses": {"loss": 0.1, "replay": 0.2, "delay_max_ms": 12, "bandwidth_mbit_s": 1.0},
    "faults": {
        "faults": (
            Fault(at_s=6.0, kind="kill", peers=(1,)),
            Fault(at_s=7.0, kind="restart", peers=(1, 2)),
            Fault(at_s=8.0, kind="partition", peers=(3,)),
        )
    },
    "liars": {
        "adversaries": (
            Traitors(behaviour="post-equivocator", peers=(0,)),
            Traitors(behaviour="replay-flooder", peers=(1,)),
        )
    },
}
