"""How examples travel: what belongs together stays together, what is missing counts as not posted, and the aggregator's
network goes on where it was left."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError, NothingToPost
from fedchain.learning.families.distillation import DistillationMethod
from fedchain.learning.families.distillation_parts import ROWS_MAX, ExampleParts, read_answer
from fedchain.learning.families.server import Server
from fedchain.learning.models import server
from fedchain.learning.models.registry import describe_model
from fedchain.learning.models.server import build_server_model
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.models.vectors import write_state
from fedchain.learning.payload.bulk import AGGREGATOR, NEXT_AGGREGATOR, PART_SIZE_MAX, manifest
from fedchain.learning.payload.codec import encode
from fedchain.learning.registry import build_method
from fedchain.learning.round import OffChain
from fedchain.learning.worker.contribution import Contribution
from tests.support.learning.federation import CLIENTS
from tests.support.learning.mixed_relay import Relay, small


def test_features_and_logits_stand_in_the_order_of_the_data() -> None:
    federation = Relay(small(local_epochs=1))
    federation.round = 1
    payloads = federation.step("update")
    for index, payload in enumerate(payloads):
        client, (ref,) = federation.client(index), federation.refs("update", payload)
        tensors = federation.tensors("update", ref)
        with torch.no_grad():
            features, _, logits = client.model.eval().split(client.train_images)
        np.testing.assert_allclose(tensors["features"], features.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(tensors["logits"], logits.numpy(), rtol=1e-5, atol=1e-6)
    assert len({federation.client(index).info.parameters for index in range(CLIENTS)}) == 3, "three architectures"


def test_answers_are_what_the_trained_network_says_of_each_example_in_its_order() -> None:
    """The state that is posted is the one in which the last client was answered."""
    federation = Relay(small(learning_rate=0.05))
    federation.play()
    federation.round = 2
    (sent,) = federation.refs("update", federation.step("update")[-1])
    (payload,) = federation.step("distill")
    refs = federation.refs("distill", payload)
    assert [ref.reader for ref in refs] == [0, 1, 2, NEXT_AGGREGATOR]
    network = build_server_model((13,), 10).eval()
    write_state(network, torch.from_numpy(np.array(federation.tensors("distill", refs[-1])["values"])))
    with torch.no_grad():
        said = network(torch.from_numpy(np.array(federation.tensors("update", sent)["features"]))).numpy()
    np.testing.assert_allclose(federation.tensors("distill", refs[2])["logits"], said, rtol=1e-4, atol=1e-5)
    assert not np.allclose(said, said[::-1], atol=0.1), "in another order they are other answers"


def test_a_client_learns_from_the_answers_to_it_and_to_nobody_else() -> None:
    federation = Relay(small())
    federation.play()
    seen: list[torch.Tensor] = []
    method = federation.learner.method
    assert isinstance(method, DistillationMethod)
    client = federation.client(1)
    with federation.learner.lend(1, 2) as lent:
        round = federation.learner._contributing.round(lent, 2, federation.knowledge)
        round = replace(round, bulk=federation.learner._contributing.bulk(lent, method.phases[0], round))
        answer = read_answer(lent, round)
        assert answer is not None
        choose = method.given_to_client(lent, round, answer)
        seen.append(choose(torch.tensor([3, 0])).logits)
    (mine,) = [ref for ref in round.bulk.parts("distill") if ref.kind == "answers" and ref.reader == 1]  # type: ignore[union-attr]
    stated = federation.tensors("distill", mine)["logits"]
    assert len(stated) == len(client.train_labels)
    np.testing.assert_array_equal(seen[0].numpy(), stated[[3, 0]])


def test_the_aggregator_takes_so_many_passes_over_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = note_what_is_learned(monkeypatch)
    for passes in (1, 3):
        taken.clear()
        federation = Relay(small(server_epochs=passes))
        federation.play()
        examples = [len(federation.client(index).train_labels) for index in range(CLIENTS)]
        assert sorted(map(len, taken)) == sorted(passes * examples)


def note_what_is_learned(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The features that an aggregator trains on, in its order."""
    train, taken = Server.train, list[torch.Tensor]()

    def noting(server: Server, features: torch.Tensor, *given: Any) -> torch.Tensor:
        taken.append(features)
        return train(server, features, *given)

    monkeypatch.setattr(Server, "train", noting)
    return taken


