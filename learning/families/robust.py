"""The hyper-parameters with which a method lets its user choose how posts become one; see `aggregation/robust.py`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedchain.files.effects import Needs
from fedchain.learning.aggregation.robust import RobustRule
from fedchain.learning.config import CLIENTS_MAX
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.method import validate_range

UNSTATED = "it does not say that its aggregate is made by them (`beyond_rules`)"
"""Why rules other than the mean are refused to a method that says nothing about them."""


@dataclass(frozen=True, kw_only=True)
class RobustMethod(LocalSgdMethod):
    """A method whose mean over clients may be another rule. Every rule but the plain mean weights clients alike."""

    aggregation_rule: Literal[
        "mean", "median", "trimmed_mean", "clipping", "krum", "multi_krum", "geometric_median"
    ] = "mean"
    """How posts become one: mean, or what a minority of liars cannot move far: median, trimmed_mean, clipping,
    krum, multi_krum, geometric_median."""

    byzantine: Annotated[int, Needs("counts_liars", why="no rule that is set reckons with it")] = 0
    """Number of posts that may be lies (of a class's posts, where prototypes are posted); trimmed_mean, krum,
    multi_krum and neighbour_mixing reckon with it."""

    neighbour_mixing: bool = False
    """Whether each post is first replaced by the mean of those nearest to it (NNM), for data that differ much."""

    clipping_norm: Annotated[float, Needs("aggregation_rule", ("clipping",))] = 0.0
    """clipping: largest L2 norm of a post's distance to what was known before; 0: the median of the posts'."""

    beyond_rules: ClassVar[str] = UNSTATED
    """The reason for which rules other than the mean are refused. Empty: `aggregate` combines posts by `robust_rule`. A
    class says that for itself alone."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("byzantine", self.byzantine, 0, CLIENTS_MAX)
        validate_range("clipping_norm", self.clipping_norm, 0.0, 1e12)
        if self.byzantine == 0 and self.counts_liars:
            what = "neighbour_mixing" if self.neighbour_mixing else f"aggregation_rule {self.aggregation_rule}"
            raise ConfigurationError(f"{what} needs byzantine, the number of posts that may be lies; it is 0")
        if self.robust_rule is not None and self.beyond_rules:
            raise ConfigurationError(f"{type(self).__name__} takes no robust rules: {self.beyond_rules}")

    @property
    def counts_liars(self) -> bool:
        """Whether a rule reckons with `byzantine`."""
        return self.aggregation_rule in _COUNTING or self.neighbour_mixing

    @property
    def robust_rule(self) -> RobustRule | None:
        """The rule; None is the plain mean, with whatever weights the method has."""
        if self.aggregation_rule == "mean" and not self.neighbour_mixing:
            return None
        return RobustRule(
            name=self.aggregation_rule,
            byzantine=self.byzantine,
            neighbour_mixing=self.neighbour_mixing,
            clipping_norm=self.clipping_norm,
        )


_COUNTING = ("trimmed_mean", "krum", "multi_krum")
