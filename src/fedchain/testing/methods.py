"""Checks for every learning method; the built-in ones must pass them, too."""

from typing import NoReturn

import torch

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Method
from fedchain.learning.registry import HyperparameterValue
from fedchain.learning.round import OffChain
from fedchain.learning.task.choice import TaskFunction
from fedchain.testing.federation import Federation

ROUNDS = 2


def check_method(
    method: str | type[Method] | Method,
    task: TaskFunction | str | None = None,
    clients: int = 3,
    **hyperparameters: HyperparameterValue,
) -> None:
    """Play a few rounds of a method, and raise an error for the first promise of its interface that it breaks.

    Two runs give the same bytes; a client goes on from a checkpoint as if nothing had happened; a client that does not
    take part stays as it is; evaluation changes nothing; a phase without posts leaves the knowledge unchanged; a
    damaged post is refused.

    Args:
        method: name, class or instance; phases other than ``update`` are played as well.
        task: own data to try it on; without it, handwritten digits.
        clients: at least 2.
        hyperparameters: the method's hyper-parameters.

    Raises:
        AssertionError: it breaks a promise.
        LearningError: its code fails, or what it returns is not what it states; the message says why, in one line.
    """

    def new() -> Federation:
        return Federation.of(method, task, clients, **hyperparameters)

    federation = new()
    last = federation.play(ROUNDS)
    _check_repeats(federation, new())
    _check_posts(federation, last[0].payload)
    _check_checkpoint(federation)
    _check_bystanders(federation)
    _check_evaluation(federation)


def _check_repeats(federation: Federation, again: Federation) -> None:
    torch.rand(5)  # other random numbers drawn in the process must make no difference
    again.play(federation.round)
    if again.knowledge != federation.knowledge:
        _fail("a second run leaves other knowledge: something depends on the process, the clock or a generator")


def _check_posts(federation: Federation, payload: bytes) -> None:
    phase, sender = federation.rules.phases[-1][0], federation.members[0]
    known = federation.rules.aggregate(OffChain(phase, federation.round, federation.members), federation.knowledge, [])
    if known != federation.knowledge:
        _fail(f"phase {phase} changes the knowledge though nobody posted")
    if len(federation.rules.phases) > 1:
        return  # the knowledge that a post of the last phase is checked with is gone
    for damaged in (payload + b"\0", payload[:-1], b""):
        try:
            federation.rules.check(
                OffChain(phase, federation.round, federation.members), sender, federation.knowledge, damaged
            )
        except InvalidPayload:
            continue
        _fail(f"a damaged post of {phase} passes: {len(damaged)} bytes instead of {len(payload)}")


def _check_checkpoint(federation: Federation) -> None:
    """The first phase of the next round, by a client that goes on and by one that starts again."""
    phase, number = federation.rules.phases[0][0], federation.round + 1
    saved, charged = federation.learner.checkpoint(1), federation.learner.ledger(1).entries()
    expected = federation.learner.contribute(1, phase, number, federation.knowledge)
    other = federation.new_learner()
    other.restore(1, saved)
    other.ledger(1).adopt(charged)  # it outlives the process, and no checkpoint holds it
    if other.contribute(1, phase, number, federation.knowledge) != expected:
        _fail("a client that goes on from a checkpoint posts something else: keep what it remembers in client.state")
    federation.learner.restore(1, saved)


def _check_bystanders(federation: Federation) -> None:
    clients = range(1, federation.config.clients)
    before = [federation.learner.checkpoint(client) for client in clients]
    federation.learner.contribute(0, federation.rules.phases[0][0], federation.round + 1, federation.knowledge)
    if [federation.learner.checkpoint(client) for client in clients] != before:
        _fail("a client that takes part changes others: keep what is remembered in client.state, not in the method")


def _check_evaluation(federation: Federation) -> None:
    before = federation.learner.checkpoint(0)
    federation.learner.evaluate_received(0, federation.round + 1, federation.knowledge)
    if federation.learner.checkpoint(0) != before:
        _fail("measuring what a client received changes the client")


def _fail(reason: str) -> NoReturn:
    raise AssertionError(reason)
