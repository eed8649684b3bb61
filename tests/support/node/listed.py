"""Lists of parts as a rotating aggregator reads them."""

from dataclasses import replace

from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.chain.state import genesis_state
from fedchain.node.core.contents.part_lists import PartLists
from tests.support.chain.builders import genesis
from tests.support.node.parts import PartRules
from tests.support.node.stage import Stage


def rotating() -> Genesis:
    return genesis(4, aggregator=AggregatorRule.ROTATING)


def lists_of(document: Genesis, number: int, open_round: int) -> PartLists:
    """The lists that a member reads in some round."""
    context = Stage(document, number, PartRules(document.members), contributes=False).node._context
    context.ledger.head = replace(context.head, round=open_round)
    return PartLists(context)


def places(rounds: set[int]) -> set[int]:
    """The places of those whose turn as aggregator these rounds are."""
    roster = genesis_state(rotating()).roster
    return {roster.seats[roster.aggregator_of(number) or b""] for number in rounds}
