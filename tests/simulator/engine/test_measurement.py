"""Averages count every peer once, and what is received belongs to the round before."""

from dataclasses import replace
from itertools import pairwise

import pytest

from fedchain.learning.bulk import address_bytes
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.learning.payload.bulk import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR, PartRef
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.core.voting.twins import LISTENING_MS
from fedchain.simulator.disturbances import Fault, MemberChange, Traitors
from fedchain.simulator.engine.measurement import EvaluationLog, RoundMetrics
from tests.support.simulator.trivial import (
    LOCAL_STEPS,
    TrivialExecutor,
    contribution,
    run_trivial,
    trivial_scenario,
    trivial_simulation,
)


def _evaluation(accuracy: float, test: float | None = None, prototype: float | None = None) -> Evaluation:
    return Evaluation(
        local_accuracy=accuracy, local_loss=1 - accuracy, prototype_accuracy=prototype, test_accuracy=test
    )


def _row(log: EvaluationLog, round_number: int) -> RoundMetrics:
    row = RoundMetrics(round=round_number, height=round_number, virtual_s=0.0)
    log.of_round(round_number).fill(row)
    return row


def test_each_peer_counts_once() -> None:
    log = EvaluationLog()
    for peer, accuracy in enumerate((0.5, 0.75, 1.0)):
        log.add(peer, 1, 0, Contribution(b"", 20, _evaluation(accuracy, prototype=accuracy / 2), None))
    row = _row(log, 1)
    assert row.taa == pytest.approx(0.75)
    assert row.taa_worst == 0.5
    assert row.tal == pytest.approx(0.25)
    assert row.taa_prototype == pytest.approx(0.375)
    assert row.taa_received is None
    assert row.test_accuracy is None


def test_the_privacy_of_those_that_do_not_post_now_is_spent_all_the_same() -> None:
    log = EvaluationLog()
    for number, peer, spent in ((1, 0, 1.5), (2, 1, 1.0), (3, 0, 2.0), (4, 1, 1.25)):
        log.add(peer, number, 0, replace(Contribution(b"", 20, _evaluation(0.5), None), epsilon=spent))
    rows = [RoundMetrics(round=number, height=number, virtual_s=0.0) for number in range(6)]
    for row in rows:
        log.fill(row, founders=2)
    assert [row.epsilon for row in rows] == [None, 1.5, 1.5, 2.0, 2.0, 2.0]


def test_the_privacy_of_a_round_is_that_of_the_peer_that_spent_most() -> None:
    log = EvaluationLog()
    for peer, spent in enumerate((1.0, 3.0, 2.0)):
        log.add(peer, 1, 0, replace(Contribution(b"", 20, _evaluation(0.5), None), epsilon=spent))
    row = RoundMetrics(round=1, height=1, virtual_s=0.0)
    log.fill(row, founders=3)
    assert row.epsilon == 3.0


def test_a_phase_without_training_leaves_what_a_peer_s_model_is() -> None:
    """So does training that an earlier round asked for and that ends late."""
    log, trained = EvaluationLog(), Contribution(b"", 20, _evaluation(0.5), None)
    log.note_model(0, 3, trained)
    log.note_model(0, 3, Contribution(b"", 0, None, None))
    log.note_model(0, 2, Contribution(b"", 20, _evaluation(0.25), None))
    assert log.last_local == {0: (3, trained.local)}
    log.note_model(0, 4, Contribution(b"", 20, None, None))
    assert log.last_local == {0: (4, None)}
    log.note_model(0, 4, trained)
    assert log.last_local == {0: (4, trained.local)}, "a later phase of the round trained it again"


def test_a_member_is_new_for_three_rounds() -> None:
    log = EvaluationLog()
    for number in range(1, 7):
        log.add(0, number, 0, Contribution(b"", 20, _evaluation(0.5), None))
        if number > 1:
            log.add(1, number, 0, Contribution(b"", 20, _evaluation(0.25), None))
    rows = [RoundMetrics(round=number, height=number, virtual_s=0.0) for number in range(1, 7)]
    for row in rows:
        log.fill(row, founders=1)
    assert [row.taa_new for row in rows] == [None, 0.25, 0.25, 0.25, None, None]
    assert [row.taa_old for row in rows] == [None, 0.5, 0.5, 0.5, 0.375, 0.375]


