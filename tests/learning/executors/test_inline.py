"""A client in this process is written down with its answer."""

from pathlib import Path

from fedchain.learning.config import LearningConfig
from fedchain.learning.executors.executor import Question
from fedchain.learning.executors.inline import answer
from fedchain.learning.worker.client_state import is_saved
from fedchain.learning.worker.learner import Learner


def test_a_client_whose_answer_was_computed_ahead_or_with_others_is_written_down(tmp_path: Path) -> None:
    """A run that is interrupted could not go on from there."""
    learner = Learner(LearningConfig(clients=2, hyperparameters={"local_steps": 1}))
    made = learner.contribute(0, "update", 1, b"")
    assert answer(learner, Question(0, "update", 1, b""), tmp_path / "state", made) is made
    assert is_saved(tmp_path / "state")
