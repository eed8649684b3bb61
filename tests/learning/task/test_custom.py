"""A user's function brings model and data: clients learn from it, repeatably, and its faults are told in one line."""

import json
import math
import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import TensorDataset

from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.models.large import Mlp
from fedchain.learning.models.model_info import read_model_info, write_model_info
from fedchain.learning.round import OffChain
from fedchain.learning.task.custom import build_own_module, describe_task, load_task, open_data_source
from fedchain.learning.worker.checkpoint import MODEL_PREFIX
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import Federation, check, read_payload
from tests.support.learning.own_task import Net, config, load, points

METHODS = ("dfpl", "fedavg", "blade-fl", "solo")


class Half(Net):
    """With frozen numbers of half the size."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> Any:
        embedding = torch.relu(self.norm(self.hidden(x + self.frozen(x.to(torch.bfloat16)).float())))
        return embedding, self.head(embedding)


class Plain(Net):
    """Returns logits alone."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)[1]


def returns(value: Any) -> Callable[[], Any]:
    return lambda: value


def overflown() -> Net:
    """A model that was trained too fast before it came here."""
    model = Net()
    with torch.no_grad():
        model.head.bias[1] = torch.inf
    return model


@pytest.mark.parametrize("method", METHODS)
def test_clients_learn_from_their_own_data_and_anybody_can_aggregate(method: str) -> None:
    chosen = describe_task(config(method), load)
    chosen.validate()
    rules, learner, knowledge = Application(chosen), Learner(chosen, load), b""
    for number in (1, 2, 3):
        made = [learner.contribute(k, "update", number, knowledge, evaluate_test=True) for k in range(3)]
        posts = [(bytes([k]), made[k].payload) for k in range(3)]
        for _, payload in posts:
            check(rules, payload)
        knowledge = rules.aggregate(OffChain("update", number), knowledge, posts)
    assert min(contribution.trained.local_accuracy for contribution in made) > 0.8
    assert made[0].trained.test_accuracy is None
    assert learner.histogram().sum(axis=1).tolist() == [60, 61, 62]
    assert learner.planned_steps(1, "update", 1) == 10


def test_shapes_are_those_of_the_function_s_model() -> None:
    shapes = describe_task(config(), load).shapes
    assert shapes is not None
    assert shapes.parameters[:2] == (("frozen.weight", (4, 4)), ("frozen.bias", (4,)))
    assert ("norm.num_batches_tracked", ()) in shapes.parameters
    assert (shapes.embedding_size, shapes.classes, shapes.input_shape) == (6, 3, (4,))


@pytest.mark.parametrize("method", ["dfpl", "fedavg"])
def test_another_process_gives_the_same_bytes_and_goes_on_from_a_checkpoint(method: str) -> None:
    chosen = describe_task(config(method), load)
    first, second = Learner(chosen, load), Learner(chosen, load)
    torch.rand(3)
    made = first.contribute(1, "update", 1, b"")
    assert second.contribute(1, "update", 1, b"") == made
    third = Learner(chosen, load)
    third.restore(1, first.checkpoint(1))
    assert third.contribute(1, "update", 2, b"") == first.contribute(1, "update", 2, b"")


class Split(Net):
    """Says what it makes of its inputs before anything else."""

    def split(self, x: torch.Tensor) -> Any:
        embedding, logits = self(x)
        return self.frozen(x).reshape(len(x), 2, 2), embedding, logits


class SplitWrongly(Net):
    def split(self, x: torch.Tensor) -> Any:
        return self(x)


def test_features_of_a_model_that_can_be_split_have_a_shape() -> None:
    shapes = describe_task(config(), returns((Split, points(9), points(5)))).shapes
    assert shapes is not None
    assert shapes.feature_shape == (2, 2)
    with pytest.raises(ConfigurationError, match=r"split must return features .* for B = 2, not"):
        describe_task(config(), returns((SplitWrongly, points(9), points(5))))


