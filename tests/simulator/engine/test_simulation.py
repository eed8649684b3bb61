"""A run ends when it is over, or when its time is; its measurements are of those that follow the protocol."""

from statistics import mean

import pytest

from fedchain.learning.amended import Amended
from fedchain.learning.executors.executor import Job
from fedchain.learning.executors.inline import Done
from fedchain.learning.training.measured import Evaluation
from fedchain.network.messages import PostMessage
from fedchain.node.core.events import MessageReceived
from fedchain.simulator.disturbances import Fault, Traitors
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.scenario import ScenarioError
from tests.support.chain.builders import genesis, keys, payload, post
from tests.support.simulator.trivial import TrivialExecutor, trivial_scenario, trivial_simulation


@pytest.mark.parametrize("allowed_s", [1.0, 2.5])
def test_a_run_ends_at_the_moment_that_its_scenario_names(allowed_s: float) -> None:
    simulation = trivial_simulation(trivial_scenario(rounds=1_000, max_virtual_s=allowed_s))
    with pytest.raises(ScenarioError, match=f"max_virtual_s allows {allowed_s:g}$"):
        simulation.run()
    assert simulation.progress.virtual_s == allowed_s


def test_a_run_whose_last_round_some_peers_did_not_close_says_so() -> None:
    cut = Fault(at_s=1.0, kind="partition", peers=(3,))
    simulation = trivial_simulation(trivial_scenario(rounds=2, faults=(cut,), max_virtual_s=400.0))
    message = "some peers had not closed the last round, 2, after 400 virtual s; max_virtual_s allows 400"
    with pytest.raises(ScenarioError, match=f"^{message}$"):
        simulation.run()


def test_a_run_whose_peers_are_all_down_says_so_and_names_the_round_that_was_open() -> None:
    simulation = trivial_simulation(
        trivial_scenario(rounds=1_000, faults=(Fault(at_s=60.0, kind="crash", peers=(0, 1, 2, 3)),), max_virtual_s=90.0)
    )
    with pytest.raises(ScenarioError) as refused:
        simulation.run()
    open_round = len(simulation.recorder.rows) + 1
    assert open_round > 2
    message = f"round {open_round} of 1000 was still open, and no peer up, after 90 virtual s; max_virtual_s allows 90"
    assert str(refused.value) == message


def test_measurements_of_liars_are_not_reported() -> None:
    class Measuring(TrivialExecutor):
        def evaluate_received(
            self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
        ) -> Job[Evaluation | None]:
            received.add(client)
            return Done(None)

    received = set[int]()
    liar = Traitors(behaviour="follower", peers=(3,))
    outcome = trivial_simulation(trivial_scenario(adversaries=(liar,)), executor=Measuring()).run()
    for row in outcome.rows:
        assert row.taa == pytest.approx(mean(client / (client + row.round) for client in range(3)))
    assert {accuracy.member for accuracy in outcome.members} == {*outcome.last_local} == received == {0, 1, 2}


@pytest.mark.parametrize(("number", "is_noted"), [(0, True), (3, False)])
def test_a_post_from_which_nothing_follows_has_come_to_an_honest_peer(
    number: int, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = trivial_simulation(trivial_scenario(adversaries=(Traitors(behaviour="follower", peers=(3,)),)))
    message, noted = PostMessage(post(keys(1)[0], genesis(), 1, payload(1)), None), list[SimulatedPeer]()
    monkeypatch.setattr(simulation.checker.inclusion, "on_message", lambda peer, *_: noted.append(peer))
    simulation.on_event(simulation.peers[number], MessageReceived(bytes(32), message), ())
    assert noted == ([simulation.peers[number]] if is_noted else [])
