"""The clients that a learner holds: all that were asked for, or those that there is room for, and others in files."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedchain.files.spool import write_named
from fedchain.learning.client import Client
from fedchain.learning.worker.checkpoint import load_state, save_state


class Clients:
    """Builds each client when it is first asked for, and gives the same one, in the same state, ever after.

    Args:
        build: builds client k; called again for a client that was set aside.
    """

    def __init__(self, build: Callable[[int], Client]) -> None:
        self._build = build
        self._held: OrderedDict[int, Client] = OrderedDict()  # the least recently used first
        self._in_use: Counter[int] = Counter()
        self._changed: set[int] = set()  # those held whose state is neither that of their file nor the initial one
        self._in_file: set[int] = set()
        self._sizes: dict[int, int] = {}  # bytes of those held
        self._size_max: int | None = None
        self._folder = Path()

    def limit(self, size_max: int, folder: Path) -> None:
        """Hold at most so many bytes of examples, models and states from now on, and set the least recently used aside
        as files in the folder.

        More are held only for the client that was asked for last, and while more are in use at once. Files that this
        object did not write are not read.
        """
        self._size_max, self._folder = size_max, folder

    def get(self, index: int) -> Client:
        """Return a client, to be used before another one is asked for, and not to be changed."""
        if index not in self._held:
            client = self._build(index)
            if index in self._in_file:
                load_state(client, self._path(index).read_bytes())
            self._held[index], self._sizes[index] = client, client.size
            self._make_room(index)
        self._held.move_to_end(index)
        return self._held[index]

    @contextmanager
    def use(self, index: int, *, changes: bool = True) -> Iterator[Client]:
        """Give a client. With `changes=False` the caller leaves it as it was: there is nothing to write then."""
        client = self.get(index)
        self._in_use[index] += 1
        if changes:
            self._changed.add(index)
        try:
            yield client
        finally:
            self._in_use[index] -= 1
            if changes:
                client.file = b""
            if changes and client.states:  # all else keeps its size
                self._sizes[index] = client.size

    def _make_room(self, newest: int) -> None:
        """Set clients aside until those that are held are no more than allowed."""
        if self._size_max is None:
            return
        size = sum(self._sizes.values())
        for index in [index for index in self._held if index != newest and not self._in_use[index]]:
            if size <= self._size_max:
                break
            if index in self._changed:
                write_named(save_state(self._held[index]), self._path(index))
                self._in_file.add(index)
                self._changed.discard(index)
            size -= self._sizes.pop(index)
            del self._held[index]
            del self._in_use[index]

    def _path(self, index: int) -> Path:
        return self._folder / f"client-{index}.safetensors"
