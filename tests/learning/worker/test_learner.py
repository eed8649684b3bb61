"""Learning end to end on the digits, and the promise that a client's round can be repeated by itself."""

import copy
import re
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.load import forget_datasets, load_dataset
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload, OwnCodeFailed, TrainingDiverged
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.prototypes import forward_all
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.registry import HyperparameterValue, name_method
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.training.measured import Measurements, calculate_taa
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.testing.federation import small_config

METHODS = ("dfpl", "fedavg", "blade-fl", "solo")


def config(method: str = "dfpl", **hyperparameters: HyperparameterValue) -> LearningConfig:
    return LearningConfig(method=method, clients=5, hyperparameters=hyperparameters)


def play(
    config: LearningConfig, rounds: int, learners: Iterable[Learner] = (), order: Iterable[int] | None = None
) -> tuple[list[list[Contribution]], bytes]:
    """Run rounds in one process, client i on learner i modulo their number; return contributions and knowledge."""
    rules, knowledge, history = Application(config), b"", []
    serving = list(learners) or [Learner(config)]
    for number in range(1, rounds + 1):
        made = {}
        for client in order or range(config.clients):
            learner = serving[client % len(serving)]
            made[client] = learner.contribute(client, "update", number, knowledge)
        contributions = [made[client] for client in sorted(made)]
        posts = [(bytes([client]), contribution.payload) for client, contribution in enumerate(contributions)]
        knowledge = rules.aggregate(OffChain("update", number), knowledge, posts)
        history.append(contributions)
    return history, knowledge


@pytest.mark.parametrize("vectorizes", [False, True])
def test_a_batch_that_is_too_small_for_its_model_is_told_in_one_line(vectorizes: bool) -> None:
    learner = Learner(replace(config("fedavg", batch_size=1), model="digits-mlp-bn"))
    learner.train_on("cpu", vectorize_clients=vectorizes)
    before = learner.checkpoint(0)
    found = learner.contribute_together([0, 1], "update", 1, b"")
    for index, error in enumerate(found):
        assert isinstance(error, ConfigurationError)
        assert re.match(rf"peer {index}, of \d+ training examples: batch normalization takes more than", str(error))
    assert learner.checkpoint(0) == before


class Detached(torch.nn.Linear):
    """Left in the state in which it was measured."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


class Changing(torch.nn.Linear):
    """Changes what its gradient is computed from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).sigmoid_().exp_().mul_(2).tanh().add_(1)


@pytest.mark.parametrize(
    ("model", "said"),
    [(Detached, "element 0 of tensors does not require grad"), (Changing, "modified by an inplace operation")],
)
@pytest.mark.parametrize("vectorizes", [False, True])
def test_a_users_model_without_a_gradient_is_told_in_one_line(model: Any, said: str, vectorizes: bool) -> None:
    def task(member: int) -> Any:
        examples = torch.rand(8, 4, generator=torch.Generator().manual_seed(member)), torch.arange(8) % 2
        return model(4, 2), examples, examples

    learner = Learner(small_config("fedavg", task), task)
    learner.train_on("cpu", vectorize_clients=vectorizes)
    before = learner.checkpoint(0)
    for index, error in enumerate(learner.contribute_together([0, 1], "update", 1, b"")):
        assert isinstance(error, OwnCodeFailed)
        assert re.match(f"peer {index}: its model has no gradient: RuntimeError: .*{said}.*$", str(error))
    assert learner.checkpoint(0) == before


@dataclass(frozen=True, kw_only=True)
class Lossy(FedAvg):
    """Its loss is what `kind` says."""

    kind: str = ""

    def loss(self, forward: Any, images: torch.Tensor, labels: torch.Tensor, given: Any) -> Any:
        kinds = {"nothing": None, "a number": 1.5, "of each": forward(images)[1], "fixed": torch.tensor(1.0)}
        return kinds[self.kind]


