"""Errors that can occur while learning, each with the side that is at fault.

LearningError
├── ConfigurationError    the user asked for something impossible; the message says what to change
├── DatasetError          a data file is missing or damaged on this machine
├── OwnCodeFailed         a user's own method or model raised while it learned, or returned what nobody can use
├── WrongArithmetic       this machine computes otherwise than the others do; it cannot judge them
├── PartMissing           this machine lacks bytes that a post lists; the member that posted them counts as silent
├── SecretMissing         this member lacks a secret that the method needs; the message names both
├── LedgerDamaged         nobody knows any more what this member has let out; it lets nothing out until that is mended
├── InvalidPayload        the sender posted bytes that break a rule; no retry heals it
│   └── UnsoundNumbers        numbers that are too large or too small, or none at all
├── NothingLeft           the posts of a phase are too few to leave anything behind
└── NothingToPost         this client has nothing to post in this phase; the message names it and says why
    ├── TrainingDiverged      its own training gave numbers that may not be posted
    ├── DecryptionRefused     it will not help to open these sums
    └── ReleaseRefused        it does not let out numbers that would tell too much of its examples
"""

import errno
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from fedchain.wording import nearest_name, printable

E = TypeVar("E", bound=BaseException)

TEXT_SIZE_MAX = 300
"""Characters that are shown of the message of an error in a user's own code."""

OWN_CODE_ERRORS = Exception, SystemExit
"""Errors that a user's own code may raise: one that calls `sys.exit` ends its own work, and no process of others."""

_LACKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_LIBRARIES = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])
_NOT_THE_USERS = ("<", _OURS, *_LIBRARIES)


class LearningError(Exception):
    """Base of everything `fedchain.learning` raises on purpose."""


class ConfigurationError(LearningError):
    """An option, or a combination of options, cannot work. One clear line, meant for the user."""


RAY_IS_MISSING = "the executor ray needs Ray: pip install 'fedchain[ray]'"


class DatasetError(LearningError):
    """A data file is missing or damaged. The message names the file and the expected checksum."""


class InvalidPayload(LearningError, ValueError):
    """Received tensors break a rule. The message names the rule, the value expected and the value found.

    It is a ValueError too, which is all that the chain, which knows nothing of learning, asks of it.
    """


class UnsoundNumbers(InvalidPayload):
    """A float is not finite, larger than its spec allows, subnormal or -0, as in the post of a diverged training."""


class OwnCodeFailed(LearningError):
    """A user's own method or model raised while it learned, or returned an unusable value. One line, with its place.

    The error itself is gone with its process; a note has its traceback.
    """


class WrongArithmetic(LearningError):
    """A known sum, product or root comes out differently here: this machine would fork from all others."""


class SecretMissing(LearningError):
    """A member's secret is not there: its file is missing, or it was made for another federation."""


class PartMissing(LearningError):
    """Bytes that a post lists are not on this machine: nobody sent them in time, or they were lost."""


class NothingLeft(LearningError):
    """Posts that passed leave nothing behind: there are fewer shares than open a sum. The knowledge stays as it is."""


class NothingToPost(LearningError):
    """A client posts nothing in this phase, and the federation continues without it. The message names the client."""


class DecryptionRefused(NothingToPost):
    """A member will not help to decrypt: nothing was encrypted, by too few, or it has opened another sum already."""


class ReleaseRefused(NothingToPost):
    """A member keeps something back: its privacy budget is spent, or too few examples stand behind a number."""


class LedgerDamaged(LearningError):
    """A privacy ledger is missing, cannot be read or written, or lacks records."""


class TrainingDiverged(NothingToPost):
    """A training loss was not finite, or the post has numbers that others refuse: there is nothing sound to post.

    `reason` says what is wrong with the post; it is empty where the loss tells all.
    """

    def __init__(self, client: int, round_number: int, step: int, loss: float, reason: str = "") -> None:
        # The arguments are kept as they came, so that the error survives the way back from a worker process.
        super().__init__(client, round_number, step, loss, reason)
        self.client = client
        self.round_number = round_number
        self.step = step
        self.loss = loss
        self.reason = reason

    @property
    def what(self) -> str:
        """The failure, without the client whose training it was."""
        return self.reason or f"the loss is {self.loss} at step {self.step}"

    def __str__(self) -> str:
        # a client has the number of its peer
        return f"peer {self.client}, round {self.round_number}: {self.what}; {self._advice}"

    @property
    def _advice(self) -> str:
        if not self.reason and (self.round_number, self.step) == (1, 0):
            return "nothing was learned before it: look at the size of the inputs, and at what the model makes of them"
        return "try a smaller learning_rate"


