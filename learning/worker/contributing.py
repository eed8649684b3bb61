"""A client's work of one phase: it receives the knowledge, trains, encodes its post, and is measured."""

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from fedchain.files.spool import InMemory, Spools, write_pieces
from fedchain.learning.bulk import PartAccess, address_bytes, kinds_of
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import (
    ConfigurationError,
    InvalidPayload,
    LearningError,
    NothingToPost,
    OwnCodeFailed,
    PartMissing,
    TrainingDiverged,
    UnsoundNumbers,
    is_own_code,
    one_line,
    passed_own_code,
    raise_told,
)
from fedchain.learning.knowledge import KnowledgeReader
from fedchain.learning.method import Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import canonical, decode, pieces, validate_arrays
from fedchain.learning.post_form import PostForm
from fedchain.learning.round import Round, Tensors
from fedchain.learning.seeding import derive, numpy_generator
from fedchain.learning.task.adapter import describe_output
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.checkpoint import buffers_aside, note_changed, set_aside
from fedchain.learning.worker.compressing import compress
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.measuring import Measuring
from fedchain.learning.worker.stores import PartsOf

EXAMPLES_TRIED = 8
"""A model's output is looked at for so many examples, if it has them."""

_BACKWARD = ("expect_gradient", "gradients_of", "_engine_run_backward")
"""Functions that ask torch for gradients."""


@dataclass(frozen=True, slots=True)
class Place:
    """The federation that clients contribute to."""

    config: LearningConfig
    """The task. Its `clients` is the number of parts of the data, one for each founder with data at least; how many
    members have data now, a question says."""

    infos: tuple[ModelInfo, ...]
    """Shapes of the models, in the order in which clients take them."""

    members: tuple[bytes, ...]
    """Public keys by place, of all that were members when the process began; empty where nobody asks."""

    chain_id: bytes
    """Its identifier."""

    def architecture_of(self, client: int) -> int:
        """Which of the stated models a client has."""
        return self.config.architecture_of(self.config.part_of(client), len(self.infos))


