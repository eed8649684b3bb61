"""Forgetting in a round of local training: FedReg's Fig. 2 (Xu et al., ICLR 2022, appendices B.1 and B.3).

Clients C(t) are drawn in round t and start from theta(t-1); client j ends at theta(t, j). Forgetting is the increase
of the loss on the data of the clients of round t - 1 under the models of round t:

    mean over i in C(t-1) of [ mean over j in C(t) of L(theta(t, j); D_i) - L(theta(t-1); D_i) ]

Both methods are measured on FedReg's path: in every round FedAvg, too, starts from FedReg's model. There is no chain
and no network here, as they would change none of these numbers.
"""

import statistics
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedchain.learning.application import Application
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import OffChain, Round
from fedchain.learning.seeding import derive
from fedchain.learning.training.evaluation import evaluate
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.reproduction.experiment import FORGETTING_METRICS
from fedchain.simulator.reproduction.run_workers import OnRound
from fedchain.simulator.reproduction.timing import require_whole_posts
from fedchain.simulator.scenario import Scenario


def run_forgetting(scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """Train round by round and measure; rows as those of :func:`fedchain.simulator.reproduction.parallel.run_one`."""
    config = scenario.learning_config()
    rules, learner = Application(config), Learner(config)
    require_whole_posts(learner, "forgetting")
    plain = {item.name for item in fields(FedAvg)} & set(scenario.hyperparameters)
    settings = {name: scenario.hyperparameters[name] for name in plain}
    fedavg = Learner(replace(config, method="fedavg", hyperparameters=settings))
    fedavg_rules = Application(replace(config, method="fedavg", hyperparameters=settings))
    rows: list[dict[str, Any]] = []
    knowledge, earlier = b"", list[int]()
    for number in range(1, scenario.rounds + 1):
        drawn = draw_clients(scenario, number)
        posts = _train(learner, drawn, number, knowledge)
        row: dict[str, Any] = {"round": number, "taa": None, **dict.fromkeys(FORGETTING_METRICS)}
        if earlier:
            before = statistics.mean(_loss(learner, rules, client, knowledge) for client in earlier)
            others = _train(fedavg, drawn, number, knowledge)
            row["loss_before"] = before
            row["forgetting"] = _loss_after(learner, rules, earlier, posts, knowledge) - before
            row["forgetting_fedavg"] = _loss_after(fedavg, fedavg_rules, earlier, others, knowledge) - before
        rows.append(row)
        ordered = [(client.to_bytes(4, "big"), posts[client]) for client in sorted(posts)]
        knowledge, earlier = rules.aggregate(OffChain("update", number), knowledge, ordered), drawn
        on_round(number)
    return {"scenario": scenario.to_dict(), "rows": rows}


def draw_clients(scenario: Scenario, number: int) -> list[int]:
    """The clients of a round, C(t), ascending."""
    rng = np.random.default_rng(derive(scenario.seed, "forgetting", number))
    drawn = rng.choice(scenario.peers, scenario.contributors_per_round or scenario.peers, replace=False)
    return sorted(int(client) for client in drawn)


def _train(learner: Learner, clients: list[int], number: int, knowledge: bytes) -> dict[int, bytes]:
    """The clients' payloads by client."""
    return {client: learner.contribute(client, "update", number, knowledge).payload for client in clients}


def _loss_after(
    learner: Learner, rules: Application, earlier: list[int], posts: Mapping[int, bytes], knowledge: bytes
) -> float:
    """Mean over i and j of L(theta(t, j); D_i). The aggregate of a single post is the posted model."""
    models = [rules.aggregate(OffChain("update", 1), knowledge, [(b"", post)]) for post in posts.values()]
    return statistics.mean(_loss(learner, rules, client, model) for model in models for client in earlier)


def _loss(learner: Learner, rules: Application, index: int, knowledge: bytes) -> float:
    """The loss of a shared model on a client's training data, in nats."""
    with learner.lend(index, 1) as client:
        learner.method.receive(client, Round(2, rules.read_knowledge(knowledge)))
        return evaluate(client.model, client.train_images, client.train_labels)[1]