class UnknownName(ConfigurationError):
    """A misspelt name: the text offers the nearest valid one, or lists them all."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(kind, name, self.known)  # so that it survives the way back from a worker process

    def __str__(self) -> str:
        meant = nearest_name(self.name, self.known)
        listed = ", ".join(self.known) or "(there is none)"
        hint = f"did you mean '{meant}'?" if meant else f"choose one of: {listed}"
        return f"unknown {self.kind} '{self.name}'; {hint}"


def one_line(error: BaseException, file: str | None = "") -> str:
    """Describe in one line the error that a user's own code raised, with the last place in that code that it passed.

    `file` is known to belong to that code. The text may be made of others' posts, so it is cut short and printable.
    """
    text = " ".join(_text_of(error).split())
    text = text if len(text) <= TEXT_SIZE_MAX else f"{text[:TEXT_SIZE_MAX]}…"
    return f"{type(error).__name__}: {printable(text, '?')}{_place(error, file)}"


def _text_of(error: BaseException) -> str:
    """The text of an error; a class of a user's own may fail to make one."""
    try:
        return str(error)
    except OWN_CODE_ERRORS as fault:
        return f"its text cannot be made: {type(fault).__name__}"


def told(error: E, who: str, asked: type | None = None) -> "E | OwnCodeFailed":
    """Return the report of an error that ended learning: for one that passed the user's own code, an `OwnCodeFailed`
    with its place, which begins with `who`; else the error itself.

    `asked` is the class that was to judge posts, where it is known: one that is not the project's, be it of an
    installed package, answers for all that it calls, and for the memory that it asks for. Elsewhere own code answers
    for the memory that it asks for itself, and for files that it does not find; of what it has this package do, and of
    disks and open files, a machine may have too little. A note has the traceback, which does not come from another
    process.
    """
    if isinstance(error, LearningError):
        return error
    file: str | None = ""
    if asked is None:
        is_own = passed_own_code(error) and not _is_the_machine_s(error)
    elif is_own := is_own_code(asked):
        file = getattr(sys.modules.get(asked.__module__), "__file__", "")
    result: E | OwnCodeFailed = OwnCodeFailed(f"{who}: {one_line(error, file)}") if is_own else error
    result.add_note("".join(traceback.format_exception(error)))
    return result


def raise_told(error: BaseException, who: str, asked: type) -> NoReturn:
    """Raise what `told` returns: from the error, unless it is the error itself, which is not its own cause."""
    result = told(error, who, asked)
    if result is error:
        raise error
    raise result from error


def is_own_code(kind: type) -> bool:
    """Whether a class is of a user's own code, and none of this package."""
    return not kind.__module__.startswith("fedchain.")


def raise_refusal(error: BaseException, what: str, asked: type) -> NoReturn:
    """Raise a `ConfigurationError`, which begins with `what`, for an error with which a user's own class refuses to
    begin; the error itself if it is one of ours, or the class is.
    """
    if isinstance(error, LearningError) or not is_own_code(asked):
        raise error
    raise ConfigurationError(f"{what}: {one_line(error)}") from error


@contextmanager
def asking(what: str, asked: type) -> Iterator[None]:
    """Ask a user's own class, on the founding of a federation; its errors are told as `raise_refusal` does."""
    try:
        yield
    except OWN_CODE_ERRORS as error:
        raise_refusal(error, f"{asked.__name__}.{what}", asked)


def passed_own_code(error: BaseException) -> bool:
    """Whether an error passed a user's own code, so that :func:`one_line` names a line of it."""
    return bool(_place(error))


def _is_the_machine_s(error: BaseException) -> bool:
    """Whether a machine has too little of what own code asked for, or this package failed behind it to get that."""
    if not isinstance(error, OSError | MemoryError):
        return False
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    last = max(place for place, name in enumerate(frames) if not name.startswith(_NOT_THE_USERS))
    return any(name.startswith(_OURS) for name in frames[last:]) or getattr(error, "errno", None) in _LACKS


def _place(error: BaseException, file: str | None = "") -> str:
    """Where the error passed the user's own code last, to which ``file`` belongs wherever it is."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first one is our own call
    own = [frame for frame in frames if frame.filename == file or not frame.filename.startswith(_NOT_THE_USERS)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
