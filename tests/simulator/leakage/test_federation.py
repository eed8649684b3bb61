"""A federation of one's own, of which clients hold a handful of examples."""

from fedchain.simulator.leakage.federation import Federation, Handful
from tests.support.simulator.leaking import SCENARIO
from tests.support.simulator.leaking import chains as chains


def test_a_handful_is_the_first_few_of_each_class() -> None:
    federation = Federation(SCENARIO, lambda source: Handful(source, 2, of_each_class=True, clients=(0,)))
    histogram = federation.learner.histogram()
    assert histogram[0].tolist() == [2] * 10
    assert histogram[1].sum() == 721, "the other client keeps all"
    with federation.learner.lend(0, 1) as client:
        assert len(client.train_images) == len(client.train_labels) == 20
