"""DFPL against its formulas, on tensors small enough to follow."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.client import Client
from fedchain.learning.families.prototypes import Known, known_prototypes
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.models.prototypes import class_means
from fedchain.learning.models.registry import describe_model
from fedchain.learning.models.vectors import gradient_vector, read_vector, write_vector
from fedchain.learning.round import Round
from fedchain.learning.training.loop import draw_batches
from tests.support.learning.federation import new_client
from tests.support.learning.formulas import (
    CROSS_ENTROPY,
    EMBEDDING,
    IS_KNOWN,
    LABELS,
    LOGITS,
    PROTOTYPES,
    B,
    C,
    D,
    aggregate,
    loss_of,
    posted,
)


@pytest.mark.parametrize("regularizer", ["mse", "norm"])
def test_dfpl_without_knowledge_is_cross_entropy(regularizer: Any) -> None:
    nothing = torch.zeros(C, dtype=torch.bool)
    assert loss_of(Dfpl(regularizer=regularizer), nothing) == pytest.approx(CROSS_ENTROPY, rel=1e-12)


def test_of_the_knowledge_s_classes_alone_is_anything_known() -> None:
    knowledge = {"labels": np.array([1, 4]), "prototypes": np.full((2, 32), 0.5, np.float32)}
    known = known_prototypes(describe_model("digits-mlp"), Round(2, knowledge))
    assert known.is_known.nonzero().flatten().tolist() == [1, 4]
    assert bool((known.prototypes[[1, 4]] == 0.5).all())
    assert not known_prototypes(describe_model("digits-mlp"), Round(1, None)).is_known.any()


def test_dfpl_mse_is_the_mean_squared_distance_with_unknown_classes_at_no_distance() -> None:
    target = torch.stack([PROTOTYPES[y] if IS_KNOWN[y] else EMBEDDING[b] for b, y in enumerate(LABELS)])
    expected = CROSS_ENTROPY + 0.7 * float(F.mse_loss(EMBEDDING, target))
    assert loss_of(Dfpl(regularizer_weight=0.7)) == pytest.approx(expected, rel=1e-12)


def test_dfpl_norm_is_equation_4() -> None:
    distances = [
        float((EMBEDDING[i == LABELS].mean(0) - PROTOTYPES[i]).norm()) for i in (0, 2)
    ]  # 1 unknown, 3 not drawn
    expected = CROSS_ENTROPY + 0.7 * sum(distances) / 2
    assert loss_of(Dfpl(regularizer="norm", regularizer_weight=0.7)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("regularizer", ["mse", "norm"])
def test_dfpl_gradients_are_finite_where_a_class_sits_on_its_prototype(regularizer: Any) -> None:
    embedding = PROTOTYPES[LABELS].clone().requires_grad_()
    given = Known(PROTOTYPES, IS_KNOWN)
    loss = Dfpl(regularizer=regularizer).loss(lambda _: (embedding, LOGITS), torch.zeros(B, 1), LABELS, given)
    (gradient,) = torch.autograd.grad(loss, embedding)
    assert torch.isfinite(gradient).all()


def test_the_regularizer_pulls_towards_the_prototype() -> None:
    embedding = EMBEDDING.clone().requires_grad_()
    given = Known(PROTOTYPES, IS_KNOWN)
    Dfpl().loss(lambda _: (embedding, LOGITS), torch.zeros(B, 1), LABELS, given).backward()  # type: ignore[no-untyped-call]
    assert embedding.grad is not None
    expected = 2 / (B * D) * (EMBEDDING - PROTOTYPES[LABELS]) * IS_KNOWN[LABELS].unsqueeze(1)
    torch.testing.assert_close(embedding.grad, expected)


def stepped(client: Client, method: Dfpl, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Take plain SGD's steps on a client's model; return labels and embeddings of each, as training saw them."""
    batches, seen = draw_batches(len(client.train_labels), method.batch_size, client.generator), []
    client.model.train()
    for batch in islice(batches, steps):
        embedding, logits = client.model(client.train_images[batch])
        seen.append((client.train_labels[batch], embedding.detach()))
        gradient = gradient_vector(F.cross_entropy(logits, client.train_labels[batch]), client.model)
        write_vector(client.model, read_vector(client.model) - method.learning_rate * gradient)
    return seen


