"""The interface of a learning method: the work and the posts of members, and how posts become knowledge.

A method is one frozen dataclass in one file. It names its phases, states the tensors that each of them posts and leaves
behind (`payload_spec`, `knowledge_spec`), computes a post in a method of the phase's own name, and aggregates posts.
Methods that train a model with SGD start from `LocalSgdMethod` (`families/local_sgd.py`), which knows the rest.
Questions about a shared model, noise or a term to report have neutral answers here, so callers need not ask what kind
of method they hold. K members.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedchain.crypto.threshold.public_key import KEY_BITS
from fedchain.learning.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fedchain.crypto.randomness import RandomBytes
    from fedchain.crypto.signatures import PublicKey
    from fedchain.crypto.threshold import Dealing
    from fedchain.learning.client import Client
    from fedchain.learning.compression.compressor import Compressor
    from fedchain.learning.models.model_info import ModelInfo
    from fedchain.learning.payload.spec import TensorSpec
    from fedchain.learning.privacy.ledger import Budget
    from fedchain.learning.round import ReadPost, Round, Tensors
    from fedchain.learning.training.evaluation import Auxiliary
    from fedchain.learning.training.schedule import Schedule


class Contributor(enum.Enum):
    """The role that posts in a phase."""

    PARTICIPANT = "participant"
    """Every client that takes part in the round."""

    AGGREGATOR = "aggregator"
    """The one peer that is the round's designated aggregator. It may be a client as well, or have no data at all."""


