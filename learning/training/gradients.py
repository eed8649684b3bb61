"""The gradient of a step's loss: torch's own backward pass, asked for with less ceremony.

`torch.autograd.grad` accepts much beside one scalar loss, and looks for all of it in each call: for a logistic
regression that takes a quarter of a step.
"""

from collections.abc import Sequence

import torch

_ENGINE = torch._C._ImperativeEngine()  # without a state of its own: all are the process's one


def expect_gradient(loss: object) -> None:
    """Raise `RuntimeError` for a loss that depends on no parameter, as torch's own backward pass does. The gradients of
    `torch.func` are zeros there, and a training with noise on them would learn nothing and look like any other."""
    if isinstance(loss, torch.Tensor) and not loss.requires_grad:
        raise RuntimeError("it depends on no parameter that is trained, as what is computed under torch.no_grad")


def gradients_of(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return the gradient of a loss, one number, in each parameter; zeros in one that it does not depend on.

    They are those of `torch.autograd.grad(loss, parameters, materialize_grads=True)`, which computes or refuses all
    that is no plain tensor of one real number.
    """
    if type(loss) is not torch.Tensor or loss.numel() != 1 or not loss.is_floating_point():
        return torch.autograd.grad(loss, parameters, materialize_grads=True)
    keep_graph = create_graph = accumulate_grad = False
    found: Sequence[torch.Tensor | None] = _ENGINE.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        keep_graph,
        create_graph,
        tuple(parameters),
        allow_unreachable=True,
        accumulate_grad=accumulate_grad,
    )
    return [
        torch.zeros_like(value) if gradient is None else gradient
        for value, gradient in zip(parameters, found, strict=True)
    ]
