"""Compression beside everything else that judges posts: checks, rules, weights, late posts, noise, documents."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedchain.chain.knowledge import LatePost
from fedchain.learning import application
from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.registry import METHODS, HyperparameterValue, build_method, hyperparameter_names, load_method
from fedchain.learning.round import OffChain
from fedchain.node.founding.task import learning_to_genesis
from tests.support.campaigns import some
from tests.support.learning.federation import VARIED, Federation, config

KINDS = ("int8", "topk", "sparse")
PACKING = [name for name in sorted(METHODS) if "compression" in hyperparameter_names(load_method(name))]
PEERS = 20


@cache
def played(method: str = "fedavg", **settings: HyperparameterValue) -> Federation:
    federation = Federation(config(method, **settings))
    federation.play(1)
    return federation


def post(federation: Federation, client: int = 0) -> bytes:
    return federation.learner.contribute(client, "update", 2, federation.knowledge).payload


def refuse(payload: bytes, message: str, *, knowledge: bytes | None = None, **settings: HyperparameterValue) -> None:
    known = played(**settings)
    with pytest.raises(InvalidPayload, match=message):
        known.rules.check(OffChain("update", 2), b"\0", known.knowledge if knowledge is None else knowledge, payload)


@pytest.mark.parametrize(("kind", "factor"), [("int8", 3.8), ("topk", 10), ("sparse", 30)])
def test_posts_are_whole_first_and_packed_from_then_on(kind: str, factor: float) -> None:
    federation, whole = Federation(config("fedavg", compression=kind)), len(post(played()))
    sizes = [len(federation.play(1)[0].payload) for _ in range(3)]
    assert sizes[0] == whole
    assert sizes[1] == sizes[2] < whole / factor
    federation.rules.check(OffChain("update", 4), b"\0", federation.knowledge, post(federation))


@pytest.mark.long
@pytest.mark.parametrize("method", some((name for name in PACKING if name != "demlearn"), chosen=VARIED))
def test_every_method_that_posts_parameters_learns_from_packed_posts(method: str) -> None:
    federation = Federation(config(method, compression="sparse"))
    sizes = [sum(len(item.payload) for item in federation.play(1)) for _ in range(2)]
    begun_whole = not federation.rules.setup_phases or method == "fededs"
    assert sizes[1] < 0.75 * sizes[0] if begun_whole else sizes[1] == sizes[0] < 3 * 2000


def test_scaffolds_change_of_the_control_variate_costs_no_bytes() -> None:
    model, packed = post(played(compression="sparse")), post(played("scaffold", compression="sparse"))
    assert len(packed) - len(model) < 30, "the length of its step"


def test_a_whole_post_is_refused_beside_knowledge_and_a_packed_one_without() -> None:
    packed = played(compression="int8")
    refuse(post(played()), "size: at most 7020 bytes expected, found 26490", compression="int8")
    refuse(post(packed), "tensors: an array of 7 expected, found 3", knowledge=b"", compression="int8")


def test_malformed_packed_posts_are_refused_where_others_are() -> None:
    payload = post(played(compression="sparse"))
    packing = played(compression="sparse").rules.forms[0].packing("update", played(compression="sparse").known())
    assert packing is not None
    tensors = dict(decode(payload, packing.specs))
    refuse(payload[:-1], "bytes expected|msgpack", compression="sparse")
    refuse(payload + bytes(1 << 20), "size: at most", compression="sparse")
    scales = tensors["packed.scales"].copy()
    scales[0, 0] = np.nan
    refuse(encode(tensors | {"packed.scales": scales}), "finite numbers expected", compression="sparse")
    empty = encode(tensors | {"packed.high": np.zeros_like(tensors["packed.high"])})
    refuse(empty, "packed.positions: .* expected, found 0", compression="sparse")


def test_many_members_posts_in_any_order_and_another_process_give_the_same_bytes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"compression": "sparse", "local_steps": 1, "local_epochs": 0}
    federation = Federation(replace(config("fedavg", **settings), clients=PEERS, shots=20, test_shots=5))
    federation.play(1)
    posts = [(bytes([client]), post(federation, client)) for client in range(PEERS)]
    found = set()
    for seed in range(3):
        rules = Application(federation.config)
        for place in np.random.default_rng(seed).permutation(PEERS):  # they are checked when they come
            rules.check(OffChain("update", 2), posts[place][0], federation.knowledge, posts[place][1])
        found.add(rules.aggregate(OffChain("update", 2), federation.knowledge, posts))
    assert len(found) == 1
    (tmp_path / "known").write_bytes(federation.knowledge)
    for sender, payload in posts:
        (tmp_path / sender.hex()).write_bytes(payload)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    ran = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, str(tmp_path), repr(settings), repr(Application(federation.config).info)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | threads,
    )
    assert ran.stdout.strip() == hashlib.sha256(found.pop()).hexdigest()


_ELSEWHERE = """
import ast, hashlib, sys
from dataclasses import replace
from pathlib import Path
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.round import OffChain
folder, settings, shapes = Path(sys.argv[1]), ast.literal_eval(sys.argv[2]), eval(sys.argv[3])
known = (folder / "known").read_bytes()
posts = sorted((bytes.fromhex(path.name), path.read_bytes()) for path in folder.iterdir() if path.name != "known")
task = LearningConfig(method="fedavg", clients=len(posts), hyperparameters=settings, shapes=shapes)
print(hashlib.sha256(Application(task).aggregate(OffChain("update", 2), known, posts)).hexdigest())
"""


def test_one_payload_says_other_models_beside_other_knowledge() -> None:
    first = played(compression="int8")
    payload, other = post(first), Federation(replace(config("fedavg", compression="int8"), seed=1))
    other.play(1)
    rules = Application(config("fedavg", compression="int8"))
    occasion = OffChain("update", 2)
    for known in (first.knowledge, other.knowledge):
        rules.check(occasion, b"\0", known, payload)
    alone = Application(config("fedavg", compression="int8")).aggregate(occasion, first.knowledge, [(b"\0", payload)])
    assert rules.aggregate(occasion, first.knowledge, [(b"\0", payload)]) == alone
    assert rules.aggregate(occasion, other.knowledge, [(b"\0", payload)]) != alone


def test_a_late_post_is_counted_from_the_knowledge_that_it_was_made_from() -> None:
    federation = Federation(config("fedavg", compression="int8", late_weighting="constant", weighting="clients"))
    federation.play(1)
    older, late = federation.knowledge, post(federation)
    federation.play(1)
    newer = federation.knowledge
    fresh = federation.learner.contribute(1, "update", 3, newer).payload
    occasion = OffChain("update", 3, late=(LatePost(b"\0", late, 2, older),))
    rules = federation.rules
    found, old, new = (
        rules.read_knowledge(data) or {} for data in (rules.aggregate(occasion, newer, [(b"\1", fresh)]), older, newer)
    )
    form = rules.forms[0]
    moved, own = form.decode("update", late, old), form.decode("update", fresh, new)
    for name, value in new.items():
        expected = value + (moved[name].astype(float) - old[name] + own[name] - value) / 2
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


def test_unpacked_posts_beyond_the_bound_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = played(compression="sparse")
    model = 4 * 6570
    monkeypatch.setattr(application, "POSTS_SIZE_MAX", 2 * model + model // 2)
    rules, posts = Application(federation.config), [(bytes([client]), post(federation, client)) for client in range(3)]
    for sender, payload in posts:
        rules.check(OffChain("update", 2), sender, federation.knowledge, payload)
    assert sum(rules._decoded._sizes.values()) < 2.5 * model
    expected = federation.rules.aggregate(OffChain("update", 2), federation.knowledge, posts)
    assert rules.aggregate(OffChain("update", 2), federation.knowledge, posts) == expected


@pytest.mark.parametrize("kind", ["int8", "sparse"])
def test_noise_costs_as_much_and_nothing_more(kind: str) -> None:
    private: dict[str, Any] = {"gradient_noise": 2.0, "gradient_clip": 0.5, "local_steps": 2, "batch_size": 4}
    entries = []
    for settings in (private, private | {"compression": kind}):
        federation = Federation(config("fedavg", **settings))
        epsilons = [item.epsilon for item in federation.play(2)]
        written = federation.learner.ledger(0).entries()
        entries.append([epsilons, [(entry.release, entry.phase, entry.round) for entry in written]])
    assert entries[0] == entries[1]


def test_documents_of_federations_that_do_not_compress_say_nothing_of_it() -> None:
    assert "compression" not in str(learning_to_genesis(config("fedavg")))
    assert (
        '["compression", "sparse"]'
        in dict(learning_to_genesis(config("fedavg", compression="sparse")))["hyperparameters"]
    )


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedavg", {"compression": "topk", "compression_k": 0}, "compression_k must lie in"),
        ("fedavg", {"compression": "topk", "compression_k": 4097}, "compression_k must lie in"),
        ("fedavg", {"compression": "topk", "error_decay": 1.5}, "error_decay must lie in"),
        ("fedavg", {"compression": "sparse", "aggregation_rule": "median"}, "median of sparse posts stands still"),
        (
            "fedavg",
            {"compression": "topk", "aggregation_rule": "trimmed_mean", "byzantine": 1},
            "trimmed_mean of topk posts stands still",
        ),
        ("dfpl", {"compression": "int8"}, "dfpl has no compression: it posts no parameters of a common model"),
        ("fedgkt", {"compression": "int8"}, "fedgkt has no compression: it posts no parameters of a common model"),
    ],
)
def test_settings_that_do_nothing_good_are_refused_with_the_reason(
    method: str, settings: dict[str, HyperparameterValue], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_method(method, settings)


def test_a_method_whose_knowledge_is_no_model_is_refused_where_a_federation_is_founded() -> None:
    with pytest.raises(ConfigurationError, match="DemLearn posts nothing that is a change of the knowledge"):
        Application(config("demlearn", compression="int8"))


def test_the_median_takes_int8_and_mixed_neighbours() -> None:
    build_method("fedavg", {"compression": "int8", "aggregation_rule": "median"})
    mixing: dict[str, HyperparameterValue] = {"neighbour_mixing": True, "byzantine": 1}
    build_method("fedavg", {"compression": "sparse", "aggregation_rule": "median", **mixing})
