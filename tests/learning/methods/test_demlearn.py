"""DemLearn against its formulas."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage

from fedchain.learning.methods.demlearn import (
    DemLearn,
    DemLearnState,
    Group,
    average_upwards,
    build_hierarchy,
    distances,
    find_parents,
    fingerprint,
    link,
)
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.round import Round
from tests.support.learning.federation import (
    Federation,
    aggregate,
    common_model,
    config,
    model_of,
    new_client,
    read_payload,
)


def test_a_chain_of_five_thousand_merges_is_no_recursion() -> None:
    clients = 5_000
    merges = [(0, 1), *((place, clients + place - 2) for place in range(2, clients))]
    root = build_hierarchy(merges, clients, levels=2)
    lowest = root.children[1]
    assert isinstance(lowest, Group)
    assert root.children[0] == clients - 1
    inner = lowest.children[1]
    assert isinstance(inner, Group)
    assert inner.children == (*range(clients - 3, 1, -1), 0, 1)


def flat_models(values: Any) -> list[dict[str, Any]]:
    return [model_of(value) for value in values]


def test_distances_are_euclidean() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 20)).astype(np.float32)
    payloads = [{"model.a": row[:12].reshape(3, 4), "model.b": row[12:]} for row in rows]
    expected = np.linalg.norm(rows[:, None].astype(float) - rows[None], axis=2)
    np.testing.assert_allclose(distances(payloads), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 10, 25])
def test_clusters_merge_as_in_scipys_average_linkage(count: int) -> None:
    rows = np.random.default_rng(count).normal(size=(count, 6))
    found = link(distances(flat_models(rows)))
    oracle = linkage(np.array([model_of(row)["model.w"] for row in rows], dtype=float), "average")[:, :2].astype(int)
    assert [sorted(pair) for pair in found] == [sorted(pair) for pair in oracle.tolist()]


def test_of_equally_near_pairs_the_first_merges() -> None:
    assert link(distances(flat_models([[0.0], [1.0], [2.0], [3.0]]))) == [(0, 1), (2, 3), (4, 5)]


def shape_of(node: Any) -> Any:
    return [shape_of(child) for child in node.children] if isinstance(node, Group) else node


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (1, [[0, 1, 2, 3], 4]),
        (2, [[[0, 1], [2, 3]], 4]),
        (3, [[[0, 1], [2, 3]], 4]),
    ],
)
def test_the_hierarchy_splits_from_the_root_downwards(levels: int, expected: Any) -> None:
    merges = link(distances(flat_models([[0.0], [1.0], [5.0], [6.5], [100.0]])))
    assert shape_of(build_hierarchy(merges, 5, levels)) in (expected, expected[::-1])


def test_a_lonely_client_is_the_roots_child() -> None:
    root = build_hierarchy([], 1, 3)
    assert find_parents(root) == {0: root}


def test_group_models_are_means_over_their_clients() -> None:
    root = Group((Group((0, 1, 2)), 3))
    models: dict[Group, Any] = {}
    assert average_upwards(root, [np.array([v], np.float32) for v in (1.0, 2.0, 6.0, 7.0)], 1.0, models) == 4
    assert [models[group].tolist() for group in (root.children[0], root) if isinstance(group, Group)] == [[3.0], [4.0]]
    average_upwards(root, [np.array([v], np.float32) for v in (1.0, 2.0, 6.0, 7.0)], 2.0, models)
    assert models[root].tolist() == [2 * (3 * 6.0 + 7.0) / 4]  # each level is amplified


def test_demlearn_blends_groups_with_their_parents() -> None:
    payloads = flat_models([[0.0], [1.0], [10.0]])
    found = aggregate(DemLearn(blend=0.25, levels=2), payloads)
    mean, pair = 11 / 3, 0.5
    blended = 0.75 * pair + 0.25 * mean
    assert found["parents"].tolist() == [1, 1, 0]  # the third client is a child of the root
    np.testing.assert_allclose(found["group.w"], [[mean], [blended]], rtol=1e-6)
    assert found["fingerprints"].tolist() == [fingerprint(payload) for payload in payloads]
    amplified = aggregate(DemLearn(blend=0.25, levels=2, amplified_rounds=1), payloads)
    np.testing.assert_allclose(amplified["group.w"][0], [1.15 * (2 * 1.15 * 0.5 + 10) / 3], rtol=1e-6)
    later = aggregate(DemLearn(blend=0.25, levels=2, amplified_rounds=1), payloads, None, 2)
    assert later["group.w"].tobytes() == found["group.w"].tobytes()


def test_demlearns_clients_blend_with_their_own_group_or_with_the_root() -> None:
    federation = Federation(config("demlearn", blend=0.6))
    federation.play()
    known, round = federation.known(), Round(2, federation.known())
    names = [f"group.{name}" for name, _ in new_client().model.named_parameters()]
    for index in range(3):
        client = federation.learner.client(index)
        mine, group = read_vector(client.model), int(known["parents"][index])
        parent = torch.from_numpy(np.concatenate([known[name][group].ravel() for name in names]))
        DemLearn(blend=0.6).receive(client, round)
        torch.testing.assert_close(read_vector(client.model), 0.4 * mine + 0.6 * parent)
        near = client.state(DemLearnState).group
        assert near is not None
        assert torch.equal(near, parent), "training is held near it"
    stranger = new_client()
    mine = read_vector(stranger.model)
    root = torch.from_numpy(np.concatenate([known[name][0].ravel() for name in names]))
    DemLearn(blend=0.6).receive(stranger, round)
    torch.testing.assert_close(read_vector(stranger.model), 0.4 * mine + 0.6 * root)


def test_demlearn_trains_near_the_group() -> None:
    method, client = DemLearn(proximal_weight=2.0, local_steps=1, batch_size=12), new_client()
    plain, start = new_client(), read_vector(client.model)
    group = torch.zeros_like(start)
    client.state(DemLearnState).group = group
    method.update(client, Round(2, None))
    method.update(plain, Round(1, None))
    torch.testing.assert_close(read_vector(client.model), read_vector(plain.model) - 0.1 * 2.0 * (start - group))


def test_demlearn_without_blending_up_is_solo() -> None:
    ours, solo = Federation(config("demlearn", blend=0.0, proximal_weight=0.0)), Federation(config("solo"))
    made, alone = ours.play(3), solo.play(3)
    assert [one.trained.local_loss for one in made] == [one.trained.local_loss for one in alone]


def test_demlearn_with_full_blending_is_fedavg_with_equal_weights() -> None:
    ours, fedavg = Federation(config("demlearn", blend=1.0, proximal_weight=0.0)), Federation(config("blade-fl"))
    ours.play(3)
    fedavg.play(3)
    for name, value in fedavg.known().items():
        np.testing.assert_allclose(ours.known()["group." + name.removeprefix("model.")][0], value, rtol=1e-4, atol=1e-6)
    assert common_model(fedavg.known())


def test_a_fingerprint_is_that_of_the_posted_bytes() -> None:
    federation = Federation(config("demlearn"))
    made = federation.play()
    read = [read_payload(federation.rules, one.payload) for one in made]
    assert [federation.client(client).state(DemLearnState).posted for client in range(3)] == [
        fingerprint(one) for one in read
    ]


def test_a_hierarchy_with_as_many_groups_as_its_levels_allow_is_knowledge() -> None:
    method = DemLearn(levels=3)
    info = ModelInfo((("w", (1,)),), 1, 2, trainable=frozenset({"w"}), normalization=frozenset())
    places = np.arange(16)
    values = (places[:, None] >> np.arange(4) & 1) @ 10.0 ** np.arange(4)  # pairs of pairs of pairs
    found = aggregate(method, flat_models([[value] for value in values]))
    assert len(found["group.w"]) == 2**3 + 1, "eight groups of two, and the root"
    read = decode(encode(found), method.knowledge_spec(method.phases[-1], info))
    assert read["parents"].tolist() == found["parents"].tolist()
