"""The private side of a learning task: clients with their models and data, as a worker process holds them.

A client's contribution depends on the configuration, the client's own past and the knowledge given, and on
nothing else: not on the process, nor on which other clients it serves, nor on their order.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.learning.bulk import NO_BYTES, AddressedBytes, PartAccess, address_bytes, kinds_of, payload_specs
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.load import forget_datasets
from fedchain.learning.exceptions import ConfigurationError, TrainingDiverged, UnsoundNumbers
from fedchain.learning.knowledge import KnowledgeReader
from fedchain.learning.method import Contributor, Method, Phase
from fedchain.learning.models.base import Model
from fedchain.learning.models.frozen import FrozenHead
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.registry import describe
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.codec import decode, encode, validate_arrays
from fedchain.learning.payload.part_folder import PartMemory, PartStore
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.registry import build_method
from fedchain.learning.round import NO_CHAIN, Round, Tensors
from fedchain.learning.seeding import derive
from fedchain.learning.sums.secrets import Secrets, no_secrets
from fedchain.learning.task.choice import TaskFunction
from fedchain.learning.task.custom import open_data_source
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.training.evaluation import Evaluation, evaluate_local
from fedchain.learning.training.linear import is_linear
from fedchain.learning.worker.checkpoint import ClientState, copy_state, load_state, restore_state, save_state
from fedchain.learning.worker.clients import Clients
from fedchain.learning.worker.model_file import ModelState, load_model, state_of, write_model


@dataclass(frozen=True, slots=True)
class Contribution:
    """A client's contribution to one phase."""

    payload: bytes
    """The encoded post."""

    steps: int
    """SGD steps taken."""

    local: Evaluation | None
    """The client's model after the phase; None for a phase that does not train it."""

    received: Evaluation | None
    """The shared model as received, before training; None if the method shares none, or none exists yet."""

    scalars: int = 0
    """Floating-point numbers in the post, which papers count as communicated parameters. Labels and counts are none."""

    epsilon: float | None = None
    """Privacy that all posts of the client have cost so far, this one included, at the method's `privacy_delta`; None
    if noise does not cover everything that posts are made of, or there is none."""

    parts: tuple[bytes, ...] = ()
    """Hashes of the parts that the post lists; their bytes are in the learner's store of parts."""

    addressed: AddressedBytes = NO_BYTES
    """Bytes of payload and parts, by the members that have to fetch them."""

    skipped: tuple[tuple[int, str], ...] = ()
    """Places of the members whose contributions were of no use to it, ascending, each with the reason."""

    @property
    def trained(self) -> Evaluation:
        """The client's model after a phase that is known to train it."""
        assert self.local is not None, "the phase trains no model"
        return self.local


SecretsOf = Callable[[int], Secrets]
"""secrets_of(client) -> the secrets that only this member knows."""

LedgerOf = Callable[[int], PrivacyLedger]
"""ledger_of(client) -> the record of noised values that this member has released."""


PartsOf = Callable[[int], PartStore]
"""parts_of(client) -> the bytes of parts that this member has written, or fetched."""


