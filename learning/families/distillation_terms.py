"""Distillation between a client and a server: losses and weights of FedGKT, FedDKC and FedICT. B batch, C classes.

FedGKT: He et al., NeurIPS 2020 (arXiv:2007.14513). FedDKC: Wu et al., "Exploring the Distributed Knowledge Congruence
in Proxy-data-free Federated Distillation", ACM TIST 2024 (arXiv:2204.07028); its formulas are its authors' code's.
FedICT: Wu et al., "FedICT: Federated Multi-task Distillation for Multi-access Edge Computing", IEEE TPDS 2024
(arXiv:2301.00389), whose equations are numbered here. Knowledge is a model's output for an example: logits, or the
probabilities that a softmax with a temperature makes of them.
"""

import math

import torch
import torch.nn.functional as F

SCALE_MIN, SCALE_MAX = 1e-4, 1e3
"""Between these SKR looks for the number by which logits are divided."""

_BISECTIONS = 60
"""They narrow SKR's range, of 16 on a logarithmic scale, to numbers that float64 can tell apart."""

_RELEASED_TEMPERATURE = 3.0
"""Temperature of the divergence that FedICT's published code applies again to values that are softened already."""

_RELEASED_FLOOR = 1e-7
"""Number that the same code adds to a teacher's probabilities."""


def soften(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return probabilities (B, C)."""
    return F.softmax(logits / temperature, dim=1)


def divergence(
    teacher: torch.Tensor, logits: torch.Tensor, temperature: float = 1.0, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """T^2 sum_r w_r p_r log(p_r / q_r), mean over the batch; p (B, C) the teacher's probabilities, q = soften(logits).

    Without weights (C,) it is KL(p || q), the L_sim of Eqs. 2 and 4; with them, Eqs. 10 and 13. T^2 keeps the gradient
    as large as without temperature (Hinton et al., arXiv:1503.02531).
    """
    terms = torch.xlogy(teacher, teacher) - teacher * F.log_softmax(logits / temperature, dim=1)  # (B, C)
    weighted = terms if weights is None else weights * terms
    return temperature**2 * weighted.sum(dim=1).mean()


def frequency_weights(frequencies: torch.Tensor, temperature: float) -> torch.Tensor:
    """w = softmax(f / T), (C,): FPKD looks more at the client's frequent classes (Eq. 11)."""
    return F.softmax(frequencies / temperature, dim=0)


def residual_weights(common: torch.Tensor, own: torch.Tensor, temperature: float) -> torch.Tensor:
    """v = softmax((f^S - f^k) / U), (C,): class-balanced LKA looks less at the client's large classes (Eq. 14)."""
    return F.softmax((common - own) / temperature, dim=0)


def similarity(common: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """cos(d^S, d^k): similarity-based LKA listens to clients whose classes are distributed as everybody's (Eq. 12)."""
    return F.cosine_similarity(common, own, dim=0)


def released_divergence(
    teacher_logits: torch.Tensor, logits: torch.Tensor, temperature: float, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """FedICT's weighted divergence as its published code calculates it: the weighted one, and a plain one beside it.

    The plain one is calculated on softened values, so that both sides are softened twice: the teacher is then almost
    uniform. `weights` (C,) need not be positive there.
    """
    teacher = soften(teacher_logits, temperature) + _RELEASED_FLOOR  # (B, C)
    student = F.log_softmax(logits / temperature, dim=1)  # (B, C)
    terms = teacher * (teacher.log() - student)
    weighted = temperature**2 * (terms if weights is None else weights * terms).sum() / len(logits)
    twice = soften(teacher, _RELEASED_TEMPERATURE) + _RELEASED_FLOOR
    again = F.log_softmax(student / _RELEASED_TEMPERATURE, dim=1)
    plain = _RELEASED_TEMPERATURE**2 * (twice * (twice.log() - again)).sum() / len(logits)
    return weighted + plain


def refine_by_kernel(probabilities: torch.Tensor, peak: float) -> torch.Tensor:
    """FedDKC's KKR: a linear map of each row (B, C) to one that sums to 1 and whose largest is `peak`, from 1 / C on.

    phi(p) = ((C T - 1) p + max p - T) / (C max p - 1). Where that makes a probability negative, all but the largest
    share what is left. A uniform row has no largest, and stays.
    """
    classes = probabilities.shape[1]
    top, place = probabilities.max(dim=1, keepdim=True)  # (B, 1)
    excess = classes * top - 1
    is_uniform = excess <= classes * torch.finfo(probabilities.dtype).eps
    mapped = ((classes * peak - 1) * probabilities + top - peak) / torch.where(is_uniform, 1.0, excess)
    shared = torch.full_like(probabilities, (1 - peak) / (classes - 1)).scatter(1, place, peak)
    refined = torch.where((mapped < 0).any(dim=1, keepdim=True), shared, mapped)
    return torch.where(is_uniform, probabilities, refined)


def refine_by_search(logits: torch.Tensor, entropy_bits: float) -> torch.Tensor:
    """FedDKC's SKR: softmax(z / s) of each row (B, C), s such that its entropy is as stated; all rows are bisected
    at once.

    Where no s between `SCALE_MIN` and `SCALE_MAX` has it, the nearer of the two is taken.
    """
    exact = logits.double()
    low = torch.full((len(logits), 1), math.log(SCALE_MIN), dtype=torch.float64)
    high = torch.full_like(low, math.log(SCALE_MAX))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_sharp = entropy_in_bits(F.softmax(exact / middle.exp(), dim=1)) < entropy_bits  # (B, 1)
        low, high = torch.where(is_sharp, middle, low), torch.where(is_sharp, high, middle)
    return F.softmax(exact / ((low + high) / 2).exp(), dim=1).to(logits.dtype)


def entropy_in_bits(probabilities: torch.Tensor) -> torch.Tensor:
    """Return H = -sum_r p_r log2 p_r of each row, (B, 1)."""
    return -torch.xlogy(probabilities, probabilities).sum(dim=1, keepdim=True) / math.log(2)
