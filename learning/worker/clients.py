"""The clients that a learner holds: all that were asked for, or a limited number, and the others in files."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
        self._clients_max: int | None = None
        self._folder = Path()

    def limit(self, clients_max: int, folder: Path) -> None:
        """Hold at most this number from now on, and set the least recently used aside as files in the folder.

        More are held only while more are in use at once. Files that this object did not write are not read.
        """
        assert clients_max >= 1, clients_max
        self._clients_max, self._folder = clients_max, folder

    def get(self, index: int) -> Client:
        """Return a client, to be used before another one is asked for, and not to be changed."""
        if index not in self._held:
            self._make_room()
            client = self._build(index)
            if index in self._in_file:
                load_state(client, self._path(index).read_bytes())
            self._held[index] = client
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

    def _make_room(self) -> None:
        """Set clients aside until one more may be held."""
        if self._clients_max is None:
            return
        idle = [index for index in self._held if not self._in_use[index]]
        for index in idle[: max(0, len(self._held) - self._clients_max + 1)]:
            if index in self._changed:
                self._path(index).write_bytes(save_state(self._held[index]))
                self._in_file.add(index)
                self._changed.discard(index)
            del self._held[index]
            del self._in_use[index]

    def _path(self, index: int) -> Path:
        return self._folder / f"client-{index}.safetensors"
