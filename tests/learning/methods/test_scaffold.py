"""SCAFFOLD against its formulas."""

import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.files.spool import SpoolFolder
from fedchain.learning.aggregation.mean import round_once
from fedchain.learning.compression.packing import find_packing
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.scaffold import Scaffold, ScaffoldState
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import places_in_vector
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.payload.codec import decode, encode, lie_in_file
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.training.loop import draw_batches
from tests.support.learning.federation import (
    Federation,
    aggregate,
    common_model,
    config,
    examples,
    gradient_at,
    model_of,
    new_client,
)


def test_scaffolds_first_round_is_fedavgs() -> None:
    scaffold, fedavg = Federation(config("scaffold")), Federation(config("fedavg"))
    scaffold.play()
    fedavg.play()
    assert common_model(scaffold.known()) == common_model(fedavg.known())


def test_scaffold_follows_algorithm_1() -> None:
    method = Scaffold(local_steps=3, batch_size=4)
    client = new_client()
    size = client.info.parameter_count
    server, own = torch.linspace(-0.1, 0.1, size), torch.linspace(0.2, -0.1, size)
    client.state(ScaffoldState).control = own
    known = Round(2, {"control": server.numpy()}, clients=3)
    start = read_vector(client.model)
    posted = method.update(client, known)
    batches = draw_batches(12, 4, torch.Generator().manual_seed(2))
    point = start.clone()
    for _ in range(3):
        point = point - 0.1 * (gradient_at(point, next(batches)) - own + server)
    torch.testing.assert_close(read_vector(client.model), point)
    renewed = own - server + (start - read_vector(client.model)) / (3 * 0.1)
    torch.testing.assert_close(client.state(ScaffoldState).control, renewed)
    torch.testing.assert_close(torch.from_numpy(posted["control_change"]), renewed - own)


def test_scaffolds_c_i_is_of_the_learning_rate_of_its_round() -> None:
    """By the largest one, c_i would be ever smaller than the gradients whose mean it is."""
    method = Scaffold(local_steps=3, batch_size=4, schedule="linear", schedule_rounds=4)
    client = new_client()
    start = read_vector(client.model)
    method.update(client, Round(3, None, clients=3))
    mean_gradient = (start - read_vector(client.model)) / (3 * 0.05)
    torch.testing.assert_close(client.state(ScaffoldState).control, mean_gradient)


def test_scaffold_divides_the_change_of_c_by_all_clients() -> None:
    change = [np.array([2.0, 0.0], np.float32), np.array([1.0, -4.0], np.float32)]
    payloads = [model_of([0.0]) | examples(1) | {"control_change": one} for one in change]
    known = model_of([0.0]) | {"control": np.array([1.0, 1.0], np.float32)}
    found = aggregate(Scaffold(), payloads, known, clients=6)
    assert found["control"].tolist() == [1.5, float(np.float32(1 - 4 / 6))]


def test_rules_divide_by_the_clients_of_the_occasion() -> None:
    federation = Federation(config("scaffold"))
    made = [federation.learner.contribute(client, "update", 1, b"").payload for client in range(3)]
    posts = [(federation.members[client], payload) for client, payload in enumerate(made)]
    founding, later = (
        federation.rules.read_knowledge(
            federation.rules.aggregate(OffChain("update", 1, federation.members, clients), b"", posts)
        )
        for clients in (0, 6)
    )
    assert founding is not None
    assert later is not None
    assert np.any(founding["control"])
    np.testing.assert_allclose(later["control"], founding["control"] / 2, rtol=1e-6)


def test_scaffolds_c_is_the_mean_of_all_c_i_though_clients_skip_rounds() -> None:
    federation = Federation(config("scaffold"))
    for participants in ([0, 1], [2], [0], [1, 2], [0, 2]):
        federation.play(1, participants)
        controls = [federation.client(client).state(ScaffoldState).control for client in range(3)]
        known = [control for control in controls if control is not None]
        mean = torch.stack(known).double().sum(0) / 3
        torch.testing.assert_close(
            torch.from_numpy(federation.known()["control"].copy()).double(), mean, atol=1e-5, rtol=1e-4
        )