@dataclass(frozen=True, kw_only=True)
class Narrow(FedAvg):
    """Its loss takes less than it is given."""

    def loss(self, forward: Any, images: torch.Tensor) -> Any:  # type: ignore[override]
        raise AssertionError("nobody calls it so")


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Lossy(kind="nothing"), "peer 0: its loss must be a tensor of one real number, not NoneType"),
        (Lossy(kind="a number"), "peer 0: its loss must be a tensor of one real number, not float"),
        (Lossy(kind="of each"), "peer 0: its loss must be a tensor of one real number, not a tensor (8, 10)"),
        (Lossy(kind="fixed"), "peer 0: its loss has no gradient: RuntimeError: element 0 of tensors does not require"),
        (Narrow(), "peer 0: TypeError: Narrow.loss() takes 3 positional arguments but 5 were given"),
    ],
)
@pytest.mark.parametrize("vectorizes", [False, True])
def test_a_users_loss_without_a_gradient_is_told_in_one_line(method: FedAvg, said: str, vectorizes: bool) -> None:
    name, hyperparameters = name_method(method)
    learner = Learner(config(name, **hyperparameters))
    learner.train_on("cpu", vectorize_clients=vectorizes)
    error, _ = learner.contribute_together([0, 1], "update", 1, b"")
    assert isinstance(error, OwnCodeFailed)
    assert str(error).startswith(said)
    assert "\n" not in str(error)


class Pair(torch.nn.Module):
    """Returns embedding and logits; in training what `kind` says."""

    kind = "pair"

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        embedding = self.hidden(x)
        logits = self.head(embedding)
        in_training = {
            "three": (embedding, logits, logits),
            "logits": logits,
            "nothing": None,
            "one class": (embedding, logits[:, :1]),
            "two rows": (embedding[:2], logits[:2]),
        }
        return in_training.get(self.kind, (embedding, logits)) if self.training else (embedding, logits)


class Alone(Pair):
    """Returns the logits alone; in training what `kind` says."""

    def forward(self, x: torch.Tensor) -> Any:
        embedding, logits = super().forward(x)
        in_training = {"second head": (logits, embedding[:, :2]), "names": {"out": logits}}
        return in_training[self.kind] if self.training else logits


SHAPES = "must return embedding and logits, [(8, 3), (8, 2)], not"


@pytest.mark.parametrize(
    ("base", "kind", "said"),
    [
        (Pair, "three", f"peer 0: in training its model {SHAPES} [(8, 3), (8, 2), (8, 2)]"),
        (Pair, "logits", f"peer 0: in training its model {SHAPES} a tensor (8, 2)"),
        (Pair, "nothing", f"peer 0: in training its model {SHAPES} NoneType"),
        (Pair, "one class", f"peer 0: in training its model {SHAPES} [(8, 3), (8, 1)]"),
        (Pair, "two rows", f"peer 0: in training its model {SHAPES} [(2, 3), (2, 2)]"),
        (Alone, "second head", "the model returned logits alone when it was tried, and [(8, 2), (8, 2)] in training"),
        (Alone, "names", "the model returned logits alone when it was tried, and dict in training"),
    ],
)
@pytest.mark.parametrize("vectorizes", [False, True])
def test_a_users_model_that_returns_other_things_in_training_is_told_in_one_line(
    base: type[Pair], kind: str, said: str, vectorizes: bool
) -> None:
    model = type("Model", (base,), {"kind": kind})

    def task(member: int) -> Any:
        examples = torch.rand(8, 4, generator=torch.Generator().manual_seed(member)), torch.arange(8) % 2
        return model, examples, examples

    learner = Learner(small_config("fedavg", task), task)
    learner.train_on("cpu", vectorize_clients=vectorizes)
    before = learner.checkpoint(0)
    error, _ = learner.contribute_together([0, 1], "update", 1, b"")
    assert isinstance(error, OwnCodeFailed)
    assert str(error).startswith(said)
    assert "\n" not in str(error)
    assert learner.checkpoint(0) == before


@pytest.mark.parametrize("method", ["dfpl", "fedavg"])
def test_amended_values_train_as_if_they_had_been_founded_from_then_on(method: str) -> None:
    learner, other = Learner(config(method)), Learner(config(method, learning_rate=0.05))
    learner.amend((("learning_rate", "0.05"),))
    assert learner.contribute(1, "update", 1, b"") == other.contribute(1, "update", 1, b"")
    learner.amend(())
    usual = Learner(config(method))
    assert learner.contribute(2, "update", 1, b"") == usual.contribute(2, "update", 1, b"")
    with pytest.raises(ConfigurationError, match="local_steps of"):
        learner.amend((("local_steps", "3"),))


