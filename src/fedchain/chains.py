"""A stored chain, read from Python: the answers of ``fedchain explorer``, as values."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import Self

from fedchain.chain.exceptions import ChainError, NotFound
from fedchain.chain.explorer.audit import ChainAudit
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.member_views import PeerView
from fedchain.chain.explorer.views import (
    BlockSummary,
    BlockView,
    ChainStatus,
    KnowledgeView,
    RoundView,
    TransactionProof,
    TransactionView,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.files.places import chain_folder
from fedchain.learning.application import Application
from fedchain.learning.round import Tensors
from fedchain.node.founding.task import rules_with


class Chain:
    """A chain that is read and not changed; close it, or use it in a ``with`` statement.

    Threads may share it: a question waits until the one before it is answered, also where that is :meth:`verify`.

    Args:
        folder: a run's or node's folder, or the folder of the chain in it.
        methods: files of the chain's learning method that Python does not find by itself, each ``FILE.py:Class``.
            Their code is run, so name only files that you trust.

    Raises:
        ChainError: there is no chain, or it cannot be read; or a file of ``methods`` cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str], methods: Sequence[str] = ()) -> None:
        path = Path(folder)
        if not path.is_dir():
            raise NotFound(f"{path} is not a folder")
        self._rules_of = rules_with(methods)
        self._store = Store.open(chain_folder(path), read_only=True)
        self._open: Explorer | None = Explorer(self._store)
        self._genesis, self._folder = self._open.genesis, path
        self._rules: Application | None = None
        self._lock = threading.RLock()  # one connection reads, in one transaction at a time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. Answers that were given stay."""
        with self._lock:
            self._open = None
            self._store.close()

    @property
    def genesis(self) -> Genesis:
        """The founding document."""
        return self._genesis

    def status(self) -> ChainStatus:
        """The chain at a glance."""
        with self._asking() as explorer:
            return explorer.status()

    def blocks(self, limit: int = 20) -> tuple[BlockSummary, ...]:
        """The newest blocks, head first."""
        with self._asking() as explorer:
            return explorer.blocks(index(limit))

    def block(self, name: int | str) -> BlockView:
        """One block, by its height or the beginning of its hash in hexadecimal; height 0 is :attr:`genesis`.

        Raises NotFound.
        """
        if str(name) == "0":
            raise NotFound("height 0 is the genesis document, which is no block: see Chain.genesis")
        with self._asking() as explorer:
            return explorer.block(str(name))

    def transaction(self, name: str) -> TransactionView:
        """One post, by the beginning of its hash in hexadecimal. Raises NotFound."""
        with self._asking() as explorer:
            return explorer.transaction(name)

    def peer(self, name: int | str) -> PeerView:
        """A member and its part in the chain, by its number, its address or the end of that.

        Raises NotFound, or InvalidAddress for a text that is none of these.

        ``rounds`` is empty: why a member has no post in a round stands beside the chain, which ``fedchain explorer
        peer`` reads, too. :meth:`round` names those that are missing.
        """
        with self._asking() as explorer:
            return explorer.peer(str(name))

    def round(self, number: int) -> RoundView:
        """A round: its blocks and posts. Raises NotFound."""
        with self._asking() as explorer:
            return explorer.round(index(number))

    def proof(self, name: str) -> TransactionProof:
        """The Merkle proof that a block counts a post, by the beginning of the post's hash. Raises NotFound."""
        with self._asking() as explorer:
            return explorer.proof(name)

    def knowledge(self, round_number: int | None = None) -> KnowledgeView:
        """The knowledge that a round left behind: hash, size and class prototypes. Default: the newest closed round.

        Raises NotFound if no such round is closed, or its knowledge is not kept.
        """
        with self._asking() as explorer:
            return explorer.kept.knowledge(self.rules, _round_in(round_number))

    def tensors(self, round_number: int | None = None) -> Tensors:
        """The knowledge itself, as numpy arrays by name. Raises NotFound as :meth:`knowledge` does."""
        with self._asking() as explorer:
            _, data = explorer.kept.left_behind(_round_in(round_number))
            return self.rules.read_knowledge(data) or {}

    def verify(self) -> ChainAudit:
        """Judge every block that is held again, and recompute what it left behind where its posts are kept."""
        with self._asking() as explorer:
            return explorer.verify(self.rules)

    @property
    def rules(self) -> Application:
        """The learning method's side of validity, which the founding document names."""
        with self._lock:
            if self._rules is None:
                self._rules = self._rules_of(self.genesis)
            return self._rules

    @contextmanager
    def _asking(self) -> Iterator[Explorer]:
        with self._lock:
            if self._open is None:
                raise ChainError(f"the chain in {self._folder} was closed: open it again")
            yield self._open


def _round_in(number: int | None) -> int | None:
    """A round's number as Python's: SQLite takes one of NumPy's for bytes, and finds nothing."""
    return None if number is None else index(number)


def open_chain(folder: str | os.PathLike[str], *, methods: Sequence[str] = ()) -> Chain:
    """Open the chain of a run, of a node, or of a test network's node; see :class:`Chain`."""
    return Chain(folder, methods)
