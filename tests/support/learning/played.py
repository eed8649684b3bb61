"""Federations that have played two rounds, once for all tests of a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from fedchain.learning.worker.contribution import Contribution
from tests.support.learning.federation import Federation, config, with_norm


@dataclass(frozen=True, slots=True)
class Played:
    """Two rounds of the small task of a method."""

    federation: Federation
    made: tuple[list[Contribution], list[Contribution]]
    """The contributions to each round."""
    begun: bytes
    """The knowledge before the first round."""


@contextmanager
def played(method: str, *, has_norm: bool = False) -> Iterator[Played]:
    """The one that all tests share. Its clients are afterwards as they were; a test that fails leaves it to nobody."""
    found, saved = _play(method, has_norm)
    federation = found.federation
    knowledge, number = federation.knowledge, federation.round
    try:
        yield found
    except BaseException:
        _play.cache_clear()
        raise
    for client, checkpoint in enumerate(saved):
        federation.learner.restore(client, checkpoint)
    federation.knowledge, federation.round = knowledge, number


@cache
def _play(method: str, has_norm: bool) -> tuple[Played, list[bytes]]:
    federation = Federation((with_norm if has_norm else config)(method))
    begun = federation.knowledge
    found = Played(federation, (federation.play(), federation.play()), begun)
    return found, [federation.learner.checkpoint(client) for client in range(len(federation.members))]