@pytest.mark.long
@pytest.mark.parametrize(
    "chosen",
    [
        config("dfpl"),
        config("dfpl", regularizer="norm", prototype_source="last_epoch", shared_init=False),
        config("dfpl", local_epochs=1, aggregation="samples", momentum=0.5),
        config("fedavg"),
        config("blade-fl"),
        config("solo"),
    ],
    ids=lambda chosen: f"{chosen.method} {dict(chosen.hyperparameters)}",
)
def test_clients_learn_the_digits(chosen: LearningConfig) -> None:
    history, _ = play(chosen, rounds=6)
    assert calculate_taa([contribution.trained for contribution in history[-1]]) > 0.93
    losses = [np.mean([contribution.trained.local_loss for contribution in made]) for made in history]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", ["fedavg", "blade-fl"])
def test_the_shared_model_learns_all_classes(method: str) -> None:
    chosen = LearningConfig(method=method, clients=5, partition="iid")
    learner = Learner(chosen)
    history, knowledge = play(chosen, 5, [learner])
    assert history[0][0].received is None
    assert history[1][0].received is not None
    final = learner.evaluate_received(0, 6, knowledge, evaluate_test=True)
    assert final is not None
    assert final.test_accuracy is not None
    assert final.test_accuracy > 0.85
    assert learner.evaluate_received(3, 6, knowledge, evaluate_test=True).test_accuracy == final.test_accuracy  # type: ignore[union-attr]


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_a_clients_round_depends_neither_on_the_process_nor_on_other_clients(method: str) -> None:
    chosen = config(method)
    _, knowledge = play(chosen, 2)
    torch.rand(7)
    apart, other = play(chosen, 2, [Learner(chosen) for _ in range(chosen.clients)], order=(3, 1, 4, 0, 2))
    together, _ = play(chosen, 2, order=(2, 0, 1, 4, 3))
    assert knowledge == other
    assert [made.payload for made in apart[-1]] == [made.payload for made in together[-1]]


def test_a_built_in_model_of_other_shapes_than_were_agreed_on_is_refused() -> None:
    shapes = infos_of(config())[0]
    Learner(replace(config(), shapes=shapes)).prepare(0)
    (name, _), *others = shapes.parameters
    agreed = replace(config(), shapes=replace(shapes, parameters=((name, (63, 64)), *others)))
    expected = r"tensor 0 of the model is fc1.weight \(64, 64\), but in the genesis it is fc1.weight \(63, 64\)$"
    with pytest.raises(ConfigurationError, match=expected):
        Learner(agreed).prepare(0)


def test_contributing_leaves_torch_as_it_was() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    Learner(config()).contribute(0, "update", 1, b"")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("method", ["dfpl", "solo"])
def test_a_checkpoint_lets_another_process_go_on(method: str) -> None:
    chosen, learner = config(method), Learner(config(method))
    _, knowledge = play(chosen, 1, [learner])
    saved = learner.checkpoint(3)
    expected = learner.contribute(3, "update", 2, knowledge)
    other = Learner(chosen)
    other.restore(3, saved)
    assert other.contribute(3, "update", 2, knowledge) == expected
    assert other.checkpoint(3) == learner.checkpoint(3) != saved


DAMAGED = {
    "empty": (b"", "is no safetensors file"),
    "junk": (b"junk" * 10, "is no safetensors file"),
    "no tensors": (b"\x08\0\0\0\0\0\0\0{}      ", "must hold"),
    "one tensor missing": (safetensors.torch.save({"model.fc1.weight": torch.ones(64, 64)}), "must hold"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(case: str) -> None:
    data, message = DAMAGED[case]
    learner = Learner(config())
    before = learner.checkpoint(0)
    with pytest.raises(ConfigurationError, match=f"checkpoint of client 0 {message}"):
        learner.restore(0, data)
    assert learner.checkpoint(0) == before


def test_a_diverged_client_is_as_it_was_before() -> None:
    learner = Learner(config("solo", learning_rate=1000.0, weight_decay=1000.0))
    before = learner.checkpoint(2)
    with pytest.raises(TrainingDiverged) as caught:
        learner.contribute(2, "update", 1, b"")
    assert (caught.value.client, caught.value.round_number) == (2, 1)
    assert learner.checkpoint(2) == before


@pytest.mark.parametrize("method", METHODS)
def test_damaged_knowledge_is_refused_and_changes_nothing(method: str) -> None:
    learner = Learner(config(method))
    before = learner.checkpoint(1)
    with pytest.raises(InvalidPayload):
        learner.contribute(1, "update", 2, b"damaged")
    assert learner.checkpoint(1) == before


@dataclass(frozen=True, kw_only=True)
class Careless(FedAvg):
    """It posts other tensors than it states."""

    lacks: bool = True

    def update(self, client: Client, round: Round) -> Tensors:
        posted = super().update(client, round)
        return {"examples": posted["examples"]} if self.lacks else {**posted, "examples": np.zeros(2, np.int64)}


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        (True, r"^peer 0's post of phase update has \['examples'\], but \['examples', 'model\..*'\] is stated$"),
        (False, r"^peer 0's post .* update is not what is stated: shape of examples: \(1,\) expected, found \(2,\)$"),
    ],
)
def test_an_own_method_that_posts_something_else_is_told_with_its_phase_and_peer(lacks: bool, message: str) -> None:
    learner = Learner(config(f"{__name__}:Careless", lacks=lacks))
    with pytest.raises(OwnCodeFailed, match=message):
        learner.contribute(0, "update", 1, b"")


