"""The open round: posts that came, members that it waits for and why, candidates and votes as they come.

A store holds only its own node's statements. A running node also reports those of others for the next block; the
reports of several nodes of a network are combined.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedchain.chain.explorer.block_views import phase_name
from fedchain.chain.state import State, expected_contributors, posts_required, votes_required
from fedchain.chain.vote import NIL
from fedchain.crypto.address import address
from fedchain.node.core.deadlines import deadline_ms
from fedchain.web.chains import Chain, Reading
from fedchain.web.reasons import reasons


@dataclass(frozen=True, slots=True)
class Contribution:
    """A member that may post in the open phase."""

    member: str
    """Its address."""
    posted: bool
    """Whether its post came."""
    expected: bool
    """Whether the phase waits for its post. After a missed phase, it must be on time in two phases running first."""
    payload_size: int | None
    """Bytes of its payload; None if it has not posted."""
    why: str
    """Why it has not posted or is not waited for, as far as known; else empty."""


@dataclass(frozen=True, slots=True)
class OpenCandidate:
    """A block that may become the next final one."""

    hash: str
    """Its identity, in hexadecimal."""
    miner: str
    """Address of the member that mined it."""
    posts: int
    """Posts that it counts."""
    knowledge_root: str
    """The aggregate that it would leave behind: SHA-256 of the knowledge, in hexadecimal."""
    checked_by: int
    """Nodes that recomputed the aggregate and found the same."""
    refuted_by: int
    """Nodes that recomputed it and found another one."""
    prevotes: tuple[str, ...]
    """Addresses of the members that prevoted for it in the current attempt."""
    precommits: tuple[str, ...]
    """Addresses of the members that precommitted to it."""


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A folder with the chain, and the node that may run in it."""

    label: str
    """Name of the folder."""
    running: bool
    """Whether a node answers."""
    trouble: str
    """Why the folder cannot be read; empty if it can."""
    height: int | None
    """Height of its head; None if that is not known."""
    member: str | None
    """Address of the member whose folder it is; None if that is not known."""
    peers: int | None
    """Nodes that it is connected to."""
    accuracy: float | None
    """Accuracy of its model after its last training, a fraction."""
    activity: str
    """training, mining, waiting, finished, stopped, or no answer from a node that is there."""
    waiting_for: str
    """The event that it waits for."""


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The state of the next block."""

    round: int
    """Round that is open, or the last one."""
    phase: str | None
    """Phase that the next block closes; None once the last round is closed."""
    contributors: tuple[Contribution, ...]
    """Members that may post in it, in the order of their places."""
    posts: int
    """Posts that came."""
    posts_required: int
    """Fewest posts that close the phase."""
    deadline_ms: int | None
    """How long the phase waits for expected posts, in milliseconds since the head moved; longer if the required posts
    are not in by then. None once the last round is closed."""
    attempt: int
    """Attempt to agree on a block, from 0."""
    votes_required: int
    """Votes that form a quorum."""
    nil_votes: int
    """Members that voted for no block in this attempt."""
    candidates: tuple[OpenCandidate, ...]
    """Blocks that may become final, in descending order of votes."""
    nodes: tuple[NodeNow, ...]
    """The folders with the chain."""


def open_round(chain: Chain, reading: Reading) -> OpenRound:
    """The state of the next block, from the store that is read and the nodes that answer."""
    state, genesis = reading.explorer.state, chain.genesis
    told = [status for status in _statuses(chain) if status.get("height") == state.height]
    opened = [status.get("open") or {} for status in told]
    candidates = _candidates(reading, opened)
    sizes = dict[str, int]()
    for found in opened:
        sizes |= found.get("posts", {})
    for block in reading.explorer.candidates():
        sizes |= {address(post.sender): post.payload_size for post in block.transactions}
    finished = state.finished
    expected = expected_contributors(state)
    members = [] if finished else [item for item in state.roster.members if item in state.roster.contributors]
    absent = [member for member in members if address(member) not in sizes]
    why = reasons(chain, reading, absent, expected)
    contributors = tuple(
        Contribution(
            member=address(member),
            posted=address(member) in sizes,
            expected=member in expected,
            payload_size=sizes.get(address(member)),
            why=why.get(member, ""),
        )
        for member in members
    )
    return OpenRound(
        round=state.rules.rounds if finished else state.round,
        phase=None if finished else phase_name(genesis, state.round, state.phase),
        contributors=contributors,
        posts=sum(item.posted for item in contributors),
        posts_required=0 if finished else posts_required(genesis, state),
        deadline_ms=None if finished else deadline_ms(state),
        attempt=max((status.get("attempt", 0) for status in told), default=0),
        votes_required=votes_required(genesis, state.roster.electors),
        nil_votes=len({voter for votes in _votes(opened, "prevote") for voter, item in votes.items() if _is_nil(item)}),
        candidates=candidates,
        nodes=tuple(_nodes(chain, state)),
    )


def _statuses(chain: Chain) -> Iterator[dict[str, Any]]:
    return (holder.status for holder in chain.holders if holder.status is not None)


def _candidates(reading: Reading, opened: list[dict[str, Any]]) -> tuple[OpenCandidate, ...]:
    entries = dict[str, dict[str, Any]]()
    checked, refuted = dict[str, int](), dict[str, int]()
    for block in reading.explorer.candidates():
        entries[block.hash.hex()] = {
            "miner": address(block.header.miner),
            "posts": len(block.transactions),
            "knowledge_root": block.header.knowledge_root.hex(),
        }
    for found in opened:
        for entry in found.get("candidates", ()):
            entries[entry["hash"]] = entry
            if entry["checked"]:
                counted = checked if entry["recomputed"] in ("", entry["knowledge_root"]) else refuted
                counted[entry["hash"]] = counted.get(entry["hash"], 0) + 1
    kinds = {kind: _by_block(_votes(opened, kind)) for kind in ("prevote", "precommit")}
    shown = [
        OpenCandidate(
            hash=name,
            miner=entry["miner"],
            posts=entry["posts"],
            knowledge_root=entry["knowledge_root"],
            checked_by=checked.get(name, 0),
            refuted_by=refuted.get(name, 0),
            prevotes=kinds["prevote"].get(name, ()),
            precommits=kinds["precommit"].get(name, ()),
        )
        for name, entry in entries.items()
    ]
    return tuple(sorted(shown, key=lambda item: (-len(item.precommits), -len(item.prevotes), -item.posts, item.hash)))


def _votes(opened: list[dict[str, Any]], kind: str) -> list[Mapping[str, str]]:
    return [found.get("votes", {}).get(kind, {}) for found in opened]


def _by_block(told: list[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    voters = dict[str, set[str]]()
    for votes in told:
        for voter, block_hash in votes.items():
            voters.setdefault(block_hash, set()).add(voter)
    return {block_hash: tuple(sorted(found)) for block_hash, found in voters.items()}


def _is_nil(block_hash: str) -> bool:
    return block_hash == NIL.hex()


def _nodes(chain: Chain, state: State) -> Iterator[NodeNow]:
    for holder in chain.holders:
        status = holder.status
        if status is None:
            is_finished = state.finished and holder.height == state.height
            yield NodeNow(
                label=holder.place.label,
                running=False,
                trouble=holder.trouble,
                height=holder.height,
                member=holder.address,
                peers=None,
                accuracy=None if chain.is_simulated else holder.measured.newest("taa"),
                activity="finished" if is_finished else "no answer" if holder.silence else "stopped",
                waiting_for="",
            )
            continue
        is_busy = "training" if status.get("training") else "mining" if status.get("mining") else "waiting"
        yield NodeNow(
            label=holder.place.label,
            running=True,
            trouble=holder.trouble,
            height=status.get("height"),
            member=status.get("address"),
            peers=len(status.get("peers", ())),
            accuracy=status.get("accuracy"),
            activity="finished" if status.get("finished") else is_busy,
            waiting_for=status.get("waiting_for", ""),
        )
