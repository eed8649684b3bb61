"""The server's network: its state travels with the post, and a divergence leaves it as it was."""

import numpy as np
import pytest
import torch

from fedchain.learning.bulk import PartAccess
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.families.server import Server, ServerState
from fedchain.learning.models.registry import describe_model
from fedchain.learning.models.server import build_server_model
from fedchain.learning.payload.bulk import AGGREGATOR, NEXT_AGGREGATOR
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import build_method
from fedchain.learning.round import OffChain
from fedchain.learning.training.schedule import Schedule
from tests.support.learning.federation import CLIENTS, with_norm
from tests.support.learning.mixed_relay import Relay, small


def test_another_aggregator_goes_on_from_the_state_that_was_posted() -> None:
    """A member that never had the role computes, byte for byte, what the one that had it would have."""
    federation = Relay(small())
    federation.play(2)
    federation.round = 3
    federation.step("update")
    saved = federation.learner.checkpoint(CLIENTS)
    expected = federation.learner.contribute(CLIENTS, "distill", 3, federation.knowledge)
    other = federation.new_learner()
    assert other.contribute(CLIENTS, "distill", 3, federation.knowledge) == expected, "it has the posted state"
    state = federation.client(CLIENTS).state(ServerState)
    assert state.round == 3
    assert state.values is not None
    federation.learner.restore(CLIENTS, saved)
    refs = [ref for ref in federation.refs("distill", expected.payload) if ref.kind == "server"]
    tensors = federation.tensors("distill", refs[0])
    assert tensors["round"].tolist() == [3]
    np.testing.assert_array_equal(tensors["values"], state.values.numpy())


def test_what_the_network_says_before_it_learns_is_found_by_the_place_of_the_example() -> None:
    draw = torch.Generator().manual_seed(3)
    features, theirs = torch.randn(10, 13, generator=draw), torch.zeros(10, 5)
    schedule = Schedule(learning_rate=1e-12, batch_size=4)
    server = Server(build_server_model((13,), 5, 1), schedule, torch.Generator().manual_seed(4), (0, 1))
    said = server.train(features, theirs, torch.arange(10) % 5, lambda logits, labels, _: logits.square().mean())
    torch.testing.assert_close(said, server.predict(features))
    assert len({tuple(row) for row in said.tolist()}) == 10


def test_a_network_that_nobody_gives_out_begins_anew() -> None:
    federation = Relay(small())
    federation.play(2)
    known = federation.learner._contributing.round(federation.client(0), 3, federation.knowledge)
    work = federation.learner._contributing
    bulk = work.bulk(federation.client(0), work.phases["distill"], known)
    assert bulk is not None
    (ref,) = [ref for ref in bulk.parts("distill") if ref.kind == "server"]
    del federation.parts._parts[ref.hash]
    federation.round = 3
    federation.step("update")
    other = federation.new_learner()
    made = other.contribute(CLIENTS, "distill", 3, federation.knowledge)
    assert made != federation.learner.contribute(CLIENTS, "distill", 3, federation.knowledge)


def test_a_network_that_diverges_with_everybody_begins_anew() -> None:
    """An aggregator may leave one of valid numbers with which nobody after it could go on, as if of a later round."""
    federation = Relay(small())
    federation.play()
    federation.round = 2
    federation.step("update")
    made = federation.learner.contribute(CLIENTS, "distill", 2, federation.knowledge)
    left = PartAccess(federation.parts, federation.rules._kinds, "distill", {})
    refs = [*federation.refs("distill", made.payload)]
    (place,) = (place for place, ref in enumerate(refs) if ref.kind == "server")
    network = federation.tensors("distill", refs[place])
    spoilt = {"round": np.array([2**62]), "values": np.full_like(network["values"], 1e12)}
    refs[place] = left.write("server", {**network, **spoilt}, NEXT_AGGREGATOR)
    occasion, posted = OffChain("distill", 2, federation.members), encode(left.manifest(refs))
    federation.rules.check(occasion, bytes([CLIENTS]), federation.knowledge, posted)
    federation.knowledge = federation.rules.aggregate(occasion, federation.knowledge, [(bytes([CLIENTS]), posted)])
    federation.round = 3
    federation.step("update")
    own = federation.learner.contribute(CLIENTS, "distill", 3, federation.knowledge)
    federation.learner = federation.new_learner()
    new = federation.learner.contribute(CLIENTS, "distill", 3, federation.knowledge)
    assert own.payload != new.payload, "who has a network of its own goes on from that one"
    for made in (own, new):
        assert not made.skipped
        assert {ref.reader for ref in federation.refs("distill", made.payload)} == {0, 1, 2, NEXT_AGGREGATOR}


def test_a_network_that_could_not_be_handed_on_is_taken_back() -> None:
    """The last client's features leave a running variance that no part holds, and all parameters as they should be."""
    federation = Relay(with_norm("fedgkt", batch_size=4, server_epochs=3))
    federation.round, occasion = 1, OffChain("update", 1, federation.members)
    made = [federation.learner.contribute(client, "update", 1, b"").payload for client in (0, 1)]
    bulk = PartAccess(federation.parts, federation.rules._kinds, "update", {})
    shape = 48, *(federation.rules.info.feature_shape or ())
    signs = np.sign(np.random.default_rng(0).standard_normal(shape))
    features, logits = (1e6 * signs).astype(np.float32), np.zeros((48, 10), np.float32)
    bulk.write("examples", {"features": features, "logits": logits}, AGGREGATOR)
    posts = [(bytes([place]), payload) for place, payload in enumerate([*made, encode(bulk.manifest())])]
    federation.rules.check(occasion, posts[2][0], federation.knowledge, posts[2][1])
    federation.knowledge = federation.rules.aggregate(occasion, federation.knowledge, posts)
    answered = federation.learner.contribute(CLIENTS, "distill", 1, federation.knowledge)
    assert [place for place, _ in answered.skipped] == [2]
    assert {ref.reader for ref in federation.refs("distill", answered.payload)} == {0, 1, NEXT_AGGREGATOR}


def test_an_aggregator_that_diverges_posts_nothing_and_stays_as_it_was() -> None:
    federation = Relay(small())
    federation.round = 1
    federation.step("update")
    other = Relay(small(learning_rate=1e3))
    other.parts = federation.parts
    learner = other.new_learner()
    before = learner.checkpoint(CLIENTS)
    with pytest.raises(NothingToPost, match="no client's examples are of use here; peer 0: the network diverges"):
        learner.contribute(CLIENTS, "distill", 1, federation.knowledge)
    assert learner.checkpoint(CLIENTS) == before


def test_specs_of_state_hold_the_papers_network() -> None:
    method = build_method("fedgkt", {})
    kinds = method.parts(method.phases[1], describe_model("resnet2-56"))
    sizes = {spec.name: spec for spec in kinds["server"]}
    assert sizes["values"].free_max > 600_000
    assert all(isinstance(spec, TensorSpec) for spec in kinds["answers"])
