"""Crimes: evidence that this peer found or received, kept until a final block proves it."""

from fedchain.chain.evidence import EVIDENCE_MAX, Evidence, Statement, evidence_of, excludes
from fedchain.chain.exceptions import AlreadyKnown
from fedchain.chain.validation import validate_evidence
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import EvidenceMessage
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Publish
from fedchain.node.core.notices import Convicted


class Crimes:
    """Collects evidence. One crime of a member is enough, so there are at most as many as members."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.open: dict[PublicKey, Evidence] = {}
        """Crimes that no final block proves yet, by culprit."""

    def accuse(self, one: Statement, other: Statement) -> None:
        """Take two valid statements of one member as evidence, if they exclude each other."""
        if excludes(one, other):
            self.take(evidence_of(one, other))

    def take(self, evidence: Evidence) -> None:
        """Keep evidence that was found here, and publish it."""
        context = self._context
        if evidence.culprit == context.me:
            return  # another node has our key: our operator has to end that
        if evidence.culprit not in self.open and self._is_punishable(evidence.culprit):
            self.open[evidence.culprit] = evidence
            context.emit(Publish(EvidenceMessage(evidence)))

    def on_evidence(self, evidence: Evidence) -> None:
        """Take evidence from a peer. Raises Refused."""
        context = self._context
        if evidence.culprit in self.open:
            raise AlreadyKnown("evidence", f"{evidence.culprit.hex()[:16]}… is accused")
        validate_evidence(context.genesis, context.head, evidence, context.signatures)
        self.open[evidence.culprit] = evidence

    def on_head(self) -> None:
        """The head moved: drop the evidence against convicted members, even if we passed over the convicting block."""
        context, settled = self._context, self._context.ledger.settled
        if settled is None:
            return
        for evidence in settled.block.evidence:
            context.tell(Convicted(settled.block.header.height, evidence))
        for culprit in [known for known in self.open if not self._is_punishable(known)]:
            del self.open[culprit]

    def for_block(self) -> tuple[Evidence, ...]:
        """Evidence for the next block, in block order; one crime of each member."""
        current = self._context.head.roster.current
        of_members = {current(culprit): evidence for culprit, evidence in self.open.items()}
        open_crimes = sorted(of_members.values(), key=lambda evidence: evidence.hash)
        return tuple(open_crimes[:EVIDENCE_MAX])

    def _is_punishable(self, key: PublicKey) -> bool:
        """Whether the member with a key, or with one that it replaced, would be convicted, and is not gone for good.

        One that is away may come back: it could otherwise vote twice each time that it goes.
        """
        roster = self._context.head.roster
        return roster.is_liable(key) and roster.current(key) not in roster.gone
