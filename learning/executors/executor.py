"""The door to training: questions, answers, and executors, which compute an answer to each question.

A client's answer depends on what it was asked before, so its questions are asked in order. The answer to one client's
question depends on no other client, nor on the process or the machine that computes it. Only floating-point rounding
may differ: in a batch, or on other hardware. So the first answer to a question is the answer;
:class:`fedchain.learning.executors.remembering.Remembering` keeps it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from fedchain.crypto.hashing import Hash, sha256
from fedchain.learning.amended import Amended
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.executors.outcomes import Counts
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution

Result = TypeVar("Result", covariant=True)

Answer = Contribution | NothingToPost
"""Answer to a question: a contribution, or the reason why the client has nothing to post in the phase."""


@dataclass(frozen=True, slots=True)
class InFile:
    """A contribution whose large payload lies in a file: a keeper of answers moves the file, and reads nothing."""

    made: Contribution
    """The contribution without its payload."""
    hash: Hash
    """SHA-256 of the payload."""
    path: Path
    """The file, which is for one keeper alone."""


@dataclass(frozen=True, slots=True)
class QuestionId:
    """The identity of a question."""

    client: int
    """Place among the members."""
    phase: str
    """Name of the phase."""
    round: int
    """Its round."""
    knowledge: Hash
    """SHA-256 of what the client is given."""
    evaluate_test: bool
    """Whether its model is measured on the whole test set, too."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request to a client for a contribution."""

    client: int
    """Place among the members."""
    phase: str
    """Name of the phase."""
    round: int
    """Its round, from 1; phases of the setup have round 0."""
    knowledge: bytes = field(repr=False)
    """The bytes that the last phase left behind; empty before the first."""
    evaluate_test: bool = False
    """Whether its model is measured on the whole test set, too."""
    clients: int = 0
    """Number of members with data when the phase is open; 0: as many as at the founding. On one chain, the round and
    the phase determine it."""
    amended: Amended = ()
    """Hyper-parameters that the members have changed since the founding. The same determines them."""
    key: bytes = b""
    """Public key of the member where it is another one than the plan's; empty: that one. The same determines it."""

    @property
    def id(self) -> QuestionId:
        """The question with the hash of the knowledge in its place."""
        return QuestionId(self.client, self.phase, self.round, _hash(self.knowledge), self.evaluate_test)


@lru_cache(maxsize=1)
def _hash(knowledge: bytes) -> Hash:
    """SHA-256 of a knowledge, computed once for all clients that are given it in turn."""
    return sha256(knowledge)


class Job(Protocol[Result]):
    """Work under way."""

    def result(self) -> Result:
        """Wait for the result, the same each time; raises what the work raised."""

    def add_done_callback(self, call: Callable[["Job[Result]"], object]) -> None:
        """Call ``call`` with this job as soon as its result is there and somebody waits for a job of the executor; at
        once if it is there already.

        The thread that waits calls it, before its wait ends, and gets its error. No other thread does: callers have no
        locks.
        """


class Asked(Job[Answer | InFile], Protocol):
    """A question that is being answered."""

    @property
    def together(self) -> Sequence[Question]:
        """Once the answer is there: the questions whose answers show in each other's rounding, this one among them."""


class Clients(Protocol):
    """A task's clients, wherever they are. Each client does its work in the order of the requests."""

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        """Local steps that a contribution takes, known before it is made, with the hyper-parameters that the members
        have changed; 0 in a phase that does not train."""

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        """As :meth:`fedchain.learning.worker.learner.Learner.evaluate_received`, with the hyper-parameters that the
        members have changed."""

    def save_model(self, client: int, path: Path) -> Job[None]:
        """Write a client's model: see :meth:`fedchain.learning.worker.learner.Learner.save_model`."""

    def close(self) -> None:
        """Stop at once, and end all processes; jobs under way are lost."""


class Executor(Clients, Protocol):
    """Answers what clients are asked."""

    def ask(self, question: Question) -> Job[Answer]:
        """Have a client contribute to a phase. Asked again, it gives the same answer.

        The job raises what :meth:`Backend.compute` raises.
        """

    def foresee(self, question: Question) -> None:
        """See :class:`Foreseeing`; where the backend is none, nothing happens."""


@runtime_checkable
class Foreseeing(Protocol):
    """A backend whose workers compute ahead what they may be asked, while nobody waits for anything else."""

    forecasts: Counts
    """Forecasts by their outcome."""

    def foresee(self, question: Question) -> None:
        """This may be the next that its client is asked. There is no answer, and nothing has to come of it: the client
        is as it was until it is asked, and answers as if nothing had been foreseen.
        """


class Backend(Clients, Protocol):
    """Computes what clients are asked, anew each time, and leaves their states in files on request.

    It is built from a :class:`fedchain.learning.worker.plan.LearnerPlan`, and asks learners that
    :func:`fedchain.learning.worker.building.build_learner` makes of it. "Add an executor" in CONTRIBUTING.md names its
    parts.
    """

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        """Have a client contribute to a phase: see :meth:`fedchain.learning.worker.learner.Learner.contribute`.

        A client that has nothing to post answers so: the result is the NothingToPost. The job raises InvalidPayload for
        damaged knowledge, and OwnCodeFailed where a user's own code has a fault. These are no answers: the client is as
        it was before, and can be asked again.

        Args:
            question: what the client is asked.
            state: a file where the client is written down before its answer is given, even if that is a refusal; None:
                it is not.
        """

    def restore(self, client: int, path: Path) -> Job[None]:
        """Put a client that has done nothing yet back to the state that was written to a file."""

    def flush(self) -> None:
        """Begin with whatever is held back to be computed together, as happens when somebody waits for a job."""


class Interrupted(Exception):
    """Another thread has told those that wait for training to stop."""
