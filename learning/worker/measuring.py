"""How good a client's model is: on its own test set, and on the one that all clients have in common."""

import hashlib
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch

from fedchain.learning.class_prototypes import class_prototypes
from fedchain.learning.client import Client
from fedchain.learning.method import Method
from fedchain.learning.models.base import Model
from fedchain.learning.models.frozen import FrozenHead
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training.evaluation import evaluate_local
from fedchain.learning.training.measured import Evaluation, Measurements
from fedchain.learning.worker.client_examples import ClientExamples, as_seen


class Measuring:
    """Measures models as their method looks at them.

    Args:
        method: of the task.
        examples: of the clients.
        classes: number of classes C.
        measurements: when they are measured, and on what.
    """

    def __init__(self, method: Method, examples: ClientExamples, classes: int, measurements: Measurements) -> None:
        self._method, self._examples, self._classes, self._measurements = method, examples, classes, measurements
        self._test_sets: dict[bool, tuple[torch.Tensor, torch.Tensor]] = {}  # by whether a frozen backbone looks at it
        self._shared: tuple[bytes, Evaluation | None] | None = None  # the last shared model's, by hash

    def received(self, client: Client, round: Round, knowledge: bytes, *, evaluate_test: bool) -> Evaluation | None:
        """Measure the model that a client has just received; None if it is no shared one, or nothing is measured."""
        if not self._method.shares_model or round.knowledge is None or not has_test_set(client):
            return None
        if not (evaluate_test or self._measurements.is_due(round.number)):
            return None
        result = self._on_own(client, round)
        return _with_test(result, self._of_shared(client, knowledge)) if evaluate_test else result

    def trained(self, client: Client, round: Round, *, evaluate_test: bool) -> Evaluation | None:
        """Measure the client's model after a phase that trained it; None if nothing is measured."""
        if not has_test_set(client) or not (evaluate_test or self._measurements.is_due(round.number)):
            return None
        local = self._on_own(client, round)
        if evaluate_test and self._measurements.test_local:
            return _with_test(local, self.on_all(client.model, round.knowledge))
        return local

    def on_all(self, model: Model, known: Tensors | None = None) -> Evaluation | None:
        """Measure a model on the whole test set, if the clients have one in common; prototypes predict all classes."""
        is_frozen = isinstance(model, FrozenHead)
        if is_frozen not in self._test_sets:
            found = self._examples.source.test_set()
            if found is None:
                return None
            self._test_sets[is_frozen] = as_seen(model, found[0]), found[1]
        prototypes, labels = self._prototypes(known, range(self._classes))
        return evaluate_local(model, *self._test_sets[is_frozen], prototypes, labels)

    def on_site(self, client: Client, other: Client) -> Evaluation:
        """Measure the client's model on another client's test set, as this model looks at it."""
        if isinstance(client.model, FrozenHead) == isinstance(other.model, FrozenHead):
            return evaluate_local(client.model, other.test_images, other.test_labels)
        share = self._examples.share(other.index)
        return evaluate_local(client.model, as_seen(client.model, share.test_images), share.test_labels)

    def _of_shared(self, client: Client, knowledge: bytes) -> Evaluation | None:
        """Measure a shared model on the whole test set, once for all clients of this process if it is one for all."""
        if self._method.personalizes:
            return self.on_all(client.model)
        digest = hashlib.sha256(knowledge).digest()
        if self._shared is None or self._shared[0] != digest:
            self._shared = (digest, self.on_all(client.model))
        return self._shared[1]

    def _on_own(self, client: Client, round: Round) -> Evaluation:
        """Measure the client's model on its own test set."""
        prototypes, labels = self._prototypes(round.knowledge, client.classes)
        auxiliary = self._method.auxiliary(client, round)
        return evaluate_local(client.model, client.test_images, client.test_labels, prototypes, labels, auxiliary)

    def _prototypes(
        self, known: Tensors | None, classes: Collection[int]
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
        """Return the global prototypes (n, D) of these classes and their labels (n,), where there are any."""
        found = None if known is None else class_prototypes(self._method, known)
        if found is None:
            return None, None
        chosen = np.isin(found["labels"], list(classes))
        if not chosen.any():
            return None, None
        prototypes, labels = found["prototypes"][chosen], found["labels"][chosen]
        return torch.from_numpy(prototypes.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def has_test_set(client: Client) -> bool:
    """Whether there is anything to measure the client's model on; a dedicated aggregator has nothing."""
    return len(client.test_labels) > 0


def _with_test(evaluation: Evaluation, test: Evaluation | None) -> Evaluation:
    if test is None:
        return evaluation
    return replace(
        evaluation,
        test_accuracy=test.local_accuracy,
        test_loss=test.local_loss,
        test_accuracy_prototype=test.prototype_accuracy,
    )