class Learner:
    """Serves any of the task's clients; data and clients are built when first needed.

    Args:
        config: the task; it is validated here.
        task: where the clients' data are their own, the function that returns (model, train set, test set); without
            it, the one that the configuration names.
        test_local: whether models that nobody shares may be measured on the whole test set, too, which would cost more
            than their training.
        members: public keys in the order of the partition, for methods that ask who is who; one more than clients
            where there is a dedicated aggregator.
        chain_id: identifier of the federation, to which proofs are bound; `join` can state it later.
        secrets_of: where a client's secrets are; without it there are none.
        ledger_of: where a client's privacy ledger is; without it, in this process's memory.
        parts_of: where a client's parts are, which posts list by reference; without it, in this process's memory.
    """

    def __init__(
        self,
        config: LearningConfig,
        task: TaskFunction | None = None,
        *,
        test_local: bool = True,
        members: Sequence[bytes] = (),
        chain_id: bytes = NO_CHAIN,
        secrets_of: SecretsOf | None = None,
        ledger_of: LedgerOf | None = None,
        parts_of: PartsOf | None = None,
    ) -> None:
        config.validate()
        self._test_local = test_local
        self._config = config
        self._method = build_method(config.method, dict(config.hyperparameters))
        self._infos = infos_of(config)
        for info in self._infos:
            self._method.validate_model(info)
        self._info = self._infos[0]
        self._phases = {phase.name: phase for phase in (*self._method.setup, *self._method.phases)}
        self._knowledge = KnowledgeReader(self._method, self._info, config.clients)
        self._kinds = kinds_of(self._method, self._info)
        self._payload_specs = [payload_specs(self._method, info, config.clients) for info in self._infos]
        memory = PartMemory()
        self._parts_of = parts_of or (lambda index: memory)
        self._members, self._chain_id, self._secrets_of = tuple(members), chain_id, secrets_of
        self._ledger_of = ledger_of or lru_cache(maxsize=None)(lambda index: PrivacyLedger(index, Memory()))
        # a caller that gives no members may ask for the aggregator's work as well, where the method has any
        aggregates = any(phase.by is Contributor.AGGREGATOR for phase in self._phases.values())
        self._members_count = config.clients + (len(self._members) > config.clients if self._members else aggregates)
        self._open_source: Callable[[], DataSource] = partial(open_data_source, config, task)
        self._source = self._open_source()
        self._clients = Clients(self._build_client)
        self._test_set: tuple[torch.Tensor, torch.Tensor] | None = None
        self._test_result: tuple[bytes, Evaluation | None] | None = None

    def client(self, index: int) -> Client:
        """A client as it is now; what is done to it is done to its next contribution."""
        return self._clients.get(index)

    def limit_clients(self, clients_max: int, folder: Path) -> None:
        """Hold at most so many clients in memory from now on; the others wait in the folder, which the caller removes.

        A client that comes back is unchanged, byte for byte, so a limit changes no result.
        """
        self._clients.limit(clients_max, folder)

    def keep_parts(self, parts_of: PartsOf) -> None:
        """Keep parts there from now on."""
        self._parts_of = parts_of

    def join(self, chain_id: bytes) -> None:
        """Learn in the federation that is known by this id from now on."""
        self._chain_id = chain_id

    def replace_source(self, replacement: Callable[[DataSource], DataSource]) -> None:
        """Put something between the learner and where its examples come from, before the first client is built."""
        opened = self._open_source
        self._open_source = lambda: replacement(opened())
        self._source = replacement(self._source)

    def release_examples(self) -> None:
        """Let go of the data sets that this process has read. Clients that were built keep their examples; for anything
        else files are read again."""
        self._source = self._open_source()
        forget_datasets()

    def prepare(self, client: int) -> None:
        """Read the client's data and build its model, so that their faults are known now."""
        self._clients.get(client)

    def contribute(
        self, index: int, phase: str, round_number: int, knowledge: bytes, *, evaluate_test: bool = False
    ) -> Contribution:
        """Do a client's work of a phase: receive the knowledge (b'' before the first), train, post, measure.

        With `evaluate_test` the models are also measured on the whole test set, where there is one. Raises
        `TrainingDiverged` where there is nothing that others would take, and `InvalidPayload` for damaged knowledge.
        After any error the client is as it was before the call, so that it can try again in another round.
        """
        which = self._phases[phase]
        with self._reproducible(index, which, round_number) as client, _restored_on_error(client):
            round = self._round(client, round_number, knowledge)
            bulk = self._bulk(client, which, round)
            round = replace(round, bulk=bulk)
            received = self._receive(client, which, round, knowledge, evaluate_test)
            posted = self._method.work(which)(client, round)
            payload = self._encode(posted, which, client, round_number)
            is_measured = which.trains and _has_test_set(client)
            local = self._evaluate_trained(client, round, evaluate_test) if is_measured else None
            epsilon = self._epsilon(client)
        written, scalars = () if bulk is None else tuple(bulk.written), _count_scalars(posted)
        parts, addressed = tuple(ref.hash for ref in written), address_bytes(payload, written)
        skipped = tuple(sorted(client.skipped.items()))
        return Contribution(payload, client.steps, local, received, scalars, epsilon, parts, addressed, skipped)

    def contribute_together(
        self, indices: Sequence[int], phase: str, round_number: int, knowledge: bytes, *, evaluate_test: bool = False
    ) -> dict[int, Contribution]:
        """Do the work of several clients with linear models at once: the results of `contribute` to rounding.

        A client that is missing among the results is as it was before, and has to be asked by itself: its model is
        another, its training diverged, or the method has no way of training several.
        """
        which, method = self._phases[phase], self._method
        if not (method.trains_together and phase == method.phases[0].name):
            return {}
        made: dict[int, Contribution] = {}
        with ExitStack() as held, _one_thread():
            asked = [held.enter_context(self._clients.use(index)) for index in indices]
            clients = [client for client in asked if is_linear(client)]
            states = [held.enter_context(_restored_on_error(client)) for client in clients]
            rounds = [self._round(client, round_number, knowledge) for client in clients]
            received = []
            for client, round in zip(clients, rounds, strict=True):
                self._seed(client, which, round_number)
                received.append(self._receive(client, which, round, knowledge, evaluate_test))
            posts = method.update_together(clients, replace(rounds[0], me=None)) if clients else ()
            for place, (client, posted) in enumerate(zip(clients, posts, strict=True)):
                try:
                    payload = None if posted is None else self._encode(posted, which, client, round_number)
                except TrainingDiverged:
                    payload = None
                if posted is None or payload is None:
                    restore_state(client, states[place])
                    continue
                local = self._evaluate_trained(client, rounds[place], evaluate_test)
                scalars = _count_scalars(posted)
                addressed = address_bytes(payload, ())
                made[client.index] = Contribution(
                    payload, client.steps, local, received[place], scalars, addressed=addressed
                )
        return made

    def evaluate_received(
        self, index: int, round_number: int, knowledge: bytes, *, evaluate_test: bool = False
    ) -> Evaluation | None:
        """Measure the shared model that the knowledge is, on a client's test set; the client stays as it was.

        None if the method shares no model or there is no knowledge.
        """
        first = self._method.phases[0]
        with self._reproducible(index, first, round_number, changes=False) as client:
            before = copy_state(client)
            try:
                return self._receive(
                    client, first, self._round(client, round_number, knowledge), knowledge, evaluate_test
                )
            finally:
                restore_state(client, before)

    def measure(self, state: ModelState, owner: int, sites: Sequence[int]) -> list[Evaluation]:
        """Measure a model that is shaped like the owner's on the own test set of each of the other clients, the sites.

        Raises `ConfigurationError` for a state of other shapes.
        """
        with self._holding(state, owner) as client:
            return [evaluate_local(client.model, *self._test_set_for(client, site)) for site in sites]

    def measure_on_all(self, state: ModelState, owner: int) -> Evaluation | None:
        """Measure it on the whole test set; None if the clients have none in common. Raises as `measure` does."""
        with self._holding(state, owner) as client:
            return self._evaluate_on_all(client.model)

    def planned_steps(self, index: int, phase: str, round_number: int) -> int:
        """Count the local steps that a client takes in a phase of a round; 0 where it does not train."""
        which = self._phases[phase]
        clients = range(self._config.clients) if which.by is Contributor.AGGREGATOR else (index,)
        examples = sum(len(self._train_labels(client)) for client in clients)
        return self._method.planned_steps(which, examples, round_number)

    def histogram(self) -> NDArray[np.int64]:
        """Count the training examples of every client and class, (K, C)."""
        of_clients = [self._train_labels(index) for index in range(self._config.clients)]
        return np.stack([np.bincount(labels, minlength=self._info.classes) for labels in of_clients]).astype(np.int64)

    @property
    def config(self) -> LearningConfig:
        """The task."""
        return self._config

    @property
    def info(self) -> ModelInfo:
        """The shapes of everybody's model."""
        return self._info

    @property
    def method(self) -> Method:
        """The method that is learned with."""
        return self._method

    @contextmanager
    def lend(self, index: int, round_number: int) -> Iterator[Client]:
        """Return the client itself, seeded as it would begin the round, to measure its training step by step."""
        with self._reproducible(index, self._method.phases[0], round_number) as client:
            yield client

    def checkpoint(self, index: int) -> bytes:
        """Return a client's model and state as a safetensors file."""
        return save_state(self._clients.get(index))

    def restore(self, index: int, data: bytes) -> None:
        """Put a client back to a checkpoint. Raises `ConfigurationError` if it does not fit the model."""
        with self._clients.use(index) as client:
            load_state(client, data)

    def ledger(self, index: int) -> PrivacyLedger:
        """Return a client's privacy ledger, which no checkpoint holds."""
        return self._ledger_of(index)

    def save_model(self, index: int, path: Path) -> None:
        """Write a client's model, as it is now, as a safetensors file with the names that the module gives its tensors.

        A method that trains local models leaves each client another one; with a method that exchanges parameters, after
        a round it is the model that the client trained and posted.
        """
        path.write_bytes(write_model(state_of(self._clients.get(index).model)))

    @contextmanager
    def _holding(self, state: ModelState, owner: int) -> Iterator[Client]:
        """Give a client with a model of another state, on one thread; afterwards it has its own state again."""
        with self._clients.use(owner, changes=False) as client, _one_thread():
            before = copy_state(client)
            try:
                load_model(client.model, state, f"member {owner}'s")
                yield client
            finally:
                restore_state(client, before)

    def _test_set_for(self, client: Client, site: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return another client's test set as this one's model looks at it."""
        other = self._clients.get(site)
        if isinstance(client.model, FrozenHead) == isinstance(other.model, FrozenHead):
            return other.test_images, other.test_labels
        share = self._source.share(site, self._share_seed(site))
        return _as_seen(client.model, share.test_images), share.test_labels

    @contextmanager
    def _reproducible(self, index: int, phase: Phase, round_number: int, *, changes: bool = True) -> Iterator[Client]:
        """Give the client with its randomness freshly seeded, on one thread; leave torch's own state as it was."""
        with self._clients.use(index, changes=changes) as client, _one_thread():
            self._seed(client, phase, round_number)
            yield client

    def _seed(self, client: Client, phase: Phase, round_number: int) -> None:
        """Seed the generators of the client's work in a phase, and begin its steps and skipped members anew."""
        labels = ("client", client.index, "phase", phase.name, "round", round_number)
        # torch.manual_seed would also note who called it, for graphics cards: a millisecond that small models notice
        torch.default_generator.manual_seed(derive(self._config.seed, *labels, "dropout"))
        client.generator.manual_seed(derive(self._config.seed, *labels, "batches"))
        client.steps, client.skipped = 0, {}

    def _round(self, client: Client, number: int, knowledge: bytes) -> Round:
        me = self._members[client.index] if self._members else None
        round = Round(
            number,
            None,
            clients=self._config.clients,
            members=self._members,
            me=me,
            material=dict(self._config.material),
            chain_id=self._chain_id,
            info=self._info,
        )
        return self._knowledge.fill(round, knowledge)

    def _bulk(self, client: Client, phase: Phase, round: Round) -> PartAccess | None:
        """Give access to parts, where the method has any."""
        if not self._kinds:
            return None
        main = {} if round.knowledge is None else {round.knowledge_phase: round.knowledge}
        return PartAccess(self._parts_of(client.index), self._kinds, phase.name, main | dict(round.beside))

    def _encode(self, posted: Tensors, phase: Phase, client: Client, round_number: int) -> bytes:
        """Encode a post. Its numbers show the last step's damage, which no later loss shows: peers would refuse it."""
        validate_arrays(f"the post of phase {phase.name}", posted)
        payload = encode(posted)
        try:
            decode(payload, self._payload_specs[self._architecture_of(client.index)][phase.name])
        except UnsoundNumbers as error:
            raise TrainingDiverged(client.index, round_number, client.steps, math.nan, str(error)) from None
        return payload

    def _epsilon(self, client: Client) -> float | None:
        """Add up the epsilon that the client has spent; None if the method states none."""
        if not self._method.states_epsilon:
            return None
        return client.ledger.epsilon(self._method.privacy_delta)

    def _receive(
        self, client: Client, phase: Phase, round: Round, knowledge: bytes, evaluate_test: bool
    ) -> Evaluation | None:
        """Hand the knowledge to the client at the start of a round, and measure the model if it is a shared one."""
        if phase != self._method.phases[0]:
            return None
        self._method.receive(client, round)
        if not self._method.shares_model or round.knowledge is None or not _has_test_set(client):
            return None
        result = self._evaluate(client, round)
        return _with_test(result, self._evaluate_shared(client, knowledge)) if evaluate_test else result

    def _evaluate_shared(self, client: Client, knowledge: bytes) -> Evaluation | None:
        """Measure a shared model on the whole test set, once for all clients of this process if it is one for all."""
        if self._method.personalizes:
            return self._evaluate_on_all(client.model)
        digest = hashlib.sha256(knowledge).digest()
        if self._test_result is None or self._test_result[0] != digest:
            self._test_result = (digest, self._evaluate_on_all(client.model))
        return self._test_result[1]

    def _evaluate_trained(self, client: Client, round: Round, evaluate_test: bool) -> Evaluation:
        """Measure the client's model after a phase that trained it."""
        local = self._evaluate(client, round)
        if evaluate_test and self._test_local:
            return _with_test(local, self._evaluate_on_all(client.model, round.knowledge))
        return local

    def _evaluate(self, client: Client, round: Round) -> Evaluation:
        """Measure the client's model on its own test set."""
        prototypes, labels = self._prototypes(round.knowledge, client.classes)
        auxiliary = self._method.auxiliary(client, round)
        return evaluate_local(client.model, client.test_images, client.test_labels, prototypes, labels, auxiliary)

    def _evaluate_on_all(self, model: Model, known: Tensors | None = None) -> Evaluation | None:
        """Measure a model on the whole test set, if the clients have one in common; prototypes predict all classes."""
        if self._test_set is None:
            found = self._source.test_set()
            self._test_set = None if found is None else (_as_seen(model, found[0]), found[1])
        if self._test_set is None:
            return None
        prototypes, labels = self._prototypes(known, range(self._info.classes))
        return evaluate_local(model, *self._test_set, prototypes, labels)

    def _prototypes(
        self, known: Tensors | None, classes: Collection[int]
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
        """Return the global prototypes (n, D) of these classes and their labels (n,), where there are any."""
        found = None if known is None else self._method.prototypes(known)
        if found is None:
            return None, None
        chosen = np.isin(found["labels"], list(classes))
        if not chosen.any():
            return None, None
        return torch.from_numpy(found["prototypes"][chosen]), torch.from_numpy(found["labels"][chosen])

    def _train_labels(self, index: int) -> NDArray[np.int64]:
        """Return the labels (n,) of a client's training examples."""
        return self._source.train_labels(index, self._share_seed(index))

    def _share_seed(self, index: int) -> int:
        """Return the seed of a client's initial model, and of the draw of its examples."""
        return derive(self._config.seed, "model", "shared" if self._method.shared_init else index)

    def _architecture_of(self, index: int) -> int:
        """Return which of the stated models the client has."""
        return self._config.architecture_of(index, len(self._infos))

    def _build_client(self, index: int) -> Client:
        if not 0 <= index < self._members_count:
            raise ConfigurationError(f"client must be between 0 and {self._members_count - 1}, not {index}")
        share = self._source.share(index, self._share_seed(index))
        return Client(
            index=index,
            model=share.model,
            info=describe(share.model) if "+" in self._config.model else self._infos[self._architecture_of(index)],
            train_images=_as_seen(share.model, share.train_images),
            train_labels=share.train_labels,
            test_images=_as_seen(share.model, share.test_images),
            test_labels=share.test_labels,
            augmentation=share.augmentation,
            classes=tuple(np.unique(share.train_labels.numpy()).tolist()),
            open_secrets=no_secrets if self._secrets_of is None else partial(self._secrets_of, index),
            open_ledger=partial(self._ledger_of, index),
        )


def _has_test_set(client: Client) -> bool:
    """Whether there is anything to measure the client's model on; a dedicated aggregator has nothing."""
    return len(client.test_labels) > 0


def _as_seen(model: Model, images: torch.Tensor) -> torch.Tensor:
    """Return images as the model looks at them in every round: for a frozen backbone, its features."""
    return model.features(images) if isinstance(model, FrozenHead) else images


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread, and leave torch's generator and its threads as they were."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def _restored_on_error(client: Client) -> Iterator[ClientState]:
    """Yield the client's state, and put the client back to it if the work on it fails."""
    before = copy_state(client)
    try:
        yield before
    except BaseException:
        restore_state(client, before)
        raise


def _count_scalars(posted: Tensors) -> int:
    """Count the floating-point numbers of a post."""
    return sum(tensor.size for tensor in posted.values() if tensor.dtype.kind == "f")


def _with_test(evaluation: Evaluation, test: Evaluation | None) -> Evaluation:
    if test is None:
        return evaluation
    return replace(
        evaluation,
        test_accuracy=test.local_accuracy,
        test_loss=test.local_loss,
        test_accuracy_prototype=test.prototype_accuracy,
    )
