"""Small tasks, clients and posts for tests of learning, beside the federation in memory that everybody can use."""

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
from fedchain.learning.method import Method, Phase
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.models.vectors import gradient_vector, write_vector
from fedchain.learning.payload.codec import decode
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.registry import HyperparameterValue, load_method
from fedchain.learning.round import OffChain, ReadPost, Round, Tensors
from fedchain.testing.federation import Federation, secrets_of

__all__ = ["Federation", "secrets_of"]

CLIENTS = 3

SPLITTING = frozenset({"feddkc", "fedgkt", "fedict"})
"""Methods that need a model that can be split, and post by reference."""

VARIED = frozenset({"demlearn", "dfpl", "fedavg", "fedict", "moon", "mtfl", "scaffold"})
"""Methods of which no two post the same kind of thing, or remember it: where a test goes through all of them and takes
long, CI has these."""


def config(method: str, **hyperparameters: HyperparameterValue) -> LearningConfig:
    """A small task: three clients, few steps."""
    few: dict[str, HyperparameterValue] = {} if method == "sgd" else {"local_steps": 4, "local_epochs": 0}
    task = LearningConfig(method=method, clients=CLIENTS)
    if method in ("fedcurv", "fedreg"):  # they take a gradient of each example, one by one
        task = replace(task, train_examples=200)
    if load_method(method).needs_pooling:
        few |= {"extractor_epochs": 1, "encryptor_epochs": 1, "encryptor_width": 2, "batch_size": 8}
        task = replace(task, model="plain-cnn", shots=12, test_shots=5)
    if method in SPLITTING:
        few |= {"batch_size": 16, "stage_blocks": 1}
        task = replace(task, model="split-mlp-1", shots=16, test_shots=8)
    return replace(task, hyperparameters={**few, **hyperparameters})


def fedavg_on(task: LearningConfig, **hyperparameters: HyperparameterValue) -> LearningConfig:
    """FedAvg's small task with the examples of another method's."""
    return replace(config("fedavg", **hyperparameters), train_examples=task.train_examples)


def with_norm(method: str, **hyperparameters: HyperparameterValue) -> LearningConfig:
    """The same with a model that has batch normalization, where the method takes any."""
    task = config(method, **hyperparameters)
    if load_method(method).needs_pooling:
        return task
    return replace(task, model="resnet2-56" if method in SPLITTING else "digits-mlp-bn")


def read_payload(rules: Application, payload: bytes) -> Tensors:
    """A post of the last phase of a round, decoded."""
    return decode(payload, rules.method.payload_spec(rules.method.phases[-1], rules.info))


def check(rules: Application, payload: bytes, phase: str = "update") -> None:
    """Check a post of the first round, before which nothing is known."""
    rules.check(OffChain(phase, 1), b"sender", b"", payload)


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


def posts(payloads: Sequence[Tensors]) -> tuple[ReadPost, ...]:
    """Posts in ascending order of sender."""
    return tuple(ReadPost(bytes([index]), payload) for index, payload in enumerate(payloads))


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
