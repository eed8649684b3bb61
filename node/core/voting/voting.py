"""Voting: this peer's part in deciding the open height. It counts votes, signs its own, and notices the decision."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import AlreadyKnown, Equivocation, InvalidSignature, InvalidVote, OutOfWindow, Refused
from fedchain.chain.state import votes_required
from fedchain.chain.validation import validate_polka
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import VoteMessage
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.effects import Blame, Persist, Publish
from fedchain.node.core.voting.agreement import Agreement, Cast
from fedchain.node.core.voting.recollection import lock_proof, lost_decision
from fedchain.node.core.voting.vote_policy import deserves_vote, rank, turnout

EARLY_MAX = 4
"""Most votes of one member that are kept for the next height, since others may get there before us."""


class Voting:
    """Counts and casts votes for the open height."""

    def __init__(self, context: Context, crimes: Crimes, blocks: BlockImport, is_silent: Callable[[], bool]) -> None:
        self._context, self._crimes, self._blocks, self._is_silent = context, crimes, blocks, is_silent
        self._early: dict[PublicKey, list[Vote]] = {}
        self.agreement = self._open()

    # candidates, as the agreement sees them

    def preferred(self) -> Hash | None:
        """The best valid block that deserves our vote; None if there is none."""
        context = self._context
        deserving = [entry for entry in context.ledger.valid() if deserves_vote(context, entry)]
        if len(deserving) > 1:  # to rank one takes a look at all posts
            return min(deserving, key=partial(rank, context)).hash
        return deserving[0].hash if deserving else None

    def deserves_vote(self, block_hash: Hash) -> bool:
        """Whether a block is valid and deserves our vote."""
        entry = self._context.ledger.entries.get(block_hash)
        return entry is not None and entry.is_valid and deserves_vote(self._context, entry)

    def is_complete(self, block_hash: Hash) -> bool:
        """Whether a block counts every post that it may: of each contributor, and all that are owed."""
        entry = self._context.ledger.entries.get(block_hash)
        return entry is not None and entry.posts == self._context.head.countable

    def is_valid(self, block_hash: Hash) -> bool:
        """Whether a block is held and obeys every rule."""
        entry = self._context.ledger.entries.get(block_hash)
        return entry is not None and entry.is_valid

    # arrivals

    def on_vote(self, vote: Vote) -> bool:
        """Count a member's vote; returns whether anything can follow from it now. Raises Refused."""
        context, height = self._context, self._context.head.height + 1
        if vote.height == height + 1 and not context.head.finished:
            self._keep_early(vote)
        if vote.height != height or context.head.finished:
            raise OutOfWindow("vote's height", f"{vote.height} found, {height} is open")
        known = self.agreement.ballots.ballot(vote.attempt, vote.kind).first.get(vote.voter)
        if known == vote:
            raise AlreadyKnown("vote", f"{vote.voter.hex()[:16]}… has voted so")
        try:
            context.checks.vote(context.head.roster.electors, vote)
        except InvalidVote as error:
            context.emit(Blame(vote.voter, error))
            raise OutOfWindow("vote", str(error)) from None
        evidence = self.agreement.ballots.add(vote, self.agreement.attempt)
        if evidence is not None:
            self._crimes.take(evidence)
            raise Equivocation("one vote", evidence.crime)
        return self.agreement.heeds(vote)

    def on_certificate(self, certificate: Certificate) -> None:
        """Take the prevotes of a quorum, handed out by a peer that is locked on them. Raises Refused."""
        context, height = self._context, self._context.head.height + 1
        if certificate.height != height or certificate.kind is not VoteKind.PREVOTE:
            raise OutOfWindow("certificate's height", f"{certificate.height} found, {height} is open")
        if self.agreement.ballots.polka(certificate.attempt) is not None:
            raise AlreadyKnown("certificate", f"a quorum of attempt {certificate.attempt} is known")
        validate_polka(context.genesis, context.head, certificate, context.signatures)
        self._compare(certificate)
        self.agreement.ballots.add_certificate(certificate)

    def advance(self) -> Certificate | None:
        """Cast the votes that are due; returns the certificate once the height is decided, None until then.

        An own vote may complete a quorum, so it is counted before the next one is due. A silent node takes no part: a
        vote that it noted but never sent could not be cast later.
        """
        context = self._context
        while not self._is_silent() and (due := self.agreement.advance(context.now.ms)):
            for cast in due:
                self._cast(cast)
        ballots = self.agreement.ballots
        named = (ballots.newest_polka, ballots.decision)
        self._blocks.wanted.update(item.block_hash for item in named if item is not None)
        if self.agreement.lock is not None:
            self._blocks.wanted.add(self.agreement.lock[1])
        if (proposal := self.agreement.proposal()) is not None:
            self._blocks.wanted.add(proposal)  # however many better ones its miner makes
        return ballots.decision

    def on_head(self) -> None:
        """Another height is open."""
        if (settled := self._context.ledger.settled) is not None:
            self._compare(settled.certificate)
        self.agreement = self._open()
        early, self._early = self._early, {}
        for vote in (vote for votes in early.values() for vote in votes):
            if vote.height == self._context.head.height + 1:
                try:
                    self.on_vote(vote)
                except Refused:
                    continue  # it does not count; it was refused when it came, too

    def recall(self) -> None:
        """After a silence: go on from the votes that our key has cast at this height."""
        self._resume(self.agreement)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield from self.agreement.ballots.sizes()
        yield "early votes", sum(map(len, self._early.values()))

    def early(self, voter: PublicKey) -> Sequence[Vote]:
        """The votes of a member for the height after the open one that are kept here."""
        return self._early.get(voter, ())

    def mining_time_ms(self, block_hash: Hash) -> int:
        """Observed mining time of a block: from the time at which we could have mined ourselves to its arrival."""
        entry, since_ms = self._context.ledger.entries.get(block_hash), self._context.clock.mining_ms
        return 0 if entry is None or since_ms is None else max(0, entry.arrived_ms - since_ms)

    def _compare(self, certificate: Certificate) -> None:
        """Look for members that sent other votes to others than to us."""
        held = self.agreement.ballots.ballot(certificate.attempt, certificate.kind).first
        for vote in certificate.votes:
            if (known := held.get(vote.voter)) is not None:
                self._crimes.accuse(known, vote)

    def _open(self) -> Agreement:
        """An agreement on the open height, resumed from the journal."""
        context = self._context
        electors, model = context.head.roster.electors, context.genesis.fault_model
        quorum, faulty = votes_required(context.genesis, electors), model.faulty(len(electors))
        timeout_ms = context.head.rules.vote_timeout_ms
        agreement = Agreement(self, len(electors), quorum, faulty, timeout_ms, self._leader, context.me)
        self._resume(agreement)
        return agreement

    def _leader(self, attempt: int) -> PublicKey:
        """The elector that leads an attempt at the open height: they take turns, in the order of their keys.

        No hash takes part, so that no miner can choose the leaders. Where keys may be replaced, they take turns in the
        order of their places, so that no member can choose, either.
        """
        head = self._context.head
        electors = sorted(head.roster.electors, key=head.roster.seats.__getitem__ if head.records else None)
        return electors[(self._context.head.height + 1 + attempt) % len(electors)]

    def _resume(self, agreement: Agreement) -> None:
        """Go on from our votes at this height, if any, and hold them for others, which may have forgotten them."""
        journal = self._context.journal
        if (decision := lost_decision(self._context)) is not None:
            agreement.ballots.add_certificate(decision)
        if journal.height != self._context.head.height + 1 or not journal.votes:
            return
        attempt, kinds = journal.slot[1], {vote.kind for vote in journal.votes}
        agreement.resume(
            attempt, journal.lock, prevoted=VoteKind.PREVOTE in kinds, precommitted=VoteKind.PRECOMMIT in kinds
        )
        if (proof := lock_proof(self._context)) is not None:
            agreement.ballots.add_certificate(proof)
        said = (*journal.votes, *self._context.storage.votes(journal.height))
        for vote in [vote for vote in said if vote.height == journal.height]:  # somebody else may have written them
            with suppress(Refused):  # it is known already, too old to matter, or no valid vote
                self._context.checks.vote(self._context.head.roster.electors, vote)
                if vote.voter == self._context.me:
                    self._blocks.wanted.add(vote.block_hash)
                agreement.ballots.add(vote, attempt)

    def _cast(self, cast: Cast) -> None:
        """Sign a vote, write it down, and only then send it; no vote that the journal forbids is signed."""
        context, height = self._context, self._context.head.height + 1
        slot = height, cast.attempt, int(cast.kind)
        if context.me not in context.head.roster.electors or self._blocks.is_contradicted:
            return
        if not context.journal.allows(slot):
            return
        measures = cast.kind is VoteKind.PRECOMMIT and cast.block_hash != NIL
        entry = context.ledger.entries.get(cast.block_hash)
        vote = sign_vote(
            context.key,
            context.genesis.chain_id,
            slot,
            cast.block_hash,
            clock_ms=max(0, context.now.clock_ms) if measures else 0,
            mining_ms=self.mining_time_ms(cast.block_hash) if measures else 0,
            turnout=turnout(context, entry) if measures and entry is not None else None,
        )
        context.note_own(vote)
        if cast.grounds:
            context.emit(Persist(cast.grounds))
        polka, settled = self.agreement.ballots.polka(cast.attempt), context.ledger.certificate
        context.write_journal(context.journal.with_vote(vote, polka, settled))
        context.emit(Persist((vote,)), Publish(VoteMessage(vote)))
        self._blocks.wanted.add(vote.block_hash)
        self.agreement.ballots.add(vote, self.agreement.attempt)

    def _keep_early(self, vote: Vote) -> None:
        """Keep a vote for the next height, if a member signed it: the electors of that height are not known yet."""
        context, kept = self._context, self._early.get(vote.voter, [])
        if vote in kept:
            raise AlreadyKnown("vote", f"{vote.voter.hex()[:16]}… has voted so")
        if not context.head.roster.is_active(vote.voter) or len(kept) >= EARLY_MAX:
            return
        if not context.is_signed(vote.voter, vote):
            raise InvalidSignature("signature", f"{vote.signature.hex()[:16]}… is not {vote.voter.hex()[:16]}…'s")
        self._early[vote.voter] = [*kept, vote]
