"""Adversaries that lie with blocks: they leave members out, mine too early or too often, or break the rules."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from fedchain.chain.block import Header, sign_block
from fedchain.chain.difficulty import TARGET_MAX, bits_from_target, work_from_bits
from fedchain.chain.knowledge import needed_contents
from fedchain.chain.post import Post
from fedchain.chain.state import posts_required
from fedchain.chain.transition import unsealed_header
from fedchain.chain.vote import VoteKind
from fedchain.network.messages import CandidateMessage, PostMessage, VoteMessage
from fedchain.node.core.effects import Effect, Mine, Publish, Send
from fedchain.node.core.events import Event, MessageReceived
from fedchain.node.core.jobs import Knowledge, Recompute
from fedchain.simulator.adversaries.adversary import Adversary, Parameter


class EagerMiner(Adversary):
    """Mines over the posts that a subclass chooses, as soon as it may."""

    def chosen(self) -> tuple[Post, ...]:
        """Posts of its next block, in sender order; empty if it does not mine now."""
        raise NotImplementedError

    def draft(self, posts: tuple[Post, ...]) -> Header | None:
        """The header that it mines over these posts."""
        return draft_header(self, posts)

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Drop the node's own requests to mine."""
        return () if isinstance(effect, Mine) else super().say(effect)

    def listen(self, event: Event) -> Sequence[Event]:
        """Look at every event whether there are enough posts."""
        self._look()
        return (event,)

    def act(self) -> None:
        """Look once more."""
        self._look()

    _wanted: tuple[Post, ...] = ()

    def _look(self) -> None:
        if not self.is_running or self.node.head.finished:
            return
        posts = self.chosen()
        if posts and posts != self._wanted:
            self._wanted = posts
            header = self.draft(posts)
            if header is not None:
                self.peer.mine(header, partial(self._publish, posts), partial(self._still_wants, posts))

    def _still_wants(self, posts: tuple[Post, ...]) -> bool:
        return self._wanted == posts

    def _publish(self, posts: tuple[Post, ...], sealed: Header) -> None:
        if sealed.parent_hash == self.node.head.block_hash:
            publish_block(self, sealed, posts)

    def held(self) -> dict[bytes, Post]:
        """Posts of the open phase that may be counted, by sender."""
        contributors = self.node.head.roster.contributors
        return {post.sender: post for post in self.node.open_posts() if post.sender in contributors}


class Censor(EagerMiner):
    """Leaves the first honest members out of its blocks, and shows its own post in its own block alone.

    Its block then counts as many posts as the others hold, with its own post in place of a victim's.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"victims": Parameter(1, 0, 2**20)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Withhold its own post, and votes for blocks of miners outside the coalition."""
        match effect:
            case Publish(PostMessage(post, _)) | Send(_, PostMessage(post, _)) if post.sender == self.key.public_key:
                return ()
            case Publish(VoteMessage(vote)):
                entry = self.node.ledger.entries.get(vote.block_hash)
                mine = entry is None or entry.block.header.miner in {key.public_key for key in self.coalition.keys}
                return (effect,) if mine else ()
            case _:
                return super().say(effect)

    def chosen(self) -> tuple[Post, ...]:
        """All posts but the victims', once there are enough."""
        victims = {self.member(number) for number in self.coalition.honest[: int(self.parameters["victims"])]}
        posts = tuple(post for sender, post in self.held().items() if sender not in victims)
        return posts if len(posts) >= posts_required(self.genesis, self.node.head) else ()


