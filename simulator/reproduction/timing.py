"""Time of training and aggregation on this machine: DFPL's Fig. 11 (arXiv:2505.04947, section V-H).

Processor seconds of one thread, without chain and network. They differ from machine to machine and from run to run.
"""

import statistics
import time
from typing import Any

from fedchain.learning.application import Application
from fedchain.learning.bulk import kinds_of
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.round import OffChain
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.reproduction.run_workers import OnRound
from fedchain.simulator.scenario import Scenario


def run_timing(scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """Play rounds of one client after the other; rows as those of ``parallel.run_one``.

    A training time covers the whole contribution: the steps, the method's preparation for them, the post and the
    client's measurements, which are the same for all methods. The first round is a warm-up, as contrasts have no past
    in it.
    """
    config = scenario.learning_config()
    learner, rules = Learner(config), Application(config)
    require_whole_posts(learner, "timing")
    (phase, _, _), *_ = rules.phases
    knowledge, rows = b"", []
    for number in range(1, scenario.rounds + 1):
        posts, seconds = [], []
        for client in range(scenario.peers):
            began_s = time.process_time()
            made = learner.contribute(client, phase, number, knowledge)
            seconds.append(time.process_time() - began_s)
            posts.append((client.to_bytes(4, "big"), made.payload))
        began_s = time.process_time()
        knowledge = rules.aggregate(OffChain(phase, number), knowledge, posts)
        aggregation_s = time.process_time() - began_s
        if number > 1:
            row = {"training_cpu_s": statistics.mean(seconds), "aggregation_cpu_s": aggregation_s}
            rows.append({"round": number, "taa": None, **row})
        on_round(number)
    return {"scenario": scenario.to_dict(), "rows": rows}


def require_whole_posts(learner: Learner, measure: str) -> None:
    """Raise `ConfigurationError` where posts list parts: who reads them is said on a chain, which a measure has not."""
    if kinds_of(learner.method, learner.info):
        raise ConfigurationError(
            f"{measure} is measured without a chain, and {learner.config.method}'s posts list parts for members of one"
        )
