"""Measurements of a simulation: one row a round, and the times of each peer's work."""

from dataclasses import dataclass, field
from typing import Any

from fedchain.files.members import MemberAccuracy
from fedchain.learning.bulk import AddressedBytes
from fedchain.learning.training.measured import Evaluation, calculate_taa, calculate_tal
from fedchain.learning.worker.contribution import Contribution

NEW_ROUNDS = 3
"""Rounds for which a member that joined is a new one."""


@dataclass(slots=True, kw_only=True)
class RoundMetrics:
    """One line of ``metrics.jsonl``. Accuracies are fractions, times are virtual seconds, None means not measured."""

    round: int
    """Round, from 1."""
    height: int
    """Height of the block that closed it."""
    virtual_s: float
    """Time at which it was closed."""
    taa: float | None = None
    """Test average accuracy of the local models after training, each on its peer's own test set."""
    taa_worst: float | None = None
    """The lowest of the accuracies that ``taa`` is the mean of: that of the worst member."""
    taa_new: float | None = None
    """As ``taa``, of those members alone that joined and made their first post in one of the last three rounds, this
    one among them; None if there are none."""
    taa_old: float | None = None
    """As ``taa``, of all other members; None while nobody has joined."""
    members: int = 0
    """Members that counted when the round was closed."""
    quorum: int = 0
    """Votes by which its last block became final."""
    tal: float | None = None
    """Test average loss of the local models, in nats."""
    auxiliary_loss: float | None = None
    """Mean of the method's auxiliary term on the same test sets, unweighted (DFPL: R of Eq. 4)."""
    tal_objective: float | None = None
    """As ``tal``, of the objective that the method minimises: cross-entropy and that term, weighted (DFPL: Eq. 3)."""
    test_accuracy: float | None = None
    """Mean accuracy of the same on the whole test set."""
    test_accuracy_prototype: float | None = None
    """As ``test_accuracy``, predicting by the nearest of all global prototypes."""
    taa_prototype: float | None = None
    """As ``taa``, predicting by the nearest global prototype among the peer's classes."""
    taa_received: float | None = None
    """Test average accuracy of the aggregated model, before it is trained on; methods that share models only."""
    receivers: int = 0
    """Members that ``taa_received`` is the mean over: those that are drawn to train on it, are up, and count. After the
    last round nobody is drawn: all that are up and count."""
    tal_received: float | None = None
    """Test average loss of the same, in nats."""
    test_accuracy_received: float | None = None
    """Accuracy of the same on the whole test set."""
    epsilon: float | None = None
    """Largest total epsilon of any peer's posts, of this round and all before, at the method's ``privacy_delta``; None
    if the noise does not cover everything that they are made of."""
    posts: int = 0
    """Posts that the round's last block counts."""
    late_posts: int = 0
    """Late ones among them: posts of the same phase of earlier rounds."""
    late_age: float = 0.0
    """Mean number of rounds by which those are late."""
    scalars_posted: int = 0
    """Floating-point numbers in all posts of the round's phases that peers made."""
    bytes_for_all: int = 0
    """Bytes of the round's posts that every member fetches: payloads, and parts for all. Here and in the next three
    fields each byte counts once, however many members fetch it."""
    bytes_for_aggregator: int = 0
    """Bytes of parts in them that the round's aggregator alone fetches."""
    bytes_for_next_aggregator: int = 0
    """Bytes of parts in them that the next round's aggregator goes on from; nobody fetches them if it stays the
    same."""
    bytes_for_one: int = 0
    """Bytes of parts in them that each go to one member alone."""
    bytes_sent_per_peer: int = 0
    """Bytes that a peer sent during the round, on average."""
    bytes_received_per_peer: int = 0
    """Bytes that reached a peer during the round, on average, duplicates included: gossip delivers some twice."""
    bytes_received_aggregator: int = 0
    """Bytes that reached the round's designated aggregator; 0 if there is none."""
    blocks: int = 0
    """Valid blocks mined for the round."""
    not_taken: int = 0
    """Valid candidates that were not finalized: blocks that some honest peer found valid, while another won."""
    refused: int = 0
    """Blocks that some honest peer saw and refused, and that none found valid."""
    attempts: int = 0
    """Number of the attempt in which the members decided, the largest over the round's blocks; 1: the first attempt."""
    training_s: float = 0.0
    """Mean training time of a peer with data."""
    mining_s: float = 0.0
    """Mining time of the round's blocks, as their voters measured it, summed over the blocks."""
    voting_s: float = 0.0
    """Time from the seal of the round's last block until it was final, on average over the peers that were up then."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: getattr(self, name) for name in RoundMetrics.__slots__}


@dataclass(slots=True)
class Span:
    """Times of one peer's work in one round, in virtual seconds; None if it did not do the work."""

    started: float | None = None
    """Time at which training began."""
    trained: float | None = None
    """Time at which training ended."""
    mining: float | None = None
    """Time at which the peer had all posts it waited for and began to mine."""
    voted: float | None = None
    """Time of the peer's last vote."""
    closed: float | None = None
    """Time at which the round's last block was final."""
    sealed: float | None = None
    """Time at which the peer found the nonce of a block that became final; the last one if there are several."""
    up_since: float = 0.0
    """Time at which the peer was started: a peer that was down or asleep at the seal learns of the block much later."""
    posted: float | None = None
    """Time at which the post was sent: later than ``trained`` if the peer still listened for its own key."""


