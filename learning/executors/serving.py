"""A training process's life: it takes calls, and answers them in their order."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchain.allocator import TRAINING_KEPT_SIZE, TRAINING_MAPPED_SIZE, return_large_blocks
from fedchain.crypto.hashing import sha256
from fedchain.learning.device import use_threads
from fedchain.learning.exceptions import told
from fedchain.learning.executors.executor import Answer, InFile, Question
from fedchain.learning.executors.handover import LARGE_SIZE, Incoming
from fedchain.learning.executors.inline import answer
from fedchain.learning.worker.client_state import restore_client
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a process from outside."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a learner's method, on its way to a process."""

    number: int
    method: str
    client: int
    arguments: tuple[Any, ...]
    """The last one is the knowledge, empty where none is needed."""
    evaluate_test: bool
    state: Path | None = None
    """Where the client is written down after a contribution; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a call."""

    number: int
    succeeded: bool
    value: Any
    """The result, or the error."""


def serve(learner: Learner, folder: Path, calls: Any, replies: Any) -> None:
    """Take lists of calls from one queue and put replies into another until the process is ended.

    Args:
        learner: this process's copy.
        folder: where large payloads are handed over.
        calls: queue of lists of :class:`Call`; those of one list may be computed together.
        replies: queue of :class:`Reply`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_threads()
    return_large_blocks(TRAINING_MAPPED_SIZE, TRAINING_KEPT_SIZE)
    incoming = Incoming()
    while True:
        given = [_taken(call, incoming) for call in calls.get()]
        made = _contribute_together(learner, given) if len(given) > 1 else {}
        for call in given:
            try:
                replies.put(_reply(learner, call, folder, made.pop(call.number, None)))
            except Exception as error:  # whatever it is belongs to who waits for the result
                replies.put(Reply(call.number, False, told(error, f"peer {call.client}")))


def _reply(learner: Learner, call: Call, folder: Path, made: Answer | None) -> Reply:
    """Do what is asked of one client, unless it was ``made`` together with others' contributions."""
    match call.method:
        case "save_model":
            learner.save_model(call.client, call.arguments[0])
            return Reply(call.number, True, None)
        case "restore":
            restore_client(learner, call.client, call.arguments[0])
            return Reply(call.number, True, None)
        case "contribute":
            phase, round_number, knowledge = call.arguments
            question = Question(call.client, phase, round_number, knowledge, call.evaluate_test)
            made = answer(learner, question, call.state, made)
            if not isinstance(made, Contribution) or len(made.payload) < LARGE_SIZE:
                return Reply(call.number, True, made)
            path = folder / f"answer-{call.number}"
            path.write_bytes(made.payload)
            return Reply(call.number, True, InFile(replace(made, payload=b""), sha256(made.payload), path))
        case method:
            compute = getattr(learner, method)
            return Reply(call.number, True, compute(call.client, *call.arguments, evaluate_test=call.evaluate_test))


def _taken(call: Call, incoming: Incoming) -> Call:
    """A call with the knowledge itself."""
    *others, handed = call.arguments
    return replace(call, arguments=(*others, incoming.take(handed)))


def _contribute_together(learner: Learner, given: Sequence[Call]) -> dict[int, Answer]:
    """Compute ahead what can be computed together of these calls: each client's first, if it is a contribution.

    Returns:
        contributions by number of call.
    """
    alike: dict[tuple[Any, ...], dict[int, int]] = {}
    seen: set[int] = set()
    for call in given:
        if call.method == "contribute" and call.client not in seen:
            alike.setdefault((*call.arguments, call.evaluate_test), {})[call.client] = call.number
        seen.add(call.client)
    made: dict[int, Answer] = {}
    for (*arguments, evaluate_test), numbers in alike.items():
        try:
            found = learner.contribute_together(list(numbers), *arguments, evaluate_test=evaluate_test)
        except Exception:  # all are as they were, and who is asked alone meets it again
            continue
        made |= {numbers[client]: contribution for client, contribution in found.items()}
    return made


def _end_with_parent() -> None:
    """End this process when the one that forked it is gone, which, if it was killed, could not say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a child waits for its parent"
    parent.join()
    os._exit(1)