def play_with_late(federation: Federation, late: Sequence[int], away: Sequence[int] = ()) -> None:
    """Play a round in which some clients train, but nobody counts their posts, and some others do nothing."""
    for client in late:
        federation.learner.contribute(client, "update", federation.round + 1, federation.knowledge)
    federation.play(1, [client for client in range(3) if client not in (*late, *away)])


@pytest.mark.parametrize("compression", ["none", "topk"])
def test_c_is_the_mean_of_all_c_i_though_posts_came_too_late(compression: str) -> None:
    federation = Federation(config("scaffold", acknowledged=True, compression=compression))
    for late, away in (([0], []), ([2], []), ([2], []), ([], [2]), ([1], [0]), ([], [1]), ([0, 2], [])):
        play_with_late(federation, late, away)
    assert federation.known()["counted"].tolist() == [6, 7, 6]
    federation.play()
    mean = np.mean([control_of(federation, client) for client in range(3)], axis=0)
    np.testing.assert_allclose(federation.known()["control"], mean, atol=1e-4, rtol=1e-4)


def test_a_post_that_is_made_again_is_the_same() -> None:
    federation = Federation(config("scaffold", acknowledged=True))
    federation.play(2)
    first, second = (federation.learner.contribute(1, "update", 3, federation.knowledge).payload for _ in range(2))
    assert first == second


def test_who_joins_is_counted_beside_the_others() -> None:
    federation = Federation(config("scaffold", acknowledged=True), founders=2)
    federation.play(2)
    federation.clients = range(3)
    federation.play(1, [1, 2])
    assert federation.known()["counted"].tolist() == [2, 3, 3]


def test_acknowledged_posts_change_nothing_else() -> None:
    plain, acknowledged = (Federation(config("scaffold", acknowledged=one)) for one in (False, True))
    for federation in (plain, acknowledged):
        for participants in ([0, 1], [2], [0, 1, 2], [1, 2]):
            federation.play(1, participants)
    known = acknowledged.known()
    assert {name: value.tobytes() for name, value in plain.known().items()} == {
        name: value.tobytes() for name, value in known.items() if name != "counted"
    }


def test_founders_have_posts_acknowledged() -> None:
    assert Scaffold().derived(5) == {"acknowledged": True}


@pytest.mark.parametrize("kind", ["int8", "topk", "sparse"])
def test_c_stays_the_mean_of_all_c_i_that_packed_posts_said(kind: str) -> None:
    federation = Federation(config("scaffold", compression=kind, weighting="clients"))
    federation.play(4)
    controls = [federation.client(client).state(ScaffoldState).control for client in range(3)]
    mean = torch.stack([control for control in controls if control is not None]).double().mean(0)
    torch.testing.assert_close(
        torch.from_numpy(federation.known()["control"].copy()).double(), mean, atol=1e-4, rtol=1e-4
    )


def test_packed_posts_follow_scallion() -> None:
    """Algorithm 1 with alpha 1: c_i += C(delta_i), x -= S eta (c + mean of C(delta_i)), delta_i = drift_i - c."""
    federation = Federation(config("scaffold", compression="topk", compression_k=200, weighting="clients"))
    federation.play(1)
    size = federation.client(0).info.parameter_count
    info, length = federation.client(0).info, 4 * 0.1
    own = [control_of(federation, client) for client in range(3)]
    for _ in range(3):
        known = federation.known()
        start, server = joined(known, info), known["control"].astype(float)
        federation.play(1)
        said = []
        for client in range(3):
            drift = (start - read_vector(federation.client(client).model).numpy().astype(float)) / length
            delta = {name: (drift - server).astype(np.float32)[at] for name, at in places_in_vector(info).items()}
            kept = {name: np.zeros_like(value) for name, value in delta.items()}
            for name, value in delta.items():
                for begin in range(0, value.size, 4096):
                    chunk = value.reshape(-1)[begin : begin + 4096]
                    most = np.argsort(-np.abs(chunk))[: math.ceil(200 * len(chunk) / 4096)]
                    kept[name].reshape(-1)[begin + most] = chunk[most]
            said.append(joined(kept, info))
            own[client] += said[-1]
            np.testing.assert_allclose(control_of(federation, client), own[client], atol=2e-5)
        assert np.count_nonzero(said[0]) < size / 10
        expected = start - length * (server + np.mean(said, axis=0))
        np.testing.assert_allclose(joined(federation.known(), info), expected, atol=1e-6)
        np.testing.assert_allclose(federation.known()["control"], server + np.mean(said, axis=0), atol=1e-5)


