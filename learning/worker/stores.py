"""Stores of a client beside its model and its examples: secrets, a privacy ledger, and parts that posts list."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.payload.part_folder import PartMemory, PartStore
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.sums.secrets import Secrets

SecretsOf = Callable[[int], Secrets]
"""secrets_of(client) -> the secrets that only this member knows."""

LedgerOf = Callable[[int], PrivacyLedger]
"""ledger_of(client) -> the record of noised values that this member has released."""

PartsOf = Callable[[int], PartStore]
"""parts_of(client) -> the bytes of parts that this member has written, or fetched."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the clients' secrets, ledgers and parts are."""

    secrets_of: SecretsOf | None = None
    """None: they have no secrets."""

    ledger_of: LedgerOf | None = None
    """None: ledgers are in this process's memory, and go with it."""

    parts_of: PartsOf | None = None
    """None: parts are in this process's memory, for all clients together."""

    spools: Spools = InMemory
    """Begins large posts, and states of models that are set aside."""

    def opened(self) -> tuple[SecretsOf | None, LedgerOf, PartsOf]:
        """The stores, those in memory made."""
        memory = PartMemory()
        in_memory = lru_cache(maxsize=None)(lambda client: PrivacyLedger(client, Memory()))
        return self.secrets_of, self.ledger_of or in_memory, self.parts_of or (lambda client: memory)


NO_STORES = Stores()
"""All in this process's memory, and no secrets."""