def test_the_objective_is_averaged_where_there_is_one() -> None:
    log = EvaluationLog()
    for peer, term in enumerate((1.0, 3.0)):
        found = replace(_evaluation(0.5), auxiliary_loss=term, local_objective=0.5 + 2 * term)
        log.add(peer, 1, 0, Contribution(b"", 20, found, None))
    row = _row(log, 1)
    assert (row.auxiliary_loss, row.tal_objective) == (2.0, 4.5)


def test_a_peer_that_contributes_again_replaces_its_figures() -> None:
    log = EvaluationLog()
    for accuracy in (0.1, 0.9):
        log.add(0, 1, 0, Contribution(b"", 20, _evaluation(accuracy), None))
    assert _row(log, 1).taa == pytest.approx(0.9)


def test_numbers_in_posts_are_summed_over_peers_and_phases() -> None:
    log = EvaluationLog()
    for peer, phase, scalars in ((0, 0, 500), (1, 0, 300), (0, 1, 20)):
        log.add(peer, 1, phase, Contribution(b"", 20, _evaluation(0.5), None, scalars))
    assert _row(log, 1).scalars_posted == 820


def test_what_a_restarted_peer_contributes_again_counts_once() -> None:
    log = EvaluationLog()
    for phase in (0, 0, 1):
        addressed = address_bytes(bytes(1_000), [PartRef(bytes(32), 50, "h", AGGREGATOR)])
        log.add(0, 1, phase, Contribution(b"", 20, None, None, 500, addressed=addressed))
    row = _row(log, 1)
    assert (row.scalars_posted, row.bytes_for_all, row.bytes_for_aggregator) == (1_000, 2_000, 100)


def test_bytes_are_summed_by_who_fetches_them() -> None:
    log = EvaluationLog()
    parts = [PartRef(bytes(32), size, "h", reader) for size, reader in ((7, EVERYBODY), (50, AGGREGATOR), (300, 2))]
    for peer, posted in ((0, parts), (1, []), (3, [*parts[1:], PartRef(bytes(32), 9, "h", NEXT_AGGREGATOR)])):
        addressed = address_bytes(bytes(1_000), posted)
        log.add(peer, 1, 0, Contribution(b"", 20, None, None, addressed=addressed))
    row = _row(log, 1)
    assert (row.bytes_for_all, row.bytes_for_aggregator, row.bytes_for_one) == (3_007, 100, 600)
    assert row.bytes_for_next_aggregator == 9


def test_what_is_received_in_a_round_is_the_model_of_the_round_before() -> None:
    log = EvaluationLog()
    log.add(0, 2, 0, Contribution(b"", 20, _evaluation(0.8), _evaluation(0.6, test=0.5)))
    assert _row(log, 1).taa_received == pytest.approx(0.6)
    assert _row(log, 1).test_accuracy_received == pytest.approx(0.5)
    assert _row(log, 2).taa_received is None
    log.add_received(0, 3, _evaluation(0.7))
    assert _row(log, 2).taa_received == pytest.approx(0.7)


def test_whole_test_set_figures_average_over_who_measured_them() -> None:
    log = EvaluationLog()
    log.add(0, 1, 0, Contribution(b"", 20, _evaluation(0.5, test=0.2), None))
    log.add(1, 1, 0, Contribution(b"", 20, _evaluation(0.5), None))
    assert _row(log, 1).test_accuracy == pytest.approx(0.2)


class DivergingExecutor(TrivialExecutor):
    """Measures what it receives, and diverges in the third round."""

    def ask(self, question: Question) -> Job[Answer]:
        if question.round == 3:
            return Done(TrainingDiverged(1, 3, 1, float("nan")))
        received = Evaluation(local_accuracy=0.25, local_loss=1.0) if question.round > 1 else None
        made = contribution(question.client, question.round, question.knowledge)
        return Done(replace(made, received=received))


def test_the_round_before_the_last_that_closed_has_all_that_was_measured() -> None:
    rows: list[RoundMetrics] = []
    with pytest.raises(TrainingDiverged):
        trivial_simulation(trivial_scenario(rounds=5), executor=DivergingExecutor(), on_round=rows.append).run()
    assert [row.taa_received for row in rows] == [0.25, None], "what round 2 made would be measured in round 3"


