"""AdamW against torch's own, in float64."""

import torch

from fedchain.learning.training.adamw import AdamW, AdamWSchedule


def loss_of(parameters: list[torch.Tensor]) -> torch.Tensor:
    first, second = parameters
    return (first.square().sum() - 1).square() + (first @ second - 2).square().sum()


def test_its_steps_are_torchs() -> None:
    draw = torch.Generator().manual_seed(0)
    start = [torch.randn(3, 4, generator=draw).double(), torch.randn(4, 2, generator=draw).double()]
    ours = [value.clone().requires_grad_() for value in start]
    theirs = [value.clone().requires_grad_() for value in start]
    optimizer = AdamW(ours, AdamWSchedule(learning_rate=0.02, epochs=1, batch_size=1, weight_decay=0.1))
    reference = torch.optim.AdamW(theirs, lr=0.02, weight_decay=0.1)
    for _ in range(30):
        optimizer.step(loss_of(ours))
        reference.zero_grad()
        torch.autograd.backward(loss_of(theirs))
        reference.step()
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)
    assert loss_of(ours).item() < loss_of(start).item()