class Lifetime(enum.Enum):
    """How long the chain keeps the knowledge that a phase left behind."""

    UNTIL_REPLACED = "until_replaced"
    """It is the knowledge, until the next phase of this kind leaves another. If that one closes empty, it stays."""

    ROUND = "round"
    """It stands beside the knowledge while the round lasts: commitments, encrypted sums. Nobody trains on it."""

    FEDERATION = "federation"
    """It stays beside the knowledge for ever, as public keys that members posted in the setup."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a round: its contributors each post once, and one aggregate closes it."""

    name: str
    """Name on the chain, unique within the method. The method of this name computes a contributor's post."""

    by: Contributor = Contributor.PARTICIPANT
    """The role that contributes."""

    quorum: int = 0
    """Fewest posts that close the phase, such as the shares that a decryption takes; 0: the federation's choice."""

    lifetime: Lifetime = Lifetime.UNTIL_REPLACED
    """How long what it leaves behind is kept."""

    slow_to_check: bool = False
    """Whether `check` takes long even of a short post, as that of a proof does: nodes do it beside all else."""

    trains: bool = False
    """Whether the client's model is trained: such a phase takes the time of its local steps, and is evaluated."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A learning method. Its fields are its hyper-parameters, and their docstrings the help.

    For each phase there is a method `NAME(client: Client, round: Round) -> Tensors`, which does the contributor's work
    and returns its post. It is looked up on the instance, so a subclass that overrides it changes the phase.
    """

    exchanges: ClassVar[bool] = True
    """Whether clients learn anything from each other."""

    uses_embedding: ClassVar[bool] = True
    """Whether anything but the logits is read; if not, a user's model may return the logits alone."""

    key_bits_allowed: ClassVar[tuple[int, ...]] = KEY_BITS
    """Bits that a key for threshold encryption may have."""

    aggregator: ClassVar[str] = "none"
    """The designated aggregator unless another is asked for, for methods that have a phase of its own: none, fixed (the
    first member), rotating (each in turn) or dedicated (one more, which has no data)."""

    mixes_models: ClassVar[bool] = False
    """Whether clients may have models of different shapes. A post then follows its sender's own (`payload_spec` is
    asked for each model, and `ReadPost.info` says which). Knowledge, and lists of parts, must have one form for
    all. `validate_together` checks what the models must have in common all the same."""

    shares_model: ClassVar[bool] = False
    """Whether the knowledge is a model that `receive` loads, so that it can be evaluated before training."""

    personalizes: ClassVar[bool] = False
    """Whether what `receive` makes of a shared model differs from client to client."""

    implied: ClassVar[frozenset[str]] = frozenset()
    """Names of posted tensors that a packed post leaves out: they follow from it (`complete`)."""

    leaves: ClassVar[str] = ""
    """Reason for which a phase leaves more than a model behind, if it does; told where that is too large."""

    makes_up: ClassVar[bool] = False
    """Whether clients make up for what packed posts leave out by a memory of the method's own (`heard`)."""

    needs_split: ClassVar[bool] = False
    """Whether it works on models alone that are cut behind their first layers."""

    needs_layers: ClassVar[bool] = False
    """Whether layers of models are compared (`Model.layers`)."""

    needs_pooling: ClassVar[bool] = False
    """Whether a model must end with a mean over the pixels, and let something else take that mean's place."""

    amendable: ClassVar[frozenset[str]] = frozenset()
    """Hyper-parameters that members may change while a federation runs: what clients do in a round follows from them,
    but no shape, no phase, and nothing that `aggregate` or `check` computes."""

    def __post_init__(self) -> None:
        self.validate()
        _validate_phases(self)

    def validate(self) -> None:  # noqa: B027 - a method without hyper-parameters has nothing to validate
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""

    def validate_model(self, info: ModelInfo) -> None:  # noqa: B027 - most methods take any model
        """Raise `ConfigurationError` for a model that the method cannot work with under its settings."""

    @classmethod  # noqa: B027 - most methods that mix models at all take any
    def validate_together(cls, infos: Mapping[str, ModelInfo]) -> None:
        """Raise `ConfigurationError` for models, by name, that clients cannot have side by side."""

    @property
    def setup(self) -> tuple[Phase, ...]:
        """Phases that run once, as round 0; they may depend on hyper-parameters."""
        return ()

    @property
    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """Phases of every round, in order; they may depend on hyper-parameters."""

    @abstractmethod
    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State the tensors a contributor posts in the phase."""

    @abstractmethod
    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State the tensors the phase leaves behind."""

    def parts(self, phase: Phase, info: ModelInfo) -> Mapping[str, tuple[TensorSpec, ...]]:
        """State the kinds of parts that posts of the phase list, by names that are given once in the method.

        {} for a phase whose posts are whole. If there are any, tensors that list the parts are added to the payload and
        to the knowledge left behind, beside what the two specs state (`payload/bulk.py`); a contributor writes them
        with `round.bulk`, and `aggregate` returns what `left_behind(round)` does. Only the readers of a part fetch its
        bytes, and it is kept as long as the knowledge that the phase left behind.
        """
        return {}

    parts_bytes_max: ClassVar[int] = 2**30
    """Most bytes of all parts that one post lists, unpacked: their readers have to fetch, keep and hold them."""

    def may_read(self, kind: str, reader: int) -> bool:
        """Whether a part of a kind may be for this reader: the place of a member, or one of `payload/bulk.py`."""
        return True

    @abstractmethod
    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Turn at least one post into the phase's knowledge. Same posts, same bytes, on every machine; none is refused.

        Floats: elementwise float64 in the order of `round.posts`, one rounding to float32 at the end, `math.fsum` where
        many numbers are reduced (never `sum`, which adds floats in another way from Python 3.12 on), no BLAS, no exp or
        pow (`aggregation/` has the usual rules). Integers of any size are exact (`payload/integers.py` reads and writes
        them). Finite elements beyond the bounds of `knowledge_spec` are moved to the nearest within, which makes them
        part of both; NaN and infinity are the method's error. `NothingLeft` leaves the knowledge as it is, which is for
        posts that are of no use while others are missing.
        """

    def late(self, age: int) -> float | None:
        """Return how much a post counts that is aggregated `age` rounds after its own, beside 1 for one in time.

        None: it does not count. Where any does, `aggregate` finds such posts in `round.late`. The same age has the same
        weight on every machine: no exp or pow.
        """
        return None

    @property
    def refuses_late(self) -> str:
        """The reason for which late posts are of no use; empty if they have a weight."""
        return "it gives them no weight (`late`)" if self.late(1) is None else ""

    @property
    def contributors_least(self) -> tuple[int, str]:
        """The fewest members that have to contribute for a round to leave anything, and the setting that says so."""
        return 1, ""

    def cautions(self, rounds: int | None) -> Sequence[str]:
        """Say what a founder may not expect of these settings, a sentence each.

        An example is a privacy budget that ends before the run. `rounds` counts the rounds, in each of which all
        members post (0: without end); None if not all post in each.
        """
        return ()

    def derived(self, members: int) -> Mapping[str, int | float | str | bool]:
        """Return the hyper-parameters that follow from the number of members where nobody states them, or states 0.

        The founder of a federation writes them into its document, so that nobody else derives anything.
        """
        return {}

    def deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing | None:
        """Make the keys of a federation that encrypts, sealed to its members; None if it does not.

        Raises `ConfigurationError` for settings that the members do not allow.
        """
        return None

    def validate_material(self, round: Round) -> None:  # noqa: B027 - most methods have none
        """Raise `ConfigurationError` unless the federation's members and public material fit the method."""

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:  # noqa: B027 - for most, the spec says it all
        """Raise `InvalidPayload` for faults beyond the spec: one tensor contradicting another, a false proof.

        `round` is as for `aggregate`, without posts. A node asks once for each post. `aggregate` must take every post
        that passes here, together with any other posts that passed: a post that only `aggregate` refuses would halt the
        chain.
        """

    def work(self, phase: Phase) -> Callable[[Client, Round], Tensors]:
        """Return what does a contributor's work of a phase and returns its post: by default the method of its name.

        Raises `ConfigurationError` if there is none.
        """
        found: Callable[[Client, Round], Tensors] | None = getattr(self, phase.name, None)
        if not callable(found):
            raise ConfigurationError(f"phase '{phase.name}': {type(self).__name__} has no method of that name")
        return found

    def receive(self, client: Client, round: Round) -> None:  # noqa: B027 - most methods take in nothing
        """Take in the knowledge at the start of a round (`round.knowledge` may be None), before the first phase."""

    def auxiliary(self, client: Client, round: Round) -> Auxiliary | None:
        """Return the term beside cross-entropy as a function of embeddings, so that it can be reported.

        None if there is none, or if more than the embeddings decides it.
        """
        return None

    @property
    def compressor(self) -> Compressor | None:
        """How posts are packed (`post_form.py`); None: they are whole. All else sees them as if they had been."""
        return None

    @property
    def shared_init(self) -> bool:
        """Whether all clients start from the same random model; otherwise each draws its own."""
        return True

    def schedule_in(self, round_number: int) -> Schedule | None:
        """Return how long and with which step clients train in a round; None if they do it in another way, or not."""
        return None

    @property
    def trained_alone(self) -> str:
        """The reason for which clients cannot be trained as one batch of models; empty if they can."""
        return "it does not train with SGD"

    @property
    def adds_noise(self) -> bool:
        """Whether posts carry noise, and a ledger says what they cost."""
        return False

    @property
    def states_epsilon(self) -> bool:
        """Whether noise covers everything that posts are made of, so that what a ledger adds up is an epsilon."""
        return False

    @property
    def privacy_delta(self) -> float:
        """Probability with which a stated epsilon does not hold; 0 without noise."""
        return 0.0

    @property
    def budget(self) -> Budget:
        """The privacy budget of a member; 0 for a method without noise."""
        from fedchain.learning.privacy.ledger import Budget

        return Budget(0.0, self.privacy_delta)

    def planned_steps(self, phase: Phase, examples: int, round_number: int) -> int:
        """Return how many local steps a client with so many training examples takes in the phase of a round.

        In a phase of the aggregator they are the training examples of all clients together.
        """
        return 0

    def expected(self, known: Tensors, stated: Tensors, info: ModelInfo) -> Tensors:
        """Return what a packed post counts the changes of parameters from, with the names and shapes of the knowledge.

        Args:
            known: the knowledge in force.
            stated: tensors that the post holds as they are.
            info: the sender's model.
        """
        return known

    def complete(self, known: Tensors, plain: Tensors, info: ModelInfo) -> Tensors:
        """Return the `implied` tensors of a post whose other tensors have been unpacked."""
        return {}

    def heard(self, client: Client, round: Round, plain: Tensors) -> None:
        """Tell a client what others make of its packed post, if the method `makes_up` for what is left out.

        The client's model is as it was posted from.
        """
        raise NotImplementedError

    def prototypes(self, knowledge: Tensors) -> Tensors | None:
        """Return class prototypes for reports: labels (n,), prototypes (n, D), holders (n,); None without any."""
        return None


