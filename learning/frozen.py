"""What a model that stands still makes of a client's images: constants of a round's training, calculated once.

n examples of the client, D embedding, D_l width of layer l.
"""

import torch

from fedchain.learning.method import Client
from fedchain.learning.prototypes import EVALUATION_BATCH, forward_all
from fedchain.learning.vectors import read_state, write_state


def frozen_embeddings(client: Client, state: torch.Tensor | None = None) -> torch.Tensor:
    """Return the training images' embeddings (n, D) in evaluation mode, under another state of the client's model."""
    now = read_state(client.model)
    if state is not None:
        write_state(client.model, state)
    embeddings, _ = forward_all(client.model, client.train_images)
    write_state(client.model, now)
    return embeddings


def frozen_layers(client: Client, state: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    """Return the same for every layer that can be compared: L tensors (n, D_l)."""
    now = read_state(client.model)
    if state is not None:
        write_state(client.model, state)
    client.model.eval()
    with torch.inference_mode():
        parts = [client.model.layers(images)[0] for images in torch.split(client.train_images, EVALUATION_BATCH)]
    write_state(client.model, now)
    return tuple(torch.cat(layer) for layer in zip(*parts, strict=True))
