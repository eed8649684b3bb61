"""Methods whose clients train a model of their own, or a common one. B batch, D embedding, n examples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from fedchain.files.effects import Needs
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Method, Phase, validate_range
from fedchain.learning.training.schedule import OptimizerName, RateCurve, Schedule, count_steps, rate_factor

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.models.model_info import ModelInfo
    from fedchain.learning.privacy.dp_sgd import GradientNoise
    from fedchain.learning.privacy.ledger import Budget
    from fedchain.learning.privacy.releases import Release
    from fedchain.learning.round import Round, Tensors

Auxiliary = Callable[["torch.Tensor", "torch.Tensor"], tuple[float, "torch.Tensor"]]
"""auxiliary(embeddings (N, D), labels (N,)) -> weight and value of the term beside cross-entropy."""


UNSTATED = "it does not say that they follow from the model, knowledge and counts alone (`beyond_dp_sgd`)"
"""Why DP-SGD is refused to a method that says nothing about it."""

NO_EPSILON = (
    "noise on prototypes alone has no epsilon: the model that makes them was trained on the same examples; "
    "with gradient_noise it has one"
)
"""Why no epsilon is stated for a method's noise."""

NO_NOISE = "no epsilon is stated or bounded: gradient_noise is 0"
"""Why a delta is of no use."""


