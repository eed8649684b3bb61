"""SCAFFOLD against its formulas."""

import numpy as np
import torch

from fedchain.learning.methods.scaffold import Scaffold, ScaffoldState
from fedchain.learning.models.vectors import read_vector
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