def test_prototypes_are_those_of_all_examples_under_the_trained_model_in_evaluation_mode() -> None:
    method = Dfpl(local_steps=3, batch_size=8)
    found = method.update(new_client(300, "digits-mlp-bn"), Round(1, None))
    client = new_client(300, "digits-mlp-bn")
    stepped(client, method, 3)
    with torch.no_grad():
        embeddings, _ = client.model.eval()(client.train_images)
    expected = torch.stack([embeddings[client.train_labels == label].double().mean(0) for label in range(3)])
    assert found["counts"].tolist() == [100, 100, 100]
    torch.testing.assert_close(torch.from_numpy(found["prototypes"]).double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("steps", "last"), [(6, 3), (2, 2)])
def test_prototypes_of_the_last_epoch_are_of_its_batches_as_training_saw_them(steps: int, last: int) -> None:
    """Three batches a pass, and two examples of each that are left out."""
    method = Dfpl(local_steps=steps, batch_size=4, prototype_source="last_epoch")
    found = method.update(new_client(14, "digits-mlp-bn"), Round(1, None))
    client = new_client(14, "digits-mlp-bn")
    labels, embeddings = map(torch.cat, zip(*stepped(client, method, steps)[-last:], strict=True))
    means = class_means(embeddings, labels, 10)
    assert found["counts"].tolist() == means.counts.tolist()
    assert sum(found["counts"].tolist()) == 4 * last
    torch.testing.assert_close(torch.from_numpy(found["prototypes"]), means.prototypes, rtol=1e-4, atol=1e-5)


def test_dfpl_averages_over_the_holders_of_a_class() -> None:
    found = aggregate(Dfpl(), [posted([0, 2], [9, 1], [[1, 2], [3, 4]]), posted([2], [3], [[7, 8]])])
    assert found["labels"].tolist() == [0, 2]
    assert found["holders"].tolist() == [1, 2]
    assert found["prototypes"].tolist() == [[1, 2], [5, 6]]


def test_dfpl_divides_by_all_clients_as_printed() -> None:
    found = aggregate(Dfpl(aggregation="all"), [posted([0, 2], [9, 1], [[1, 2], [3, 4]]), posted([2], [3], [[7, 8]])])
    assert found["prototypes"].tolist() == [[0.5, 1], [5, 6]]
    assert found["holders"].tolist() == [1, 2]


def test_dfpl_weighted_by_samples_is_the_mean_of_the_pooled_data() -> None:
    rng = torch.Generator().manual_seed(3)
    embeddings, labels = torch.rand(60, D, generator=rng), torch.randint(C, (60,), generator=rng)
    payloads = []
    for part in torch.arange(60).tensor_split([5, 30]):
        means = class_means(embeddings[part], labels[part], C)
        payloads.append(posted(means.labels.tolist(), means.counts.tolist(), means.prototypes.numpy()))
    pooled = class_means(embeddings, labels, C)
    found = aggregate(Dfpl(aggregation="samples"), payloads)
    assert found["labels"].tolist() == pooled.labels.tolist()
    np.testing.assert_allclose(found["prototypes"], pooled.prototypes.numpy(), rtol=1e-6)


@pytest.mark.parametrize("aggregation", ["holders", "samples", "all"])
def test_dfpl_keeps_prototypes_on_which_all_agree(aggregation: Any) -> None:
    same = posted([0, 1], [3, 8], np.random.default_rng(0).normal(size=(2, D)))
    found = aggregate(Dfpl(aggregation=aggregation), [same] * 7)
    assert found["prototypes"].tobytes() == same["prototypes"].tobytes()


def test_the_term_beside_cross_entropy_is_the_pull_with_its_weight() -> None:
    known = {"labels": np.array([0, 1]), "prototypes": np.full((2, 32), 0.5, np.float32)}
    client, round = new_client(), Round(2, known)
    embedding, labels = torch.rand(3, 32), torch.tensor([0, 1, 2])
    method = Dfpl(regularizer_weight=0.25)
    weight, value = method.auxiliary(client, round)(embedding, labels)
    assert weight == 0.25
    assert float(value) == pytest.approx(float((embedding[:2] - 0.5).square().sum()) / (3 * 32), rel=1e-6)
