"""Forecasts: adopted, they are the contribution; thrown away, they leave the client as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.executors.ahead import Forecasts
from fedchain.learning.executors.executor import Question
from fedchain.learning.executors.inline import answer
from fedchain.learning.executors.outcomes import Outcome
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.registry import METHODS
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.campaigns import some
from tests.support.learning.federation import SPLITTING, VARIED, Federation, config, secrets_of

ROUNDS = 3
PARTS = SPLITTING | {"fededs"}
"""Methods whose posts list parts."""


class Foreseeing:
    """A learner of a federation whose clients 0 and 1 are foreseen: client 0 rightly, client 1 wrongly, with what was
    known a phase before."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._known = learner, [b"", b""]
        self.ended: list[tuple[int, Outcome]] = []
        self.forecasts = Forecasts(learner, lambda client, outcome: self.ended.append((client, outcome)))

    def contribute(
        self, client: int, phase: str, number: int, knowledge: bytes, clients_count: int = 0
    ) -> Contribution:
        if knowledge != self._known[-1]:
            self._known.append(knowledge)
        question = Question(client, phase, number, knowledge, clients=clients_count)
        if client < 2:
            before = self._learner.checkpoint(client)
            known = self._known[-1 - client]
            self.forecasts.make(client, Question(client, phase, number, known, clients=clients_count))
            assert self._learner.checkpoint(client) == before, f"client {client} has changed by a forecast"
        return self.forecasts.take(question) or self._learner.contribute(
            client, phase, number, knowledge, clients_count=clients_count
        )

    def checkpoint(self, client: int) -> bytes:
        return self._learner.checkpoint(client)


def play(chosen: LearningConfig) -> tuple[Foreseeing, Federation]:
    """Rounds with forecasts, compared with as many without, contribution by contribution."""
    plain, ahead = Federation(chosen), Federation(chosen)
    foreseeing: Any = Foreseeing(ahead.learner)
    ahead.learner = foreseeing
    for _ in range(ROUNDS):
        assert ahead.play() == plain.play()
        assert ahead.knowledge == plain.knowledge
        for client in range(len(plain.members)):
            assert foreseeing.checkpoint(client) == plain.learner.checkpoint(client)
    return foreseeing, plain


@pytest.mark.parametrize("method", some(sorted(METHODS), chosen=VARIED))
def test_forecasts_change_neither_answers_nor_clients(method: str) -> None:
    found, _ = play(config(method))
    outcomes = {outcome for _, outcome in found.ended}
    assert outcomes == ({Outcome.REFUSED} if method in PARTS else {Outcome.READY, Outcome.THROWN_AWAY})


def test_nothing_is_foreseen_that_a_ledger_or_secrets_would_remember() -> None:
    """The client has trained by the time its method asks for them: it is put back, and the phase not tried again."""
    chosen = config("dfpl", gradient_noise=6.0, prototype_noise=6.0)
    kept, others = PrivacyLedger(0, Memory()), PrivacyLedger(0, Memory())
    learner = Learner(chosen, stores=Stores(secrets_of, lambda client: kept))
    before, ended = learner.checkpoint(0), list[Outcome]()
    forecasts = Forecasts(learner, lambda number, outcome: ended.append(outcome))
    assert learner.can_foresee("update")
    forecasts.make(0, Question(0, "update", 1, b""))
    assert ended == [Outcome.REFUSED]
    assert not learner.can_foresee("update")
    assert (learner.checkpoint(0), list(kept.entries())) == (before, [])
    assert forecasts.take(Question(0, "update", 1, b"")) is None
    plain = Learner(chosen, stores=Stores(secrets_of, lambda client: others))
    assert learner.contribute(0, "update", 1, b"") == plain.contribute(0, "update", 1, b"")
    assert list(kept.entries()), "asked in earnest, the client has its ledger"


@pytest.fixture
def game() -> tuple[Forecasts, list[tuple[int, Outcome]], Learner]:
    learner, ended = Learner(config("fedavg")), list[tuple[int, Outcome]]()
    return Forecasts(learner, lambda number, outcome: ended.append((number, outcome))), ended, learner


Game = tuple[Forecasts, list[tuple[int, Outcome]], Learner]


