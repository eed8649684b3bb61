import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.client import Forward
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.training.loop import Correction, Training, draw_batches, run_steps, take_batch, train
from tests.support.learning.linear_client import new_client, schedule


def cross_entropy(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
    return F.cross_entropy(forward(images)[1], labels)


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.01)])
def test_training_takes_the_steps_of_torchs_sgd(momentum: float, weight_decay: float) -> None:
    client = new_client()
    train(Training(client, cross_entropy, schedule(momentum=momentum, weight_decay=weight_decay), 1))

    other = new_client()
    batches = draw_batches(10, 4, torch.Generator().manual_seed(2))
    optimizer = torch.optim.SGD(other.model.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for _ in range(6):
        batch = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(other.model(other.train_images[batch])[1], other.train_labels[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for found, expected in zip(client.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(found, expected)
    assert client.steps == 6


def test_batches_are_shuffled_passes_cut_into_full_batches() -> None:
    batches = draw_batches(10, 4, torch.Generator().manual_seed(0))
    passes = [torch.cat([next(batches), next(batches)]) for _ in range(50)]
    assert all(len(set(part.tolist())) == 8 for part in passes)
    assert {int(index) for part in passes for index in part} == set(range(10))
    assert len({tuple(part.tolist()) for part in passes}) > 40


def test_a_client_with_fewer_examples_than_a_batch_trains_on_all_of_them() -> None:
    batches = draw_batches(3, 32, torch.Generator())
    assert [sorted(next(batches).tolist()) for _ in range(3)] == [[0, 1, 2]] * 3


def test_a_loss_that_is_not_finite_is_reported_with_its_step() -> None:
    calls = iter(range(100))

    def breaking(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        factor = math.nan if next(calls) >= 3 else 1.0
        return cross_entropy(forward, images, labels, given) * factor

    with pytest.raises(TrainingDiverged) as caught:
        train(Training(new_client(), breaking, schedule(), 9))
    assert (caught.value.client, caught.value.round_number, caught.value.step) == (5, 9, 3)
    assert math.isnan(caught.value.loss)


def test_a_correction_is_added_to_the_gradient_before_decay_and_momentum() -> None:
    changes = {"momentum": 0.9, "weight_decay": 0.1}
    client, other = new_client(), new_client()
    anchor = read_vector(client.model)
    correct = Correction(lambda gradient, parameters, anchor: gradient + 0.5 * (parameters - anchor), (anchor,))
    train(Training(client, cross_entropy, schedule(**changes), 1, correct))

    def penalised(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        parameters = torch.cat([value.reshape(-1) for value in other.model.parameters()])
        return cross_entropy(forward, images, labels, given) + 0.25 * (parameters - anchor).square().sum()

    train(Training(other, penalised, schedule(**changes), 1))
    torch.testing.assert_close(read_vector(client.model), read_vector(other.model))


def test_each_gradient_is_corrected_when_its_turn_comes() -> None:
    """The tensors before it have moved by then, so that no second gradient of a whole model is ever held."""
    client = new_client()
    first, starts = next(client.model.parameters()), list[torch.Tensor]()

    def note(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        assert gradient.shape == parameter.shape
        starts.append(first.detach().clone())
        return gradient

    train(Training(client, cross_entropy, schedule(steps=1), 1, Correction(note, ())))
    assert len(starts) == len([*client.model.parameters()]) > 1
    assert not torch.equal(starts[0], starts[1])
    assert all(torch.equal(later, first) for later in starts[1:])


def test_an_idle_correction_changes_no_bit() -> None:
    client, other = new_client(), new_client()
    idle = Correction(lambda gradient, parameters: gradient, ())
    train(Training(client, cross_entropy, schedule(momentum=0.5), 1, idle))
    train(Training(other, cross_entropy, schedule(momentum=0.5), 1))
    assert torch.equal(read_vector(client.model), read_vector(other.model))


def test_the_loss_is_given_the_rows_of_the_same_examples() -> None:
    client = new_client()
    seen = []

    def loss(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        assert torch.equal(given, images)
        seen.append(len(given))
        return cross_entropy(forward, images, labels, given)

    train(Training(client, loss, schedule(), 1, given=lambda batch: client.train_images[batch]))
    assert seen == [4] * 6


def test_a_method_may_take_its_own_steps() -> None:
    client = new_client()
    client.model.eval()  # as an evaluation leaves it
    before = read_vector(client.model)
    shapes = []

    def step(images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        shapes.append(tuple(images.shape))
        assert client.model.training
        return torch.tensor(math.nan if len(shapes) == 5 else 0.0)

    with pytest.raises(TrainingDiverged, match="at step 4"):
        run_steps(client, step, schedule(), round_number=1)
    assert shapes == [(4, 1, 8, 8)] * 6
    assert client.steps == 6
    assert torch.equal(read_vector(client.model), before)


def test_images_are_augmented_anew_in_each_step_from_the_client_s_generator() -> None:
    def shifts(seed: int) -> list[float]:
        client = new_client()
        client.generator.manual_seed(seed)
        client.augmentation = lambda images, generator: images * 0 + torch.rand(1, generator=generator)
        return [float(take_batch(client, torch.arange(4))[0].mean()) for _ in range(3)]

    assert len({*shifts(1), *shifts(2)}) == 6
    assert shifts(1) == shifts(1)
