"""Guests: who may connect beside the members, for which reason, and how many."""

from fedchain.chain.membership.change import ChangeKind, propose_recovery, sign_rekey
from fedchain.chain.state import State
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.checks import Checks
from fedchain.node.core.node import Node
from fedchain.node.shell.guests import GUESTS_MAX, Guests
from tests.support.chain.builders import ChainBuilder, SumRules, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own, play
from tests.support.node.service import Shell


class Following:
    """A node that stands where a chain does, and knows of changes."""

    def __init__(self, chain: ChainBuilder) -> None:
        self.chain = chain
        self.changes = [joining(chain, 6), own(chain, 1, ChangeKind.LEAVE)]

    @property
    def head(self) -> State:
        return self.chain.state

    def open_changes(self) -> list[object]:
        return [*self.changes]


def following() -> tuple[ChainBuilder, Shell, Guests, Following]:
    chain, shell = living(), Shell()
    node = Following(chain)
    return chain, shell, Guests(shell, node), node  # type: ignore[arg-type]


def connectable(shell: Shell) -> list[PublicKey]:
    return [*shell.tracked[-1][1]]


def test_guests_connect_beside_the_members_until_others_come_for_the_same_reason() -> None:
    chain, shell, guests, _ = following()
    members = [*chain.state.roster.members]
    first, second, third = (key.public_key for key in keys(9)[6:])
    guests.track()
    assert connectable(shell) == members
    guests.admit("they ask", [first, second])
    guests.admit("they are named", [third])
    assert connectable(shell) == [*members, first, second, third]
    assert shell.guests == {first, second, third}
    guests.admit("they ask", [])
    assert connectable(shell) == [*members, third]


def test_a_key_connects_while_members_consider_its_joining() -> None:
    chain, shell, guests, node = following()
    members = [*chain.state.roster.members]
    guests.on_event(node.head)
    assert connectable(shell) == [*members, keys(7)[6].public_key], "one leaves, and is no guest"
    guests.on_event(node.head)
    assert len(shell.tracked) == 1, "nothing has changed"
    node.changes.clear()
    guests.on_event(node.head)
    assert connectable(shell) == members


def test_the_network_is_told_of_heads_that_change_the_members_alone() -> None:
    chain, shell, guests, node = following()
    node.changes.clear()
    before = node.head
    play(chain, 1)
    guests.on_event(before)
    assert shell.tracked == []
    before = node.head
    chain.extend(changes=[own(chain, 1)])
    play(chain, 3)
    guests.on_event(before)
    assert chain.genesis.members[1] not in connectable(shell)
    assert shell.tracked[-1][0] == chain.state.height


def test_the_network_is_told_whose_key_replaced_which_unless_it_was_lost_or_stolen() -> None:
    chain, shell, guests, _ = following()
    one, two = chain.genesis.members[1:3]
    chain_id = chain.genesis.chain_id
    rekey = sign_rekey(keys(2)[1], keys(9)[8], chain_id, sequence=0, until=UNTIL)
    recovery = approved(chain, propose_recovery(two, keys(10)[9], chain_id, "lost", sequence=0, until=UNTIL), 6)
    chain.extend(changes=[rekey, recovery])
    guests.track()
    assert {one, two} <= {*chain.state.roster.successors}
    assert shell.replaced == {one: keys(9)[8].public_key}
    assert shell.guests == {one, two}, "one member is not two"


def test_the_next_key_of_a_member_connects_before_a_block_counts_it_here() -> None:
    """Its node goes on with that key as soon as it has the block, which it may be the only one to have."""
    chain, shell, guests, node = following()
    rekey = sign_rekey(keys(2)[1], keys(9)[8], chain.genesis.chain_id, sequence=0, until=UNTIL)
    node.changes.append(rekey)
    guests.admit("they ask", [bytes([number]) * 32 for number in range(GUESTS_MAX)])
    guests.on_event(node.head)
    assert rekey.key in connectable(shell), "however many liars vouch for"
    assert rekey.key in shell.guests
    node.changes.clear()
    guests.on_event(node.head)
    assert rekey.key not in connectable(shell)


def test_guests_are_few() -> None:
    chain, shell, guests, _ = following()
    guests.admit("they ask", [bytes([number]) * 32 for number in range(GUESTS_MAX + 5)])
    assert len(connectable(shell)) == len(chain.state.roster.members) + GUESTS_MAX


def test_it_is_a_nodes_head_that_the_network_is_told() -> None:
    chain, shell = living(), Shell()
    node = Node(chain.genesis, keys(1)[0], Checks(chain.genesis, SumRules()), shell, session=bytes(16))
    Guests(shell, node).track()
    assert shell.tracked == [(0, chain.genesis.members)]
