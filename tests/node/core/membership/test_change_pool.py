"""The pool of open changes: what is kept, since when it is complete, and how it stays bounded."""

import pytest

from fedchain.chain.exceptions import LimitReached
from fedchain.chain.genesis import Admission
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import Change, ChangeKind, propose_amendment, sign_change, sign_rekey
from fedchain.crypto.keys import PrivateKey, is_valid_signature
from fedchain.node.core.membership.change_pool import OPEN_MAX, ChangePool, fits
from tests.support.chain.builders import ChainBuilder, double_vote, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own


def add(pool: ChangePool, chain: ChainBuilder, change: Change, now_ms: int = 0) -> None:
    pool.add(chain.genesis, chain.state, change, now_ms)


def due(pool: ChangePool, chain: ChainBuilder, before_ms: int | None = None) -> list[Change]:
    return list(pool.for_block(chain.genesis, chain.state, before_ms))


def test_a_change_is_due_once_enough_approve_of_it() -> None:
    pool, chain = ChangePool(), living()
    add(pool, chain, joining(chain, 5, 3), 100)
    assert due(pool, chain) == []
    complete = joining(chain, 5)
    add(pool, chain, complete, 200)
    assert (due(pool, chain), due(pool, chain, 200), due(pool, chain, 201)) == ([complete], [], [complete])
    assert pool.get(complete.hash) == complete
    assert list(pool) == [complete]


def test_a_block_gets_as_many_as_fit() -> None:
    pool, chain = ChangePool(), living(8)
    for number in range(1, 6):
        add(pool, chain, own(chain, number))
    chosen = due(pool, chain)
    assert len(chosen) == 2
    assert [change.hash for change in chosen] == sorted(change.hash for change in pool)[:2]
    assert fits(chain.genesis, chain.state, chosen)
    assert not fits(chain.genesis, chain.state, list(pool)[:3])


def test_what_has_waited_longest_has_the_room_whatever_hashes_others_choose() -> None:
    """Liars would otherwise fill each block with changes of their own, and none would count their removal."""
    pool, chain = ChangePool(), living(8)
    changes = sorted((own(chain, number) for number in range(1, 6)), key=lambda change: change.hash)
    for since_ms, change in enumerate(reversed(changes)):
        add(pool, chain, change, since_ms)
    assert due(pool, chain) == changes[3:], "in the order of blocks"
    assert due(pool, chain, 1) == changes[4:]


def test_a_liar_fills_no_pool() -> None:
    """Its approval is worth eight open changes, and nobody else's change needs its word."""
    pool, chain = ChangePool(), living()
    for number in range(OPEN_MAX):
        add(pool, chain, joining(chain, 5, 1, text=str(number)))
    with pytest.raises(LimitReached, match=f"approves of {OPEN_MAX} others"):
        add(pool, chain, joining(chain, 5, 1))
    with pytest.raises(LimitReached, match="no member vouches for it"):
        add(pool, chain, joining(chain, 6, 0))
    add(pool, chain, own(chain, 1))
    with pytest.raises(LimitReached, match="another one of"):
        add(pool, chain, own(chain, 1, text="again"))
    other = sign_change(keys(7)[6], chain.genesis.chain_id, ChangeKind.JOIN, until=UNTIL)
    add(pool, chain, other.approved(keys(2)[1], chain.genesis.chain_id))
    assert len(pool) == OPEN_MAX + 2


def test_another_key_takes_the_place_of_what_its_member_asked_for_before() -> None:
    pool, chain = ChangePool(), living(4)
    leave = own(chain, 1)
    rekeys = [sign_rekey(keys(2)[1], key, chain.genesis.chain_id, sequence=0, until=UNTIL) for key in keys(8)[6:]]
    add(pool, chain, leave)
    assert due(pool, chain) == [], "four members stay"
    add(pool, chain, rekeys[0])
    assert list(pool) == rekeys[:1] == due(pool, chain)
    for later in (leave, rekeys[1]):
        with pytest.raises(LimitReached, match="another one of"):
            add(pool, chain, later)
    assert list(pool) == rekeys[:1]