class Layered(Net):
    """Says what its layers make of its inputs, in a form that tests choose."""

    form: Callable[[Any, Any], Any] = staticmethod(lambda embedding, logits: ((embedding, embedding), logits))

    def layers(self, x: torch.Tensor) -> Any:
        return self.form(*self(x))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            lambda embedding, logits: (embedding, logits),
            r"layers must return outputs .* for B = 2, not \[\(6,\), \(6,\)\]",
        ),
        (
            lambda embedding, logits: (embedding, embedding, logits),
            "the model cannot give its layers' outputs .*unpack",
        ),
        (lambda embedding, logits: ((embedding, logits), logits), r"layers must return .* the last of them \(2, 6\)"),
        (lambda embedding, logits: ((embedding[None], embedding), logits), r"not \[\(1, 2, 6\), \(2, 6\)\]"),
        (lambda embedding, logits: ((embedding,), embedding), r"logits \(2, 3\), .*, not \[\(2, 6\)\] and \(2, 6\)"),
        (lambda embedding, logits: ((), logits), r"layers must return .*, not \[\] and \(2, 3\)"),
        (lambda embedding, logits: None, "the model cannot give its layers' outputs"),
    ],
)
def test_layers_that_cannot_be_compared_are_refused(form: Callable[[Any, Any], Any], words: str) -> None:
    chosen = config("fedintr", hyperparameters={"local_steps": 2})
    task = returns((Layered, points(20), points(5)))
    assert all(made.trained for made in Federation(describe_task(chosen, task), task=task).play(2))
    made = type("Wrong", (Layered,), {"form": staticmethod(form)})
    with pytest.raises(ConfigurationError, match=words):
        describe_task(chosen, returns((made, points(20), points(5))))


def test_a_built_in_model_may_be_a_task_s() -> None:
    images = torch.rand(40, 1, 8, 8), torch.arange(40) % 3
    federation = Federation(config("fedavg"), task=lambda: (partial(Mlp, (6,), classes=3, size=8), images, images))
    federation.play()
    assert federation.rules.info.feature_shape is None


def test_frozen_parameters_stay() -> None:
    learner = Learner(describe_task(config("blade-fl"), load), load)
    model: Any = learner.client(0).model
    frozen, trained = model.frozen.weight.clone(), model.hidden.weight.clone()
    learner.contribute(0, "update", 1, b"")
    assert torch.equal(model.frozen.weight, frozen)
    assert not torch.equal(model.hidden.weight, trained)


FROZEN = {"frozen.weight", "frozen.bias"}


@pytest.mark.parametrize("method", ["fedavg", "blade-fl", "scaffold", "fedadam", "moon", "demlearn", "mtfl"])
def test_frozen_parameters_are_in_no_post_no_knowledge_and_no_checkpoint(method: str) -> None:
    federation = Federation(config(method), task=load)
    (made, *_) = federation.play(2)
    assert federation.rules.info.frozen == FROZEN
    named = [*read_payload(federation.rules, made.payload), *federation.known()]
    named += load_tensors(federation.learner.checkpoint(1))
    assert not [name for name in named if "frozen" in name]
    assert [name for name in named if "hidden.weight" in name]


def test_a_document_from_before_has_frozen_parameters_posted_as_buffers() -> None:
    shapes = Federation(config("fedavg"), task=load).rules.info
    older = Federation(config("fedavg", shapes=replace(shapes, frozen=frozenset(), frozen_hash="")), task=load)
    (made, *_) = older.play()
    assert "buffer.frozen.weight" in read_payload(older.rules, made.payload)
    assert MODEL_PREFIX + "frozen.weight" in load_tensors(older.learner.checkpoint(1))


def with_other(member: int) -> Any:
    model = Net()
    if member == 1:
        torch.nn.init.zeros_(model.frozen.bias)
    return model, points(60), points(20)


def test_members_with_other_frozen_parameters_never_post_beside_each_other() -> None:
    federation = Federation(config("fedavg"), task=with_other)
    federation.learner.prepare(0)
    with pytest.raises(ConfigurationError, match=r"2 frozen tensors have SHA-256 [0-9a-f]{64}, but in the genesis it"):
        federation.learner.prepare(1)
    Federation(config("dfpl"), task=with_other).play()  # it exchanges no parameters
    with pytest.raises(ConfigurationError, match="2 frozen tensors have SHA-256"):
        Federation(config("fedavg", hyperparameters={"shared_init": False}), task=load).play()


def test_frozen_parameters_may_be_of_any_type() -> None:
    federation = Federation(config("fedavg"), task=returns((Half, points(60), points(20))))
    federation.play(2)
    restored = federation.new_learner()
    restored.restore(0, federation.learner.checkpoint(0))
    assert restored.checkpoint(0) == federation.learner.checkpoint(0)


