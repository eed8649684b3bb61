"""A federation in memory plays rounds."""

from fedchain import testing
from tests.python.tasks import load


def test_a_federation_in_memory_plays_rounds() -> None:
    federation = testing.Federation.of("fedavg", task=load, clients=2, local_steps=2)
    made = federation.play(rounds=2)
    assert (federation.round, len(made)) == (2, 2)
    assert "model.words.weight" in federation.known()
