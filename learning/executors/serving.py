"""A training process's life: it takes calls, and answers them in their order."""

import gc
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchain.allocator import TRAINING_KEPT_SIZE, TRAINING_MAPPED_SIZE, return_large_blocks
from fedchain.crypto.hashing import sha256
from fedchain.files.spool import write_named
from fedchain.learning.device import use_threads
from fedchain.learning.exceptions import told
from fedchain.learning.executors.ahead import Forecasts
from fedchain.learning.executors.executor import Answer, InFile, Question
from fedchain.learning.executors.handover import LARGE_SIZE, Incoming
from fedchain.learning.executors.inbox import CONTRIBUTE, FORESEE, Inbox
from fedchain.learning.executors.inline import answer
from fedchain.learning.executors.outcomes import Outcome
from fedchain.learning.executors.packing import Reply, pack_reply, unpack
from fedchain.learning.executors.parent import wait_for_the_end_of_the_parent
from fedchain.learning.executors.pipes import Inlet, Outlet
from fedchain.learning.worker.client_state import restore_client
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner

ENDING_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Signals that end a process from outside."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a learner's method, on its way to a process."""

    number: int
    """Below 0: of a forecast."""
    method: str
    client: int
    arguments: tuple[Any, ...]
    """The last one is the knowledge, empty where none is needed."""
    evaluate_test: bool
    state: Path | None = None
    """Where the client is written down after a contribution; None: nowhere."""


def serve(learner: Learner, folder: Path, calls: int, replies: int) -> None:
    """Take lists of calls from one pipe and send replies through another until the process is ended.

    Args:
        learner: this process's copy.
        folder: where large payloads are handed over.
        calls: descriptor of packed lists of :class:`Call`; those of one list may be computed together.
        replies: descriptor for replies as :func:`pack_reply` makes them.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C, and a terminal that is closed, are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # else the collector writes to every object that this process shares with the others
    use_threads()
    return_large_blocks(TRAINING_MAPPED_SIZE, TRAINING_KEPT_SIZE)
    incoming, asked, answered = Incoming(), Inlet(calls), Outlet(replies)

    def end(number: int, outcome: Outcome) -> None:
        answered.send(pack_reply(Reply(number, True, outcome), "a forecast"))

    def receive() -> list[Sequence[Call]]:
        return [unpack(message) for message in asked.read()]

    forecasts = Forecasts(learner, end)
    inbox = Inbox[Call](receive, asked.has_more, lambda call: end(call.number, Outcome.OVERTAKEN))
    while True:
        given = inbox.take()
        if given[0].method == FORESEE:
            call = _taken(given[0], incoming)
            forecasts.make(call.number, question_of(call), inbox.is_asked)
            continue
        for call, reply in zip(given, replies_to(learner, folder, incoming, given, forecasts), strict=True):
            answered.send(pack_reply(reply, f"peer {call.client}"))


def replies_to(
    learner: Learner, folder: Path, incoming: Incoming, calls: Sequence[Call], forecasts: Forecasts | None = None
) -> Iterator[Reply]:
    """Answer calls in their order; those of several may be computed together.

    Args:
        learner: serves their clients.
        folder: where large payloads are left.
        incoming: takes the knowledge that calls come with.
        calls: as they came.
        forecasts: what was computed ahead; None: nothing was.
    """
    given = [_taken(call, incoming) for call in calls]
    made = _contribute_together(learner, given)
    for call in given:
        try:
            if forecasts is not None and call.method == "restore":
                forecasts.drop(call.client)
            if forecasts is not None and call.method == CONTRIBUTE and call.number not in made:
                foreseen = forecasts.take(question_of(call))
                made |= {} if foreseen is None else {call.number: foreseen}
            reply = _reply(learner, call, folder, made.pop(call.number, None))
        except Exception as error:  # whatever it is belongs to who waits for the result
            reply = Reply(call.number, False, told(error, f"peer {call.client}"))
        yield reply


def _reply(learner: Learner, call: Call, folder: Path, made: Answer | Exception | None) -> Reply:
    """Do what is asked of one client, unless it was ``made`` together with others' contributions."""
    match call.method:
        case "save_model":
            learner.save_model(call.client, call.arguments[0])
            return Reply(call.number, True, None)
        case "restore":
            restore_client(learner, call.client, call.arguments[0])
            return Reply(call.number, True, None)
        case "contribute":
            made = answer(learner, question_of(call), call.state, made)
            if not isinstance(made, Contribution) or len(made.payload) < LARGE_SIZE:
                return Reply(call.number, True, made)
            path = folder / f"answer-{call.number}"
            write_named(made.payload, path)
            return Reply(call.number, True, InFile(replace(made, payload=b""), sha256(made.payload), path))
        case "evaluate_received":
            round_number, amended, knowledge = call.arguments
            learner.amend(amended)
            found = learner.evaluate_received(call.client, round_number, knowledge, evaluate_test=call.evaluate_test)
            return Reply(call.number, True, found)
        case method:
            raise AssertionError(f"a worker is not asked for {method}")


def question_of(call: Call) -> Question:
    """The question that a call for a contribution asks, or that it foresees."""
    phase, round_number, clients, amended, key, knowledge = call.arguments
    return Question(call.client, phase, round_number, knowledge, call.evaluate_test, clients, amended, key)


def _taken(call: Call, incoming: Incoming) -> Call:
    """A call with the knowledge itself."""
    *others, handed = call.arguments
    return replace(call, arguments=(*others, incoming.take(handed)))


def _contribute_together(learner: Learner, given: Sequence[Call]) -> dict[int, Answer | Exception]:
    """Compute ahead what can be computed together of these calls: each client's first, if it is a contribution.

    Returns:
        what came of them, by number of call.
    """
    alike: dict[tuple[Any, ...], dict[int, int]] = {}
    seen: set[int] = set()
    for call in given:
        if call.method == CONTRIBUTE and call.client not in seen:
            alike.setdefault((*call.arguments, call.evaluate_test), {})[call.client] = call.number
        seen.add(call.client)
    made: dict[int, Answer | Exception] = {}
    for (phase, round_number, clients, amended, _, knowledge, evaluate_test), numbers in alike.items():
        if len(numbers) == 1:
            continue  # as those of a member are that has another key than it came with
        try:
            learner.amend(amended)
            found = learner.contribute_together(
                list(numbers), phase, round_number, knowledge, evaluate_test=evaluate_test, clients_count=clients
            )
        except Exception as error:  # a fault of ours, which whoever waits is to see
            found = [error] * len(numbers)
        made |= zip(numbers.values(), found, strict=True)
    return made


def _end_with_parent() -> None:
    wait_for_the_end_of_the_parent()
    os._exit(1)