def test_frozen_parameters_of_a_file_are_bound_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file(Net().state_dict(), path)
    federation = Federation(config("fedavg", weights=str(path)), task=load)
    assert federation.rules.info.frozen == FROZEN
    assert federation.rules.info.frozen_hash == ""
    federation.play()
    assert torch.equal(federation.client(1).model.state_dict()["frozen.bias"], load_file(path)["frozen.bias"])
    with pytest.raises(ConfigurationError, match=r"frozen parameters are those of a file with SHA-256 .*, and none is"):
        Learner(replace(federation.config, weights=""), load)

    def frozen_head() -> Any:
        model = Net()
        model.head.requires_grad_(False)
        return model, points(60), points(20)

    with pytest.raises(ConfigurationError, match="weights_head is new, but the last layer is frozen"):
        describe_task(config("fedavg", weights=str(path), weights_head="new"), frozen_head)


def build_first(member: int) -> Any:
    return Net(), points(9 + member), points(5)


def build_last(member: int) -> Any:
    torch.rand(member), np.random.rand(member), [random.random() for _ in range(member)]
    return Net, points(9 + member), points(5)


@pytest.mark.parametrize("task", [build_first, build_last])
def test_members_start_from_one_model_or_each_from_its_own(task: Callable[..., Any]) -> None:
    shared = Learner(describe_task(config(), task), task)
    assert shared.checkpoint(0) == shared.checkpoint(2)
    chosen = describe_task(config(hyperparameters={"shared_init": False}), task)
    apart = Learner(chosen, task)
    assert apart.checkpoint(0) != apart.checkpoint(2)
    assert Learner(replace(chosen, seed=1), task).checkpoint(0) != apart.checkpoint(0)


@pytest.mark.parametrize("builds", [False, True])
def test_a_module_that_the_function_returns_again_and_again_is_trained_by_nobody(builds: bool) -> None:
    """Else each member would go on from what the last one in its process made of the module."""
    module = Net()
    before = {name: value.clone() for name, value in module.state_dict().items()}

    def task(member: int) -> Any:
        return (lambda: module) if builds else module, points(9 + member), points(5)

    chosen = describe_task(config(), task)
    together, apart = Learner(chosen, task), [Learner(chosen, task) for _ in range(2)]
    for number in (1, 2):
        for member, other in enumerate(apart):
            assert together.contribute(member, "update", number, b"") == other.contribute(member, "update", number, b"")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert isinstance(module(torch.zeros(2, 4)), tuple)


def test_the_function_gets_the_arguments_it_asks_for_and_draws_repeatably() -> None:
    drawn: list[Any] = []

    def task(seed: int, member: int = 7, other: str = "kept") -> Any:
        drawn.append((seed, member, other, float(torch.rand(())), np.random.random(), random.random()))
        return Net, points(9), points(5)

    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    source = open_data_source(describe_task(config(seed=5), task), task)
    assert [member for _, member, *_ in drawn] == [0, 1, 2], "members may have different models"
    source.share(2, seed=11)
    source.share(2, seed=11)
    source.share(2, seed=12)
    assert drawn[3][:3] == (5, 2, "kept")
    assert drawn[3] == drawn[4] != drawn[5]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # type: ignore[index]
    assert random.getstate() == states[2]


def test_logits_alone_suffice_where_nobody_reads_an_embedding() -> None:
    def task() -> Any:
        return Plain, points(30), points(10)

    for method in ("fedavg", "blade-fl", "solo"):
        chosen = describe_task(config(method), task)
        assert chosen.shapes is not None
        assert chosen.shapes.embedding_size == chosen.shapes.classes == 3
        contribution = Learner(chosen, task).contribute(0, "update", 1, b"")
        check(Application(chosen), contribution.payload)
    with pytest.raises(ConfigurationError, match=r"needs a model that returns \(embedding, logits\), not one tensor"):
        describe_task(config("dfpl"), task)


