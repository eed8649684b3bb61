"""Members with different models: the genesis document states all, and each post is judged by its sender's own."""

import re
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.method import Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.registry import describe_model
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.task.custom import describe_task
from fedchain.learning.worker.learner import Learner
from fedchain.node.founding.task import found_federation, learning_from_genesis, learning_to_genesis, rules_of
from tests.support.chain.builders import CREATED_MS, EASY_BITS, genesis, keys
from tests.support.learning.federation import Federation
from tests.support.learning.federation import config as small
from tests.support.learning.own_task import config as own_config
from tests.support.learning.own_task import points

MODELS = "digits-mlp+digits-mlp-bn"
PLAIN, NORMED = describe_model("digits-mlp"), describe_model("digits-mlp-bn", classes=10, channels=1)


@dataclass(frozen=True, kw_only=True)
class Biases(Method):
    """Each client posts the last bias of each of its layers; what they leave is how many numbers that were."""

    mixes_models: ClassVar[bool] = True

    leaves_shapes: bool = False
    """Whether what is left behind has the shapes of a model, which then must be everybody's."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("show"),)

    def show(self, client: Client, round: Round) -> Tensors:
        state = client.model.state_dict()
        return {name: state[name].numpy() for name, _ in _biases(client.info)}

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name, shape) for name, shape in _biases(info))

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        return self.payload_spec(phase, info) if self.leaves_shapes else (TensorSpec("numbers", (1,), "int64"),)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        assert all(post.payload.keys() == dict(_biases(post.info)).keys() for post in round.posts if post.info)
        return {"numbers": np.array([sum(part.size for post in round.posts for part in post.payload.values())])}


def _biases(info: ModelInfo) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, shape) for name, shape in info.parameters if name.endswith("bias")]


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> LearningConfig:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    return LearningConfig(method="contributed:Biases", model=MODELS, clients=3)


def test_a_post_is_judged_by_its_sender_s_own_model(mixed: LearningConfig) -> None:
    assert infos_of(mixed) == (PLAIN, NORMED)
    federation = Federation(mixed)
    federation.play()
    assert federation.known()["numbers"].tolist() == [2 * (64 + 32 + 10) + 64 + 32 + 10 + 64 + 32]
    rules, payloads = federation.rules, [federation.learner.contribute(k, "show", 1, b"").payload for k in range(3)]
    for sender, payload in ((0, 0), (1, 1), (2, 0)):
        rules.check(OffChain("show", 1, federation.members), bytes([sender]), b"", payloads[payload])
    for sender, payload in ((0, 1), (1, 0), (2, 1)):
        with pytest.raises(InvalidPayload):
            rules.check(OffChain("show", 1, federation.members), bytes([sender]), b"", payloads[payload])
    assert rules.payload_size_max("show") >= max(map(len, payloads))


def test_a_client_knows_its_own_shapes(mixed: LearningConfig) -> None:
    learner = Learner(mixed, members=[b"a", b"b", b"c", b"d"])
    found = []
    for k in range(4):
        with learner.lend(k, 1) as client:
            found.append(client.info)
    assert found == [PLAIN, NORMED, PLAIN, PLAIN], "the last one is the aggregator"


def test_what_is_left_behind_is_of_one_form_for_all(mixed: LearningConfig) -> None:
    chosen = replace(mixed, hyperparameters={"leaves_shapes": True})
    Application(replace(chosen, model="digits-mlp"))
    with pytest.raises(ConfigurationError, match="what contributed:Biases leaves behind depends on the model"):
        Application(chosen)


@pytest.mark.parametrize("method", ["dfpl", "fedproto", "fedph"])
def test_clients_with_different_models_learn_from_each_other_s_prototypes(method: str) -> None:
    models = "frozen-2+frozen-3" if method == "fedph" else MODELS
    federation = Federation(replace(small(method), model=models))
    federation.play(2)
    assert len(federation.rules.infos) == 2
    assert federation.known()["prototypes"].shape[1] == federation.rules.info.embedding_size
    alone = Federation(replace(small(method), model=models))
    alone.play(2, participants=[0])
    shared, own = federation.learner.checkpoint(0), alone.learner.checkpoint(0)
    assert shared != own, "what the others know changes what a client learns"


def test_a_document_states_every_model_and_is_judged_by_them(mixed: LearningConfig) -> None:
    document = found_federation(
        mixed,
        Application(mixed),
        [key.public_key for key in keys(3)],
        name="mixed",
        created_ms=CREATED_MS,
        initial_bits=EASY_BITS,
    )
    config = learning_from_genesis(document)
    assert (config.shapes, config.more_shapes) == (PLAIN, (NORMED,))
    rules, learner = rules_of(document), Learner(config)
    for place, member in enumerate(document.members):
        rules.check(
            OffChain("show", 1, document.members), member, b"", learner.contribute(place, "show", 1, b"").payload
        )
    message = "tensor 0 of the model is hidden.0.weight (64, 64), but in the genesis it is fc1.weight (64, 64)"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Learner(replace(config, more_shapes=(PLAIN,))).prepare(1)


def test_older_documents_state_the_first_model_alone_and_are_read_as_before() -> None:
    config = LearningConfig(method="dfpl", model=MODELS, clients=3, hyperparameters={"local_steps": 2})
    document = genesis(3, learning=learning_to_genesis(replace(config, shapes=PLAIN)))
    assert "more_shapes" not in dict(document.learning)
    read = learning_from_genesis(document)
    rules, learner = rules_of(document), Learner(read)
    assert rules.infos == (PLAIN,)
    for place, member in enumerate(document.members):
        rules.check(
            OffChain("update", 1, document.members), member, b"", learner.contribute(place, "update", 1, b"").payload
        )
    assert learner.client(1).info == NORMED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shapes": PLAIN, "more_shapes": (NORMED, PLAIN)},
            "more_shapes are of 2 models beside the first, but there are 2",
        ),
        ({"more_shapes": (NORMED,)}, "more_shapes are of 1 models beside the first, but there are 2"),
        (
            {"shapes": PLAIN, "more_shapes": (replace(NORMED, classes=7),)},
            "shapes are of 7 classes and examples of shape None, but digits has 10",
        ),
        ({"method": "fedavg"}, "fedavg averages parameters, which digits-mlp+digits-mlp-bn do not have in common"),
    ],
)
def test_models_that_contradict_the_rest_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        replace(LearningConfig(method="dfpl", model=MODELS, clients=3), **changes).validate()


# own data


class Deep(nn.Module):
    """So many layers before an embedding of six numbers."""

    def __init__(self, layers: int, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))
        self.hidden, self.head = nn.Linear(4, 6), nn.Linear(6, classes)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).relu()
        embedding = self.hidden(x).relu()
        return embedding, self.head(embedding)


def in_turn(member: int) -> tuple[nn.Module, Any, Any]:
    return Deep(member % 2), points(30, member), points(9)


def each(member: int) -> tuple[nn.Module, Any, Any]:
    return Deep(member), points(30, member), points(9)


def first_only(member: int) -> tuple[nn.Module, Any, Any]:
    if member:
        raise FileNotFoundError(f"data of member {member}")
    return each(member)


def test_a_user_s_function_may_bring_another_model_for_each_member() -> None:
    for task, count in ((in_turn, 2), (each, 3), (first_only, 1)):
        assert len(infos_of(describe_task(own_config(), task))) == count
    chosen = describe_task(own_config(), each)
    chosen.validate()
    rules, learner, knowledge = Application(chosen, [b"a", b"b", b"c"]), Learner(chosen, each), b""
    assert [len(info.parameters) for info in rules.infos] == [4, 6, 8]
    for number in (1, 2):
        made = [learner.contribute(k, "update", number, knowledge).payload for k in range(3)]
        posts = list(zip([b"a", b"b", b"c"], made, strict=True))
        for sender, payload in posts:
            rules.check(OffChain("update", number, (b"a", b"b", b"c")), sender, knowledge, payload)
        knowledge = rules.aggregate(OffChain("update", number, (b"a", b"b", b"c")), knowledge, posts)
    read = learning_from_genesis(genesis(3, learning=learning_to_genesis(chosen)))
    assert (read.shapes, read.more_shapes) == (chosen.shapes, chosen.more_shapes)


def test_a_member_whose_model_is_another_than_was_agreed_on_hears_of_it_at_its_start() -> None:
    chosen = describe_task(own_config(), first_only)
    Learner(chosen, each).prepare(0)
    with pytest.raises(ConfigurationError, match=r"each: tensor 0 of the model is layers\.0\.weight \(4, 4\)"):
        Learner(chosen, each).prepare(1)


def test_methods_that_average_parameters_ask_for_one_model_alone() -> None:
    chosen = describe_task(own_config("fedavg"), each)
    assert chosen.more_shapes == ()
    with pytest.raises(ConfigurationError, match=r"layers\.0\.weight"):
        Learner(chosen, each).prepare(1)
    other = describe_task(own_config(), each).more_shapes
    with pytest.raises(ConfigurationError, match="fedavg averages parameters, which members' models do not have in"):
        replace(chosen, more_shapes=other).validate()


def test_models_of_one_federation_know_the_same_classes() -> None:
    chosen = describe_task(own_config(), in_turn)
    (other,) = chosen.more_shapes
    with pytest.raises(
        ConfigurationError, match="models of one federation need the same classes, but it is member 0's 3"
    ):
        infos_of(replace(chosen, more_shapes=(replace(other, classes=4),)))


def test_equal_bytes_of_two_senders_are_read_by_the_model_of_each(mixed: LearningConfig) -> None:
    rules = Application(mixed, [b"a", b"b"])
    payload = encode({name: np.zeros(shape, np.float32) for name, shape in _biases(PLAIN)})
    rules.check(OffChain("show", 1, (b"a", b"b")), b"a", b"", payload)
    with pytest.raises(InvalidPayload, match="an array of 5 expected, found 3"):
        rules.check(OffChain("show", 1, (b"a", b"b")), b"b", b"", payload)


def test_the_members_are_those_of_the_occasion_whoever_founded_the_federation(mixed: LearningConfig) -> None:
    rules = Application(mixed, [b"a", b"b"])
    payload = encode({name: np.zeros(shape, np.float32) for name, shape in _biases(PLAIN)})
    rules.check(OffChain("show", 1, (b"b", b"a")), b"b", b"", payload)
    rules.check(OffChain("show", 2, (b"a", b"b", b"c")), b"c", b"", payload)
    with pytest.raises(InvalidPayload, match="an array of 5 expected, found 3"):
        rules.check(OffChain("show", 2, (b"b", b"a")), b"a", b"", payload)
