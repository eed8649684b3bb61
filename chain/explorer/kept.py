"""The contents of a chain that a store keeps: payloads, and the knowledge that rounds left behind."""

from collections.abc import Iterator

from fedchain.chain.block import Header
from fedchain.chain.exceptions import ChainError, InvalidPayload, NotFound
from fedchain.chain.explorer.held import HeldChain
from fedchain.chain.explorer.knowledge_views import KnowledgeRules, view_knowledge
from fedchain.chain.explorer.views import KnowledgeView, Recomputation
from fedchain.chain.knowledge import EMPTY_ROOT, Rules, missing_contents, recompute
from fedchain.crypto.address import address
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey


class KeptContents:
    """Answers about contents; what is not kept raises NotFound."""

    def __init__(self, chain: HeldChain) -> None:
        self._chain = chain

    def knowledge(self, rules: KnowledgeRules, round_number: int | None = None) -> KnowledgeView:
        """The knowledge that a round left behind, by default the newest finished one.

        Raises:
            NotFound: the round is not finished, or its knowledge is not kept.
            InvalidPayload: the method cannot read it.
        """
        header, data = self.left_behind(round_number)
        return view_knowledge(self._chain.state.roster, rules, header, data)

    def left_behind(self, round_number: int | None = None) -> tuple[Header, bytes]:
        """The last header of a round, by default the newest finished one, and the knowledge that it left, as bytes.

        Raises NotFound if the round is not finished, or its knowledge is not kept.
        """
        state = self._chain.state
        # The setup prepares the learning and teaches nothing, so round 0 is used only if it is asked for.
        wanted = max(1, state.round - 1) if round_number is None else round_number
        heights = self._chain.heights_of(wanted) if wanted < state.round else ()
        if not heights:
            raise NotFound(f"no knowledge of round {wanted}: {self._chain.progress()}")
        header = self._chain.block(heights[-1]).header
        root = header.knowledge_root
        return header, self._chain.kept(root, f"the knowledge of round {wanted}, {root.hex()},")

    def safetensors(self, rules: KnowledgeRules) -> Iterator[bytes | memoryview]:
        """The knowledge that the newest finished round left behind, as the pieces of a file.

        Raises as :meth:`knowledge` does, before the first piece.
        """
        _, data = self.left_behind(None)
        try:
            return rules.safetensors(data)
        except ValueError as error:
            raise InvalidPayload("knowledge", str(error)) from None

    def payload(self, round_number: int, phase: str, sender: PublicKey) -> bytes:
        """The payload of a member's post in a phase of a round. Raises NotFound if it is not posted or not kept."""
        posts = self._chain.phase_block(round_number, phase).transactions
        found = next((post for post in posts if (post.sender, post.round) == (sender, round_number)), None)
        if found is None:
            raise NotFound(f"{address(sender)} has no post in {phase} of round {round_number}")
        return self._chain.kept(found.payload_hash, f"the payload of post {found.hash.hex()}")

    def known_before(self, round_number: int, phase: str) -> bytes:
        """The knowledge with which members did their work of a phase. Raises NotFound if it is not kept."""
        height = self._chain.phase_block(round_number, phase).header.height
        root = EMPTY_ROOT if height == 1 else self._chain.block(height - 1).header.knowledge_root
        return self._chain.kept(root, f"the knowledge before {phase} of round {round_number}, {root.hex()},")

    def recompute(self, rules: Rules, height: int) -> Recomputation:
        """Recompute the knowledge of a final block from its posts. Raises NotFound if the block is not held."""
        block, before = self._chain.block(height), self._chain.store.state_before(height)
        said = block.header.knowledge_root
        if before is None:
            return Recomputation(height, said, None, (), "the state that it stands on is not held")
        if missing := missing_contents(before, block.transactions, self._chain.content):
            return Recomputation(height, said, None, tuple(missing), "")
        try:
            made = recompute(self._chain.genesis, rules, before, block.transactions, self._chain.content)
        except ChainError as error:
            return Recomputation(height, said, None, (), f"{type(error).__name__}: {error}")
        return Recomputation(height, said, sha256(made), (), "")
