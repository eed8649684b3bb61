"""Two questions are one if client, knowledge and measurement are."""

from fedchain.learning.executors.executor import Question
from fedchain.learning.executors.remembering import Remembering
from tests.support.learning.counting import Counting
from tests.support.learning.counting import backend as backend
from tests.support.learning.counting import executor as executor

QUESTION = Question(1, "update", 1, b"known")


def test_another_client_knowledge_or_measurement_is_another_question(executor: Remembering, backend: Counting) -> None:
    questions = [
        QUESTION,
        Question(1, "update", 1, b"other"),
        Question(1, "update", 1, b"known", evaluate_test=True),
        Question(2, "update", 1, b"known"),
        Question(1, "reveal", 1, b"known"),
        Question(1, "update", 2, b"known"),
    ]
    jobs = [executor.ask(question) for question in questions]
    assert len({repr(job.result()) for job in jobs}) == len(questions)
    assert backend.asked == questions
