"""The private side of a learning task: clients with their models and data, as a worker process holds them.

A client's contribution depends on the configuration, the client's own past and the knowledge given, and on
nothing else: not on the process, nor on which other clients it serves, nor on their order. Clients that are trained as
one batch depend on each other by rounding alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.files.spool import unfinished, write_file_of
from fedchain.learning.amended import Amended, amended_config
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.device import DEVICE, as_training, find_device
from fedchain.learning.exceptions import (
    OWN_CODE_ERRORS,
    ConfigurationError,
    NothingToPost,
    OwnCodeFailed,
    PartMissing,
    raise_told,
)
from fedchain.learning.method import Contributor, Method, Phase
from fedchain.learning.models.low_rank import keep_originals
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import common_parameters, load_parameters
from fedchain.learning.models.registry import describe
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.part_folder import PartStore
from fedchain.learning.privacy.ledger import PrivacyLedger
from fedchain.learning.registry import build_method, validate_model
from fedchain.learning.round import NO_CHAIN, Tensors
from fedchain.learning.task.choice import TaskFunction
from fedchain.learning.task.custom import open_data_source
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.training.measured import IN_EVERY_ROUND, Evaluation, Measurements
from fedchain.learning.worker.checkpoint import (
    copy_state,
    go_on_from,
    load_state,
    restore_state,
    save_state,
    state_pieces,
)
from fedchain.learning.worker.client_examples import ClientExamples, client_of
from fedchain.learning.worker.clients import Clients
from fedchain.learning.worker.cohorts import work_side_by_side
from fedchain.learning.worker.contributing import Contributing, Place
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.foresight import Foreseen, only_what_is_restored
from fedchain.learning.worker.measuring import Measuring
from fedchain.learning.worker.model_file import ModelState, lend_model, state_of
from fedchain.learning.worker.stores import NO_STORES, Stores

COHORT_MAX = 256
"""Most clients that are trained as one batch: all of them are in memory."""


class Learner:
    """Serves any of the task's clients; data and clients are built when first needed.

    Only one thread of a process may use learners at a time, whatever their number: they share torch's generator.

    Args:
        config: the task; it is validated here.
        task: where the clients' data are their own, the function that returns (model, train set, test set); without
            it, the one that the configuration names.
        source: where the clients' examples come from, if it is open already, as for several learners of one process.
        measurements: when models are measured, and on what: on the whole test set it may cost more than their training.
        members: public keys by place, for methods that ask who is who.
        chain_id: identifier of the federation, to which proofs are bound.
        stores: where clients have their secrets, privacy ledgers and parts.
    """

    def __init__(
        self,
        config: LearningConfig,
        task: TaskFunction | None = None,
        *,
        source: DataSource | None = None,
        measurements: Measurements = IN_EVERY_ROUND,
        members: Sequence[bytes] = (),
        chain_id: bytes = NO_CHAIN,
        stores: Stores = NO_STORES,
    ) -> None:
        config.validate()
        self._config = config
        self._method = build_method(config.method, dict(config.hyperparameters))
        self._infos = infos_of(config)
        for info in self._infos:
            validate_model(self._method, info)
        self._info = self._infos[0]
        self._secrets_of, self._ledger_of, self._parts_of = stores.opened()
        self._spools = stores.spools
        # a caller that gives no members may ask for the aggregator's work as well, where the method has any
        phases = (*self._method.setup, *self._method.phases)
        aggregates = any(phase.by is Contributor.AGGREGATOR for phase in phases)
        # the parts of the data, and one place without any
        has_one_without = config.dataless >= 0 or (len(members) > config.clients if members else aggregates)
        self._places = config.clients + has_one_without
        opened = partial(open_data_source, config, task) if source is None else lambda: source
        self._examples = ClientExamples(config, shared_init=self._method.shared_init, open_source=opened)
        self._measuring = Measuring(self._method, self._examples, self._info.classes, measurements)
        self._measurements, self._amended = measurements, Amended()
        self._place = Place(config, self._infos, tuple(members), chain_id)
        self._contributing = Contributing(self._method, self._place, self._parts_of, self._measuring, self._spools)
        self._clients = Clients(self._build_client)
        self._device, self._is_vectorized = find_device(DEVICE), False
        self._not_foreseen: set[str] = set()  # phases whose work uses what is not put back

    def client(self, index: int) -> Client:
        """A client as it is now; what is done to it is done to its next contribution."""
        client = self._clients.get(index)
        client.file = b""
        return client

    def limit_clients(self, size_max: int, folder: Path) -> None:
        """Hold at most so many bytes of clients from now on; the others wait in the folder, which the caller removes.

        A client that comes back is unchanged, byte for byte, so a limit changes no result.
        """
        self._clients.limit(size_max, folder)

    def train_on(self, device: str, *, vectorize_clients: bool) -> None:
        """Train on a device from now on, and clients that are asked together as one batch of models where that pays.

        Raises `ConfigurationError` for a device that is not here, or a method whose steps no card takes.
        """
        self._device, self._is_vectorized = find_device(device), vectorize_clients
        if self._device.type != "cpu" and self._method.trained_alone:
            why = self._method.trained_alone
            raise ConfigurationError(f"{self._config.method} trains on the processor alone, set device to cpu: {why}")

    def replace_source(self, replacement: Callable[[DataSource], DataSource]) -> None:
        """Put something between the learner and where its examples come from, before the first client is built."""
        self._examples.replace_source(replacement)

    def amend(self, amended: Amended) -> None:
        """Work with these values of hyper-parameters from now on; all others are the task's.

        Raises `ConfigurationError` for values that the method cannot have.
        """
        if amended == self._amended:
            return
        config = amended_config(self._config, amended)
        method = build_method(config.method, dict(config.hyperparameters))
        self._measuring = Measuring(method, self._examples, self._info.classes, self._measurements)
        self._contributing = Contributing(method, self._place, self._parts_of, self._measuring, self._spools)
        self._method, self._amended = method, amended

    def take_key(self, index: int, key: bytes) -> None:
        """Work for a member under another public key from now on; empty: under the one that it has already."""
        members = self._place.members
        if not key or not members or members[index] == key:
            return
        self._place = replace(self._place, members=(*members[:index], key, *members[index + 1 :]))
        self._contributing = Contributing(self._method, self._place, self._parts_of, self._measuring, self._spools)

    def release_examples(self) -> None:
        """Let go of the data sets that this process has read. Clients that were built keep their examples; for anything
        else files are read again."""
        self._examples.release()

    def prepare(self, client: int) -> None:
        """Read the client's data and build its model, so that their faults are known now."""
        self._clients.get(client)

    def contribute(
        self,
        index: int,
        phase: str,
        round_number: int,
        knowledge: bytes,
        *,
        evaluate_test: bool = False,
        clients_count: int = 0,
    ) -> Contribution:
        """Do a client's work of a phase: receive the knowledge (b'' before the first), train, post, measure.

        With `evaluate_test` the models are also measured on the whole test set, where there is one; `clients_count`
        is the number of members with data in this phase, 0 for as many as at the founding. Raises
        `TrainingDiverged` where there is nothing that others would take, and `InvalidPayload` for damaged knowledge.
        After any error the client is as it was before the call, so that it can try again in another round.
        """
        (found,) = self.contribute_together(
            [index], phase, round_number, knowledge, evaluate_test=evaluate_test, clients_count=clients_count
        )
        if isinstance(found, Exception):
            raise found
        return found

    def contribute_together(
        self,
        indices: Sequence[int],
        phase: str,
        round_number: int,
        knowledge: bytes,
        *,
        evaluate_test: bool = False,
        clients_count: int = 0,
    ) -> list[Contribution | Exception]:
        """Do the work of several clients, and return what `contribute` would return or raise for each.

        With `train_on(vectorize_clients=True)` models of one architecture are trained as one batch: the same results
        but for rounding, which depends on who is in it.
        """
        which = self._contributing.phases[phase]

        def work(client: Client) -> Contribution:
            self._contributing.seed(client, which, round_number)
            return self._contributing.contribute(
                client, which, round_number, knowledge, evaluate_test=evaluate_test, clients_count=clients_count
            )

        can_be_cohort = which.trains and not self._method.trained_alone
        if not can_be_cohort or (self._device.type == "cpu" and not self._is_vectorized):
            return [self._attempt(index, work) for index in indices]
        found: list[Contribution | Exception] = []
        size = COHORT_MAX if self._is_vectorized else 1
        for start in range(0, len(indices), size):
            found += self._side_by_side(indices[start : start + size], work)
        return found

    def can_foresee(self, phase: str) -> bool:
        """Whether the work of a phase can be taken back, as far as is known."""
        return phase not in self._not_foreseen and not self._contributing.has_parts

    def foresee(
        self,
        index: int,
        phase: str,
        round_number: int,
        knowledge: bytes,
        *,
        evaluate_test: bool = False,
        clients_count: int = 0,
    ) -> Foreseen | None:
        """Do what `contribute` does, and put the client back to what it was.

        None if the work fails, or cannot be taken back: see `only_what_is_restored`.
        """
        if not self.can_foresee(phase):
            return None
        try:
            self._clients.get(index)
        except OWN_CODE_ERRORS:  # it cannot be built, or read, or put in another's place
            return None
        with self._clients.use(index) as client, only_what_is_restored(client) as used:
            try:
                before = copy_state(client)
            except Exception:  # a user's own records may hold anything; asked in earnest, the client tells
                return None
            try:
                made = self.contribute(
                    index, phase, round_number, knowledge, evaluate_test=evaluate_test, clients_count=clients_count
                )
                found = Foreseen(made, copy_state(client))
            except OWN_CODE_ERRORS:  # asked in earnest, the client tells
                found = None
            finally:
                restore_state(client, before)
        if used:
            self._not_foreseen.add(phase)
            return None
        return found

    def adopt(self, index: int, foreseen: Foreseen) -> Contribution:
        """Make what was foreseen a client's contribution; the client has not changed since."""
        with self._clients.use(index) as client:
            restore_state(client, foreseen.after)
        return foreseen.made

    def evaluate_received(
        self, index: int, round_number: int, knowledge: bytes, *, evaluate_test: bool = False
    ) -> Evaluation | None:
        """Measure the shared model that the knowledge is, on a client's test set; the client stays as it was.

        None if the method shares no model or there is no knowledge, or where the method refuses to begin the round with
        it. The client is told of as many clients as there were at the founding.
        """
        first = self._method.phases[0]
        with self._reproducible(index, first, round_number, changes=False) as client:
            before = copy_state(client)
            try:
                round = self._contributing.round(client, round_number, knowledge)
                round = replace(round, bulk=self._contributing.bulk(client, first, round))
                return self._contributing.receive(client, first, round, knowledge, evaluate_test=evaluate_test)
            except (NothingToPost, PartMissing):
                return None
            finally:
                restore_state(client, before)

    def measure(self, state: ModelState, owner: int, sites: Sequence[int]) -> list[Evaluation]:
        """Measure a model that is shaped like the owner's on the own test set of each of some clients, the sites.

        Raises `ConfigurationError` for a state of other shapes.
        """
        with as_training(self._device):
            client = self._lent(state, owner)
            others = (client if site == owner else self._clients.get(site) for site in sites)
            return [self._measuring.on_site(client, other) for other in others]

    def measure_on_all(self, state: ModelState, owner: int) -> Evaluation | None:
        """Measure it on the whole test set; None if the clients have none in common. Raises as `measure` does."""
        with as_training(self._device):
            return self._measuring.on_all(self._lent(state, owner).model)

    def common_state(self, known: Tensors, owner: int) -> ModelState:
        """Return the common model as a member has it that has just received the knowledge: with what is added to frozen
        tensors. Raises `ConfigurationError` where the knowledge is no whole model."""
        client = self._build_client(owner)
        common_parameters(known, client.info)
        load_parameters(client.model, known)
        return state_of(client.model, client.info)

    def _lent(self, state: ModelState, owner: int) -> Client:
        """A client like the owner with another model. The owner itself need not be copied, to be put back later."""
        client = self._build_client(owner)
        lend_model(client, state)
        return client

    def planned_steps(self, index: int, phase: str, round_number: int) -> int:
        """Count the local steps that a client takes in a phase of a round; 0 where it does not train.

        An aggregator's count as if every part of the data were posted about.
        """
        which = self._contributing.phases[phase]
        clients = self._config.places_with_data if which.by is Contributor.AGGREGATOR else (index,)
        examples = sum(len(self._examples.train_labels(client)) for client in clients)
        try:
            steps: Any = self._method.planned_steps(which, examples, round_number)
        except OWN_CODE_ERRORS as error:
            raise_told(error, f"peer {index}", type(self._method))
        if not isinstance(steps, int | float | np.number) or not 0 <= steps < math.inf:
            what = f"{type(self._method).__name__}.planned_steps of phase {phase}"
            raise OwnCodeFailed(f"{what} must return a number from 0 on, not {steps!r:.40}")
        return steps  # type: ignore[return-value]

    def hash_own(self) -> str:
        """The SHA-256 of the examples of all clients, in hexadecimal, if they are the user's own; "" elsewhere."""
        return self._examples.hash_own()

    def histogram(self) -> NDArray[np.int64]:
        """Count the training examples of every client and class, (K, C)."""
        return self._examples.histogram(self._info.classes)

    @property
    def config(self) -> LearningConfig:
        """The task."""
        return self._config

    @property
    def source(self) -> DataSource:
        """Where the clients' examples come from, with what has been read."""
        return self._examples.source

    @property
    def info(self) -> ModelInfo:
        """The shapes of everybody's model."""
        return self._info

    @property
    def device(self) -> torch.device:
        """Where models are trained."""
        return self._device

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
        """Return a client's model and state as a safetensors file; from a large one the client itself goes on."""
        client = self._clients.get(index)
        saved = save_state(client, self._spools)
        go_on_from(client, saved)
        return saved

    def restore(self, index: int, data: bytes) -> None:
        """Put a client back to a checkpoint. Raises `ConfigurationError` if it does not fit the model."""
        with self._clients.use(index) as client:
            load_state(client, data)

    def ledger(self, index: int) -> PrivacyLedger:
        """Return a client's privacy ledger, which no checkpoint holds."""
        return self._ledger_of(index)

    def parts(self, index: int) -> PartStore:
        """Return a client's store of parts."""
        return self._parts_of(index)

    def save_model(self, index: int, path: Path) -> None:
        """Write a client's model, as it is now, as a safetensors file with the names that the module gives its tensors.

        A method that trains local models leaves each client another one; with a method that exchanges parameters, after
        a round it is the model that the client trained and posted.
        """
        client = self._clients.get(index)
        with unfinished(path) as other:
            write_file_of(state_pieces(state_of(client.model, client.info)), other)

    def _side_by_side(
        self, indices: Sequence[int], work: Callable[[Client], Contribution]
    ) -> list[Contribution | Exception]:
        """Have clients work beside each other; one that cannot be built leaves its error."""
        found: dict[int, Contribution | Exception] = {}
        with ExitStack() as held, as_training(self._device):
            clients: list[Client] = []
            for index in indices:
                try:
                    clients.append(held.enter_context(self._clients.use(index)))
                except Exception as error:
                    found[index] = error
            made = work_side_by_side(clients, work, self._device)
            found |= zip((client.index for client in clients), made, strict=True)
        return [found[index] for index in indices]

    def _attempt(self, index: int, work: Callable[[Client], Contribution]) -> Contribution | Exception:
        """Have a client work by itself."""
        try:
            with self._clients.use(index) as client, as_training(self._device):
                return work(client)
        except Exception as error:
            return error

    @contextmanager
    def _reproducible(self, index: int, phase: Phase, round_number: int, *, changes: bool = True) -> Iterator[Client]:
        """Give the client with its randomness freshly seeded, on one thread; leave torch's own state as it was."""
        with self._clients.use(index, changes=changes) as client, as_training(self._device):
            self._contributing.seed(client, phase, round_number)
            yield client

    def _build_client(self, index: int) -> Client:
        if not 0 <= index < self._places:
            raise ConfigurationError(f"client must be between 0 and {self._places - 1}, not {index}")
        config, share = self._config, self._examples.share(index)
        info = describe(share.model) if "+" in config.model else self._infos[self._place.architecture_of(index)]
        keep_originals(share.model, info)  # as they are now, with the weights of a file
        client = client_of(index, share, info)
        client.open_ledger = partial(self._ledger_of, index)
        if self._secrets_of is not None:
            client.open_secrets = partial(self._secrets_of, index)
        return client