def test_a_liar_s_word_shuts_nobody_else_s_out() -> None:
    """It shows eight changes here alone, and elsewhere puts its word beside that of others, which is passed on here."""
    pool, chain = ChangePool(), living()
    for number in range(OPEN_MAX):
        add(pool, chain, joining(chain, 5, 1, text=str(number)))
    change = joining(chain, 6, 0)
    liar, *honest = (key for key in keys(5))
    by_both = change.approved(liar, chain.genesis.chain_id).approved(honest[0], chain.genesis.chain_id)
    add(pool, chain, by_both)
    (known,) = (item for item in pool if item.hash == change.hash)
    assert [item.approver for item in known.approvals] == [honest[0].public_key]
    with pytest.raises(LimitReached, match=f"{liar.public_key.hex()[:16]}… approves of {OPEN_MAX} others"):
        add(pool, chain, by_both)
    for key in honest[1:]:
        by_both = by_both.approved(key, chain.genesis.chain_id)
    add(pool, chain, by_both, 7)
    (counted,) = (item for item in due(pool, chain, 8))
    assert {item.approver for item in counted.approvals} == {key.public_key for key in honest}


def test_a_liar_that_takes_other_keys_fills_no_pool() -> None:
    """Its word is worth eight changes by each key: those of the former one go with it."""
    pool, chain = ChangePool(), living(admission=Admission.CLOSED)
    chain_id, liar = chain.genesis.chain_id, keys(1)[0]

    def approve(key: PrivateKey) -> None:
        for number in range(OPEN_MAX):
            values = amendment_of({"phase_timeout_ms": number + 1})
            add(pool, chain, propose_amendment(values, "", sequence=0, until=UNTIL).approved(key, chain_id))

    approve(liar)
    chain.extend(changes=[sign_rekey(liar, keys(6)[5], chain_id, sequence=0, until=UNTIL)])
    pool.on_head(chain.genesis, chain.state, is_valid_signature, 500)
    assert len(pool) == 0
    approve(keys(6)[5])
    assert len(pool) == OPEN_MAX


def test_what_no_block_can_count_any_more_is_dropped() -> None:
    pool, chain = ChangePool(), living()
    counted, late, open_still = joining(chain, 5), joining(chain, 6, until=1), own(chain, 1)
    for change in (counted, late, open_still):
        add(pool, chain, change)
    chain.extend(changes=[counted])
    pool.on_head(chain.genesis, chain.state, is_valid_signature, 500)
    assert list(pool) == [open_still]


def test_the_approval_of_a_convicted_member_is_dropped_and_its_change_waits_for_another() -> None:
    pool, chain = ChangePool(), living()
    change = joining(chain, 6)
    add(pool, chain, change)
    chain.extend(evidence=[double_vote(keys(1)[0], chain.genesis, 1, attempt=3)])
    pool.on_head(chain.genesis, chain.state, is_valid_signature, 500)
    held = pool.get(change.hash)
    assert held is not None
    assert len(held.approvals) == 3
    # A quorum of the four that are left is three.
    assert due(pool, chain) == [held]
    add(pool, chain, approved(chain, held), 700)
    assert due(pool, chain, 1) == [pool.get(change.hash)], "it has been complete since before"


def test_a_change_that_loses_an_approval_that_it_needs_is_due_no_more() -> None:
    """Its approver has another key now: no block may count what the former one said."""
    pool, chain = ChangePool(), living()
    change = joining(chain, 6)
    add(pool, chain, change)
    assert due(pool, chain) == [change]
    chain.extend(changes=[sign_rekey(keys(1)[0], keys(6)[5], chain.genesis.chain_id, sequence=0, until=UNTIL)])
    pool.on_head(chain.genesis, chain.state, is_valid_signature, 500)
    assert len(pool) == 1
    assert due(pool, chain) == []