def test_examples_are_cut_into_parts_that_are_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Relay(small())
    whole.round = 1
    (one,) = whole.refs("update", whole.step("update")[0])
    rows = len(whole.client(0).train_labels)
    monkeypatch.setattr(ExampleParts, "rows_max", lambda self, info: rows // 3)
    cut = Relay(small())
    cut.round = 1
    parts = cut.refs("update", cut.step("update")[0])
    sizes = [len(cut.tensors("update", ref)["logits"]) for ref in parts]
    assert sum(sizes) == rows
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) in (3, 4)
    joined = np.concatenate([cut.tensors("update", ref)["features"] for ref in parts])
    np.testing.assert_allclose(joined, whole.tensors("update", one)["features"], rtol=1e-5, atol=1e-6)
    taken = note_what_is_learned(monkeypatch)
    (payload,) = cut.step("distill")
    learned = torch.cat(taken[: len(parts)]).numpy()  # of the first client, part by part in any order
    np.testing.assert_array_equal(np.sort(learned, axis=0), np.sort(joined, axis=0))
    answered = [ref for ref in cut.refs("distill", payload) if ref.reader == 0]
    assert sum(len(cut.tensors("distill", ref)["logits"]) for ref in answered) == rows


def test_an_example_of_32x32_pixels_takes_64_kib_or_half_of_it() -> None:
    info = describe_model("resnet8-56")
    assert (ExampleParts("float32").rows_max(info), ExampleParts("float16").rows_max(info)) == (255, 511)
    method = build_method("fedgkt", {})
    spec = method.parts(method.phases[0], info)["examples"]
    assert sum(tensor.size_bytes_max for tensor in spec) < PART_SIZE_MAX


