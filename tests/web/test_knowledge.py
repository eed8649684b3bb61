"""How far what rounds left behind moved: of prototypes and of models, and what a page leaves to be read later."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import fedchain
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.models.parameters import parameter_spec
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.codec import encode
from fedchain.node.founding.task import found_federation, rules_of
from fedchain.simulator.scenario import Scenario
from fedchain.web import knowledge
from fedchain.web.app import Site
from fedchain.web.chains import Chain, open_chains
from fedchain.web.knowledge import Drift, KnowledgeReader
from fedchain.web.pages import rounds
from fedchain.web.places import find_places
from fedchain.web.report import render_report
from tests.support.chain.builders import CREATED_MS, EASY_BITS, ChainBuilder, keys, post
from tests.support.chain.explored import write
from tests.support.web.builders import document, learning_chain, write_run

ROUNDS = 6


def model_document() -> Genesis:
    config = LearningConfig(clients=2, method="fedavg", model="digits-mlp")
    members = [key.public_key for key in keys(2)]
    consensus = {"rounds": 0, "initial_bits": EASY_BITS, "proof_function": "sha256d"}
    return found_federation(config, Application(config), members, name="models", created_ms=CREATED_MS, **consensus)


@pytest.fixture(scope="module")
def models() -> ChainBuilder:
    """Each round moves one of the model's numbers by the round's own number."""
    genesis = model_document()
    chain = ChainBuilder(genesis, rules_of(genesis))
    spec = parameter_spec(infos_of(LearningConfig(clients=2, method="fedavg", model="digits-mlp"))[0])
    model = {item.name: np.zeros(item.shape, np.float32) for item in spec}
    for number in range(1, ROUNDS + 1):
        model[spec[0].name].reshape(-1)[0] += number
        payload = encode(model | {"examples": np.array([3])})
        chain.contents[sha256(payload)] = payload
        members = sorted(keys(2), key=lambda key: key.public_key)
        chain.extend(posts=[post(key, genesis, number, payload) for key in members])
    return chain


def opened(folder: Path) -> Chain:
    (chain,) = open_chains(find_places([folder]), rules_of)
    return chain


def drift_of(chain: Chain, reader: KnowledgeReader, number: int) -> Drift:
    with chain.reading() as reading:
        found: Drift = rounds.knowledge(chain, reading, str(number), reader)["drift"]
    return found


def test_models_are_compared_round_by_round(models: ChainBuilder, tmp_path: Path) -> None:
    chain = opened(write_run(tmp_path / "run", models))
    drift = drift_of(chain, KnowledgeReader(), ROUNDS)
    assert [number for number, _ in drift.of_model] == [2, 3, 4, 5, 6]
    assert [moved for _, moved in drift.of_model] == pytest.approx([2, 3, 4, 5, 6])
    assert (drift.unread, drift.by_class, drift.places) == (0, (), ())
    assert [number for number, _ in drift_of(chain, KnowledgeReader(), 3).of_model] == [2, 3]


def test_a_distance_is_of_numbers_that_training_moves_and_of_any_size() -> None:
    """Counts and places are no part of a model, and half precision ends at 65,504."""
    one = {"w": np.array([3.0, 0.0], np.float32), "half": np.array([6e4], np.float16), "counts": np.array([1, 2])}
    other = {"w": np.array([0.0, 4.0], np.float32), "half": np.array([-6e4], np.float16), "counts": np.array([9, 2])}
    other["alone"] = np.ones(5, np.float32)
    assert knowledge._distance({"w": one["w"], "counts": one["counts"]}, other) == 5.0
    assert knowledge._distance(one, other) == pytest.approx((25 + 1.2e5**2) ** 0.5)
    assert knowledge._distance({"w": np.ones(3, np.float32)}, other) == 0.0, "of another shape"


def test_a_distance_is_of_all_pieces_that_are_calculated_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "ELEMENTS_AT_ONCE", 2)
    one, other = {"w": np.arange(5, dtype=np.float32)}, {"w": np.zeros(5, np.float32)}
    assert knowledge._distance(one, other) == pytest.approx(30**0.5)


@pytest.mark.slow
def test_of_a_method_that_lists_parts_no_model_is_spoken_of(tmp_path: Path) -> None:
    scenario = Scenario(method="fedict", peers=2, rounds=2)
    fedchain.simulate(scenario=scenario, out=tmp_path / "run", keep_models=False)
    chain = opened(tmp_path / "run")
    drift = drift_of(chain, KnowledgeReader(), 2)
    assert (drift.of_model, drift.unread, drift.is_of_model) == ((), 0, False)
    page = TestClient(Site([chain]).app, base_url="http://localhost").get("/run/knowledge").text
    assert "it lists parts, whose bytes only their readers fetch." in page
    assert "whole model" not in page
    assert "a model" not in page


def test_a_model_is_called_one(models: ChainBuilder, tmp_path: Path) -> None:
    chain = opened(write_run(tmp_path / "run", models))
    page = TestClient(Site([chain]).app, base_url="http://localhost").get("/run/knowledge").text
    assert "No class prototypes are in this knowledge: it is a model." in page
    assert "whole model" in page


def test_what_a_page_has_no_time_for_is_read_later_and_the_page_changes(
    models: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, reader = opened(write_run(tmp_path / "run", models)), KnowledgeReader()
    monkeypatch.setattr(knowledge, "PAGE_CPU_S", -1.0)
    drift = drift_of(chain, reader, ROUNDS)
    assert (drift.of_model, drift.unread) == ((), ROUNDS - 1)
    version, steps = chain.look(), 0
    while reader.work():
        steps += 1
        assert (chain.look() == version) is (steps < ROUNDS - 1)
    assert steps == ROUNDS - 1
    whole = drift_of(chain, reader, ROUNDS)
    assert [moved for _, moved in whole.of_model] == pytest.approx([2, 3, 4, 5, 6])
    assert whole.unread == 0


def test_the_page_says_what_is_still_compared_and_a_report_waits_for_it(
    models: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", models)
    monkeypatch.setattr(knowledge, "PAGE_CPU_S", -1.0)
    client = TestClient(Site([opened(folder)]).app, base_url="http://localhost")
    assert "5 more rounds are being compared" in client.get("/run/knowledge").text
    report = render_report(opened(folder))
    assert "being compared" not in report
    assert "distance to the round before" in report


def test_a_store_that_went_away_ends_the_work(
    models: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", models)
    chain, reader = opened(folder), KnowledgeReader()
    monkeypatch.setattr(knowledge, "PAGE_CPU_S", -1.0)
    assert drift_of(chain, reader, ROUNDS).unread == ROUNDS - 1
    rmtree(folder)
    assert sum(1 for _ in iter(reader.work, False)) == ROUNDS - 1


def test_prototypes_move_as_numpy_says(tmp_path: Path) -> None:
    built = learning_chain(document(), 5)
    chain = opened(write_run(tmp_path / "run", built))
    rules = chain.rules()
    assert isinstance(rules, Application)
    drift = drift_of(chain, KnowledgeReader(), 5)
    with chain.reading() as reading:
        rows = []
        for number in (4, 5):
            tensors = rules.read_knowledge(reading.explorer.kept.left_behind(number)[1])
            assert tensors is not None
            found = rules.method.prototypes(tensors)
            assert found is not None
            rows.append(dict(zip(found["labels"].tolist(), found["prototypes"], strict=True)))
    assert [label for label, _ in drift.by_class] == sorted(rows[1])
    for label, points in drift.by_class:
        assert points[-1][0] == 5
        assert points[-1][1] == pytest.approx(float(np.linalg.norm(rows[1][label] - rows[0][label])), rel=1e-5)
    assert len(drift.places) == len(rows[1])
    assert max(len(dot.trail.split()) for dot in drift.places) == 5, "each with its earlier places"


def test_no_more_rounds_are_compared_than_are_shown(
    models: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge, "ROUNDS_SHOWN", 3)
    chain = opened(write_run(tmp_path / "run", models))
    assert [number for number, _ in drift_of(chain, KnowledgeReader(), ROUNDS).of_model] == [5, 6]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_round_that_cannot_be_read_is_where_the_comparison_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """The rounds around it are no neighbours; what a method of one's own left may be no tensors."""
    built = learning_chain(document(), 5)
    third = next(block.header.knowledge_root for block in built.blocks.values() if block.header.round == 3)
    with Store.create(tmp_path / "run" / "chain", built.genesis) as store:
        write(store, built, without=() if is_kept else (third,))
    read, unread = Application.read_knowledge, built.contents[third]

    def refuse(rules: Application, data: bytes) -> Any:
        if data == unread:
            raise InvalidPayload("no tensors")
        return read(rules, data)

    monkeypatch.setattr(Application, "read_knowledge", refuse)
    drift = drift_of(opened(tmp_path / "run"), KnowledgeReader(), 5)
    assert drift.rounds == (4, 5)
    assert {number for _, points in drift.by_class for number, _ in points} == {5}