def test_forecasts_and_answers_are_made_under_the_key_that_the_member_has_by_then(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecasts, _, learner = game
    made, key = list[object](), bytes(range(32))
    monkeypatch.setattr(learner, "take_key", lambda client, key: made.append((client, key)))
    monkeypatch.setattr(learner, "foresee", lambda *asked, **how: made.append("foreseen"))
    forecasts.make(0, Question(1, "update", 1, b"", key=key))
    assert made == [(1, key), "foreseen"]
    answer(learner, Question(1, "update", 1, b"", key=key), None)
    assert made == [(1, key), "foreseen", (1, key)]


def test_a_forecast_answers_the_same_question_alone(game: Game) -> None:
    forecasts, ended, _ = game
    for number, other in enumerate(
        (
            Question(0, "update", 2, b""),
            Question(0, "update", 1, b"", evaluate_test=True),
            Question(0, "update", 1, b"", clients=2),
        )
    ):
        forecasts.make(number, other)
        assert forecasts.take(Question(0, "update", 1, b"")) is None
        assert ended[-1] == (number, Outcome.THROWN_AWAY)
    forecasts.make(3, Question(0, "update", 1, b""))
    assert forecasts.take(Question(1, "update", 1, b"")) is None, "another client's"
    assert forecasts.take(Question(0, "update", 1, b"")) is not None
    assert forecasts.take(Question(0, "update", 1, b"")) is None, "once: the client has gone on"


def test_a_client_has_one_forecast_the_newest(game: Game) -> None:
    forecasts, ended, _ = game
    forecasts.make(0, Question(0, "update", 1, b""))
    forecasts.make(1, Question(0, "update", 1, b""))
    assert ended == [(1, Outcome.OVERTAKEN)], "the first one stands"
    forecasts.make(2, Question(0, "update", 2, b""))
    assert ended[1:] == [(0, Outcome.THROWN_AWAY)]
    assert forecasts.take(Question(0, "update", 2, b"")) is not None


def test_it_is_known_whether_somebody_waited(game: Game) -> None:
    forecasts, ended, _ = game
    forecasts.make(0, Question(0, "update", 1, b""), lambda client: client == 0)
    forecasts.make(1, Question(1, "update", 1, b""), lambda client: client == 0)
    for client in (0, 1):
        forecasts.take(Question(client, "update", 1, b""))
    assert ended == [(0, Outcome.RUNNING), (1, Outcome.READY)]


def test_forecasts_that_are_held_are_bounded(game: Game) -> None:
    _, ended, learner = game
    forecasts = Forecasts(learner, lambda number, outcome: ended.append((number, outcome)), size_max=1)
    forecasts.make(0, Question(0, "update", 1, b""))
    forecasts.make(1, Question(1, "update", 1, b""))
    assert ended == [(1, Outcome.OVERTAKEN)]
    forecasts.drop(0)
    forecasts.make(2, Question(1, "update", 1, b""))
    assert ended[1:] == [(0, Outcome.THROWN_AWAY)]
    assert forecasts.take(Question(1, "update", 1, b"")) is not None


def test_work_that_fails_is_asked_for_in_earnest(game: Game) -> None:
    forecasts, ended, learner = game
    before = learner.checkpoint(0)
    forecasts.make(0, Question(0, "update", 1, b"damaged"))
    assert (ended, learner.checkpoint(0)) == ([(0, Outcome.THROWN_AWAY)], before)
    assert learner.can_foresee("update")


def test_a_client_that_cannot_be_read_is_asked_for_in_earnest(game: Game, tmp_path: Path) -> None:
    """A forecast that raised would end its process, and nobody would hear what is wrong with the disk."""
    forecasts, ended, learner = game
    learner.limit_clients(1, tmp_path)
    for client in (0, 1):
        learner.contribute(client, "update", 1, b"")
    (aside,) = tmp_path.iterdir()
    aside.unlink()
    forecasts.make(0, Question(0, "update", 2, b""))
    assert ended == [(0, Outcome.THROWN_AWAY)]
    with pytest.raises(FileNotFoundError):
        answer(learner, Question(0, "update", 2, b""), None)


def test_amended_values_are_part_of_a_question_and_train_its_answer() -> None:
    learner, usual = Learner(config("fedavg")), Question(0, "update", 1, b"")
    asked, forecasts = replace(usual, amended=(("learning_rate", "0.05"),)), Forecasts(learner)
    chosen = config("fedavg")
    other = Learner(replace(chosen, hyperparameters=dict(chosen.hyperparameters) | {"learning_rate": 0.05}))
    expected = other.contribute(0, "update", 1, b"")
    forecasts.make(0, usual)
    assert forecasts.take(asked) is None
    forecasts.make(1, asked)
    assert forecasts.take(asked) == expected
    fresh = Learner(config("fedavg"))
    assert answer(fresh, replace(asked, client=1), None) == other.contribute(1, "update", 1, b"")
    assert answer(fresh, replace(usual, client=2), None) == Learner(config("fedavg")).contribute(2, "update", 1, b"")
    ended = list[Outcome]()
    refusing = Forecasts(learner, lambda number, outcome: ended.append(outcome))
    refusing.make(0, replace(usual, amended=(("local_steps", "3"),)))
    assert ended == [Outcome.REFUSED]