@dataclass(slots=True)
class Evaluations:
    """Measurements of the models of one round, by peer number."""

    local: dict[int, Evaluation] = field(default_factory=dict)
    received: dict[int, Evaluation] = field(default_factory=dict)
    scalars: dict[tuple[int, int], int] = field(default_factory=dict)
    """Numbers posted by (peer, phase), keyed like the next field: a restarted peer contributes again but posts nothing
    new."""
    addressed: dict[tuple[int, int], AddressedBytes] = field(default_factory=dict)
    epsilon: float | None = None
    """Largest total of those that posted in this round."""

    def fill(self, row: RoundMetrics) -> None:
        """Put the averages into ``row``, summed in the order of the peers so that the last digit is reproducible."""
        local, received = ([item for _, item in sorted(of.items())] for of in (self.local, self.received))
        row.taa, row.tal, row.test_accuracy = _averages(local)
        row.taa_worst = min((item.local_accuracy for item in local), default=None)
        row.taa_received, row.tal_received, row.test_accuracy_received = _averages(received)
        row.receivers = len(received)
        row.taa_prototype = _mean([item.prototype_accuracy for item in local])
        row.test_accuracy_prototype = _mean([item.test_accuracy_prototype for item in local])
        row.auxiliary_loss = _mean([item.auxiliary_loss for item in local])
        row.tal_objective = _mean([item.local_objective for item in local])
        row.scalars_posted, posts = sum(self.scalars.values()), self.addressed.values()
        row.bytes_for_all = sum(post.everybody for post in posts)
        row.bytes_for_aggregator = sum(post.aggregator for post in posts)
        row.bytes_for_next_aggregator = sum(post.next_aggregator for post in posts)
        row.bytes_for_one = sum(post.one_member for post in posts)


class EvaluationLog:
    """Collects evaluations of all rounds. A peer receives the model of round r − 1 in round r."""

    def __init__(self) -> None:
        self._rounds: dict[int, Evaluations] = {}
        self._first: dict[int, int] = {}  # by peer, the round of its first post
        self.last_local: dict[int, tuple[int, Evaluation | None]] = {}
        """By peer: the last round in which its model was trained, posted or not, and its evaluation then, if any."""

    def of_round(self, round_number: int) -> Evaluations:
        """Evaluations of one round's models."""
        return self._rounds.setdefault(round_number, Evaluations())

    def add(self, peer: int, round_number: int, phase: int, contribution: Contribution) -> None:
        """Note a peer's measurements in a contribution to a phase of a round."""
        self._first.setdefault(peer, round_number)
        if contribution.local is not None:
            self.of_round(round_number).local[peer] = contribution.local
        measured = self.of_round(round_number)
        measured.scalars[peer, phase] = contribution.scalars
        measured.addressed[peer, phase] = contribution.addressed
        if contribution.epsilon is not None:
            measured.epsilon = max(contribution.epsilon, measured.epsilon or 0.0)
        self.add_received(peer, round_number, contribution.received)

    def add_received(self, peer: int, round_number: int, received: Evaluation | None) -> None:
        """Note a peer's evaluation of the model that it received in a round."""
        if received is not None:
            self.of_round(round_number - 1).received[peer] = received

    def fill(self, row: RoundMetrics, founders: int) -> None:
        """Put the averages of a round into its row; the peers after the founders have joined."""
        self.of_round(row.round).fill(row)
        spent = [measured.epsilon for number, measured in self._rounds.items() if number <= row.round]
        row.epsilon = max((epsilon for epsilon in spent if epsilon is not None), default=None)
        local = sorted(self.of_round(row.round).local.items())
        if any(peer >= founders for peer, _ in local):
            new = {peer for peer in self._first if peer >= founders and row.round - self._first[peer] < NEW_ROUNDS}
            row.taa_new = _averages([item for peer, item in local if peer in new])[0]
            row.taa_old = _averages([item for peer, item in local if peer not in new])[0]

    def members(self) -> list[MemberAccuracy]:
        """The accuracies of all members in all rounds, by round and member."""
        return [
            MemberAccuracy(number, peer, measured.local_accuracy, measured.test_accuracy)
            for number in sorted(self._rounds)
            for peer, measured in sorted(self._rounds[number].local.items())
        ]

    def note_model(self, peer: int, round_number: int, contribution: Contribution) -> None:
        """Note what a peer's model is since a contribution, which may have trained it."""
        if contribution.steps and round_number >= self.last_local.get(peer, (0, None))[0]:
            self.last_local[peer] = round_number, contribution.local


def _averages(evaluations: list[Evaluation]) -> tuple[float | None, float | None, float | None]:
    if not evaluations:
        return None, None, None
    tested = _mean([item.test_accuracy for item in evaluations])
    return calculate_taa(evaluations), calculate_tal(evaluations), tested


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(set(known)) == 1:
        return known[0]  # a sum of equal numbers would be rounded; all peers measure the same of a common model
    return sum(known) / len(known) if known else None
