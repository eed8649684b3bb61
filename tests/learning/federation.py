"""A federation in one process: the rules aggregate what the learner's clients post, round after round."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.learner import Contribution, Learner
from fedchain.learning.method import Contributor, Method, Phase
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.models.vectors import gradient_vector, write_vector
from fedchain.learning.payload.codec import decode
from fedchain.learning.payload.part_folder import PartMemory
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.registry import HyperparameterValue, build_method, load_method
from fedchain.learning.round import Post, Round, Tensors
from fedchain.learning.secrets import ROOT_SIZE, Secrets

CLIENTS = 3

SPLITTING = frozenset({"feddkc", "fedgkt", "fedict"})
"""Methods that need a model that can be split, and post by reference."""


def config(method: str, **hyperparameters: HyperparameterValue) -> LearningConfig:
    """A small task: three clients, few steps."""
    few: dict[str, HyperparameterValue] = {} if method == "sgd" else {"local_steps": 4, "local_epochs": 0}
    task = LearningConfig(method=method, clients=CLIENTS)
    if load_method(method).needs_pooling:
        few |= {"extractor_epochs": 1, "encryptor_epochs": 1, "encryptor_width": 2, "batch_size": 8}
        task = replace(task, model="plain-cnn", shots=12, test_shots=5)
    if method in SPLITTING:
        few |= {"batch_size": 16, "stage_blocks": 1}
        task = replace(task, model="split-mlp-1", shots=16, test_shots=8)
    return replace(task, hyperparameters={**few, **hyperparameters})


def with_norm(method: str, **hyperparameters: HyperparameterValue) -> LearningConfig:
    """The same with a model that has batch normalization, where the method takes any."""
    task = config(method, **hyperparameters)
    if load_method(method).needs_pooling:
        return task
    return replace(task, model="resnet2-56" if method in SPLITTING else "digits-mlp-bn")


class Federation:
    """Plays rounds; senders are in ascending order of client. Phases of the aggregator are those of a dedicated one."""

    def __init__(self, config: LearningConfig, learner: Learner | None = None) -> None:
        method = build_method(config.method, dict(config.hyperparameters))
        self._aggregates = {
            phase.name for phase in (*method.setup, *method.phases) if phase.by is Contributor.AGGREGATOR
        }
        self.members = [bytes([client]) for client in range(config.clients + bool(self._aggregates))]
        self.config, self.rules = config, Application(config, self.members)
        self.parts = PartMemory()
        self.learner = learner or self.new_learner()
        self.knowledge, self.round = b"", 0
        for phase, _, _ in self.rules.setup_phases:
            self._phase(phase, range(config.clients))

    def play(self, rounds: int = 1, participants: Sequence[int] | None = None) -> list[Contribution]:
        """Play rounds with these clients; return what they contributed in the last round."""
        made: list[Contribution] = []
        for _ in range(rounds):
            self.round += 1
            for phase, _, _ in self.rules.phases:
                found = self._phase(phase, range(self.config.clients) if participants is None else participants)
                made = made if phase in self._aggregates else found
        return made

    def new_learner(self) -> Learner:
        """A learner of this federation that has done nothing yet."""
        return Learner(self.config, members=self.members, secrets_of=secrets_of, parts_of=lambda client: self.parts)

    def known(self) -> Tensors:
        """The knowledge, decoded."""
        tensors = self.rules.read_knowledge(self.knowledge)
        assert tensors is not None
        return tensors

    def client(self, client: int) -> Client:
        """A client as it is now."""
        return self.learner._clients.get(client)

    def _phase(self, phase: str, participants: Sequence[int]) -> list[Contribution]:
        participants = [self.config.clients] if phase in self._aggregates else participants
        made = [self.learner.contribute(client, phase, self.round, self.knowledge) for client in participants]
        posts = [(bytes([client]), one.payload) for client, one in zip(participants, made, strict=True)]
        for _, payload in posts:
            assert len(payload) <= self.rules.payload_size_bytes_max(phase)
        self.knowledge = self.rules.aggregate(phase, self.round, self.knowledge, posts)
        return made


def secrets_of(client: int) -> Secrets:
    """What each client keeps to itself."""
    return Secrets(client, bytes([client] * ROOT_SIZE), {"share": bytes([client, 7])})


def read_payload(rules: Application, payload: bytes) -> Tensors:
    """A post of the last phase of a round, decoded."""
    return decode(payload, rules.method.payload_spec(rules.method.phases[-1], rules.info))


def check(rules: Application, payload: bytes, phase: str = "update") -> None:
    """Check a post of the first round, before which nothing is known."""
    rules.check(phase, b"sender", 1, b"", payload)


def common_model(tensors: Tensors) -> dict[str, bytes]:
    """The tensors of the model in a method's knowledge, as bytes."""
    return {name: value.tobytes() for name, value in tensors.items() if name.startswith(("model.", "buffer."))}


def new_client(examples: int = 12, model: str = "digits-mlp", classes: int = 3) -> Client:
    """A client with random images."""
    images = torch.randn(examples, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(examples) % classes
    return Client(
        index=0,
        model=build_model(model, 0),
        info=describe_model(model),
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
        classes=tuple(range(classes)),
        generator=torch.Generator().manual_seed(2),
        open_ledger=partial(PrivacyLedger, 0, Memory()),
    )


def aggregate(
    method: Method, payloads: Sequence[Tensors], knowledge: Tensors | None = None, number: int = 1, clients: int = 0
) -> Tensors:
    """Aggregate payloads in the last phase of a round."""
    return method.aggregate(last_phase(method), Round(number, knowledge, posts(payloads), clients))


def last_phase(method: Method) -> Phase:
    """The phase that closes a round."""
    return method.phases[-1]


def posts(payloads: Sequence[Tensors]) -> tuple[Post, ...]:
    """Posts in ascending order of sender."""
    return tuple(Post(bytes([index]), payload) for index, payload in enumerate(payloads))


def model_of(values: Any) -> dict[str, Any]:
    """A model of one tensor."""
    return {"model.w": np.array(values, dtype=np.float32)}


def examples(count: int) -> dict[str, Any]:
    """The number of examples as posted."""
    return {"examples": np.array([count])}


def vector_of(tensors: Tensors) -> np.ndarray[Any, Any]:
    """A posted digits model in the order of its parameters."""
    names = [f"model.{name}" for name, _ in new_client().model.named_parameters()]
    return np.concatenate([tensors[name].ravel() for name in names])


def gradient_at(point: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """The gradient of cross-entropy on some of the new client's examples, with its parameters at a point."""
    client = new_client()
    write_vector(client.model, point)
    _, logits = client.model(client.train_images[batch])
    return gradient_vector(F.cross_entropy(logits, client.train_labels[batch]), client.model)