def test_votes_on_a_traitor_s_block_and_in_attempts_that_fail_are_voting() -> None:
    traitor = Traitors(behaviour="sibling-miner", peers=(4,))
    outcome = run_trivial(trivial_scenario(peers=5, rounds=4, seed=5, adversaries=(traitor,)))
    began_s = [0.0, *(row.virtual_s for row in outcome.rows)]
    assert all(0 < row.voting_s < row.virtual_s - began for row, began in zip(outcome.rows, began_s, strict=False))
    once = [row.voting_s for row in outcome.rows if row.attempts == 1]
    again = [row.voting_s for row in outcome.rows if row.attempts == 2]
    assert len(once) + len(again) == 4
    assert max(once) + 0.4 < min(again), "an attempt that fails lasts until its timeout"


def test_bytes_of_a_round_are_of_no_other_one() -> None:
    simulation = trivial_simulation(trivial_scenario(rounds=4, aggregator="fixed", centralized=True))
    rows, network, peers = simulation.run().rows, simulation.network, len(simulation.peers)
    of_rounds = [(row.bytes_sent_per_peer, row.bytes_received_per_peer, row.bytes_received_aggregator) for row in rows]
    ever = sum(network.sent_bytes) / peers, sum(network.received_bytes) / peers, network.received_bytes[0]
    for counted, total in zip(zip(*of_rounds, strict=True), ever, strict=True):
        assert min(counted) > 0
        assert 0.5 * total < sum(counted) <= total


def test_members_of_a_round_are_those_that_counted_when_it_was_closed() -> None:
    joins = MemberChange(round=1, kind="join", peers=(4,))
    outcome = run_trivial(trivial_scenario(rounds=6, admission="quorum", changes=(joins,)))
    first = min(measured.round for measured in outcome.members if measured.member == 4)
    assert [row.members for row in outcome.rows] == [4 if row.round < first else 5 for row in outcome.rows]


def test_who_was_down_at_the_seal_did_not_wait_for_the_votes() -> None:
    faults = (Fault(at_s=0.5, kind="crash", peers=(3,)), Fault(at_s=300.0, kind="restart", peers=(3,)))
    outcome = run_trivial(trivial_scenario(faults=faults, phase_timeout_s=5.0))
    assert outcome.virtual_s > 300.0
    assert all(0.0 < row.voting_s < 10.0 for row in outcome.rows)


def test_rounds_keep_the_interval_that_was_asked_for() -> None:
    rows = run_trivial(trivial_scenario(rounds=3, round_interval_s=60.0)).rows
    ends = [row.virtual_s for row in rows]
    assert all(after - before >= 60.0 for before, after in pairwise(ends))


def test_the_time_for_which_a_peer_listens_before_it_posts_is_no_training() -> None:
    """A restarted peer trains, and then waits until it knows that nobody else signs with its key."""
    faults = Fault(at_s=1.5, kind="crash", peers=(2,)), Fault(at_s=20.0, kind="restart", peers=(2,))
    scenario = trivial_scenario(peers=4, rounds=2, faults=faults, mining_s=4.0)
    simulation = trivial_simulation(scenario)
    rows = simulation.run().rows
    trains_s = LOCAL_STEPS * scenario.iteration_s
    span = simulation.recorder.timeline[2, 2]
    assert span.started is not None
    assert span.trained == pytest.approx(span.started + trains_s)
    assert span.posted is not None
    assert span.posted >= span.started + LISTENING_MS / 1000
    assert [row.training_s for row in rows] == pytest.approx([trains_s, trains_s])


def test_a_newcomers_training_time_counts() -> None:
    join, slow = MemberChange(round=1, kind="join", peers=(4,)), Fault(at_s=0.0, kind="slow", peers=(4,), factor=6.0)
    rows = run_trivial(trivial_scenario(rounds=4, admission="quorum", changes=(join,), faults=(slow,))).rows
    usual_s = rows[0].training_s
    assert [row.training_s for row in rows] == pytest.approx([usual_s, usual_s, usual_s, 2 * usual_s])
