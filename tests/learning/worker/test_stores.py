"""Stores of clients: what nobody opens elsewhere is in this process's memory, a ledger for each, parts for all."""

from pathlib import Path

from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.worker.stores import NO_STORES, Stores
from fedchain.testing.federation import secrets_of


def test_in_memory_each_client_has_a_ledger_of_its_own_and_all_have_the_same_parts() -> None:
    secrets, ledger_of, parts_of = NO_STORES.opened()
    assert secrets is None
    assert ledger_of(0) is ledger_of(0)
    assert ledger_of(0) is not ledger_of(1)
    assert parts_of(0) is parts_of(1)


def test_two_learners_share_no_memory() -> None:
    (_, first, parts), (_, second, others) = NO_STORES.opened(), NO_STORES.opened()
    assert first(0) is not second(0)
    assert parts(0) is not others(0)


def test_given_stores_are_taken_as_they_are(tmp_path: Path) -> None:
    ledger, folder = PrivacyLedger(0, Memory()), PartFolder(tmp_path)
    given = Stores(secrets_of, lambda client: ledger, lambda client: folder)
    secrets, ledger_of, parts_of = given.opened()
    assert secrets is secrets_of
    assert ledger_of(3) is ledger
    assert parts_of(3) is folder