@dataclass(frozen=True, kw_only=True)
class Odd(FedAvg):
    """Does one thing as nobody can use it."""

    does: str = ""

    def receive(self, client: Client, round: Round) -> None:
        super().receive(client, round)
        self._do("receive", client)

    def update(self, client: Client, round: Round) -> Tensors:
        posted = super().update(client, round)
        self._do("update", client)
        return posted

    @property
    def states_epsilon(self) -> bool:
        self._do("states_epsilon", None)
        return super().states_epsilon

    def _do(self, where: str, client: Any) -> None:
        if self.does == f"ends in {where}":
            raise SystemExit("no more")
        if self.does == f"swaps in {where}":
            other: Any = torch.nn.Linear(2, 2)
            client.model = copy.deepcopy(client.model) if where == "auxiliary" else other

    def auxiliary(self, client: Client, round: Round) -> Any:
        self._do("auxiliary", client)
        answers: dict[str, Any] = {"text": (1.0, "x"), "one": 3, "many": (1.0, torch.zeros(2))}
        return (lambda *_: answers[self.does]) if self.does in answers else None

    def planned_steps(self, phase: Any, examples: int, round_number: int) -> Any:
        self._do("planned_steps", None)
        if self.does == "fails":
            raise KeyError("steps")
        return {"below": -3, "none": None, "endless": np.inf}.get(self.does, 3)


class Hearing(Odd):
    """Makes up for what its packed posts leave out."""

    makes_up = True

    def heard(self, client: Client, round: Round, plain: Tensors) -> None:
        self._do("heard", client)


KEEPS = "must change the numbers of client.model, and not put another in its place"


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("swaps in update", f"peer 0: Odd.update {KEEPS}"),
        ("swaps in receive", f"peer 0: Odd.receive {KEEPS}"),
        ("swaps in auxiliary", f"peer 0: Odd.auxiliary {KEEPS}"),
        ("text", "the method's auxiliary must give weight and value, two numbers, not (1.0, 'x')"),
        ("one", "the method's auxiliary must give weight and value, two numbers, not 3"),
        ("many", "the method's auxiliary must give weight and value, two numbers, not (1.0, tensor([0., 0.]))"),
    ],
)
def test_what_an_own_method_does_as_nobody_can_use_it_is_told_and_changes_nothing(does: str, message: str) -> None:
    learner = Learner(config(f"{__name__}:Odd", does=does))
    before = learner.checkpoint(0)
    with pytest.raises(OwnCodeFailed, match=f"^{re.escape(message)}$"):
        learner.contribute(0, "update", 1, b"")
    assert learner.checkpoint(0) == before


@pytest.mark.parametrize("where", ["receive", "update", "auxiliary", "states_epsilon"])
def test_an_own_method_that_ends_the_process_of_all_is_told_in_its_place(where: str) -> None:
    learner = Learner(config(f"{__name__}:Odd", does=f"ends in {where}"))
    with pytest.raises(OwnCodeFailed, match=r"^peer 2: SystemExit: no more \(.*test_learner.py, line \d+\)$"):
        learner.contribute(2, "update", 1, b"")


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("swaps in heard", rf"^peer 2: Hearing.heard {KEEPS}$"),
        ("ends in heard", r"^peer 2: SystemExit: no more \(.*test_learner.py, line \d+\)$"),
    ],
)
def test_what_an_own_method_does_as_it_hears_what_became_of_a_packed_post_changes_nothing(
    does: str, message: str
) -> None:
    _, knowledge = play(config("fedavg"), 1)
    learner = Learner(config(f"{__name__}:Hearing", does=does, compression="int8"))
    before = learner.checkpoint(2)
    with pytest.raises(OwnCodeFailed, match=message):
        learner.contribute(2, "update", 2, knowledge)
    assert learner.checkpoint(2) == before


