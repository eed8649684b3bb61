"""A block is shown with its votes, its clocks, its time, and a candidate that has none."""

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import Voter, is_proven
from fedchain.chain.storage.store import Candidate, Final
from fedchain.crypto.address import address
from tests.support.chain.builders import (
    BLOCK_MS,
    CREATED_MS,
    ChainBuilder,
    keys,
)
from tests.support.chain.changes import living, own, twice_rekeyed
from tests.support.chain.explored import (
    GENESIS,
    Explore,
    clocks,
    main_chain,
)
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer


def test_a_block_shows_what_made_it_final_and_whose_clocks_are_off(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    voters = sorted(GENESIS.members)[:3]
    first = chain.extend()
    carried = chain.certificate(
        first, voters, attempt=2, clock_ms=clocks(voters, -700, 0, 90_000, height=1), mining_ms=3_000
    )
    chain.extend(certificate=carried)
    certificate = explore(chain).block("1").certificate
    assert certificate is not None
    assert (certificate.hash, certificate.attempt, certificate.quorum) == (carried.hash, 2, 3)
    assert (certificate.clock_ms, certificate.mining_time_ms) == (CREATED_MS + BLOCK_MS, 3_000)
    view = explore(chain).block("1")
    assert (view.summary.votes, view.summary.mining_time_ms) == (3, 3_000)
    offsets = {address(voter): offset for voter, offset in zip(voters, (-700, 0, 90_000), strict=True)}
    assert view.voters == tuple(Voter(member, offsets[member], 3_000) for member in sorted(offsets))


def test_a_block_has_the_time_of_the_certificate_that_the_next_one_carries(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    first, second = chain.extend_many(2)
    other = sorted(GENESIS.members)[1:]
    held = chain.certificate(first, other, clock_ms=CREATED_MS + 77_000)
    records = [Final(first, held, chain.final(first).state), chain.final(second)]
    explorer = explore(chain, records)
    assert [block.time_ms for block in explorer.blocks(2)] == [CREATED_MS + 2 * BLOCK_MS, CREATED_MS + BLOCK_MS]
    alone = explore(chain, records[:1])
    assert alone.status().time_ms == alone.blocks(1)[0].time_ms == CREATED_MS + 77_000


def test_the_time_of_blocks_never_goes_back(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    first = chain.extend()
    second = chain.extend(certificate=chain.certificate(first, clock_ms=CREATED_MS + 50_000))
    chain.extend(certificate=chain.certificate(second, clock_ms=CREATED_MS + 20_000))
    explorer = explore(chain)
    assert [block.time_ms for block in explorer.blocks(3)] == [CREATED_MS + after for after in (50_002, 50_001, 50_000)]
    assert explorer.status().time_ms == CREATED_MS + 50_002
    assert explorer.block("2").summary.time_ms == CREATED_MS + 50_001


def test_an_open_candidate_is_shown_without_a_time(explorer: Explorer, chain: ChainBuilder) -> None:
    candidate = chain.extend(posts=chain.posts(members=GENESIS.members[:3]))
    stale = chain.extend(main_chain(chain)[2].hash, payload_of=9)
    explorer._store.append([Candidate(candidate, True), Candidate(stale, True)])
    assert explorer.status().candidates == 1
    view = explorer.block(candidate.hash.hex())
    assert (view.is_final, view.certificate, view.voters) == (False, None, ())
    assert (view.summary.height, view.summary.time_ms, view.summary.votes) == (5, None, 0)
    assert view.missing == (address(GENESIS.members[3]),)
    post = candidate.transactions[0]
    found = explorer.transaction(post.hash.hex())
    assert (found.block, found.is_final) == (view.summary, False)
    assert is_proven(explorer.proof(post.hash.hex()))


def test_another_key_holds_at_the_next_height_and_any_other_change_from_a_round_on(explore: Explore) -> None:
    (rekey,) = explore(twice_rekeyed()).block("1").changes
    assert (rekey.kind, rekey.key, rekey.round) == ("rekey", address(keys(11)[9].public_key), None)
    chain = living(5)
    chain.extend(changes=[own(chain, 1)])
    chain.extend_many(2)
    (leave,) = explore(chain).block("1").changes
    assert (leave.kind, leave.key, leave.round) == ("leave", "", 3)
