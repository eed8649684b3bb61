"""Late posts: how much one counts that is aggregated some rounds after its own.

The weight (1 + age)^-a is FedAsync's: Xie et al., "Asynchronous Federated Optimization", OPT 2020 (arXiv:1903.03934),
section 5. A method decides what a late post adds to its aggregate: a model counts by what it changed, a prototype as it
is.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedchain.files.effects import Needs
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.robust import RobustMethod
from fedchain.learning.method import validate_range

UNSTATED = "it does not say how they count (`beyond_late`)"
"""Why a method that says nothing about late posts does not use them."""


@dataclass(frozen=True, kw_only=True)
class LateMethod(RobustMethod):
    """A method in whose plain mean posts of earlier rounds may count, where the federation lets them."""

    late_weighting: Annotated[Literal["polynomial", "constant"], Needs("late_rounds")] = "polynomial"
    """How much a post counts that comes some rounds late: polynomial, (1 + rounds)^-late_exponent, or constant, as much
    as one in time."""

    late_exponent: Annotated[float, Needs("late_rounds"), Needs("late_weighting", ("polynomial",))] = 0.5
    """polynomial: the exponent, a multiple of 0.5."""

    beyond_late: ClassVar[str] = UNSTATED
    """The reason for which late posts are not used. Empty: `aggregate` counts `Round.late`. A class says that for
    itself alone: one that is made of it may aggregate otherwise, and has to say it anew."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("late_exponent", self.late_exponent, 0.0, 8.0)
        if self.late_exponent % 0.5:  # roots and quotients have the same bits on every machine, powers have not
            raise ConfigurationError(f"late_exponent must be a multiple of 0.5, not {self.late_exponent}")

    @property
    def refuses_late(self) -> str:
        """The class's reason, or that of the rule in place of the mean."""
        if self.robust_rule is not None and not self.beyond_late:
            return "rules other than the mean compare posts that were made from the same knowledge"
        return self.beyond_late

    def late(self, age: int) -> float | None:
        """(1 + age)^-a, or 1."""
        if self.refuses_late:
            return None
        weight, root = 1.0, math.sqrt(1 + age)
        if self.late_weighting == "polynomial":
            for _ in range(round(2 * self.late_exponent)):
                weight /= root
        return weight