@pytest.mark.parametrize("does", ["swaps in receive", "ends in receive"])
def test_what_an_own_method_does_to_a_client_that_is_measured_alone_changes_nothing(does: str) -> None:
    _, knowledge = play(config("fedavg"), 1)
    learner = Learner(config(f"{__name__}:Odd", does=does))
    before = learner.checkpoint(0)
    with pytest.raises(OwnCodeFailed):
        learner.evaluate_received(0, 2, knowledge)
    assert learner.checkpoint(0) == before


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("below", r"Odd.planned_steps of phase update must return a number from 0 on, not -3"),
        ("none", r"Odd.planned_steps of phase update must return a number from 0 on, not None"),
        ("ends in planned_steps", r"^peer 1: SystemExit: no more \(.*test_learner.py, line \d+\)$"),
        ("endless", r"Odd.planned_steps of phase update must return a number from 0 on, not inf"),
        ("fails", r"peer 1: KeyError: 'steps' \(.*, line \d+\)"),
    ],
)
def test_planned_steps_of_an_own_method_that_nobody_can_count_with_are_told(does: str, message: str) -> None:
    with pytest.raises(OwnCodeFailed) as caught:
        Learner(config(f"{__name__}:Odd", does=does)).planned_steps(1, "update", 1)
    assert re.fullmatch(message, str(caught.value)), "its note has the traceback"


def test_evaluating_a_received_model_leaves_the_client_as_it_was() -> None:
    chosen, learner = config("blade-fl"), Learner(config("blade-fl"))
    _, knowledge = play(chosen, 1, [learner])
    before = learner.checkpoint(0)
    assert learner.evaluate_received(0, 2, knowledge) is not None
    assert learner.checkpoint(0) == before
    assert learner.evaluate_received(0, 1, b"") is None


def test_the_whole_test_set_may_be_kept_for_the_shared_model() -> None:
    chosen = config("fedavg")
    _, knowledge = play(chosen, 1)
    measured = Learner(chosen, measurements=Measurements(test_local=False)).contribute(
        0, "update", 2, knowledge, evaluate_test=True
    )
    assert measured.trained.test_accuracy is None
    assert measured.received is not None
    assert measured.received.test_accuracy is not None


def test_models_are_measured_in_the_rounds_in_which_that_is_due_and_trained_the_same() -> None:
    chosen, seen = config("fedavg"), dict[int, list[Contribution]]()
    _, knowledge = play(chosen, 1)
    for every in (0, 1, 2):
        learner = Learner(chosen, measurements=Measurements(every, last=5))
        seen[every] = [learner.contribute(0, "update", number, knowledge) for number in (3, 4, 5)]
    due = {every: [made.local is not None for made in rounds] for every, rounds in seen.items()}
    assert due == {0: [False] * 3, 1: [True] * 3, 2: [False, True, True]}
    assert [made.received is not None for made in seen[2]] == due[2]
    payloads = [[made.payload for made in rounds] for rounds in seen.values()]
    assert payloads[0] == payloads[1] == payloads[2]
    unmeasured = Learner(chosen, measurements=Measurements(0))
    assert unmeasured.contribute(0, "update", 1, b"", evaluate_test=True).trained.test_accuracy is not None


def test_numbers_in_a_post_are_counted_without_labels_and_counts() -> None:
    learner = Learner(config("dfpl"))
    made = learner.contribute(0, "update", 1, b"")
    with learner.lend(0, 1) as own:
        assert made.scalars == len(own.classes) * own.model.embedding_size
    learner = Learner(config("fedavg"))
    made = learner.contribute(0, "update", 1, b"")
    with learner.lend(0, 1) as own:
        assert made.scalars == sum(parameter.numel() for parameter in own.model.parameters())


def test_what_is_measured_is_what_the_method_has() -> None:
    (first, second), _ = play(config("dfpl"), 2)
    assert first[0].trained.prototype_accuracy is None
    assert 0.5 < (second[0].trained.prototype_accuracy or 0) <= 1
    assert second[0].received is None
    assert first[0].steps == 20
    assert first[0].trained.test_accuracy is None
    measured = Learner(config("dfpl")).contribute(0, "update", 1, b"", evaluate_test=True).trained
    assert measured.local_accuracy == first[0].trained.local_accuracy
    assert 0 < (measured.test_accuracy or 0) < measured.local_accuracy
    assert (measured.test_loss or 0) > 0
    assert measured.test_accuracy_prototype is None, "no prototype is known in round 1"