class Contributing:
    """Does clients' work of a phase.

    Args:
        method: of the task.
        place: where they contribute.
        parts_of: where a client's parts are.
        measuring: measures their models.
        spools: begins posts, states of models that are set aside, and what methods keep while they train.
    """

    def __init__(
        self, method: Method, place: Place, parts_of: PartsOf, measuring: Measuring, spools: Spools = InMemory
    ) -> None:
        config, info = place.config, place.infos[0]
        self._spools = spools
        self._method, self._place, self._parts_of, self._measuring = method, place, parts_of, measuring
        self.phases = {phase.name: phase for phase in (*method.setup, *method.phases)}
        """The phases by name."""
        self.knowledge = KnowledgeReader(method, info, config.clients)
        """Reads what phases leave behind."""
        self._kinds = kinds_of(method, info)
        self.has_parts = bool(self._kinds)
        """Whether posts list parts, which are written while they are made."""
        self._forms = [PostForm(method, other, config.clients) for other in place.infos]

    def contribute(
        self,
        client: Client,
        phase: Phase,
        round_number: int,
        knowledge: bytes,
        *,
        evaluate_test: bool,
        clients_count: int = 0,
    ) -> Contribution:
        """See `Learner.contribute`. The client has been seeded."""
        with _restored_on_error(client, self._spools), _posting_nothing_without_parts(client, phase, round_number):
            round = self.round(client, round_number, knowledge, clients_count)
            bulk = self.bulk(client, phase, round)
            round = replace(round, bulk=bulk)
            received = self.receive(client, phase, round, knowledge, evaluate_test=evaluate_test)
            payload, scalars = self._encode(self._noised(phase, client, round), phase, client, round)
            with self._at_work(client, "auxiliary"):
                local = self._measuring.trained(client, round, evaluate_test=evaluate_test) if phase.trains else None
            epsilon = self._epsilon(client)
        written = () if bulk is None else tuple(bulk.written)
        parts, addressed = tuple(ref.hash for ref in written), address_bytes(payload, written)
        skipped = tuple(sorted(client.skipped.items()))
        return Contribution(payload, client.steps, local, received, scalars, epsilon, parts, addressed, skipped)

    def receive(
        self, client: Client, phase: Phase, round: Round, knowledge: bytes, *, evaluate_test: bool
    ) -> Evaluation | None:
        """Hand the knowledge to the client at the start of a round, and measure the model if it is a shared one."""
        if phase != self._method.phases[0]:
            return None
        with self._at_work(client, "receive"):
            self._method.receive(client, round)
        with self._at_work(client, "auxiliary"):
            return self._measuring.received(client, round, knowledge, evaluate_test=evaluate_test)

    def seed(self, client: Client, phase: Phase, round_number: int) -> None:
        """Seed the generators of the client's work in a phase, and begin its steps and skipped members anew."""
        labels = ("client", client.index, "phase", phase.name, "round", round_number)
        # torch.manual_seed would also note who called it, for graphics cards: a millisecond that small models notice
        torch.default_generator.manual_seed(derive(self._place.config.seed, *labels, "dropout"))
        client.generator.manual_seed(derive(self._place.config.seed, *labels, "batches"))
        client.steps, client.skipped = 0, {}

    def round(self, client: Client, number: int, knowledge: bytes, clients_count: int = 0) -> Round:
        """Say what a client is given in a round. Raises `InvalidPayload` for damaged knowledge.

        Args:
            client: one of ours.
            number: of the round.
            knowledge: bytes that the last phase left behind.
            clients_count: number of members with data now; 0: as many as at the founding.
        """
        me = self._place.members[client.index] if self._place.members else None
        round = Round(
            number,
            None,
            clients=clients_count or self._place.config.clients,
            members=self._place.members,
            me=me,
            material=dict(self._place.config.material),
            chain_id=self._place.chain_id,
            info=self._place.infos[0],
            spools=self._spools,
        )
        return self.knowledge.fill(round, knowledge)

    def bulk(self, client: Client, phase: Phase, round: Round) -> PartAccess | None:
        """Give access to parts, where the method has any."""
        if not self._kinds:
            return None
        main = {} if round.knowledge is None else {round.knowledge_phase: round.knowledge}
        return PartAccess(self._parts_of(client.index), self._kinds, phase.name, main | dict(round.beside))

    @contextmanager
    def _at_work(self, client: Client, what: str) -> Iterator[None]:
        """Let the method work on a client, which keeps its model object. Raises `OwnCodeFailed` where a user's own put
        another one in its place, or would end the process, which trains others as well.

        Args:
            client: one of ours.
            what: the name of the method's function.
        """
        model = client.model
        try:
            yield
        except SystemExit as error:
            raise OwnCodeFailed(f"peer {client.index}: {one_line(error)}") from error
        finally:
            is_kept, client.model = client.model is model, model
        if not is_kept:
            whose = f"peer {client.index}: {type(self._method).__name__}.{what}"
            raise OwnCodeFailed(f"{whose} must change the numbers of client.model, and not put another in its place")

    def _work(self, phase: Phase, client: Client, round: Round) -> Tensors:
        """Have the method do the client's work. Raises `ConfigurationError` where batch normalization gets one value of
        a channel, as of a batch of one example, and `OwnCodeFailed` for faults of a user's own model or method that
        show in no line of it: there is no gradient, as it ran without one or changed in place what one is computed
        from, a model's output is another one than when it was tried, or a method is called as it cannot be.
        """
        try:
            return self._method.work(phase)(client, round)
        except UnsoundNumbers as error:  # of a part
            raise TrainingDiverged(client.index, round.number, client.steps, math.nan, str(error)) from None
        except LearningError:
            raise
        except Exception as error:
            if _raised_in(error) == "_verify_batch_size":
                raise ConfigurationError(
                    f"peer {client.index}, of {len(client.train_labels)} training examples: batch normalization takes "
                    f"more than one value of each channel from a batch; raise batch_size, or its examples ({error})"
                ) from None
            who, own = f"peer {client.index}", [is_own_code(type(part)) for part in (client.model, self._method)]
            if own[1] and (fault := self._fault_of_loss(client)):
                raise OwnCodeFailed(f"{who}: {fault}") from error
            if any(own) and type(error) is RuntimeError and _raised_in(error) in _BACKWARD:
                what = "model" if own[0] else "loss"
                raise OwnCodeFailed(f"{who}: its {what} has no gradient: {one_line(error)}") from error
            if own[0] and (fault := self._fault_of_output(client)):
                raise OwnCodeFailed(f"{who}: {fault}") from error
            has_line = passed_own_code(error)  # which says what is wrong
            if own[0] and not has_line and type(error) is RuntimeError and self._method.adds_noise:
                what = "its model gives no gradients of single examples, which DP-SGD takes"
                raise OwnCodeFailed(f"{who}: {what}: {one_line(error)}") from error
            if own[1] and not has_line and not isinstance(error, OSError | MemoryError):
                raise_told(error, who, type(self._method))
            raise

    def _noised(self, phase: Phase, client: Client, round: Round) -> Tensors:
        """Have the work done. Raises `OwnCodeFailed` where a user's own method says that DP-SGD covers its posts, and
        trained without it.
        """
        with self._at_work(client, phase.name):
            posted = self._work(phase, client, round)
        claims = phase.trains and client.steps > 0 and self._method.states_epsilon and is_own_code(type(self._method))
        if claims and all(entry.round != round.number for entry in client.ledger.entries()):
            raise OwnCodeFailed(
                f"peer {client.index}: {type(self._method).__name__} says that DP-SGD covers what it posts "
                f"(`beyond_dp_sgd`), but phase {phase.name} trained without noise: only self.train adds any"
            )
        return posted

    def _fault_of_output(self, client: Client) -> str:
        """Say what is wrong with the output of a client's model in training; "" where nothing is."""
        info = self._place.infos[self._place.architecture_of(client.index)]
        images = client.train_images[:EXAMPLES_TRIED]  # (B, ...)
        wanted = [(len(images), info.embedding_size), (len(images), info.classes)]
        try:
            with torch.no_grad():
                output: Any = client.model.train()(images)
        except Exception:  # it is told as what it is
            return ""
        if type(output) is tuple and [getattr(part, "shape", None) for part in output] == wanted:
            return ""
        return f"in training its model must return embedding and logits, {wanted}, not {describe_output(output)}"

    def _fault_of_loss(self, client: Client) -> str:
        """Say what is wrong with the loss of a method, if it needs nothing but the batch; "" where nothing is."""
        images, labels = client.train_images[:EXAMPLES_TRIED], client.train_labels[:EXAMPLES_TRIED]
        try:
            loss: Any = cast(Any, self._method).loss(client.model.train(), images, labels, None)
        except Exception:  # it is told as what it is
            return ""
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and not loss.is_complex():
            return ""
        return f"its loss must be a tensor of one real number, not {describe_output(loss)}"

    def _encode(self, posted: Tensors, phase: Phase, client: Client, round: Round) -> tuple[bytes, int]:
        """Encode a post, and count its floating-point numbers.

        They show the last step's damage, which no later loss shows: peers would refuse it. Raises OwnCodeFailed for a
        post of other tensors than its method states.
        """
        what = f"peer {client.index}'s post of phase {phase.name}"
        validate_arrays(what, posted)
        payload = write_pieces(pieces(canonical(posted)), self._spools)
        form = self._forms[self._place.architecture_of(client.index)]
        try:
            tensors = decode(payload, form.specs[phase.name])
        except UnsoundNumbers as error:
            raise TrainingDiverged(client.index, round.number, client.steps, math.nan, str(error)) from None
        except InvalidPayload as error:
            stated = sorted(spec.name for spec in form.specs[phase.name])
            if stated != sorted(posted):
                raise OwnCodeFailed(f"{what} has {sorted(posted)}, but {stated} is stated") from None
            raise OwnCodeFailed(f"{what} is not what is stated: {error}") from None
        del posted  # which may be as large as the model, and lies in the payload now
        packing, scalars = form.packing(phase.name, round.knowledge), _count_scalars(tensors)
        if packing is None or round.knowledge is None:
            return payload, scalars
        generator = self.rounding(client, phase, round.number)
        with self._at_work(client, "heard"):
            return compress(client, phase.name, packing, tensors, round, generator, self._spools), scalars

    def rounding(self, client: Client, phase: Phase, round_number: int) -> np.random.Generator:
        """Return the randomness of a packed post, which others can repeat: it hides nothing."""
        labels = ("client", client.index, "phase", phase.name, "round", round_number)
        return numpy_generator(self._place.config.seed, *labels, "compression")

    def _epsilon(self, client: Client) -> float | None:
        """Add up the epsilon that the client has spent; None if the method states none."""
        if not self._method.states_epsilon:
            return None
        return client.ledger.epsilon(self._method.privacy_delta)


