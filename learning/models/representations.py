"""A client's images under a model that is not trained: constants of a round's training, calculated once.

n examples of the client, D embedding, D_l width of layer l.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedchain.learning.client import Client
from fedchain.learning.models.prototypes import EVALUATION_BATCH, forward_all
from fedchain.learning.models.vectors import read_state, write_state


def training_embeddings(client: Client, state: torch.Tensor | None = None) -> torch.Tensor:
    """Return the training images' embeddings (n, D) in evaluation mode, under another state of the client's model."""
    with _under(client, state):
        embeddings, _ = forward_all(client.model, client.train_images)
    return embeddings


def training_layers(client: Client, state: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    """Return the same for every layer that can be compared: L tensors (n, D_l)."""
    client.model.eval()
    with _under(client, state), torch.inference_mode():
        parts = [client.model.layers(images)[0] for images in torch.split(client.train_images, EVALUATION_BATCH)]
    return tuple(torch.cat(layer) for layer in zip(*parts, strict=True))


@contextmanager
def _under(client: Client, state: torch.Tensor | None) -> Iterator[None]:
    """Put the client's model into another state, if there is one, and back at the end."""
    if state is None:
        yield
        return
    now = read_state(client.model)
    write_state(client.model, state)
    yield
    write_state(client.model, now)
