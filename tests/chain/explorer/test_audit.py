"""A stored chain is judged as a node judges it: what is valid, invalid, and left unchecked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.exceptions import MethodFailed
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.knowledge import Occasion
from fedchain.cli.explorer_tables import render
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from tests.support.chain.builders import (
    ChainBuilder,
    SumRules,
)
from tests.support.chain.explored import (
    GENESIS,
    Explore,
    execute,
    finals,
    main_chain,
    verdicts,
)
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer


def test_a_sound_chain_is_verified(explorer: Explorer, chain: ChainBuilder) -> None:
    report = explorer.verify(SumRules())
    assert (report.is_valid, report.base, report.height, report.damaged) == (True, 1, 4, ())
    assert verdicts(report) == ["ok"] * 4
    assert [check.hash for check in report.blocks] == [block.hash for block in main_chain(chain)]


def test_missing_payloads_leave_a_block_unchecked(chain: ChainBuilder, explore: Explore) -> None:
    dropped = main_chain(chain)[1].transactions[2].payload_hash
    report = explore(chain, without=[dropped]).verify(SumRules())
    assert report.is_valid
    assert verdicts(report) == ["ok", "unchecked", "ok", "ok"]
    assert report.blocks[1].missing == (dropped,)


class FailingRules(SumRules):
    """Rules of a method whose own code fails."""

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        raise MethodFailed("method", "aggregate of phase update: ValueError: boom (own.py, line 5)")


def test_a_method_s_own_fault_is_no_block_s(explorer: Explorer) -> None:
    report = explorer.verify(FailingRules())
    assert report.is_valid
    assert verdicts(report) == ["unchecked"] * 4
    assert report.blocks[0].error == "method: aggregate of phase update: ValueError: boom (own.py, line 5)"
    assert (
        "unchecked: at heights 1–4 the method's own code fails; every rule but the aggregate holds: "
        "method: aggregate of phase update: ValueError: boom (own.py, line 5)"
    ) in list(render(report, explorer.genesis))


def test_knowledge_need_not_be_kept_while_it_can_be_recomputed(chain: ChainBuilder, explore: Explore) -> None:
    roots = [state.knowledge_root for state in chain.states.values()]
    assert verdicts(explore(chain, without=roots).verify(SumRules())) == ["ok"] * 4
    dropped = main_chain(chain)[1].transactions[2].payload_hash
    report = explore(chain, without=[*roots, dropped]).verify(SumRules())
    assert verdicts(report) == ["ok", "unchecked", "unchecked", "unchecked"]
    assert report.blocks[2].missing == (main_chain(chain)[1].header.knowledge_root,)


def test_a_wrong_knowledge_root_is_caught(chain: ChainBuilder, explore: Explore) -> None:
    wrong = sha256(bytes(64))
    chain.contents[wrong] = bytes(64)
    second = main_chain(chain)[1]
    chain.keep(chain.remake(second, knowledge_root=wrong))
    chain.extend_many(4)
    report = explore(chain).verify(SumRules())
    assert not report.is_valid
    # Only the block that lied is at fault: what follows was computed from what it left behind.
    assert verdicts(report) == ["ok", "invalid", "ok", "ok", "ok", "ok"]
    assert report.blocks[1].error.startswith("InvalidBlock: knowledge root: ")
    assert second.header.knowledge_root.hex() in report.blocks[1].error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"round": 3}, "InvalidBlock: round"),
        ({"certificate": None}, "InvalidBlock: certificate"),
        ({"transactions_root": bytes(32)}, "InvalidSignature: transactions root"),
        ({"state_root": bytes(32)}, "InvalidBlock: state root"),
        ({"bits": 0x1F7FFFFF}, "InvalidBlock: bits"),
        ({"version": 3}, "InvalidBlock: version"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, Any], error: str, explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    chain.keep(chain.remake(chain.extend_many(2)[1], **change))
    chain.extend_many(2)
    report = explore(chain).verify(SumRules())
    assert verdicts(report) == ["ok", "invalid", "ok", "ok"]
    assert report.blocks[1].error.startswith(error)
    assert not report.is_valid


def test_a_certificate_without_a_quorum_is_caught(chain: ChainBuilder, explore: Explore) -> None:
    *before, last = finals(chain)
    weak = chain.certificate(last.block, GENESIS.members[:2])
    report = explore(chain, [*before, replace(last, certificate=weak)]).verify(SumRules())
    assert verdicts(report) == ["ok", "ok", "ok", "invalid"]
    assert report.blocks[3].error == "InvalidCertificate: quorum: 2 votes found, 3 of 4 required"


def test_forged_votes_are_caught(chain: ChainBuilder, explore: Explore) -> None:
    first, *after = finals(chain)
    forged = replace(
        first.certificate, votes=tuple(replace(vote, signature=bytes(64)) for vote in first.certificate.votes)
    )
    report = explore(chain, [replace(first, certificate=forged), *after]).verify(SumRules())
    assert verdicts(report) == ["invalid", "ok", "ok", "ok"]
    assert report.blocks[0].error.startswith("InvalidCertificate: certificate's vote: signature: ")


def test_a_payload_that_the_method_refuses_is_named(explorer: Explorer) -> None:
    class Strict(SumRules):
        def check(self, occasion: Occasion, sender: bytes, knowledge: bytes, payload: bytes) -> None:
            raise ValueError("nothing is good enough")

    report = explorer.verify(Strict())
    assert verdicts(report) == ["invalid"] * 4
    assert report.blocks[0].error == "InvalidPayload: content: nothing is good enough"


def test_a_damaged_block_is_invalid_and_what_no_state_leads_to_is_unchecked(
    explorer: Explorer, chain: ChainBuilder
) -> None:
    explorer = execute(explorer, "UPDATE finals SET certificate = x'00' WHERE height = 2")
    report = explorer.verify(SumRules())
    assert verdicts(report) == ["ok", "invalid", "unchecked", "ok"], "the state before the head is kept"
    assert report.blocks[1].error == "StoreCorrupt: it is damaged, and not held any more"
    assert [line.split(":")[0] for line in report.damaged] == ["finals row with height 2 was altered"]
    assert not report.is_valid
    assert [block.height for block in Explorer(explorer._store).blocks(9)] == [4, 3]


def test_damage_beside_the_chain_is_named(explorer: Explorer, chain: ChainBuilder) -> None:
    explorer._store.append([chain.vote(GENESIS.members[0], chain.tip)])
    assert explorer.verify(SumRules()).is_valid
    report = execute(explorer, "UPDATE votes SET kind = 1").verify(SumRules())
    assert (verdicts(report), report.is_valid) == (["ok"] * 4, False)
    assert report.damaged[0].startswith("votes row with hash")


def test_who_joined_late_is_verified_from_its_first_state_on(explore: Explore, chain: ChainBuilder) -> None:
    explorer = explore(chain, base=3)
    assert verdicts(explorer.verify(SumRules())) == ["ok", "ok"]
    explorer._store.append([replace(record, state=b"") for record in finals(chain)[:2]][1:])
    report = Explorer(explorer._store).verify(SumRules())
    assert (verdicts(report), report.base) == (["unchecked", "ok", "ok"], 2)
    assert (report.blocks[0].missing, report.blocks[0].error) == ((), "")
    explorer._store.append([replace(finals(chain)[0], state=b"")])
    assert verdicts(Explorer(explorer._store).verify(SumRules())) == ["ok"] * 4
