"""Work that is done ahead of its time, and may have been in vain: what it changes is put back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from fedchain.learning.client import Client
from fedchain.learning.worker.checkpoint import ClientState
from fedchain.learning.worker.contribution import Contribution


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A contribution that was made ahead."""

    made: Contribution
    after: ClientState = field(repr=False)
    """The client after it."""

    @property
    def size(self) -> int:
        """Bytes that it takes in memory."""
        return len(self.made.payload) + sum(value.nbytes for value in self.after.values())


class NotRestored(Exception):
    """Work asked for what is not put back."""


@contextmanager
def only_what_is_restored(client: Client) -> Iterator[list[str]]:
    """Have a client's work fail where it uses more than what :func:`copy_state` sets aside, and say what it used.

    A checkpoint holds the model and the methods' state; the generators are seeded for each piece of work. It holds
    neither the privacy ledger, which records a release for good before the post exists, nor secrets, from which two
    posts of one round would draw the same noise. Posts that list parts write them to disk, so they are not foreseen
    either: see `Learner.can_foresee`.
    """
    used: list[str] = []
    before = client.open_secrets, client.open_ledger
    client.open_secrets, client.open_ledger = _refusal(used, "secrets"), _refusal(used, "ledger")
    try:
        yield used
    finally:
        client.open_secrets, client.open_ledger = before


def _refusal(used: list[str], name: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        used.append(name)
        raise NotRestored(name)

    return refuse
