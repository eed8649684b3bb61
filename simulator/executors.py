"""The executor that has a run's clients train: one of ours, by its name, or one of the user's own."""

from dataclasses import replace
from functools import partial

from fedchain.learning.config import OWN
from fedchain.learning.device import DEVICE, find_device
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.executor import Backend
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.simulator.choices import PROCESSES, Training
from fedchain.simulator.scenario import Scenario


def open_backend(training: Training, plan: LearnerPlan, scenario: Scenario, source: DataSource) -> Backend:
    """Start the backend of a run. Raises ConfigurationError where Ray is missing, or its cluster.

    Args:
        training: names it.
        plan: of its learners.
        scenario: validated.
        source: where examples come from, which a learner of the plan has loaded.
    """
    executor, stop = training.executor, training.stop
    if callable(executor):
        return executor(plan)
    from fedchain.learning.executors.processes import CLIENTS_SIZE_MAX, ProcessExecutor

    size_max, members = CLIENTS_SIZE_MAX if scenario.idle_sleep else None, len(plan.members)
    together = (scenario.contributors_per_round or plan.config.clients) if scenario.vectorize_clients else 0
    if executor == PROCESSES:
        count = min(scenario.workers, members)
        return ProcessExecutor(plan, count, size_max, together=together, source=source, stop=stop)
    if plan.config.dataset == OWN and not plan.config.task:
        raise ConfigurationError("task is a function that no name leads to, and Ray's workers find it by its name")
    from fedchain.learning.executors.on_ray import RayWorkers
    from fedchain.learning.executors.remote import RemoteExecutor
    from fedchain.learning.executors.remote_training import RemoteTraining, own_modules

    device = find_device(scenario.device).type  # auto is what it is here, lest workers round in different ways
    train = partial(RemoteTraining, replace(plan, device=device).encode(), size_max, own_modules(plan))
    workers = RayWorkers(train, members, executor.partition(":")[2], cards=device != DEVICE)
    return RemoteExecutor(plan, workers, together=together, source=source, stop=stop)
