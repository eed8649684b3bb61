"""FedReg against its equations, and its reduction to FedAvg."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.methods import fedreg
from fedchain.learning.methods.fedreg import FedReg, excess, projection, soft_cross_entropy
from fedchain.learning.models.vectors import gradient_vector, read_vector, write_vector
from fedchain.learning.round import Round
from fedchain.learning.training.loop import draw_batches
from tests.support.learning.federation import Federation, common_model, config, fedavg_on, new_client

FIRST = Round(1, None)


def gradient_at(point: torch.Tensor, images: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    client = new_client()
    write_vector(client.model, point)
    return gradient_vector(F.cross_entropy(client.model(images)[1], target), client.model)


@pytest.mark.parametrize("weighting", ["examples", "clients"])
def test_without_projections_and_slowness_it_is_fedavg_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, weighting: str
) -> None:
    monkeypatch.setattr(fedreg, "excess", lambda change, gradient: torch.tensor(0.0))
    task = config("fedreg", slowness=1.0, weighting=weighting, momentum=0.5)
    ours, fedavg = Federation(task), Federation(fedavg_on(task, weighting=weighting, momentum=0.5))
    ours.play(3)
    fedavg.play(3)
    assert common_model(ours.known()) == common_model(fedavg.known())


def test_pseudo_data_climb_the_common_models_loss_and_leave_the_originals_alone() -> None:
    client, method = new_client(), FedReg(pseudo_rate=0.2, batch_size=4)
    before = client.train_images.clone()
    generated = list(method.generate(client))
    assert torch.equal(client.train_images, before)
    assert len(generated) == 3
    batches = draw_batches(12, 4, torch.Generator().manual_seed(2))
    client.model.requires_grad_(False)
    for one in generated:
        batch = next(batches)
        images, labels = client.train_images[batch], client.train_labels[batch]
        assert torch.equal(one.perturbed_labels, labels)
        torch.testing.assert_close(one.pseudo_labels, torch.softmax(client.model(one.pseudo_images)[1], 1))
        assert one.pseudo_images.data_ptr() != one.perturbed_images.data_ptr()
        assert float((one.pseudo_images - images).abs().max()) <= 10 * 0.2 + 1e-5
        assert 0 < float((one.perturbed_images - images).abs().max()) <= 10 * 0.002 + 1e-5
        losses = [
            float(F.cross_entropy(client.model(shown)[1], labels))
            for shown in (images, one.perturbed_images, one.pseudo_images)
        ]
        assert losses == sorted(losses)
        assert losses[0] < losses[1] < losses[2]


def test_data_are_generated_in_evaluation_mode() -> None:
    """In training mode an example's would depend on its batch, and would move the model's running means."""
    method, client = FedReg(pseudo_rate=0.2, batch_size=4), new_client(12, "digits-mlp-bn")
    statistics = {name: value.clone() for name, value in client.model.named_buffers()}
    for generate in (lambda: list(method.generate(client)), lambda: method.generate_for_all(client)):
        client.model.train()
        generate()
        assert all(torch.equal(value, statistics[name]) for name, value in client.model.named_buffers())
        assert not client.model.training


def test_a_generation_step_is_a_signed_gradient_step() -> None:
    client = new_client(4)
    images = client.train_images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(client.model(images)[1], client.train_labels), images)
    found = FedReg(generation_steps=1).ascend(client.model, client.train_images, client.train_labels, 0.05)
    torch.testing.assert_close(found, client.train_images + 0.05 * gradient.sign())


@pytest.mark.parametrize("modified", [False, True])
def test_a_step_is_equation_11(modified: bool) -> None:
    method = FedReg(slowness=0.4, local_steps=5, batch_size=4, modified_gradient=modified)
    client = new_client()
    common = read_vector(client.model)
    generated = list(method.generate(client))
    method.update(client, FIRST)

    batches, theta = draw_batches(12, 4, torch.Generator().manual_seed(2)), common.clone()
    for step in range(5):  # from the fourth on, the data are generated from other examples than the step's own
        batch, data = next(batches), generated[step % 3]
        images, labels = client.train_images[batch], client.train_labels[batch]
        at_gamma = 0.4 * theta + 0.6 * common
        gradient = gradient_at(at_gamma, images, labels)
        if modified:
            own = method.ascend(new_client().model, images, labels, 0.1)
            semantic = gradient_at(at_gamma, own, torch.full((4, 10), 0.1))
            gradient = gradient - (gradient @ semantic) / (semantic @ semantic) * semantic
            assert abs(float(gradient @ semantic)) < 1e-4
        theta = theta - 0.1 * gradient
        at_beta = 0.5 * (theta + common)
        pseudo = gradient_at(at_beta, data.pseudo_images, data.pseudo_labels)
        perturbed = gradient_at(at_beta, data.perturbed_images, data.perturbed_labels)
        w_s = max(float((theta - common) @ pseudo / (pseudo @ pseudo)), 0.0)
        w_p = max(float((theta - w_s * pseudo - common) @ perturbed / (perturbed @ perturbed)), 0.0)
        theta = theta - w_s * pseudo - w_p * perturbed
    torch.testing.assert_close(read_vector(client.model), theta, atol=1e-5, rtol=1e-4)


def test_after_a_step_the_change_does_not_go_uphill_on_perturbed_data(monkeypatch: pytest.MonkeyPatch) -> None:
    client, method = new_client(), FedReg(learning_rate=0.5, pseudo_rate=0.3, batch_size=4)
    common, step = read_vector(client.model), method.step(client, method.schedule_in(1))
    generated = list(method.generate(client))
    calls: list[tuple[torch.Tensor, float]] = []

    def recording(change: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        weight = excess(change, gradient)
        calls.append((gradient, float(weight)))
        return weight

    monkeypatch.setattr(fedreg, "excess", recording)
    uphill = 0
    for number, batch in zip(range(60), draw_batches(12, 4, torch.Generator().manual_seed(2)), strict=False):
        wrong = (client.train_labels[batch] + 1) % 3  # what goes downhill on these goes uphill on the perturbed data
        step(client.train_images[batch], wrong, generated[number % 3])
        perturbed, w_p = calls[-1]
        change = read_vector(client.model) - common
        assert float(change @ perturbed) <= 1e-4 * float(change.norm() * perturbed.norm())
        uphill += w_p > 0
    assert uphill > 5  # the constraint was at work


@pytest.mark.parametrize("seed", range(10))
def test_the_excess_is_what_must_go_for_the_change_not_to_go_uphill(seed: int) -> None:
    change, gradient = torch.randn(2, 50, generator=torch.Generator().manual_seed(seed)).double()
    weight = excess(change, gradient)
    left = float((change - weight * gradient) @ gradient)
    assert left == pytest.approx(0.0, abs=1e-9) if float(weight) > 0 else left <= 0


def test_vanishing_gradients_divide_by_no_zero() -> None:
    nothing, something = torch.zeros(3), torch.ones(3)
    assert float(excess(something, nothing)) == 0.0
    assert projection(something, nothing).tolist() == [0.0, 0.0, 0.0]
    saturated = soft_cross_entropy(torch.tensor([[0.0, 1000.0]]), torch.tensor([[1.0, 0.0]]))
    assert torch.isfinite(saturated)


def test_the_soft_loss_of_a_hard_label_is_cross_entropy() -> None:
    logits, labels = (
        torch.randn(5, 4, generator=torch.Generator().manual_seed(3)).double(),
        torch.tensor([0, 3, 1, 1, 2]),
    )
    found = soft_cross_entropy(logits, F.one_hot(labels, 4).double())
    assert float(found) == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-9)


@pytest.mark.parametrize("changes", [{"slowness": 0.2}, {"modified_gradient": True}, {"pseudo_rate": 0.5}])
def test_each_setting_makes_a_difference(changes: dict[str, Any]) -> None:
    ours, default = Federation(config("fedreg", **changes)), Federation(config("fedreg"))
    ours.play()
    default.play()
    assert common_model(ours.known()) != common_model(default.known())
