"""A block as an answer: its summary, its posts, the certificate that made it final, and the crimes that it proves."""

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Evidence
from fedchain.chain.explorer.founding import plain_values
from fedchain.chain.explorer.history import Entry
from fedchain.chain.explorer.member_views import Attending, ChangeView, Conviction, PlaceView
from fedchain.chain.explorer.views import BlockSummary, BlockView, CertificateView, PostView, Voter
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import Change
from fedchain.chain.post import Post
from fedchain.chain.roster import Roster
from fedchain.chain.state import State, votes_required
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address


def summarize(genesis: Genesis, entry: Entry) -> BlockSummary:
    """The summary of a final block, for lists."""
    certificate = entry.certificate
    return _summarize(genesis, entry.block, entry.time_ms, certificate.mining_ms, len(certificate.votes))


def summarize_candidate(genesis: Genesis, block: Block) -> BlockSummary:
    """The summary of an open candidate, for lists."""
    return _summarize(genesis, block, None, None, 0)


def view_block(store: Store, entry: Entry, roster: Roster | None) -> BlockView:
    """A final block in full."""
    certificate = entry.certificate
    shown = CertificateView(
        hash=certificate.hash,
        attempt=certificate.attempt,
        clock_ms=certificate.clock_ms,
        mining_time_ms=certificate.mining_ms,
        quorum=None if roster is None else votes_required(store.genesis, roster.electors),
    )
    return _view(store, entry.block, roster, summarize(store.genesis, entry), shown, _voters(certificate))


def view_candidate(store: Store, block: Block, roster: Roster) -> BlockView:
    """An open candidate in full."""
    return _view(store, block, roster, summarize_candidate(store.genesis, block), None, ())


def view_post(store: Store, post: Post) -> PostView:
    """A post."""
    return PostView(
        hash=post.hash,
        round=post.round,
        phase=phase_name(store.genesis, post.round, post.phase),
        sender=address(post.sender),
        payload_hash=post.payload_hash,
        payload_size=post.payload_size,
        payload_kept=store.holds_content(post.payload_hash),
    )


def view_conviction(genesis: Genesis, crime: Evidence, height: int | None) -> Conviction:
    """A proven crime."""
    text = crime.crime
    if isinstance(crime.first, Post):
        phase = phase_name(genesis, crime.first.round, crime.first.phase)
        text = f"two different posts in round {crime.first.round}, phase {phase}"
    return Conviction(address(crime.culprit), text, height)


def phase_name(genesis: Genesis, round_number: int, phase: int) -> str:
    """The name of a phase, for people."""
    phases = genesis.phases_of(round_number)
    return phases[phase].name if phase < len(phases) else f"phase {phase}"


def _summarize(
    genesis: Genesis, block: Block, time_ms: int | None, mining_time_ms: int | None, votes: int
) -> BlockSummary:
    header = block.header
    return BlockSummary(
        height=header.height,
        hash=block.hash,
        round=header.round,
        phase=phase_name(genesis, header.round, header.phase),
        miner=address(header.miner),
        time_ms=time_ms,
        mining_time_ms=mining_time_ms,
        posts=len(block.transactions),
        votes=votes,
    )


def _view(
    store: Store,
    block: Block,
    roster: Roster | None,
    summary: BlockSummary,
    certificate: CertificateView | None,
    voters: tuple[Voter, ...],
) -> BlockView:
    posted = block.senders
    return BlockView(
        summary=summary,
        is_final=certificate is not None,
        header=block.header,
        transactions=tuple(view_post(store, post) for post in block.transactions),
        missing=None if roster is None else tuple(sorted(map(address, roster.contributors - posted))),
        convictions=tuple(view_conviction(store.genesis, crime, block.header.height) for crime in block.evidence),
        changes=tuple(_change(change, block.header.round) for change in block.changes),
        certificate=certificate,
        voters=voters,
        could_vote=None if roster is None else tuple(sorted(map(address, roster.electors))),
    )


def view_places(state: State) -> tuple[PlaceView, ...]:
    """The places of the members that decide the next height, with those that have left."""
    return tuple(
        PlaceView(
            number=number,
            address=address(record.key),
            standing="convicted" if record.key in state.roster.culprits else record.standing.name.lower(),
            following=record.next.name.lower() if record.is_changing else "",
            round=record.round,
            idle=record.idle,
        )
        for number, record in enumerate(state.records)
    )


def view_attending(state: State) -> Attending:
    """The places that count behind a state."""
    roster = state.roster
    active = (roster.seats[member] for member in roster.members if roster.is_active(member))
    idle = (roster.seats[key] for key in (roster.holder, roster.dataless) if key is not None)
    is_drawn = state.rules.contributors_per_round > 0
    return Attending(frozenset(active), frozenset(idle if roster.dataless is not None else ()), is_drawn)


def _change(change: Change, round_number: int) -> ChangeView:
    return ChangeView(
        kind=change.kind.name.lower(),
        member=address(change.member) if change.member else "",
        text=change.text,
        key=address(change.key) if change.key else "",
        round=None if change.key else change.begins(round_number),
        until=change.until,
        values=() if change.amendment is None else plain_values(change.amendment.values),
        approvals=tuple(address(approval.approver) for approval in change.approvals),
    )


def _voters(certificate: Certificate) -> tuple[Voter, ...]:
    median = certificate.clock_ms
    voters = (Voter(address(vote.voter), vote.clock_ms - median, vote.mining_ms) for vote in certificate.votes)
    return tuple(sorted(voters, key=lambda voter: voter.member))
