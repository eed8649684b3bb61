"""The encryptor of FedEDS: a network that makes images unreadable, so that the classifier still knows them.

Li et al., 2025 (arXiv:2506.20644), Eqs. 3 and 4. C classes, n images, l_k stochastic layer of client k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.families.encrypted_data import images_in_part
from fedchain.learning.payload.pixels import PixelType, pack_images, unpack_images
from fedchain.learning.training.schedule import Schedule, batches_per_pass

if TYPE_CHECKING:
    from fedchain.learning.client import Client
    from fedchain.learning.models.stochastic import StochasticLayer


def encrypt_images(
    client: Client, layer: StochasticLayer, width: int, schedule: Schedule, kind: PixelType, round_number: int
) -> Iterator[dict[str, NDArray[Any]]]:
    """Train an encryptor (Eq. 3) and yield D_k^F (Eq. 4) in parts: images, and `teacher` (n, C).

    The teacher looks at what the others will see. The client's model stays as it is, in evaluation mode.

    Args:
        client: the client, whose model ends with a pooling.
        layer: l_k.
        width: channels of the encryptor's first level.
        schedule: the steps of the training.
        kind: how pixels are sent.
        round_number: for the error.

    Raises:
        TrainingDiverged: the teacher sees no numbers.
    """
    import torch
    import torch.nn.functional as F

    from fedchain.learning.models.plain import PooledModel
    from fedchain.learning.models.prototypes import EVALUATION_BATCH
    from fedchain.learning.models.unet import build_unet
    from fedchain.learning.seeding import derive
    from fedchain.learning.training.loop import train_network

    model, images, labels = client.model, client.train_images, client.train_labels
    assert isinstance(model, PooledModel), "the configuration was validated"
    shape = tuple(images.shape[1:])
    encryptor = build_unet(shape, width, derive(client.generator.initial_seed(), "encryptor"))
    model.eval()

    def loss(batch: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model.forward_through(layer, encryptor(images[batch])), labels[batch])  # Eq. 3

    train_network(list(encryptor.parameters()), loss, schedule, len(labels), client.generator)
    client.steps += schedule.epochs * batches_per_pass(len(labels), schedule.batch_size)
    encryptor.eval()
    with torch.inference_mode():
        for part in torch.split(images, images_in_part(images[0].numel(), client.info.classes)):
            made = torch.cat([encryptor(batch) for batch in torch.split(part, EVALUATION_BATCH)])
            rows = pack_images(made.numpy(), kind)
            seen = torch.from_numpy(unpack_images(rows, shape))
            logits = [model.forward_through(layer, batch) for batch in torch.split(seen, EVALUATION_BATCH)]
            teacher = torch.softmax(torch.cat(logits), dim=1)
            if not bool(torch.isfinite(teacher).all()):
                raise TrainingDiverged(client.index, round_number, client.steps, math.nan)
            yield rows | {"teacher": teacher.numpy()}
