"""A scheme is one class: a toy that no family and no method knows hides DFPL's and FedPH's posts all the same.

Clients come in pairs, of which one adds a constant to all its vectors and the other subtracts it. Members then say
which classes they have, and the sums are divided. It hides nothing from anybody that knows the constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest

from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.method import Lifetime, Phase
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import OffChain, ReadPost, Round, Tensors
from fedchain.learning.sums.scheme import UPDATE, SumScheme, known_spec
from fedchain.testing.federation import Federation

CLIENTS, MASK = 4, 512.0
DIVIDE = "divide"


class MaskedSums(SumScheme):
    """Two phases: masked vectors of all classes, zeros for those that a client lacks; then the classes of each."""

    hides = True

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase(UPDATE, lifetime=Lifetime.ROUND, trains=True), Phase(DIVIDE, quorum=CLIENTS)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        if phase.name == UPDATE:
            return (TensorSpec("masked", (info.classes, info.embedding_size)),)
        return (TensorSpec("has", (info.classes,), "int64", minimum=0, maximum=1),)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        if phase.name == UPDATE:
            return (TensorSpec("sums", (info.classes, info.embedding_size)),)
        return known_spec(info)

    def hide(self, posted: Tensors, client: Client, round: Round) -> Tensors:
        masked = np.full((client.info.classes, client.info.embedding_size), MASK * (-1) ** client.index, np.float32)
        masked[posted["labels"]] += posted["prototypes"]
        return {"masked": masked}

    def contribute(self, phase: Phase, client: Client, round: Round) -> Tensors:
        return {"has": np.isin(np.arange(client.info.classes), client.classes).astype(np.int64)}

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        if phase.name == UPDATE and (np.abs(post.payload["masked"]) < MASK / 2).any():
            raise InvalidPayload("masked: larger numbers expected")

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if phase.name == UPDATE:
            return {"sums": np.stack([post.payload["masked"] for post in round.posts]).sum(axis=0, dtype=np.float32)}
        holders = np.sum([post.payload["has"] for post in round.posts], axis=0)  # (C,)
        labels = np.flatnonzero(holders)
        means = round.beside[UPDATE]["sums"][labels] / holders[labels, None]
        return {"labels": labels, "holders": holders[labels], "prototypes": means.astype(np.float32)}

    def derived(self, members: int) -> Mapping[str, int]:
        return {"local_steps": members}


class Masks:
    @cached_property
    def sums(self) -> SumScheme:
        return MaskedSums()


@dataclass(frozen=True, kw_only=True)
class MaskedDfpl(Masks, Dfpl):
    beyond_rules: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class MaskedFedPh(Masks, FedPh):
    pass


def task(method: str, **settings: str) -> LearningConfig:
    return LearningConfig(
        method=method, clients=CLIENTS, hyperparameters={"local_steps": 2, "local_epochs": 0, **settings}
    )


@pytest.mark.parametrize("name", ["Dfpl", "FedPh"])
def test_a_scheme_of_one_s_own_hides_posts_and_opens_the_means_that_posts_in_clear_have(name: str) -> None:
    masked, plain = Federation(task(f"{__name__}:Masked{name}")), Federation(task(name.lower()))
    assert masked.rules.phases == ((UPDATE, "participant", 0), (DIVIDE, "participant", CLIENTS))
    for federation in (masked, plain):
        federation.play(2)
    found, expected = masked.known(), plain.known()
    for tensor in ("labels", "holders"):
        assert found[tensor].tolist() == expected[tensor].tolist()
    np.testing.assert_allclose(found["prototypes"], expected["prototypes"], atol=1e-3)


def test_the_family_asks_the_scheme_for_everything_that_follows_from_it() -> None:
    federation = Federation(task(f"{__name__}:MaskedDfpl"))
    method, rules = federation.rules.method, federation.rules
    post = federation.learner.contribute(1, UPDATE, 1, b"").payload
    read = decode(post, method.payload_spec(method.phases[0], rules.info))
    assert (read["masked"] < -MASK / 2).all(), "what is posted is masked"
    occasion = OffChain(UPDATE, 1, federation.members)
    rules.check(occasion, federation.members[1], b"", post)
    with pytest.raises(InvalidPayload, match="masked: larger numbers expected"):
        rules.check(occasion, federation.members[1], b"", encode({"masked": 0 * read["masked"]}))
    assert method.derived(5) == {"local_steps": 5}
    for settings, message in (
        ({"aggregation_rule": "median"}, "aggregation_rule median cannot look into encrypted prototypes"),
        ({"aggregation": "samples"}, "aggregation samples needs counts"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            replace(method, **settings)