def validate_range(
    name: str, value: float, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> None:
    """Raise `ConfigurationError` unless the value lies between the bounds; an open bound is excluded."""
    above = value > low if low_open else value >= low
    below = value < high if high_open else value <= high
    if not (above and below):
        left, right = "(" if low_open else "[", ")" if high_open else "]"
        raise ConfigurationError(f"{name} must lie in {left}{low}, {high}{right}, not {value}")


def _validate_phases(method: Method) -> None:
    """Raise `ConfigurationError` unless each phase has a name of its own and a method of that name."""
    phases = (*method.setup, *method.phases)
    if wrong := [phase for phase in phases if not isinstance(phase, Phase)]:
        raise ConfigurationError(f"phases of {type(method).__name__} must be Phase objects, not {wrong[0]!r}")
    if not method.phases:
        raise ConfigurationError(f"{type(method).__name__} has no phase in a round")
    names = [phase.name for phase in phases]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"phases of {type(method).__name__} are named twice: {', '.join(names)}")
    for phase in phases:
        if hasattr(Method, phase.name):
            raise ConfigurationError(f"phase '{phase.name}' has the name of something else that every method has")
        method.work(phase)
        if phase.lifetime is Lifetime.FEDERATION and phase not in method.setup:
            raise ConfigurationError(f"phase '{phase.name}' runs in every round: what it leaves cannot last for ever")
