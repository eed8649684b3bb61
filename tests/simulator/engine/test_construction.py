"""The network and the peers that a scenario describes."""

import pytest

from fedchain.simulator.disturbances import Clock, Traitors
from fedchain.simulator.engine.construction import pace_of
from tests.support.simulator.attacks import miners
from tests.support.simulator.trivial import run_trivial, trivial_scenario, trivial_simulation


def test_liars_and_wrong_clocks_are_those_of_the_scenario() -> None:
    simulation = trivial_simulation(
        trivial_scenario(
            clocks=(Clock(peers=(1,), offset_s=2.0), Clock(peers=(1, 2), offset_s=1.0)),
            adversaries=(Traitors(behaviour="silent", peers=(3,)),),
        )
    )
    honest = simulation.peers[0].clock_ms()
    assert [peer.clock_ms() - honest for peer in simulation.peers] == [0, 3000, 1000, 0]
    assert [peer.is_honest for peer in simulation.peers] == [True, True, True, False]
    assert [peer.number for peer in simulation.peers] == [0, 1, 2, 3]


@pytest.mark.parametrize("shared", [False, True])
def test_checks_are_shared_unless_each_peer_is_to_compute_them(shared: bool) -> None:
    simulation = trivial_simulation(trivial_scenario(), shares_checks=shared)
    assert len({id(peer.checks) for peer in simulation.peers}) == (1 if shared else 4)


def test_blocks_are_mined_in_the_proportion_of_hash_rates_and_counted_for_their_miners() -> None:
    simulation = trivial_simulation(trivial_scenario(rounds=60, hash_rates=(1.0, 30.0), version=2))
    mined = simulation.run().totals["mined"]
    assert mined == [miners(simulation).count(number) for number in range(4)]
    assert sum(mined) == 60
    assert mined[1] >= 45, "30 of 33 on average"


def test_equal_hash_rates_leave_a_run_as_it_is() -> None:
    runs = [run_trivial(trivial_scenario(hash_rates=rates)) for rates in ((), (1.0,) * 4)]
    assert runs[0].trace_hash == runs[1].trace_hash


def test_all_that_mine_at_once_share_the_time_that_a_block_takes() -> None:
    assert pace_of(trivial_scenario(mining_s=2.0)).hashes_per_s == 4 / (2.0 * 4)
    drawn = trivial_scenario(mining_s=2.0, peers=40, contributors_per_round=6, committee_size=4, idle_sleep=True)
    assert pace_of(drawn).hashes_per_s == 4 / (2.0 * 10)


@pytest.mark.parametrize(("every", "measured"), [(3, [3, 6, 7]), (1, [*range(1, 8)]), (0, [])])
def test_models_are_measured_on_the_whole_test_set_every_few_rounds_and_at_the_end(
    every: int, measured: list[int]
) -> None:
    evaluates = trivial_simulation(trivial_scenario(rounds=7, test_every=every)).peers[0]._around.evaluates
    assert [number for number in range(1, 8) if evaluates(number)] == measured