def test_what_follows_from_packed_posts_has_the_bits_of_whole_vectors() -> None:
    federation = Federation(config("scaffold", compression="int8"))
    federation.play(2)
    info, known, method = federation.client(0).info, federation.known(), federation.rules.method
    drawn = np.random.default_rng(1).standard_normal(info.parameter_count)
    plain = {
        name: drawn[at].astype(np.float32).reshape(known[name].shape) for name, at in places_in_vector(info).items()
    }
    post = plain | {"length": np.array([0.3], np.float32)}
    length, control, start = float(post["length"][0]), known["control"].astype(np.float64), joined(known, info)
    expected = method.expected(known, post, info)
    assert joined(expected, info).astype(np.float32).tobytes() == round_once(start - length * control).tobytes()
    assert all(expected[name].shape == known[name].shape for name in plain)
    change = method.complete(known, post, info)["control_change"]
    assert change.tobytes() == round_once((start - joined(plain, info)) / length - control).tobytes()
    client = federation.client(0)
    own, mine = control_of(federation, 0), read_vector(client.model).numpy().astype(float)
    method.heard(client, Round(3, known), post)
    heard = (own + (mine - joined(plain, info)) / length).astype(np.float32)
    assert control_of(federation, 0).astype(np.float32).tobytes() == heard.tobytes()


def test_large_packed_posts_take_the_memory_of_a_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change of c_i is one tensor, as long as the model; beside it there are single tensors of the model."""
    monkeypatch.setattr("fedchain.learning.compression.packing.MAPPED_SIZE", 2**16)
    names = [f"layer{number:02}.weight" for number in range(16)]
    info = ModelInfo(tuple((name, (256, 256)) for name in names), 256, 10, frozenset(names), frozenset())
    method, size = Scaffold(compression="int8"), 4 * info.parameter_count
    specs, left = method.payload_spec(method.phases[0], info), method.knowledge_spec(method.phases[0], info)
    packing = find_packing(method, info, specs, left)
    assert packing is not None
    drawn = np.random.default_rng(2)
    known = {spec.name: drawn.standard_normal(spec.shape, dtype=np.float32) for spec in left}
    post = {name: value + np.float32(0.1) for name, value in known.items() if name != "control"}
    post |= {"examples": np.array([3]), "length": np.array([0.4], np.float32)}
    spools = SpoolFolder(tmp_path, size_min=2**16)
    tracemalloc.start()
    try:
        payload = packing.pack(post, known, drawn, None, spools)
        packed_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        plain = packing.unpack(payload, known, spools)
        unpacked_bytes, left_bytes = tracemalloc.get_traced_memory()[1], tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert lie_in_file(plain)
    assert left_bytes < size / 10
    assert packed_bytes < size / 2, f"{packed_bytes / size:.2f} models"
    assert unpacked_bytes < 1.7 * size, f"{unpacked_bytes / size:.2f} models"


def test_a_liar_s_length_is_no_division_by_zero() -> None:
    federation = Federation(config("scaffold", compression="int8"))
    federation.play(1)
    payload = federation.learner.contribute(0, "update", 2, federation.knowledge).payload
    form = federation.rules.forms[0]
    packing = form.packing("update", federation.known())
    assert packing is not None
    lie = encode(dict(decode(payload, packing.specs)) | {"length": np.zeros(1, np.float32)})
    with np.errstate(all="raise"):
        assert np.isfinite(form.decode("update", lie, federation.known())["control_change"]).all()
        federation.rules.check(OffChain("update", 2), b"\0", federation.knowledge, lie)


def test_error_feedback_beside_c_i_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="error_decay is not of SCAFFOLD"):
        Scaffold(compression="sparse", error_decay=0.9).validate()


def joined(tensors: Tensors, info: ModelInfo) -> np.ndarray[Any, Any]:
    """A model's trainable parameters as one vector, (P,)."""
    return np.concatenate([tensors[name].reshape(-1) for name in places_in_vector(info)]).astype(np.float64)


def control_of(federation: Federation, client: int) -> np.ndarray[Any, Any]:
    control = federation.client(client).state(ScaffoldState).control
    assert control is not None
    return control.numpy().astype(float)