@contextmanager
def _restored_on_error(client: Client, spools: Spools) -> Iterator[None]:
    """Put the client back to its state if the work on it fails.

    Raises `OwnCodeFailed` where a user's own code would end the process, which trains others as well.
    """
    put_back = set_aside(client, spools)
    before = {name: value.clone() for name, value in buffers_aside(client).items()}
    try:
        yield
    except BaseException as error:
        put_back()
        if isinstance(error, SystemExit):
            raise OwnCodeFailed(f"peer {client.index}: {one_line(error)}") from error
        raise
    note_changed(client, before)


@contextmanager
def _posting_nothing_without_parts(client: Client, phase: Phase, round_number: int) -> Iterator[None]:
    """Raise `NothingToPost` where a method lets it end its work that bytes are missing which others posted."""
    try:
        yield
    except PartMissing as error:
        where = f"peer {client.index}, round {round_number}"
        raise NothingToPost(f"{where}: phase {phase.name} cannot do without what is missing: {error}") from None


def _count_scalars(posted: Tensors) -> int:
    """Count the floating-point numbers of a post."""
    return sum(tensor.size for tensor in posted.values() if tensor.dtype.kind == "f")


def _raised_in(error: Exception) -> str:
    """The function that raised an error."""
    return traceback.extract_tb(error.__traceback__)[-1].name