class CaptureAttacker(EagerMiner):
    """Never shows its post to others, and mines over as few posts as it may, its own first, before the rest arrive.

    In version 1, members that its blocks left out lost their votes, until the attacker was the only elector.
    """

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Withhold its own post."""
        match effect:
            case Publish(PostMessage(post, _)) | Send(_, PostMessage(post, _)) if post.sender == self.key.public_key:
                return ()
            case _:
                return super().say(effect)

    def chosen(self) -> tuple[Post, ...]:
        """The smallest number of posts that is allowed, its own first."""
        held, required = self.held(), posts_required(self.genesis, self.node.head)
        if len(held) < required:
            return ()
        own = held.pop(self.key.public_key, None)
        posts = [*([own] if own else []), *held.values()][:required]
        return tuple(sorted(posts, key=lambda post: post.sender))


class FalseAggregator(EagerMiner):
    """Counts all posts that it holds, and claims a false aggregate of them."""

    def chosen(self) -> tuple[Post, ...]:
        """All posts that it holds, once there are enough."""
        held = self.held()
        return tuple(held.values()) if len(held) >= posts_required(self.genesis, self.node.head) else ()

    def draft(self, posts: tuple[Post, ...]) -> Header | None:
        """A header over the aggregate with its last byte changed; peers that ask for it get the changed one."""
        header = draft_header(self, posts)
        if header is None:
            return None
        true = self.node.content(header.knowledge_root)
        assert true, "the draft put it there, and the aggregate of posts is not empty"
        false = true[:-1] + bytes([true[-1] ^ 1])
        return replace(header, knowledge_root=self.node.hold(false))


HASHES_TIMES_MAX = 8
"""Most hashes of a block that takes no virtual time, as a multiple of those that the founding document asks for. They
take real time: each block that comes at once makes the next one harder, and a run would come to no end."""


class SiblingMiner(Adversary):
    """Makes many blocks for the open height and for the last finalized ones, as if its hashes cost nothing.

    It leaves out those that take more than ``HASHES_TIMES_MAX`` times the hashes of the first block.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"per_s": Parameter(4, 0, 10_000)}

    def act(self) -> None:
        """Mine blocks over all posts that it holds, or mine finalized blocks again under its own key."""
        for _ in range(int(self.parameters["per_s"])):
            counted = tuple(
                post for post in self.node.open_posts() if post.sender in self.node.head.roster.contributors
            )
            if len(counted) >= posts_required(self.genesis, self.node.head) and self.draw.random() < 0.5:
                header = draft_header(self, counted)
                if header is not None and self._affords(header):
                    publish_block(self, self.peer.search(header), counted)
            else:
                self._mine_again()

    def _mine_again(self) -> None:
        found = self.node.ledger.final(self.draw.randint(max(1, self.height - 4), max(1, self.height - 1)))
        if found is not None and self._affords(found[0].header):
            block, _ = found
            sealed = self.peer.search(replace(block.header, miner=self.key.public_key))
            again = sign_block(
                self.key, self.genesis.chain_id, sealed, block.transactions, block.certificate, block.evidence
            )
            self.peer.carry_out(Publish(CandidateMessage(again)))

    def _affords(self, header: Header) -> bool:
        first = work_from_bits(self.genesis.initial_bits)
        return work_from_bits(header.bits) <= HASHES_TIMES_MAX * first


class DifficultyLiar(Adversary):
    """Claims any mining time that it likes, and mines against the easiest target."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"mining_s": Parameter(1e6, 0, 1e9)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Put the false time into its precommits and the wrong bits into its headers."""
        match effect:
            case Publish(VoteMessage(vote)) if vote.kind is VoteKind.PRECOMMIT and any(vote.block_hash):
                lie = self.vote(
                    self.key,
                    vote.kind,
                    vote.attempt,
                    vote.block_hash,
                    height=vote.height,
                    mining_ms=round(self.parameters["mining_s"] * 1000),
                )
                return (Publish(VoteMessage(lie)),)
            case Mine(header):
                easy = self.peer.search(replace(header, bits=bits_from_target(TARGET_MAX)))
                posts = self.node.draft()
                if posts is not None:
                    block = sign_block(
                        self.key, self.genesis.chain_id, easy, posts.transactions, posts.certificate, posts.evidence
                    )
                    self.peer.carry_out(Publish(CandidateMessage(block)))
                return (effect,)
            case _:
                return super().say(effect)


def draft_header(adversary: Adversary, posts: tuple[Post, ...]) -> Header | None:
    """An unsealed header over some posts for the open height; None if they cannot be aggregated here."""
    node = adversary.node
    head, certificate = node.head, node.certificate
    if node.knowledge() is None or any(node.content(post.payload_hash) is None for post in posts):
        return None
    found = {item: data for item in needed_contents(head, posts) if (data := node.content(item)) is not None}
    result = adversary.peer.checks.run(Recompute(head, posts, found))
    if not isinstance(result, Knowledge):
        return None
    node.hold(result.data)
    body = posts, certificate, (), ()
    return unsealed_header(adversary.genesis, head, result.root, adversary.key.public_key, body)


def publish_block(adversary: Adversary, sealed: Header, posts: tuple[Post, ...]) -> None:
    """Sign a sealed block without evidence, and show it to everybody, its own node included."""
    certificate = adversary.node.ledger.certificate
    message = CandidateMessage(sign_block(adversary.key, adversary.genesis.chain_id, sealed, posts, certificate))
    adversary.peer.carry_out(Publish(message))
    adversary.peer.handle(MessageReceived(adversary.key.public_key, message))