def test_a_member_may_lack_classes_and_images_may_have_colours() -> None:
    class Eyes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(16, 5)

        def forward(self, x: torch.Tensor) -> Any:
            embedding = self.conv(x).view(-1, 16)  # refuses a layout that is not the usual one
            return embedding, self.head(embedding)

    def task(member: int) -> Any:
        images = torch.rand(8, 3, 4, 4)
        return Eyes, (images, torch.full((8,), member)), (images[:2], torch.tensor([0, 4]))

    chosen = describe_task(config(), task)
    rules, learner = Application(chosen), Learner(chosen, task)
    posts = [(bytes([k]), learner.contribute(k, "update", 1, b"").payload) for k in range(2)]
    knowledge = rules.aggregate(OffChain("update", 1), b"", posts)
    summary = rules.summary(knowledge)
    assert summary is not None
    assert summary.labels == (0, 1)
    assert learner.contribute(2, "update", 2, knowledge).trained.prototype_accuracy is None


class Output:
    """The result of a Hugging Face model, as far as it matters."""

    def __init__(self, **named: Any) -> None:
        self.__dict__.update(named)


class Words(nn.Module):
    """A model over tokens, called by name; it says its embedding in one of several ways."""

    def __init__(self, way: str = "hidden_states") -> None:
        super().__init__()
        self.way, self.words, self.head = way, nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        states = self.words(input_ids)  # (B, L, D)
        weights = attention_mask.unsqueeze(2) / attention_mask.sum(dim=1)[:, None, None]
        pooled = (states * weights).sum(dim=1)
        logits = self.head(pooled)
        match self.way:
            case "hidden_states":
                return Output(logits=logits, loss=None, hidden_states=(states * 0, states))
            case "last_hidden_state":
                return {"logits": logits, "last_hidden_state": states}
            case "embedding":
                return {"logits": logits, "embedding": pooled}
            case "pair":
                return pooled, logits
        return Output(logits=logits)


def sentences(count: int, member: int = 0) -> dict[str, torch.Tensor]:
    """Three topics with words of their own."""
    generator = torch.Generator().manual_seed(member)
    labels = torch.randint(3, (count,), generator=generator)
    words = 1 + 3 * labels[:, None] + torch.randint(3, (count, 5), generator=generator)
    mask = (torch.arange(5) < torch.randint(2, 6, (count, 1), generator=generator)).long()
    return {"input_ids": words * mask, "attention_mask": mask, "labels": labels}


def test_every_way_of_saying_an_embedding_means_the_same() -> None:
    posts = []
    for way in ("hidden_states", "last_hidden_state", "embedding", "pair"):

        def task(member: int, way: str = way) -> Any:
            return lambda: Words(way), sentences(40, member), sentences(20, 9)

        chosen = describe_task(config(hyperparameters={"local_steps": 40, "learning_rate": 1.0}), task)
        made = Learner(chosen, task).contribute(1, "update", 1, b"")
        check(Application(chosen), made.payload)
        posts.append((made.trained.local_accuracy, made.steps))
    assert {steps for _, steps in posts} == {40}
    assert {accuracy for accuracy, _ in posts} == {1.0}
    assert chosen.shapes is not None
    assert [field.name for field in chosen.shapes.input_fields] == ["input_ids", "attention_mask"]
    assert (chosen.shapes.input_shape, chosen.shapes.input_type) == ((10,), "int64")
    assert read_model_info(json.loads(json.dumps(write_model_info(chosen.shapes)))) == chosen.shapes


def test_logits_without_an_embedding_are_for_methods_that_read_none() -> None:
    def task() -> Any:
        return lambda: Words("none"), sentences(40), sentences(20)

    assert describe_task(config("fedavg"), task).shapes is not None
    with pytest.raises(ConfigurationError, match="an object with logits needs beside them one of embedding, "):
        describe_task(config("dfpl"), task)


class Remembers(Net):
    """Has buffers in no state: one that training changes, one that grows, and one that stays."""

    mean: torch.Tensor
    seen: torch.Tensor
    constant: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, size in (("mean", 6), ("seen", 1), ("constant", 1000)):
            self.register_buffer(name, torch.zeros(size), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        embedding, _ = super().forward(x)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.5).add_(embedding.mean(dim=0))
            self.seen = torch.cat([self.seen, torch.ones(1)])
        embedding = embedding + self.mean + self.seen.sum() + self.constant[0]
        return embedding, self.head(embedding)