@dataclass(frozen=True, kw_only=True)
class LocalSgdMethod(Method):
    """One phase a round, `update`: every client trains and posts. A method overrides what differs."""

    learning_rate: float = 0.1
    """Step size eta of local training; the largest, if it changes from round to round."""

    batch_size: int = 32
    """Examples per minibatch, B."""

    local_steps: Annotated[int, Needs("local_epochs", (0,))] = 20
    """Minibatch steps of a client per round, E."""

    local_epochs: int = 0
    """If positive, a client makes this many passes over its data per round, instead of local_steps."""

    momentum: float = 0.0
    """Momentum of local SGD; its buffer starts empty in every round, with optimizer = momentum in the first alone."""

    weight_decay: float = 0.0
    """L2 penalty of local training; decoupled from the gradient with adamw."""

    optimizer: OptimizerName = "sgd"
    """Optimizer of local training: sgd, or momentum, adam or adamw, whose memory stays with the client."""

    adam_beta1: Annotated[float, Needs("optimizer", ("adam", "adamw"))] = 0.9
    """adam and adamw: decay of the running mean of gradients."""

    adam_beta2: Annotated[float, Needs("optimizer", ("adam", "adamw"))] = 0.999
    """adam and adamw: decay of the running mean of squared gradients."""

    adam_epsilon: Annotated[float, Needs("optimizer", ("adam", "adamw"))] = 1e-8
    """adam and adamw: added to the root of that mean."""

    schedule: RateCurve = "constant"
    """How the learning rate falls, by rounds: constant, cosine or linear (nearly to 0 over schedule_rounds), or step
    (times schedule_decay after each schedule_rounds)."""

    schedule_rounds: int = 0
    """Rounds of the schedule, after those of the warm-up."""

    schedule_decay: Annotated[float, Needs("schedule", ("step",))] = 0.1
    """step: factor of each fall."""

    warmup_rounds: int = 0
    """Rounds in which the learning rate rises to its largest value."""

    shared_init: bool = True
    """Whether all clients start from the same random model; otherwise each draws its own."""

    gradient_noise: float = 0.0
    """DP-SGD: standard deviation of the noise on each step's sum of clipped gradients, in units of gradient_clip;
    0: plain SGD."""

    gradient_clip: Annotated[float, Needs("gradient_noise")] = 1.0
    """DP-SGD: largest L2 norm of one example's gradient, C."""

    batch_sampling: Annotated[Literal["shuffled", "poisson"], Needs("gradient_noise")] = "shuffled"
    """DP-SGD: shuffled (batches of shuffled passes, in an order that everybody can repeat; epsilon has no benefit from
    it) or poisson (each example joins each batch with probability B / n, in private; epsilon is amplified)."""

    epsilon_budget: float = 0.0
    """Most that a member spends over all rounds, as a total epsilon; it posts nothing that would exceed it. It needs
    gradient_noise: without, no epsilon holds. 0: no bound."""

    privacy_delta: Annotated[float, Needs("states_epsilon", why=NO_NOISE)] = 1e-5
    """The delta of every epsilon that is stated or bounded; well below 1 / n."""

    beyond_dp_sgd: ClassVar[str] = UNSTATED
    """The reason for which DP-SGD does not cover all posts and is refused. Empty: it does, as they follow only from the
    model that `train` leaves, from knowledge and from counts, which are public. Steps by `run_steps` have no noise: a
    class that takes them gives a reason. A class says that for itself alone: one that is made of it may post more, and
    has to say it anew."""

    sgd_alone: ClassVar[str] = ""
    """The reason for which it takes no other optimizer than sgd. Empty: it takes any."""

    amendable: ClassVar[frozenset[str]] = frozenset({"learning_rate"})
    """See `Method.amendable`. A class whose `aggregate` reads the step size has none."""

    alone: ClassVar[str] = ""
    """The reason for which clients are trained one by one. Empty: many can be trained as one batch of models, a cohort,
    since all their steps are those of `train`. It needs nothing else of a class: `update` is the same."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Give a class that inherits an empty reason (`beyond_...`) the one of the class that has it first."""
        super().__init_subclass__(**more)
        for name in dir(cls):
            if name.startswith("beyond_") and name not in vars(cls) and not getattr(cls, name):
                setattr(cls, name, next(vars(base)[name] for base in reversed(cls.__mro__) if name in vars(base)))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One."""
        return (Phase("update", trains=True),)

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        validate_range("learning_rate", self.learning_rate, 0.0, 1e3, low_open=True)
        validate_range("batch_size", self.batch_size, 1, 1 << 20)
        validate_range("local_steps", self.local_steps, 1, 1 << 20)
        validate_range("local_epochs", self.local_epochs, 0, 1 << 20)
        validate_range("momentum", self.momentum, 0.0, 1.0, high_open=True)
        validate_range("weight_decay", self.weight_decay, 0.0, 1e3)
        self._validate_optimizer()
        validate_range("gradient_noise", self.gradient_noise, 0.0, 1e6)
        validate_range("gradient_clip", self.gradient_clip, 0.0, 1e12, low_open=True)
        validate_range("epsilon_budget", self.epsilon_budget, 0.0, 1e6)
        validate_range("privacy_delta", self.privacy_delta, 0.0, 1.0, low_open=True, high_open=True)
        if self.gradient_noise > 0 and self.beyond_dp_sgd:
            found = f"DP-SGD does not cover all that {type(self).__name__} posts: {self.beyond_dp_sgd}"
            raise ConfigurationError(f"{found}; use no gradient_noise")
        if self.gradient_noise > 0 and not any(phase.trains for phase in self.phases):
            raise ConfigurationError(f"DP-SGD needs a phase of {type(self).__name__} that trains (`Phase.trains`)")
        if self.epsilon_budget > 0 and not self.adds_noise and self.gradient_noise == 0:
            raise ConfigurationError("epsilon_budget bounds nothing: the method adds no noise as it is set")
        if self.epsilon_budget > 0 and not self.states_epsilon:
            raise ConfigurationError(f"epsilon_budget bounds nothing: {NO_EPSILON}")

    def _validate_optimizer(self) -> None:
        validate_range("adam_beta1", self.adam_beta1, 0.0, 1.0, high_open=True)
        validate_range("adam_beta2", self.adam_beta2, 0.0, 1.0, high_open=True)
        validate_range("adam_epsilon", self.adam_epsilon, 0.0, 1.0, low_open=True)
        validate_range("schedule_rounds", self.schedule_rounds, 0, 1 << 30)
        validate_range("schedule_decay", self.schedule_decay, 0.0, 1.0, low_open=True)
        validate_range("warmup_rounds", self.warmup_rounds, 0, 1 << 30)
        if self.optimizer != "sgd" and self.sgd_alone:
            name = type(self).__name__
            raise ConfigurationError(f"{name} takes no optimizer but sgd, not {self.optimizer}: {self.sgd_alone}")
        if self.optimizer == "momentum" and self.momentum == 0:
            raise ConfigurationError("optimizer momentum needs momentum, which is 0")
        if self.optimizer in ("adam", "adamw") and self.momentum > 0:
            raise ConfigurationError(f"{self.optimizer} has adam_beta1 in place of momentum: set momentum to 0")
        if (self.schedule != "constant") != (self.schedule_rounds > 0):
            raise ConfigurationError(
                f"schedule is {self.schedule} and schedule_rounds {self.schedule_rounds}: "
                "cosine, linear and step need rounds, constant has none"
            )

    def validate_model(self, info: ModelInfo) -> None:
        """Raise `ConfigurationError` for batch normalization under DP-SGD: it mixes the examples of a batch."""
        if self.gradient_noise > 0 and info.normalization:
            name = min(info.normalization)
            raise ConfigurationError(
                f"DP-SGD cannot train batch normalization ({name}), which mixes examples; take a model without it"
            )

    @abstractmethod
    def update(self, client: Client, round: Round) -> Tensors:
        """Train the client's model and return its post; `train` and `run_steps` do the steps."""

    @property
    def trained_alone(self) -> str:
        """The class's reason, or that of DP-SGD or an optimizer."""
        if self.gradient_noise > 0:
            return "DP-SGD draws its noise from each member's secrets"
        return self.alone or ("" if self.optimizer == "sgd" else f"{self.optimizer} has each client's own memory")

    @abstractmethod
    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Return the scalar local loss of one batch: pure, and without control flow that depends on the data.

        It sees the model through `forward` alone: embedding and logits. A term that parameters alone decide goes into
        `train(correct=…)`, as its gradient; DP-SGD takes it there as well.

        `given` is what it reads besides the batch: None, or a tuple of the method's own type that `update` makes.
        """

    def train(self, client: Client, round: Round, **changes: Any) -> None:
        """Take the round's steps, or DP-SGD's, on `loss`; `changes` are those of `training.loop.Training`."""
        schedule = self.schedule_in(round.number)
        if self.gradient_noise == 0:
            from fedchain.learning.training.loop import Training, train

            train(Training(client, self.loss, schedule, round.number, **changes))
            return
        from fedchain.learning.privacy.dp_sgd import train_privately

        train_privately(client, self.loss, schedule, round.number, self._gradient_noise, **changes)

    @property
    def adds_noise(self) -> bool:
        """Whether posts carry noise, and a ledger records their cost."""
        return self.gradient_noise > 0

    @property
    def states_epsilon(self) -> bool:
        """Whether noise covers everything that posts are made of, so that a ledger's total is an epsilon.

        It does under DP-SGD, which covers the model, and with it any noise on the model's outputs for the data.
        """
        return self.gradient_noise > 0

    def round_releases(self) -> Sequence[Release]:
        """The releases of each member in a round, where they are known beforehand and the same for all; none elsewhere.

        That is so of shuffled passes over the data: steps are other parts of a pass for members with other numbers.
        """
        if self.gradient_noise == 0 or self.batch_sampling != "shuffled" or self.local_epochs == 0:
            return ()
        from fedchain.learning.privacy.dp_sgd import planned_release

        one_batch = self.batch_size  # of examples: a pass is a pass of however many
        return (planned_release(self.schedule_in(1), one_batch, self._gradient_noise),)

    def cautions(self, rounds: int | None) -> Sequence[str]:
        """See `Method.cautions`."""
        if self.adds_noise and not self.states_epsilon:
            return (NO_EPSILON,)
        releases = self.round_releases()
        if rounds is None or not releases or self.epsilon_budget <= 0:
            return ()
        from fedchain.learning.privacy.releases import rounds_within

        lasting = rounds_within(releases, self.epsilon_budget, self.privacy_delta, rounds)
        if lasting == rounds and rounds > 0:
            return ()
        of_all = f"{lasting} of {rounds} rounds" if rounds else f"{lasting} rounds"
        return (
            f"the privacy budget of epsilon {self.epsilon_budget:g} lasts for {of_all}: then nobody posts any more, "
            "and the federation stands still; lower rounds, or raise epsilon_budget",
        )

    @property
    def budget(self) -> Budget:
        """The privacy budget of a member."""
        from fedchain.learning.privacy.ledger import Budget

        return Budget(self.epsilon_budget, self.privacy_delta)

    def planned_steps(self, phase: Phase, examples: int, round_number: int) -> int:
        """As the schedule has them, where the phase trains."""
        return count_steps(self.schedule_in(round_number), examples) if phase.trains else 0

    def schedule_in(self, round_number: int) -> Schedule:
        """Return how a client trains in a round."""
        rounds, warmup, decay = self.schedule_rounds, self.warmup_rounds, self.schedule_decay
        factor = rate_factor(self.schedule, round_number, rounds=rounds, warmup=warmup, decay=decay)
        return Schedule(
            learning_rate=self.learning_rate * factor,
            batch_size=self.batch_size,
            steps=self.local_steps,
            epochs=self.local_epochs,
            optimizer=self.optimizer,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            beta1=self.adam_beta1,
            beta2=self.adam_beta2,
            epsilon=self.adam_epsilon,
        )

    @property
    def _gradient_noise(self) -> GradientNoise:
        """How gradients are hidden."""
        from fedchain.learning.privacy.dp_sgd import GradientNoise
        from fedchain.learning.privacy.releases import Sampling

        return GradientNoise(
            multiplier=self.gradient_noise,
            clip=self.gradient_clip,
            sampling=Sampling(self.batch_sampling),
            budget=self.budget,
            phase=next(phase.name for phase in self.phases if phase.trains),
        )
