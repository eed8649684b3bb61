"""SCAFFOLD against its formulas."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.scaffold import Scaffold, ScaffoldState
from fedchain.learning.models.parameters import join_parameters, split_parameters
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.round import OffChain, Round
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
        start, server = join_parameters(known, info), known["control"].astype(float)
        federation.play(1)
        said = []
        for client in range(3):
            drift = (start - read_vector(federation.client(client).model).numpy().astype(float)) / length
            delta = split_parameters((drift - server).astype(np.float32), info)
            kept = {name: np.zeros_like(value) for name, value in delta.items()}
            for name, value in delta.items():
                for begin in range(0, value.size, 4096):
                    chunk = value.reshape(-1)[begin : begin + 4096]
                    most = np.argsort(-np.abs(chunk))[: math.ceil(200 * len(chunk) / 4096)]
                    kept[name].reshape(-1)[begin + most] = chunk[most]
            said.append(join_parameters(kept, info))
            own[client] += said[-1]
            np.testing.assert_allclose(control_of(federation, client), own[client], atol=2e-5)
        assert np.count_nonzero(said[0]) < size / 10
        expected = start - length * (server + np.mean(said, axis=0))
        np.testing.assert_allclose(join_parameters(federation.known(), info), expected, atol=1e-6)
        np.testing.assert_allclose(federation.known()["control"], server + np.mean(said, axis=0), atol=1e-5)


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


def control_of(federation: Federation, client: int) -> np.ndarray[Any, Any]:
    control = federation.client(client).state(ScaffoldState).control
    assert control is not None
    return control.numpy().astype(float)
