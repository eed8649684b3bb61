"""Whether all that a founder states has an effect."""

from fedchain.files import effects
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import build_method
from fedchain.node.founding.consensus import Consensus


def validate_effects(config: LearningConfig, consensus: Consensus) -> None:
    """Raise `ConfigurationError` for the first setting that would do nothing, which says why.

    To be asked where a federation is founded. Documents that were founded with such a setting are read all the same.
    """
    method = build_method(config.method, dict(config.hyperparameters))
    for record, beside in ((config, ()), (method, (config, consensus)), (consensus, ())):
        effects.validate_effects(record, beside, ConfigurationError)
