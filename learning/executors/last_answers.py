"""Each client's last answer: its payload in memory or, if it is large or not among the newest, in a file."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from fedchain.files.spool import write_named
from fedchain.learning.executors.executor import Answer, InFile, QuestionId
from fedchain.learning.executors.handover import LARGE_SIZE
from fedchain.learning.executors.remembering import Kept
from fedchain.learning.worker.contribution import Contribution

PAYLOADS_SIZE_MAX = 16 * 2**20
"""Bytes of small payloads that are held in case that they are asked for again; others wait in files."""


class LastAnswers:
    """The :class:`fedchain.learning.executors.remembering.Answers` of a run that is not gone on with.

    A restarted peer asks again for what it was asked last.

    Args:
        folder: where the files are; it is there already.
        size_max: bytes of small payloads in memory.
    """

    def __init__(self, folder: Path, size_max: int | None = None) -> None:
        self._folder, self._size_max = folder, PAYLOADS_SIZE_MAX if size_max is None else size_max
        self._answers: dict[int, tuple[QuestionId, Answer]] = {}  # without the payloads
        self._payloads: OrderedDict[int, bytes] = OrderedDict()  # the oldest first
        self._size = 0  # bytes of those
        self._numbers = count()

    def recall(self, question: QuestionId) -> Kept | None:
        """See :class:`Answers`."""
        found = self._answers.get(question.client)
        if found is None or found[0] != question:
            return None
        _, answer = found
        if not isinstance(answer, Contribution):
            return partial(_given, answer)
        held = self._payloads.get(question.client)
        if held is not None:
            return partial(_given, replace(answer, payload=held))
        path = self._folder / f"kept-{next(self._numbers)}"  # under its own name it may be replaced before it is read
        os.link(self._path(question.client), path)
        return partial(_read, answer, path)

    def begin(self, question: QuestionId) -> Path | None:
        """See :class:`Answers`."""
        return None

    def is_next_kept(self, client: int) -> bool:
        """See :class:`Answers`: only what was asked before is kept."""
        return False

    def keep(self, question: QuestionId, answer: Answer | InFile, together: Sequence[QuestionId]) -> Kept:
        """See :class:`Answers`. The client's answer before this one is forgotten."""
        client = question.client
        self._size -= len(self._payloads.pop(client, b""))
        self._path(client).unlink(missing_ok=True)  # under another name it may still wait for its reader
        match answer:
            case InFile(made, _, path):
                self._answers[client] = question, made
                path.rename(self._path(client))
            case Contribution():
                self._answers[client] = question, replace(answer, payload=b"")
                self._keep_payload(client, answer.payload)
            case _:
                self._answers[client] = question, answer
        kept = self.recall(question)
        assert kept is not None, "it has just been kept"
        return kept

    def left(self, client: int) -> Path | None:
        """See :class:`Answers`."""
        return None

    def _keep_payload(self, client: int, payload: bytes) -> None:
        if len(payload) >= LARGE_SIZE:
            write_named(payload, self._path(client))
            return
        self._payloads[client] = payload
        self._size += len(payload)
        while self._size > self._size_max:
            oldest, payload = self._payloads.popitem(last=False)
            self._size -= len(payload)
            write_named(payload, self._path(oldest))

    def _path(self, client: int) -> Path:
        return self._folder / f"client-{client}.payload"


def _given(answer: Answer) -> Answer:
    """An answer that is in memory."""
    return answer


def _read(answer: Contribution, path: Path) -> Answer:
    """A contribution whose payload is in a file that is for this reader alone."""
    payload = path.read_bytes()
    path.unlink()
    return replace(answer, payload=payload)
