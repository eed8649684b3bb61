"""The designated aggregator of a new federation, as the founder or the method wants.

Heavy imports happen inside the functions, since commands import this module for its words.
"""

from typing import TYPE_CHECKING

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, UnknownName
from fedchain.learning.registry import build_method
from fedchain.node.founding.consensus import AGGREGATOR_CHOICES, Consensus

if TYPE_CHECKING:
    from fedchain.chain.genesis import AggregatorRule


def choose_aggregator(config: LearningConfig, consensus: Consensus) -> "AggregatorRule":
    """The rule for a federation that learns ``config``.

    Args:
        config: the learning task.
        consensus: the founder's choices.

    Raises:
        ConfigurationError: the rule or method does not exist, or they contradict each other.
    """
    from fedchain.chain.genesis import AggregatorRule, Contributor

    asked, centralized = consensus.aggregator, consensus.centralized
    if asked not in AGGREGATOR_CHOICES:
        raise UnknownName("aggregator", asked, AGGREGATOR_CHOICES)
    method = build_method(config.method, dict(config.hyperparameters))
    by_aggregator = Contributor.AGGREGATOR.value
    phases = [phase.name for phase in (*method.setup, *method.phases) if phase.by.value == by_aggregator]
    wanted = method.aggregator if phases else AggregatorRule.NONE.value
    rule = AggregatorRule(wanted if asked == "auto" else asked)
    if rule is AggregatorRule.NONE and (phases or centralized):
        needs = f"phase '{phases[0]}' of {config.method}" if phases else "centralized"
        raise ConfigurationError(f"aggregator is none, but {needs} needs one; use fixed, rotating or dedicated")
    if rule is not AggregatorRule.NONE and not phases and not centralized:
        raise ConfigurationError(
            f"aggregator is {rule.value}, but {config.method} has no phase of the aggregator; use none, or centralized"
        )
    return rule


def count_members(config: LearningConfig, rule: "AggregatorRule") -> int:
    """Number of members of a federation: its clients and, if it is dedicated, the aggregator."""
    return config.clients + (rule.value == "dedicated")