def test_a_large_batch_teaches_what_it_would_with_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(5)
    features, found = torch.randn(6, 16, 8, 8, generator=draw), []
    for large in (server.LARGE_BATCH, 1):
        monkeypatch.setattr(server, "LARGE_BATCH", large)
        torch.manual_seed(5)
        model = build_server_model((16, 8, 8), 10, 2).train()
        for _ in range(2):
            logits = model(features)
            gradients = torch.autograd.grad(logits.square().mean(), list(model.parameters()))
        found.append([logits, *gradients, *model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_half_precision_halves_the_bytes_and_keeps_the_meaning() -> None:
    federation, half = Relay(small()), Relay(small(precision="float16"))
    sizes = []
    for one in (federation, half):
        one.round = 1
        (ref,) = one.refs("update", one.step("update")[0])
        tensors = one.tensors("update", ref)
        sizes.append(sum(tensor.nbytes for tensor in tensors.values()))
        one.step("distill")
        one.play()
    assert sizes[0] == 2 * sizes[1]
    assert tensors["features"].dtype == np.float16


def known(federation: Relay, phase: str, sender: int, kind: str) -> list[bytes]:
    """Hashes of a sender's parts of a kind, as far as the knowledge lists them."""
    work, client = federation.learner._contributing, federation.client(0)
    bulk = work.bulk(client, work.phases["distill"], work.round(client, 1, federation.knowledge))
    assert bulk is not None
    return [ref.hash for ref in bulk.parts(phase) if (ref.sender, ref.kind) == (sender, kind)]


def lose(federation: Relay, phase: str, sender: int, kind: str) -> None:
    """Forget the bytes of a sender's parts of a kind."""
    for part_hash in known(federation, phase, sender, kind):
        del federation.parts._parts[part_hash]


@pytest.mark.parametrize(("phase", "kind"), [("update", "examples"), ("labels", "labels")])
def test_who_s_parts_are_missing_has_not_posted(phase: str, kind: str) -> None:
    """The aggregator's network is as if the sender had not been there."""
    lost, without = Relay(small()), Relay(small())
    for federation in (lost, without):
        federation.round = 1
    lost.step("update")
    without.step("update", range(2))
    lose(lost, phase, 2, kind)
    made = lost.learner.contribute(CLIENTS, "distill", 1, lost.knowledge)
    assert [ref.reader for ref in lost.refs("distill", made.payload) if ref.kind == "answers"] == [0, 1]
    assert without.step("distill") == [made.payload]
    ((place, reason),) = made.skipped
    assert (place, reason.startswith("part "), reason.endswith(" is not here")) == (2, True, True)


def test_who_is_not_answered_because_bytes_are_missing_names_the_aggregator() -> None:
    federation = Relay(small())
    federation.play()
    federation.round = 2
    assert federation.learner.contribute(1, "update", 2, federation.knowledge).skipped == ()
    lose(federation, "distill", CLIENTS, "answers")
    for client in (1, 2):
        ((place, reason),) = federation.learner.contribute(client, "update", 2, federation.knowledge).skipped
        assert (place, reason.endswith(" is not here")) == (CLIENTS, True)


@pytest.mark.parametrize("heard", [(), (1, 2)])
def test_who_was_late_in_the_setup_sends_its_labels_with_its_examples(heard: tuple[int, ...]) -> None:
    """The aggregator computes, byte for byte, what it would have if the setup had heard everybody."""

    class Late(Relay):
        def _phase(self, phase: str, participants: Sequence[int]) -> list[Contribution]:
            return super()._phase(phase, heard if phase == "labels" else participants)

    late, timely = Late(small()), Relay(small())
    for _ in range(2):
        for federation in (late, timely):
            federation.round += 1
        for index, (one, other) in enumerate(zip(late.step("update"), timely.step("update"), strict=True)):
            kinds = [ref.kind for ref in late.refs("update", one)]
            assert kinds == (["examples"] if index in heard else ["examples", "late labels"])
            assert late.refs("update", one)[:1] == timely.refs("update", other)
        assert late.step("distill") == timely.step("distill")


def test_who_has_lost_the_labels_that_it_sent_in_the_setup_sends_them_again_once() -> None:
    """Only their sender gives them to an aggregator that has not got them, as to one whose turn it is first."""
    federation, whole = Relay(small()), Relay(small())
    lose(federation, "labels", 1, "labels")
    for kinds in (["examples", "late labels"], ["examples"]):
        federation.round += 1
        whole.round += 1
        posted, expected = federation.step("update"), whole.step("update")
        assert [ref.kind for ref in federation.refs("update", posted[1])] == kinds
        assert posted[::2] == expected[::2]
        assert federation.step("distill") == whole.step("distill")


def test_fedict_answers_who_was_late_in_the_setup() -> None:
    federation = Relay(small("fedict"))
    federation.knowledge = b""
    federation.round = 1
    federation.step("update")
    (payload,) = federation.step("distill")
    assert [ref.reader for ref in federation.refs("distill", payload)] == [0, 1, 2, NEXT_AGGREGATOR]


def test_what_was_learned_of_an_incomplete_post_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three parts of the first sender is lost: the others go on as if it had not been there."""
    monkeypatch.setattr(ExampleParts, "rows_max", lambda self, info: 20)
    lost, without = Relay(small()), Relay(small())
    for federation in (lost, without):
        federation.round = 1
    parts = lost.refs("update", lost.step("update")[0])
    assert len(parts) > 1
    del lost.parts._parts[parts[0].hash]
    without.step("update", range(1, 3))
    (payload,) = lost.step("distill")
    assert {ref.reader for ref in lost.refs("distill", payload)} == {1, 2, NEXT_AGGREGATOR}
    assert without.step("distill") == [payload]


def test_without_any_examples_the_phase_closes_empty() -> None:
    federation = Relay(small())
    federation.round = 1
    federation.step("update")
    federation.parts._parts.clear()
    before = federation.learner.checkpoint(CLIENTS)
    reasons = r"; peer 0: part \w+ is not here; peer 1: .*; peer 2: .*"
    with pytest.raises(NothingToPost, match=f"member 3, round 1: no client's examples are of use here{reasons}"):
        federation.learner.contribute(CLIENTS, "distill", 1, federation.knowledge)
    assert federation.learner.checkpoint(CLIENTS) == before
    assert (
        federation.rules.aggregate(OffChain("distill", 1, federation.members), federation.knowledge, [])
        == federation.knowledge
    )


def test_examples_that_nobody_can_learn_from_stop_nobody_else() -> None:
    """They are valid numbers, and would leave the aggregator's network without any."""
    hostile, without = Relay(small(learning_rate=0.1)), Relay(small(learning_rate=0.1))
    for federation in (hostile, without):
        federation.round = 1
    with hostile.learner.lend(1, 1) as client:
        round = hostile.learner._contributing.round(client, 1, hostile.knowledge)
        bulk = hostile.learner._contributing.bulk(client, hostile.learner._contributing.phases["update"], round)
        features = np.full((len(client.train_labels), 13), 9e5, np.float32)
        logits = np.full((len(client.train_labels), 10), -9e5, np.float32)
        logits[:, 0] = 9e5
        assert bulk is not None
        bulk.write("examples", {"features": features, "logits": logits}, AGGREGATOR)
        posted = encode(bulk.manifest())
    honest = {place: hostile.learner.contribute(place, "update", 1, hostile.knowledge).payload for place in (0, 2)}
    posts = [(bytes([place]), payload) for place, payload in sorted({**honest, 1: posted}.items())]
    for sender, payload in posts:
        hostile.rules.check(OffChain("update", 1, hostile.members), sender, hostile.knowledge, payload)
    hostile.knowledge = hostile.rules.aggregate(OffChain("update", 1, hostile.members), hostile.knowledge, posts)
    made = hostile.learner.contribute(CLIENTS, "distill", 1, hostile.knowledge)
    payload, ((place, reason),) = made.payload, made.skipped
    assert (place, reason.startswith("the network diverges with it: the ")) == (1, True)
    assert {ref.reader for ref in hostile.refs("distill", payload)} == {0, 2, NEXT_AGGREGATOR}
    without.knowledge = without.rules.aggregate(
        OffChain("update", 1, without.members), without.knowledge, [posts[0], posts[2]]
    )
    without.parts = hostile.parts
    other = without.new_learner()
    assert other.contribute(CLIENTS, "distill", 1, without.knowledge).payload == payload


def test_who_claims_more_examples_than_the_aggregator_can_be_made_to_read_is_not_read() -> None:
    """A post of 2 KB and two parts of 170 bytes claim a million examples: 43 seconds of training for the aggregator."""
    hostile, without = Relay(small()), Relay(small())
    for federation in (hostile, without):
        federation.knowledge, federation.round = b"", 1
    with hostile.learner.lend(0, 1) as client:
        work = hostile.learner._contributing
        bulk = work.bulk(client, work.phases["update"], work.round(client, 1, b""))
        assert bulk is not None
        labels = bulk.write("late labels", {"labels": np.zeros(ROWS_MAX, np.int64)}, AGGREGATOR)
        made_up = {"features": np.zeros((ROWS_MAX, 13), np.float32), "logits": np.zeros((ROWS_MAX, 10), np.float32)}
        examples = bulk.write("examples", made_up, AGGREGATOR)
        posted = encode(bulk.manifest([*[labels] * 16, *[examples] * 16]))
    honest = [(bytes([place]), hostile.learner.contribute(place, "update", 1, b"").payload) for place in (1, 2)]
    posts = [(bytes([0]), posted), *honest]
    hostile.rules.check(OffChain("update", 1, hostile.members), bytes([0]), b"", posted)
    hostile.knowledge = hostile.rules.aggregate(OffChain("update", 1, hostile.members), b"", posts)
    del hostile.parts._parts[examples.hash], hostile.parts._parts[labels.hash]  # nobody looks for them
    made = hostile.learner.contribute(CLIENTS, "distill", 1, hostile.knowledge)
    ((place, reason),) = made.skipped
    assert (place, "are taken from one member" in reason) == (0, True)
    without.step("update", range(1, 3))
    assert without.step("distill") == [made.payload]


def test_of_answers_no_more_is_read_than_the_client_has_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    federation, read = Relay(small()), list[bytes]()
    federation.round = 1
    federation.step("update")
    answers = federation.refs("distill", federation.step("distill")[0])
    (mine,) = [ref for ref in answers if ref.kind == "answers" and ref.reader == 1]
    posted = encode(manifest([mine] * 60, federation.rules._kinds["distill"]))
    occasion = OffChain("distill", 1, federation.members)
    knowledge = federation.rules.aggregate(occasion, federation.knowledge, [(bytes([CLIENTS]), posted)])
    stored = dict(federation.parts._parts)

    def count(part_hash: bytes) -> bytes:
        read.append(part_hash)
        return stored[part_hash]

    monkeypatch.setattr(federation.parts, "read", count)
    federation.learner.contribute(1, "update", 2, knowledge)
    labels = known(federation, "labels", 1, "labels")
    assert read == [mine.hash] * 2 + labels, "it looks whether it still has what it sent in the setup"


def test_models_must_have_features_of_one_shape() -> None:
    assert infos_of(small())[0].feature_shape == (13,)
    with pytest.raises(
        ConfigurationError, match=r"one shape, but split-mlp-1 has \(13,\), resnet2-56 has \(16, 8, 8\)"
    ):
        infos_of(replace(small(), model="split-mlp-1+resnet2-56"))
    with pytest.raises(ConfigurationError, match="take a model that can be split"):
        Application(replace(small(), model="digits-mlp"))
    assert replace(small(), model="auto").model_names == ("resnet2-56",)


def test_a_round_leaves_answers_and_labels_and_drops_what_was_sent() -> None:
    federation = Relay(small())
    federation.play(2)
    kinds = [(number, reader) for number, (_, _, reader), *_ in federation.rules.parts_known(federation.knowledge)]
    assert sorted(kinds) == [(0, -2)] * 3 + [(2, -3), (2, 0), (2, 1), (2, 2)]
