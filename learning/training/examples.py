"""The examples of a cohort's clients on a card: copied once for all rounds, and gathered there into a step's batches.

From the processor, batches of hundreds of clients take longer to look up, stack and send than to learn from.
K clients, B batch, N examples of all.
"""

from collections.abc import MutableMapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from fedchain.learning.client import Client

COPIES_SIZE_MAX = 1 << 31
"""Bytes of clients' examples that a process keeps on a card. A cohort that has more is sent each batch."""


class _Copy(NamedTuple):
    """A copy of a tensor on a card."""

    version: int
    """How often the tensor had been changed in place."""
    tensor: torch.Tensor


class Copies:
    """Copies on a card of tensors that are in use, the last ones used.

    A copy goes with its tensor. A tensor that was changed in place since, as torch counts it, is copied again. Torch
    does not count what is written through numpy or `.data`: code that changes examples so is not seen on a card.
    """

    def __init__(self, size_max: int = COPIES_SIZE_MAX) -> None:
        self._size_max = size_max
        self._held: MutableMapping[torch.Tensor, _Copy] = WeakTensorKeyDictionary()  # the least lately used first

    def of(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return the tensor's copy on a device."""
        held = self._held.pop(tensor, None)
        if held is None or held.version != tensor._version or held.tensor.device != device:
            held = _Copy(tensor._version, torch.empty_like(tensor, device=device).copy_(tensor))
            self._make_room(held.tensor.nbytes)
        self._held[tensor] = held
        return held.tensor

    def _make_room(self, size: int) -> None:
        sizes = [(key, copy.tensor.nbytes) for key, copy in self._held.items()]
        excess = size + sum(other for _, other in sizes) - self._size_max
        for key, other in sizes:
            if excess <= 0:
                return
            del self._held[key]
            excess -= other


_copies = Copies()


class Examples:
    """All training examples of some clients, on a device."""

    def __init__(self, clients: Sequence[Client], device: torch.device) -> None:
        self._clients, self._device = clients, device
        counts = [len(client.train_labels) for client in clients]
        self._starts = [0, *accumulate(counts[:-1])]
        self._gather()

    def place(self, client: int, batch: torch.Tensor) -> torch.Tensor:
        """Return where the examples of a client's batch (B,) are among all; clients count as they were given."""
        return batch + self._starts[client]

    def take(self, places: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return images (K, B, ...) and labels (K, B) at K clients' places (B,), on the device."""
        if self._versions != self._versions_now():
            self._gather()
        wanted = torch.stack([*places]).to(self._device)  # (K, B)
        images, labels = (
            values.index_select(0, wanted.ravel()).reshape(*wanted.shape, *values.shape[1:])
            for values in (self._images, self._labels)
        )
        return images, labels

    def _gather(self) -> None:
        self._versions = self._versions_now()
        images = (_copies.of(client.train_images, self._device) for client in self._clients)
        labels = (_copies.of(client.train_labels, self._device) for client in self._clients)
        self._images, self._labels = torch.cat([*images]), torch.cat([*labels])  # (N, ...), (N,)

    def _versions_now(self) -> list[tuple[int, int]]:
        """Return what differs once a client's own code has changed its examples."""
        tensors = (value for client in self._clients for value in (client.train_images, client.train_labels))
        return [(id(value), value._version) for value in tensors]


def are_moved(clients: Sequence[Client], device: torch.device) -> bool:
    """Whether the clients' examples go to a device: it is a card, they are not augmented, and not too many."""
    tensors = [value for client in clients for value in (client.train_images, client.train_labels)]
    return (
        device.type != "cpu"
        and all(client.augmentation is None for client in clients)
        and not any(value.is_inference() for value in tensors)
        and sum(value.nbytes for value in tensors) <= COPIES_SIZE_MAX
    )