def test_buffers_in_no_state_are_a_client_s_memory_all_the_same() -> None:
    """A vain forecast leaves no trace in them, and failed work neither; a checkpoint has those that change."""
    task = returns((Remembers, points(60), points(20)))
    chosen = describe_task(config(), task)
    ours, theirs, begun = (Learner(chosen, task) for _ in range(3))
    assert ours.foresee(0, "update", 2, b"") is not None
    with pytest.raises(InvalidPayload):
        ours.contribute(0, "update", 1, b"damaged")
    assert ours.contribute(0, "update", 1, b"") == theirs.contribute(0, "update", 1, b"")
    saved = ours.checkpoint(0)
    assert {name for name in load_tensors(saved) if name.startswith("aside.")} == {"aside.mean", "aside.seen"}
    begun.restore(0, saved)
    ours.evaluate_received(0, 2, b"")
    expected = theirs.contribute(0, "update", 2, b"")
    assert begun.contribute(0, "update", 2, b"") == ours.contribute(0, "update", 2, b"") == expected
    assert begun.checkpoint(0) == ours.checkpoint(0) == theirs.checkpoint(0)


def test_methods_ask_for_what_they_do_with_a_model() -> None:
    with pytest.raises(ConfigurationError, match="fedintr compares layers: give the model a method `layers`"):
        describe_task(config("fedintr"), load)
    chosen = describe_task(config("fedreg", hyperparameters={}), lambda: (Words, sentences(20), sentences(9)))
    with pytest.raises(ConfigurationError, match="fedreg moves inputs along a gradient: they must be float32"):
        Application(chosen)


