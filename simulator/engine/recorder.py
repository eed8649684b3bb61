"""The recorder: notes the times of each peer's work, and makes one row of them for each round."""

from collections.abc import Sequence

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, genesis_state, votes_required
from fedchain.chain.storage.store import Candidate
from fedchain.crypto.hashing import Hash
from fedchain.network.messages import CandidateMessage, PostMessage, VoteMessage
from fedchain.node.core.effects import Contribute, Effect, Mine, Persist, Publish
from fedchain.node.core.ledger import Ledger
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.measurement import EvaluationLog, RoundMetrics, Span
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.witness import Witness


class Recorder:
    """Measures a run.

    Args:
        genesis: the federation's founding document.
        loop: the clock.
        witness: what the peers saw of each block.
        peers: number of those that ever take part.
    """

    def __init__(self, genesis: Genesis, loop: VirtualTimeLoop, witness: Witness, peers: int) -> None:
        self.rows: list[RoundMetrics] = []
        self._spans: dict[int, dict[int, Span]] = {}  # by round and peer
        self.evaluations = EvaluationLog()
        self._genesis, self._loop, self._witness = genesis, loop, witness
        self.mined: dict[int, list[int]] = {}
        """The peers that mined each round's final blocks, in order; those of the setup are the first round's."""
        self._sealed_s: dict[Hash, float] = {}
        self._places = dict(genesis_state(genesis).roster.seats)  # of all keys so far
        self._sent_bytes = self._received_bytes = [0] * peers

    def span(self, number: int, round_number: int) -> Span:
        """Times of a peer's work in a round."""
        return self._spans.setdefault(round_number, {}).setdefault(number, Span())

    @property
    def timeline(self) -> dict[tuple[int, int], Span]:
        """Times of each peer's work, by (peer, round)."""
        return self.times_of(*self._spans)

    def times_of(self, *rounds: int) -> dict[tuple[int, int], Span]:
        """Times of each peer's work in some rounds, by (peer, round)."""
        return {(peer, number): span for number in rounds for peer, span in self._spans.get(number, {}).items()}

    def on_effects(self, peer: SimulatedPeer, effects: Sequence[Effect]) -> None:
        """Note the time at which a peer begins to train, posts, mines and votes."""
        now_s, node = self._loop.time(), peer.node
        assert node is not None, "only a running peer has effects"
        for effect in effects:
            match effect:
                case Contribute():
                    span = self.span(peer.number, effect.round)
                    span.started = now_s if span.trained is None else span.started  # a later phase does not train
                case Mine(header):
                    self.span(peer.number, header.round).mining = now_s
                case Publish(PostMessage(post, _)):
                    span = self.span(peer.number, post.round)
                    span.posted = now_s if span.posted is None else span.posted  # it may be sent again
                case Publish(VoteMessage(vote)):
                    self.span(peer.number, _round_at(node.ledger, vote.height)).voted = now_s
                case Publish(CandidateMessage(block)):
                    self._sealed_s.setdefault(block.hash, now_s)
                case Persist(records):
                    for record in records:
                        if isinstance(record, Candidate):
                            self._sealed_s.setdefault(record.block.hash, now_s)  # a traitor's block: when first known
                case _:
                    pass

    def on_trained(self, peer: SimulatedPeer, round_number: int) -> None:
        """A peer made its contribution to a phase; only a round's first phase trains."""
        span = self.span(peer.number, round_number)
        span.trained = self._loop.time() if span.trained is None else span.trained

    def on_head(self, peer: SimulatedPeer, old: State, head: State) -> None:
        """A peer's head moved: the round is closed for this peer if the block is the round's last."""
        if head.roster.seats is not old.roster.seats:
            self._places |= head.roster.seats
        if head.round > old.round:
            span = self.span(peer.number, old.round)
            span.closed, span.up_since = self._loop.time(), peer.up_since

    def close_round(self, ledger: Ledger, sent_bytes: Sequence[int], received_bytes: Sequence[int]) -> RoundMetrics:
        """The first peer closed a round: add its row, which is filled in further as later peers close it."""
        head, count = ledger.head, len(sent_bytes)
        row = RoundMetrics(round=head.round - 1, height=head.height, virtual_s=self._loop.time())
        row.bytes_sent_per_peer = (sum(sent_bytes) - sum(self._sent_bytes)) // count
        row.bytes_received_per_peer = (sum(received_bytes) - sum(self._received_bytes)) // count
        closed = head if ledger.settled is None else ledger.settled.before
        row.members = closed.roster.active
        row.quorum = votes_required(self._genesis, closed.roster.electors)
        if (aggregator := head.roster.aggregator_of(row.round)) is not None:
            place = self._places[aggregator]
            row.bytes_received_aggregator = received_bytes[place] - self._received_bytes[place]
        self._sent_bytes, self._received_bytes = list(sent_bytes), list(received_bytes)
        self.rows.append(row)
        for known in self.rows[-2:]:  # received models are measured in the round after
            self.fill(known, ledger)
        return row

    def fill(self, row: RoundMetrics, ledger: Ledger) -> None:
        """Put everything that is known by now into a row."""
        self.evaluations.fill(row, len(self._genesis.members))
        below = self.rows[row.round - 2].height if row.round > 1 else 0
        known = (ledger.final(height) for height in range(below + 1, row.height + 1))
        found = [item for item in known if item is not None]
        self.mined[row.round] = [self._places[block.header.miner] for block, _ in found]
        decided = [item for item in found if item[0].header.round == row.round]
        for block, _ in decided:
            self.span(self._places[block.header.miner], row.round).sealed = self._sealed_s.get(block.hash)
        if decided:
            self._fill_blocks(row, decided)
        of_round = self._spans.get(row.round, {})
        spans = list(of_round.values())
        dedicated = range(len(self._genesis.participants), len(self._genesis.members))  # its place, if there is one
        local = [span for number, span in of_round.items() if number not in dedicated]
        trained = [s.trained - s.started for s in local if s.trained is not None and s.started is not None]
        row.training_s = sum(trained) / len(trained) if trained else 0.0
        began_s = self._voting_began_s(*decided[-1]) if decided else None
        waited = [
            max(0.0, span.closed - began_s)
            for span in spans
            if began_s is not None and span.closed is not None and span.up_since <= began_s
        ]
        row.voting_s = sum(waited) / len(waited) if waited else 0.0

    def _voting_began_s(self, block: Block, certificate: Certificate) -> float | None:
        """Time at which voting could begin: the seal of the block, or of the first candidate if an attempt failed."""
        failed = self._witness.valid(block.header.height) if certificate.attempt else frozenset()
        known_s = [self._sealed_s[item] for item in {block.hash} | failed if item in self._sealed_s]
        return min(known_s, default=None)

    def _fill_blocks(self, row: RoundMetrics, decided: Sequence[tuple[Block, Certificate]]) -> None:
        row.mining_s = sum(certificate.mining_ms for _, certificate in decided) / 1000
        row.attempts = 1 + max(certificate.attempt for _, certificate in decided)
        ages = [row.round - post.round for post in decided[-1][0].transactions]
        row.posts, row.late_posts = len(ages), sum(age > 0 for age in ages)
        row.late_age = sum(ages) / row.late_posts if row.late_posts else 0.0
        lost = [self._witness.valid(block.header.height) - {block.hash} for block, _ in decided]
        row.not_taken = sum(map(len, lost))
        row.blocks = len(decided) + row.not_taken
        row.refused = sum(len(self._witness.refused(block.header.height) - {block.hash}) for block, _ in decided)


def _round_at(ledger: Ledger, height: int) -> int:
    """The round that the block at a height belongs to, if it is open or was closed a moment ago."""
    settled = ledger.settled
    return settled.before.round if settled is not None and height <= ledger.head.height else ledger.head.round
