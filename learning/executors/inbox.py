"""A worker's inbox: what it is asked comes first, and what it may be asked later only while nobody waits."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

FORESEE = "foresee"
"""Method of a call for work ahead of its time."""

CONTRIBUTE = "contribute"
"""Method of a call for a contribution."""

CHANGING = (CONTRIBUTE, "restore")
"""Methods that leave a client another one: what was foreseen for it before is out of date."""


class Addressed(Protocol):
    """A call as the inbox sees it."""

    @property
    def method(self) -> str:
        """Name of the method."""

    @property
    def client(self) -> int:
        """Place of the client among the members."""


Item = TypeVar("Item", bound=Addressed)


class Inbox(Generic[Item]):
    """Sorts calls as they come. Real ones are taken in their order; of forecasts, each client has one, the newest.

    Args:
        receive: waits for lists of calls; a forecast comes alone.
        has_more: whether it would not wait.
        on_overtaken: called with each forecast that was not begun when a real call, or another forecast, came.
    """

    def __init__(
        self,
        receive: Callable[[], Sequence[Sequence[Item]]],
        has_more: Callable[[], bool],
        on_overtaken: Callable[[Item], object] = lambda forecast: None,
    ) -> None:
        self._receive, self._has_more, self._on_overtaken = receive, has_more, on_overtaken
        self._real: deque[Sequence[Item]] = deque()
        self._ahead: dict[int, Item] = {}  # by client, the oldest first

    def take(self) -> Sequence[Item]:
        """The next calls to be answered, or a forecast where nobody waits for an answer."""
        self._look()
        while not self._real and not self._ahead:
            self._sort(self._receive())
            self._look()
        if self._real:
            return self._real.popleft()
        return [self._ahead.pop(next(iter(self._ahead)))]

    def is_asked(self, client: int) -> bool:
        """Whether a contribution of a client is waited for by now."""
        self._look()
        return any(call.client == client and call.method in CHANGING for calls in self._real for call in calls)

    def _look(self) -> None:
        """Sort what has come."""
        while self._has_more():
            self._sort(self._receive())

    def _sort(self, received: Sequence[Sequence[Item]]) -> None:
        for calls in received:
            self._add(calls)

    def _add(self, calls: Sequence[Item]) -> None:
        for call in calls:
            if call.method == FORESEE or call.method in CHANGING:
                overtaken = self._ahead.pop(call.client, None)
                if overtaken is not None:
                    self._on_overtaken(overtaken)
            if call.method == FORESEE:
                self._ahead[call.client] = call
        if calls and calls[0].method != FORESEE:
            self._real.append(calls)