class Tokens(nn.Module):
    """Integers as words, four an example."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(5, 6, sparse=sparse), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        embedding = self.words(x).mean(dim=1)
        return embedding, self.head(embedding)


@pytest.mark.parametrize(
    ("method", "hyperparameters"),
    [
        ("fedprox", {}),
        ("scaffold", {}),
        ("pfedme", {"personal_steps": 2}),
        ("fedavg", {"weight_decay": 1e-3}),
        ("fedavg", {"optimizer": "adamw"}),
    ],
)
def test_embeddings_with_sparse_gradients_are_trained_as_others_are(
    method: str, hyperparameters: dict[str, Any]
) -> None:
    """Torch adds nothing to a sparse gradient, and prints a traceback."""

    def task(sparse: bool) -> Any:
        tokens, labels = torch.arange(48).reshape(12, 4) % 5, torch.arange(12) % 3
        return partial(Tokens, sparse), (tokens, labels), (tokens, labels)

    made = []
    for sparse in (False, True):
        function = partial(task, sparse)
        settings = {"local_steps": 4, "batch_size": 4, **hyperparameters}
        chosen = describe_task(config(method, hyperparameters=settings), function)
        made.append(Learner(chosen, function).contribute(0, "update", 1, b"").payload)
    assert made[0] == made[1]


class BuiltForInference(nn.Module):
    """Its parameters and buffers are of inference mode."""

    def __init__(self) -> None:
        super().__init__()
        with torch.inference_mode():
            self.body = Net()

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


@pytest.mark.parametrize("method", ["fedavg", "fedcurv", "dfpl"])
def test_what_was_made_in_inference_mode_is_learned_from_all_the_same(method: str) -> None:
    """Torch lets nobody train such parameters, or compute a gradient from such examples."""

    @torch.inference_mode()
    def task() -> Any:
        return BuiltForInference, tuple(part * 1 for part in points(60)), points(30)

    chosen = describe_task(config(method), task)
    learner = Learner(chosen, task)
    before = learner.checkpoint(0)
    assert learner.contribute(0, "update", 1, b"").trained.local_accuracy is not None
    assert learner.checkpoint(0) != before


class Narrow(Net):
    """Computes in another type than the one in which its parameters are, as under autocast."""

    kind = torch.bfloat16
    is_narrow_in: tuple[bool, ...] = (True, False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.in_its_type(*super().forward(x))

    def split(self, x: torch.Tensor) -> Any:
        embedding, logits = super().forward(x)
        return self.in_its_type(embedding, embedding, logits)

    def in_its_type(self, *numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(part.to(self.kind) if self.training in self.is_narrow_in else part for part in numbers)


class NarrowInTraining(Narrow):
    is_narrow_in = (True,)


class Wide(Narrow):
    kind = torch.float64


@pytest.mark.parametrize("model", [Narrow, NarrowInTraining, Wide])
@pytest.mark.parametrize("method", ["dfpl", "fedgkt", "fedph", "fedproc", "fedproto"])
def test_a_model_may_compute_in_another_type(method: str, model: type[nn.Module]) -> None:
    task = returns((model, points(40), points(20)))
    steps = {"local_epochs": 1} if method == "fedgkt" else {"local_steps": 2}
    federation = Federation(describe_task(config(method, hyperparameters=steps), task), task=task)
    made = federation.play(2)
    assert all(np.isfinite(one.trained.local_loss) for one in made if one.trained)


@pytest.mark.parametrize("named", [False, True])
def test_a_model_that_changes_its_inputs_in_place_learns_from_them_as_they_are(named: bool) -> None:
    class Doubling(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x * 2)

    class InPlace(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x.mul_(2))

    def made(model: type[nn.Module], *sets: Any) -> Any:
        given = [({"x": inputs}, labels) if named else (inputs, labels) for inputs, labels in sets]

        def task() -> Any:
            return model, *given

        federation = Federation(describe_task(config("fedavg"), task), task=task)
        posted = [(one.payload, one.trained) for one in federation.play(2)]
        return posted, federation.learner.evaluate_received(0, 3, federation.knowledge)

    sets = points(30), points(10)
    assert made(InPlace, *sets) == made(Doubling, points(30), points(10))
    assert torch.equal(sets[0][0], points(30)[0]), "they are the user's"


def test_a_dedicated_aggregator_needs_no_examples_to_know_the_inputs() -> None:
    def task(member: int, members: int) -> Any:
        return Words, None if member == members else sentences(20, member), None if member == members else sentences(9)

    chosen = describe_task(config(), task)
    share = open_data_source(chosen, task).share(3, seed=0)
    assert (share.train_images.shape, share.train_images.dtype) == ((0, 10), torch.int64)


def test_the_module_that_is_handed_back_is_the_user_s() -> None:
    def task() -> Any:
        return Words, sentences(20), sentences(9)

    module = build_own_module(config(), task, client=0)
    batch = sentences(4)
    assert isinstance(module(batch["input_ids"], batch["attention_mask"]), Output)


def test_a_large_set_is_learned_from_as_a_small_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(member: int) -> Any:
        return Net, TensorDataset(*points(60 + member, member)), points(20, 9)

    chosen = describe_task(config(), task)
    made = Learner(chosen, task).contribute(1, "update", 1, b"")
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 0)
    assert Learner(chosen, task).contribute(1, "update", 1, b"") == made


@pytest.mark.parametrize("is_lazy", [False, True])
def test_data_of_one_s_own_are_known_by_their_hash(is_lazy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of a set that is not held are not looked at: nobody reads all of them before they are needed."""

    def hash_of(change: str = "") -> str:
        def task(member: int) -> Any:
            sets = {"train": points(30, member), "test": points(12, member)}
            if member == 1 and change:
                part, what = change.split()
                inputs, labels = (value.clone() for value in sets[part])
                if what == "inputs":
                    inputs[-1, -1] += 1
                else:
                    labels[-1] = (labels[-1] + 1) % 3
                sets[part] = inputs, labels
            return Net, *(TensorDataset(*both) for both in sets.values())

        return Learner(describe_task(config(), task), task).hash_own()

    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 0 if is_lazy else 2**20)
    before = hash_of()
    assert before == hash_of()
    changes = ("train inputs", "train labels", "test inputs", "test labels")
    found = {change for change in changes if hash_of(change) != before}
    assert found == {"train labels", "test labels"} | (set() if is_lazy else {"train inputs", "test inputs"})


def test_a_file_is_imported_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    place = tmp_path / f"mytask_{tmp_path.name}.py"
    (tmp_path / f"beside_{tmp_path.name}.py").write_text("answer = 42", encoding="utf-8")
    place.write_text(f"from beside_{tmp_path.name} import answer\ndef load(): return answer", encoding="utf-8")
    found = load_task(f"{place}:load")
    assert found() == 42
    assert load_task(f"{place}:load") is found
    with pytest.raises(ConfigurationError, match=r"^task .*: there is no file .*/none\.py$"):
        load_task(f"{tmp_path}/none.py:load")
    (tmp_path / "json.py").write_text("def load(): return 1", encoding="utf-8")
    assert load_task(f"{tmp_path}/json.py:load")() == 1
    assert json.loads("1") == 1


class Halves(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1, dtype=torch.float16))


