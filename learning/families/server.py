"""The aggregator's network: how it is trained on features that clients send, and kept from round to round.

B batch, C classes, H shape of an example's features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from fedchain.learning.exceptions import PartMissing, TrainingDiverged
from fedchain.learning.families.distillation_parts import STATE_MAGNITUDE_MAX
from fedchain.learning.models.prototypes import EVALUATION_BATCH
from fedchain.learning.models.server import build_server_model
from fedchain.learning.models.vectors import flatten, read_state, trained_parameters, unflatten, write_state
from fedchain.learning.payload.spec import MAGNITUDE_MAX
from fedchain.learning.round import Round, bulk_of
from fedchain.learning.training.optimizers import take_sgd_step

if TYPE_CHECKING:
    from fedchain.learning.client import Client
    from fedchain.learning.training.schedule import Schedule

Objective = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""objective(logits (B, C), labels (B,), the client's logits (B, C)) -> scalar."""


@dataclass(slots=True)
class ServerState:
    """The state that an aggregator keeps between rounds."""

    round: int = 0
    """The last round in which it trained; 0: none."""

    values: torch.Tensor | None = None
    """The network's state as one vector."""

    velocity: torch.Tensor | None = None
    """The momentum of its parameters as one vector."""


class Server:
    """The network while a phase lasts."""

    def __init__(
        self, model: nn.Module, schedule: Schedule, generator: torch.Generator, where: tuple[int, int]
    ) -> None:
        self._model, self._schedule, self._generator, self._where = model, schedule, generator, where
        self._parameters = trained_parameters(model)
        self._moved = [value.detach() for value in self._parameters]  # the same numbers
        self._velocities = [torch.zeros_like(value) for value in self._parameters]
        self._steps = 0

    def train(
        self, features: torch.Tensor, theirs: torch.Tensor, labels: torch.Tensor, objective: Objective
    ) -> torch.Tensor:
        """Pass once over examples in random order. Return the logits of each, (rows, C), before it was learned from.

        All take part: batches are equally large to one example. Raises `TrainingDiverged`.
        """
        order = torch.randperm(len(labels), generator=self._generator)
        said = torch.empty(theirs.shape)
        self._model.train()
        for batch in order.tensor_split(-(-len(labels) // self._schedule.batch_size)):
            logits = self._model(_as_read(features[batch]))
            value = objective(logits, labels[batch], theirs[batch])
            if not math.isfinite(float(value.detach())):
                raise TrainingDiverged(*self._where, self._steps, float(value.detach()))
            gradients = torch.autograd.grad(value, self._parameters)
            take_sgd_step(self._moved, self._velocities, self._schedule, gradients)
            said[batch] = logits.detach()
            self._steps += 1
        return said

    @torch.no_grad()
    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (rows, C) in evaluation mode."""
        self._model.eval()
        return torch.cat([self._model(_as_read(batch)) for batch in torch.split(features, EVALUATION_BATCH)])

    def validate(self, answer: torch.Tensor) -> None:
        """Raise `TrainingDiverged` unless an answer, all parameters and what is handed on are finite and bounded."""
        bounded = [(values, MAGNITUDE_MAX) for values in (answer, flatten(self._parameters).detach())]
        for values, bound in (*bounded, *((values, STATE_MAGNITUDE_MAX) for values in self.copy())):
            largest = float(values.abs().max())
            if not largest <= bound:
                raise TrainingDiverged(*self._where, self._steps, largest, f"the network has numbers of {largest}")

    def copy(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies of the network's state and of its momentum, one vector each."""
        return read_state(self._model), flatten(self._velocities)

    def restore(self, kept: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Go back to the state that `copy` returned."""
        write_state(self._model, kept[0])
        self._velocities = [part.clone() for part in unflatten(kept[1], self._parameters)]

    def fits(self, values: torch.Tensor, velocity: torch.Tensor) -> bool:
        """Whether vectors are as long as those of `copy`."""
        return [value.shape for value in self.copy()] == [values.shape, velocity.shape]


def open_servers(client: Client, round: Round, schedule: Schedule, stage_blocks: int) -> Iterator[Server]:
    """Yield the aggregator's network as it was left: by another member, if that had the role since, and by this one.

    The last is a new network: the only one that no member has to have left or to give out, and that none can spoil. The
    next is asked for where nobody's examples are of use to one.
    """
    assert client.info.feature_shape is not None, "the models were validated"
    model = build_server_model(client.info.feature_shape, client.info.classes, stage_blocks)
    server = Server(model, schedule, client.generator, (client.index, round.number))
    new, state = server.copy(), client.state(ServerState)
    posted = _read_posted(client, round)
    if posted is not None and posted[0] > state.round and server.fits(*posted[1:]):
        server.restore(posted[1:])
        yield server
    if state.values is not None and state.velocity is not None:
        server.restore((state.values, state.velocity))
        yield server
    server.restore(new)
    yield server


def save_server(server: Server, client: Client, round: Round) -> dict[str, torch.Tensor]:
    """Remember the network, and return the tensors of a part from which another member can go on."""
    state = client.state(ServerState)
    state.round, (state.values, state.velocity) = round.number, server.copy()
    return {"round": torch.tensor([round.number]), "values": state.values, "velocity": state.velocity}


def _read_posted(client: Client, round: Round) -> tuple[int, torch.Tensor, torch.Tensor] | None:
    """Return round, state and momentum as the last aggregator posted them; None if they are not here."""
    bulk = bulk_of(round)
    for ref in bulk.parts("distill"):
        if ref.kind == "server":
            try:
                tensors = bulk.read(ref)
            except PartMissing as error:
                if ref.sender != client.index:  # the aggregator that posted it goes on from its own
                    client.skipped[ref.sender] = f"the network that it left: {error}"
                return None
            values, velocity = (torch.from_numpy(np.array(tensors[name])) for name in ("values", "velocity"))
            return int(tensors["round"][0]), values, velocity
    return None


def _as_read(features: torch.Tensor) -> torch.Tensor:
    """Return features as the network reads them: images pixel by pixel."""
    return features.contiguous(memory_format=torch.channels_last) if features.ndim == 4 else features
