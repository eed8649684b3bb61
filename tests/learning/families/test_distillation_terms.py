"""The terms of FedGKT, FedDKC and FedICT in float64, each against its formula written in numpy."""

from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.families.distillation_terms import (
    SCALE_MAX,
    divergence,
    entropy_in_bits,
    frequency_weights,
    refine_by_kernel,
    refine_by_search,
    released_divergence,
    residual_weights,
    similarity,
    soften,
)

Array = np.ndarray[Any, np.dtype[np.float64]]

RNG = np.random.default_rng(7)
TEACHER, STUDENT = RNG.normal(0, 2, (4, 5)), RNG.normal(0, 2, (4, 5))
OWN, COMMON = np.array([0.5, 0.2, 0.2, 0.1, 0.0]), np.array([0.1, 0.3, 0.2, 0.2, 0.2])


def softmax(values: Array) -> Array:
    exponentials = np.exp(values)
    softened: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return softened


def tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(values)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_divergence_has_the_teacher_first(temperature: float) -> None:
    p, q = softmax(TEACHER / temperature), softmax(STUDENT / temperature)
    expected = temperature**2 * np.mean([sum(p[b] * np.log(p[b] / q[b])) for b in range(4)])
    ours = divergence(soften(tensor(TEACHER), temperature), tensor(STUDENT), temperature)
    assert float(ours) == pytest.approx(expected, rel=1e-12)
    same = divergence(soften(tensor(STUDENT), temperature), tensor(STUDENT), temperature)
    assert float(same) == pytest.approx(0.0, abs=1e-12)


def test_a_teacher_that_is_sure_has_a_finite_divergence() -> None:
    sure = torch.eye(5, dtype=torch.float64)[:4]
    expected = -np.mean(np.log(softmax(STUDENT))[range(4), range(4)])
    assert float(divergence(sure, tensor(STUDENT), 1.0)) == pytest.approx(expected, rel=1e-12)


def test_a_softened_divergence_has_gradients_of_one_size() -> None:
    sizes = []
    for temperature in (1.0, 100.0):
        logits = tensor(STUDENT * 0.01).requires_grad_()
        divergence(soften(tensor(TEACHER * 0.01), temperature), logits, temperature).backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        sizes.append(float(logits.grad.norm()))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_fpkd_weights_classes_by_their_frequencies() -> None:
    w = np.exp(OWN / 3) / sum(np.exp(f / 3) for f in OWN)  # Eq. 11
    assert frequency_weights(tensor(OWN), 3.0).numpy() == pytest.approx(w, rel=1e-12)
    p, q = softmax(TEACHER), softmax(STUDENT)
    expected = np.mean([sum(w[r] * p[b, r] * np.log(p[b, r] / q[b, r]) for r in range(5)) for b in range(4)])  # Eq. 10
    ours = divergence(soften(tensor(TEACHER), 1.0), tensor(STUDENT), 1.0, frequency_weights(tensor(OWN), 3.0))
    assert float(ours) == pytest.approx(expected, rel=1e-12)


def test_the_printed_weights_are_nearly_equal() -> None:
    """For ten classes, T = 3 and U = 7; the extremes are those of a client that has one class alone, or lacks one that
    is everybody's. docs/methods.md states them."""
    one, other = torch.eye(10, dtype=torch.float64)[:2]
    rest = (1 - one) / 9
    w = frequency_weights(one, 3.0)
    assert (float(w.min()), float(w.max())) == pytest.approx((0.0962, 0.1343), abs=5e-5)
    lowest, highest = residual_weights(other, one, 7.0), residual_weights(one, rest, 7.0)
    assert (float(lowest.min()), float(highest.max())) == pytest.approx((0.0865, 0.1152), abs=5e-5)
    for own, common in np.random.default_rng(0).dirichlet(np.full(10, 0.1), size=(200, 2)):
        of_client, of_both = frequency_weights(tensor(own), 3.0), residual_weights(tensor(common), tensor(own), 7.0)
        assert w.min() - 1e-12 < of_client.min() <= of_client.max() < w.max() + 1e-12
        assert lowest.min() - 1e-12 < of_both.min() <= of_both.max() < highest.max() + 1e-12


def test_balanced_adjustment_weights_classes_by_what_is_missing() -> None:
    v = np.exp((COMMON - OWN) / 7) / sum(np.exp((s - k) / 7) for s, k in zip(COMMON, OWN, strict=True))  # Eq. 14
    assert residual_weights(tensor(COMMON), tensor(OWN), 7.0).numpy() == pytest.approx(v, rel=1e-12)
    assert v.argmin() == 0, "the class that the client has more of than others"
    p, q = softmax(TEACHER), softmax(STUDENT)
    expected = np.mean([sum(v[r] * p[b, r] * np.log(p[b, r] / q[b, r]) for r in range(5)) for b in range(4)])  # Eq. 13
    weights = residual_weights(tensor(COMMON), tensor(OWN), 7.0)
    assert float(divergence(soften(tensor(TEACHER), 1.0), tensor(STUDENT), 1.0, weights)) == pytest.approx(expected)