class Spread(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head.bias = nn.Parameter(torch.zeros(1).expand(3))


class Sparse(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.eye(3).to_sparse())


class Copying(Net):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {name: value.clone() for name, value in super().state_dict(*args, **kwargs).items()}


class Flat(Net):
    def forward(self, x: torch.Tensor) -> Any:
        return self.hidden(x), self.hidden(x).sum(dim=1)


class Locked(Net):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()


class Ending(Net):
    """Would end the process of all that it trains with."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def forward(self, x: torch.Tensor) -> Any:
        return stops() if self.where == "forward" else super().forward(x)

    def split(self, x: torch.Tensor) -> Any:
        return stops() if self.where == "split" else (x, *super().forward(x))

    def __deepcopy__(self, memo: Any) -> Any:
        return stops() if self.where == "copy" else Ending(self.where)


class Rounded(Net):
    def forward(self, x: torch.Tensor) -> Any:
        embedding, logits = super().forward(x)
        return embedding, logits.long()


class Stateful(Net):
    def get_extra_state(self) -> Any:
        return "text"


def stops() -> Any:
    raise SystemExit("not\ntoday")


async def later() -> None:
    """A coroutine function that nobody awaits."""


GOOD = points(9)
WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (lambda: int("x"), "it raised ValueError: invalid literal for int() with base 10: 'x' (" + __file__),
    "exits": (stops, "it raised SystemExit: not today ("),
    "wants more": (lambda path: path, "it is given member, members, seed, by these names, and no 'path'"),
    "nothing": (lambda: None, "(model, train set, test set) must be returned, not NoneType"),
    "a coroutine": (later, "(model, train set, test set) must be returned, not a coroutine: leave out async"),
    "two": (returns((Net, GOOD)), "must be returned, not a tuple of 2"),
    "no model": (returns(("Net", GOOD, GOOD)), "the model must be a torch Module, or what builds one, not str"),
    "builds no model": (returns((dict, GOOD, GOOD)), "the model must be a torch Module, or what builds one, not dict"),
    "model cannot be built": (returns((lambda: Net(width=-1), GOOD, GOOD)), "it raised RuntimeError: "),
    "train set": (returns((Net, 3, GOOD)), "the train set must be a torch Dataset"),
    "empty train set": (returns((Net, points(0), GOOD)), "the train set is empty"),
    "empty test set": (returns((Net, GOOD, points(0))), "the test set is empty"),
    "two shapes": (
        returns((Net, GOOD, (torch.zeros(1, 5), torch.zeros(1, dtype=torch.int64)))),
        "inputs of the train set have shape (4,), of the test set (5,)",
    ),
    "other inputs": (
        returns((Net(inputs=5), GOOD, GOOD)),
        "the model cannot take inputs of shape (2, 4): RuntimeError",
    ),
    "model exits": (returns((Ending("forward"), GOOD, GOOD)), "cannot take inputs of shape (2, 4): SystemExit: not to"),
    "split exits": (returns((Ending("split"), GOOD, GOOD)), "cannot split inputs of shape (2, 4): SystemExit: not to"),
    "copy exits": (
        returns((Ending("copy"), GOOD, GOOD)),
        "cannot be copied for each member, return its class instead: ",
    ),
    "label": (returns((Net(classes=2), GOOD, GOOD)), "label 2 in the train set: a model with 2 outputs has 0 to 1"),
    "test label": (returns((Net(classes=2), points(9, classes=2), GOOD)), "label 2 in the test set"),
    "one output": (returns((Flat(), GOOD, GOOD)), "must return embedding (B, D) and logits (B, C), not [(2, 6), (2,)]"),
    "no tensors": (returns((nn.LSTM(4, 3), GOOD, GOOD)), "must return embedding (B, D) and logits (B, C), not "),
    "integers": (returns((Rounded, GOOD, GOOD)), "the model must return floating-point numbers, not torch.int64"),
    "copies": (
        returns((Copying, GOOD, GOOD)),
        "hidden.weight of the model is a copy in its state, through which models",
    ),
    "float16": (returns((Halves(), GOOD, GOOD)), "scale of the model is torch.float16; only float32 and integers"),
    "one number": (returns((Spread, GOOD, GOOD)), "head.bias of the model has one number in many places (`expand`)"),
    "sparse": (returns((Sparse, GOOD, GOOD)), "mask of the model is torch.sparse_coo; only dense tensors can be"),
    "no copy": (returns((Locked(), GOOD, GOOD)), "cannot be copied for each member, return its class instead: TypeErr"),
    "extra state": (returns((Stateful(), GOOD, GOOD)), "_extra_state of the model is str; only float32 and integers"),
    "not finite": (returns((overflown(), GOOD, GOOD)), "head.bias of the model holds numbers that are not finite"),
    "all frozen": (returns((Net().requires_grad_(False), GOOD, GOOD)), "the model has no parameter to train"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_function_does_wrong_is_told_in_one_line_with_its_name(case: str) -> None:
    task, message = WRONG[case]
    with pytest.raises(ConfigurationError) as caught:
        describe_task(config(), task)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"task {task.__module__}:{task.__qualname__}: ")
    assert "\n" not in str(caught.value)


def test_a_model_of_other_shapes_is_refused_with_the_first_tensor_that_differs() -> None:
    chosen = describe_task(config(), load)
    learner = Learner(chosen, returns((Net(width=7), GOOD, GOOD)))
    expected = r"tensor 2 of the model is hidden.weight \(7, 4\), but in the genesis it is hidden.weight \(6, 4\)"
    with pytest.raises(ConfigurationError, match=rf"{expected}$"):
        learner.prepare(0)
    with pytest.raises(ConfigurationError, match=rf"{expected} \(member 2\)$"):
        learner.prepare(2)


def test_a_fault_for_a_later_member_is_told_with_its_number() -> None:
    def task(member: int) -> Any:
        inputs, labels = points(20)
        return Net, (inputs * (math.nan if member == 2 else 1), labels), GOOD

    learner = Learner(describe_task(config(), task), task)
    learner.prepare(0)
    with pytest.raises(ConfigurationError, match=r"inputs of the train set are not all finite numbers \(member 2\)$"):
        learner.prepare(2)


def test_an_aggregator_s_model_that_is_another_is_told_as_its() -> None:
    def task(member: int) -> Any:
        return Split(width=7 if member == 3 else 6), points(20), points(20)

    chosen = describe_task(config("fedgkt"), task)
    with pytest.raises(ConfigurationError, match=r"\(member 3, the aggregator: its model has to be member 0's\)$"):
        Learner(chosen, task, members=[bytes([place]) for place in range(4)]).prepare(3)


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({}, None, "the members train on data of their own: name your function with --task FILE.py:function"),
        ({"task": "mytask"}, None, "task must be of the form FILE.py:function or module:function, not 'mytask'"),
        ({"task": "no_such_module:load"}, None, "there is no module 'no_such_module' in the current folder"),
        ({"dataset": "digits", "shapes": None}, load, "the members train on digits, not on data of their own"),
        ({"dataset": "digits", "shapes": None, "task": "mytask:load"}, None, "leave out the task"),
        ({"shapes": None}, load, "data set 'own' lacks the shapes of its model; found the federation with --task"),
        (
            {"dataset": "digits"},
            load,
            "of 3 classes and examples of shape (4,), but digits has 10",
        ),
        ({"model": "cnn"}, load, "model 'cnn' cannot be chosen: data set 'own' brings its own"),
    ],
)
def test_a_function_and_own_data_go_together(changes: dict[str, Any], task: Any, message: str) -> None:
    chosen = replace(describe_task(config(), load), **changes)
    with pytest.raises(ConfigurationError) as caught:
        Learner(chosen, task)
    assert message in str(caught.value)


def test_a_function_that_goes_to_another_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's folder was then looked for in that one."""

    def away(member: int, members: int) -> Any:
        os.chdir("/")
        return load(member, members)

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="it went to the folder /, and all paths"):
        describe_task(config(), away)
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("def load(): pass", "laod", "unknown function of {module} 'laod'; did you mean 'load'?"),
        ("load = 3", "load", "unknown function of {module} 'load'; choose one of: (there is none)"),
        ("import no_such_module", "load", "its import raised ModuleNotFoundError: No module named 'no_such_module' ("),
        ("def load(:", "load", "its import raised SyntaxError: "),
        ("raise SystemExit", "load", "its import raised SystemExit: "),
        ("import os; os.chdir('..')", "load", "its import went to the folder "),
    ],
)
def test_a_module_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, message: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = f"mytask_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_task(f"{module}:{name}")
    sys.modules.pop(module, None)
    assert message.format(module=module) in str(caught.value)
    assert "\n" not in str(caught.value)