def test_prototypes_of_a_clients_own_classes_predict_its_test_set() -> None:
    hardly_trained = config("dfpl", local_steps=1, learning_rate=0.001)
    learner = Learner(hardly_trained)
    _, knowledge = play(hardly_trained, 1, [learner])
    others = []
    for index in range(5):
        found = learner.contribute(index, "update", 2, knowledge).trained.prototype_accuracy
        client = learner.client(index)
        known = learner._contributing.round(client, 2, knowledge).knowledge
        assert known is not None
        embeddings, _ = forward_all(client.model, client.test_images)
        for classes, expected in ((client.classes, True), (range(10), False)):
            rows = [place for place, label in enumerate(known["labels"].tolist()) if label in classes]
            far = torch.cdist(embeddings, torch.from_numpy(known["prototypes"][rows].copy()))
            nearest = torch.from_numpy(known["labels"][rows].copy())[far.argmin(dim=1)]
            share = float((nearest == client.test_labels).double().mean())
            if expected:
                assert found == pytest.approx(share)
            else:
                others.append(share != pytest.approx(found))
    assert any(others), "with all classes it would be another number"


def test_each_shared_model_is_measured_on_the_whole_test_set() -> None:
    learner = Learner(config("fedavg"))
    known = [play(config("fedavg"), rounds)[1] for rounds in (1, 2)]
    made = [learner.contribute(0, "update", 2, one, evaluate_test=True).received for one in (*known, known[0])]
    anew = [Learner(config("fedavg")).contribute(0, "update", 2, one, evaluate_test=True).received for one in known]
    assert made == [*anew, anew[0]]
    assert anew[0] is not None
    assert anew[1] is not None
    assert anew[0].test_loss != anew[1].test_loss


def test_prototypes_of_all_classes_predict_the_whole_test_set() -> None:
    task = LearningConfig(method="dfpl", clients=5, partition="iid")
    _, knowledge = play(task, 1)
    found = Learner(task).contribute(0, "update", 2, knowledge, evaluate_test=True).trained
    assert found.test_accuracy_prototype is not None
    assert 0.5 < found.test_accuracy_prototype < 1


def test_a_contribution_travels_between_processes() -> None:
    contribution = Learner(config("solo")).contribute(0, "update", 1, b"")
    assert ForkingPickler.loads(ForkingPickler.dumps(contribution)) == contribution


def test_solo_and_dfpl_share_their_first_round() -> None:
    dfpl, solo = (Learner(config(method)).contribute(0, "update", 1, b"") for method in ("dfpl", "solo"))
    assert dfpl.trained == replace(solo.trained, auxiliary_loss=0.0, local_objective=solo.trained.local_loss)


def test_dfpl_without_weight_trains_as_solo_does() -> None:
    dfpl, _ = play(config("dfpl", regularizer_weight=0.0), 3)
    solo, _ = play(config("solo"), 3)
    for ours, theirs in zip(dfpl[-1], solo[-1], strict=True):
        assert ours.trained.local_loss == theirs.trained.local_loss


def test_clients_start_from_one_model_or_each_from_its_own() -> None:
    shared, own = Learner(config()), Learner(config(shared_init=False))
    assert shared.checkpoint(0) == shared.checkpoint(1)
    assert own.checkpoint(0) != own.checkpoint(1)


def test_a_data_set_that_was_let_go_is_read_again_by_who_asks() -> None:
    forget_datasets()  # those of other tests' learners are not these
    kept, released = Learner(config()), Learner(config())
    released.prepare(1)
    images = weakref.ref(load_dataset("digits").train_images)
    released.release_examples()
    assert images() is None
    for client in (1, 2):
        contributions = [each.contribute(client, "update", 1, b"", evaluate_test=True) for each in (kept, released)]
        assert contributions[0] == contributions[1]


def test_the_histogram_counts_each_clients_examples() -> None:
    learner = Learner(config())
    histogram = learner.histogram()
    assert histogram.shape == (5, 10)
    assert ((histogram > 0).sum(axis=1) >= 2).all()
    assert histogram.sum() <= 1442


def test_a_client_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="client must be between 0 and 4, not 5"):
        Learner(config()).contribute(5, "update", 1, b"")
