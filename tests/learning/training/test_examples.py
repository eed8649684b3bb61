"""A cohort's examples are found where they lie, whatever happens to them in between."""

import gc

import pytest
import torch

from fedchain.learning.training import examples
from fedchain.learning.training.examples import Copies, Examples, are_moved
from tests.support.learning.cohorts import new_clients
from tests.support.learning.devices import CARD, CPU, DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_each_client_is_given_its_own_examples(device: torch.device) -> None:
    clients = new_clients("digits-mlp", 3)
    clients[1].train_images, clients[1].train_labels = clients[1].train_images[:5], clients[1].train_labels[:5]
    batches = [torch.tensor(batch) for batch in ([8, 0], [4, 4], [0, 7])]
    together = Examples(clients, device)
    images, labels = together.take([together.place(place, batch) for place, batch in enumerate(batches)])
    assert images.device == labels.device == device
    for place, (client, batch) in enumerate(zip(clients, batches, strict=True)):
        assert torch.equal(images[place].cpu(), client.train_images[batch])
        assert torch.equal(labels[place].cpu(), client.train_labels[batch])


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_client_does_to_its_examples_shows_in_the_next_batch(device: torch.device) -> None:
    clients = new_clients("digits-mlp", 2)
    together, places = Examples(clients, device), [torch.tensor([0]), torch.tensor([9])]
    together.take(places)
    clients[1].train_images[0] = 7.0
    assert (together.take(places)[0][1] == 7.0).all()
    clients[0].train_labels = clients[0].train_labels + 1
    assert together.take(places)[1][0].tolist() == clients[0].train_labels[:1].tolist()


def test_a_copy_is_made_once_and_again_after_a_change() -> None:
    copies, tensor = Copies(), torch.zeros(4)
    first = copies.of(tensor, CPU)
    assert first is not tensor
    assert copies.of(tensor, CPU) is first
    tensor += 1
    assert copies.of(tensor, CPU).tolist() == [1.0] * 4


def test_copies_stay_within_their_size_and_the_least_lately_used_goes() -> None:
    copies = Copies(size_max=2 * 16)
    one, two, three = (torch.full((4,), float(value)) for value in range(3))
    first, second = copies.of(one, CPU), copies.of(two, CPU)
    assert copies.of(one, CPU) is first
    third = copies.of(three, CPU)
    assert copies.of(one, CPU) is first
    assert copies.of(three, CPU) is third
    assert copies.of(two, CPU) is not second


def test_a_copy_goes_with_its_tensor() -> None:
    copies, tensor = Copies(), torch.zeros(4)
    copies.of(tensor, CPU)
    assert len(copies._held) == 1
    del tensor
    gc.collect()
    assert len(copies._held) == 0


def test_examples_that_are_augmented_or_too_many_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = new_clients("digits-mlp", 2)
    assert are_moved(clients, CARD)
    assert not are_moved(clients, CPU)
    size = sum(client.train_images.nbytes + client.train_labels.nbytes for client in clients)
    monkeypatch.setattr(examples, "COPIES_SIZE_MAX", size - 1)
    assert not are_moved(clients, CARD)
    monkeypatch.setattr(examples, "COPIES_SIZE_MAX", size)
    assert are_moved(clients, CARD)
    clients[1].augmentation = lambda images, generator: images
    assert not are_moved(clients, CARD)