def test_similarity_is_the_cosine_of_the_distributions() -> None:
    expected = sum(COMMON * OWN) / np.sqrt(sum(COMMON**2) * sum(OWN**2))  # Eq. 12
    assert float(similarity(tensor(COMMON), tensor(OWN))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("temperature", [3.0, 2.0])
def test_the_released_code_softens_twice(temperature: float) -> None:
    """Its KLDivLoss, sum q (log q - input) / B, gets softened inputs and softens them again, by 3 whatever was set."""
    teacher, student = softmax(TEACHER / temperature) + 1e-7, np.log(softmax(STUDENT / temperature))
    twice, again = softmax(teacher / 3) + 1e-7, np.log(softmax(student / 3))
    plain = 9 * (twice * (np.log(twice) - again)).sum() / 4
    for weights in (None, OWN / 3, (COMMON - OWN) / 7):
        linear = np.ones(5) if weights is None else weights
        weighted = temperature**2 * (linear * teacher * (np.log(teacher) - student)).sum() / 4
        given = None if weights is None else tensor(weights)
        ours = released_divergence(tensor(TEACHER), tensor(STUDENT), temperature, given)
        assert float(ours) == pytest.approx(plain + weighted, rel=1e-12)
    assert np.ptp(twice) < 0.1, "the teacher that is softened twice is almost uniform"
    assert plain < 9 * (teacher * (np.log(teacher) - student)).sum() / 4 / 2


@pytest.mark.parametrize("peak", [0.2, 0.24, 0.5, 0.9])
def test_kernel_refinement_has_its_peak_and_sums_to_one(peak: float) -> None:
    rows = softmax(np.vstack([TEACHER, 30 * TEACHER, np.zeros((1, 5)), [[1.0, 1.0, 0.0, 0.0, 0.0]]]))
    refined = refine_by_kernel(tensor(rows), peak).numpy()
    assert refined.sum(axis=1) == pytest.approx(np.ones(10), abs=1e-12)
    assert (refined >= 0).all()
    is_uniform = np.ptp(rows, axis=1) < 1e-12
    assert is_uniform.sum() == 1
    assert refined[is_uniform] == pytest.approx(rows[is_uniform])
    assert refined[~is_uniform].max(axis=1) == pytest.approx(np.full(9, peak), abs=1e-12)
    for row, mapped in zip(rows[~is_uniform], refined[~is_uniform], strict=True):
        linear = ((5 * peak - 1) * row + row.max() - peak) / (5 * row.max() - 1)
        if (linear < 0).any():
            linear = np.where(np.arange(5) == row.argmax(), peak, (1 - peak) / 4)
        assert mapped == pytest.approx(linear, abs=1e-12)


def test_a_linear_map_that_would_be_negative_shares_what_the_peak_leaves() -> None:
    refined = refine_by_kernel(torch.tensor([[0.4, 0.35, 0.25]], dtype=torch.float64), 0.95)
    assert refined.tolist()[0] == pytest.approx([0.95, 0.025, 0.025])


@pytest.mark.parametrize("classes", [5, 10])
def test_refinement_by_search_has_its_entropy(classes: int) -> None:
    logits = torch.from_numpy(RNG.normal(0, 1, (50, classes)) * RNG.uniform(0.01, 30, (50, 1)))
    wanted = 0.9 * np.log2(classes)
    refined = refine_by_search(logits, wanted)
    entropies = -(refined * refined.log2()).sum(dim=1).numpy()
    assert entropies == pytest.approx(np.full(50, wanted), abs=1e-4)
    assert entropy_in_bits(refined)[:, 0].numpy() == pytest.approx(entropies)
    assert torch.equal(refined.argsort(dim=1), logits.argsort(dim=1)), "the order of the classes stays"
    single = refine_by_search(logits.float(), wanted)
    assert single.dtype == torch.float32
    assert entropy_in_bits(single.double()).numpy() == pytest.approx(np.full((50, 1), wanted), abs=1e-4)


def test_an_entropy_that_no_scale_has_takes_the_nearest() -> None:
    logits = torch.tensor([[1e5, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    refined = refine_by_search(logits, 1.5)
    assert refined[0].tolist() == pytest.approx(torch.softmax(logits[0] / SCALE_MAX, 0).tolist())
    assert refined[1].tolist() == pytest.approx([1 / 3] * 3)


def test_a_row_that_is_uniform_but_for_rounding_has_no_peak() -> None:
    """Its largest number is the largest by chance: no class may become the peak by that."""
    row = torch.full((1, 10), 0.1)
    row[0, 3] = torch.nextafter(row[0, 3], torch.tensor(1.0))
    assert torch.equal(refine_by_kernel(row, 0.5), row)
