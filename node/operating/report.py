"""The report: the state of a running node as plain values for status, panel and metrics, and as log lines."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, assert_never

import fedchain
from fedchain.chain.membership.member import Standing
from fedchain.chain.state import phase_rule
from fedchain.chain.vote import VoteKind
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.network.network import Flow
from fedchain.node.core.node import Node
from fedchain.node.core.notices import (
    ClockOff,
    Contradicted,
    Convicted,
    HeadConflicts,
    HeadUnconfirmed,
    Listening,
    NotBelieved,
    NotCounted,
    Notice,
    SessionHeard,
    SilenceOver,
    Skipped,
    TrainingFailed,
    TwinHeard,
)
from fedchain.node.core.observations import CLOCK_OFF_MS
from fedchain.node.operating.standing import Connected, by_number, plain_standstill, standstill
from fedchain.node.operating.status import FINISHED
from fedchain.node.shell.activity import Activity
from fedchain.wording import counted, some_of

log = logging.getLogger("fedchain.node")


class Links(Protocol):
    """A network's knowledge of its connections."""

    def silence_s(self, peer: PublicKey) -> float | None:
        """Seconds since a peer was last heard; None if it never was."""

    def version_of(self, peer: PublicKey) -> str | None:
        """The program version that a peer announced; None if it announced none."""

    def flow_of(self, peer: PublicKey) -> Flow | None:
        """The measurements of the connection to a peer; None if there are none."""


class Reported(Connected, Protocol):
    """The part of a service that a report reads."""

    @property
    def activity(self) -> Activity:
        """The service's counters and notices."""

    @property
    def asks(self) -> Callable[[], str]:
        """How the request for a place stands, for a peer that has none yet."""

    def method_failure(self) -> str:
        """Why the learning method's own code failed at the open height; empty if it did not."""


def report(service: Reported, links: Links | None = None) -> dict[str, Any]:
    """Everything that an operator needs to know, as plain values."""
    node, activity, genesis = service.node, service.activity, service.genesis
    head, observed = node.head, node.observations
    seats = head.roster.seats
    missing = [address(member) for member in by_number(node.waiting_for(), seats)]
    speaking = {service.me, *service.peers} & head.roster.electors
    required, reachable = node.votes_required(), len(speaking)
    round_number = min(head.round, head.rules.rounds) if head.finished else head.round
    aggregator = head.roster.aggregator_of(round_number)
    stands = standstill(service)
    activity.stand(stands=stands is not None)
    named = {service.me, *service.peers, *node.waiting_for(), *head.roster.electors} | observed.clock_offsets_ms.keys()
    named |= {*stands.missing} if stands is not None else set()
    conflict = node.conflict()
    named |= {*conflict.signers} if conflict is not None else set()
    named |= {crime.culprit for crime in head.convicted} | ({aggregator} if aggregator is not None else set())
    return {
        "version": fedchain.__version__,
        "pid": os.getpid(),
        "chain_id": genesis.chain_id.hex(),
        "address": address(service.me),
        "numbers": {address(member): seats[member] for member in sorted(named & seats.keys())},
        "height": head.height,
        "head": head.block_hash.hex(),
        "head_age_s": _age_s(observed.head_moved_ms),
        "knowledge_root": head.knowledge_root.hex(),
        "round": round_number,
        "phase": phase_rule(genesis, head).name,
        "finished": head.finished,
        "members": len(head.roster.reachable),
        "aggregator": "" if aggregator is None else address(aggregator),
        "fault_model": genesis.fault_model.value,
        "electors": len(head.roster.electors),
        "counts": head.roster.is_active(service.me),
        "elector": service.me in head.roster.electors,
        "quorum": required,
        "quorum_reachable": reachable >= required,
        "electors_missing": [address(member) for member in by_number(head.roster.electors - speaking, seats)],
        "stands": None if stands is None else plain_standstill(stands, activity.stands_since_ms or 0),
        "posts_required": 0 if head.finished else node.posts_required(),
        "missing_posts": missing,
        "attempt": max(0, node.voting.agreement.attempt),
        "convicted": [[address(crime.culprit), crime.crime] for crime in head.convicted],
        "silent": node.is_silent(),
        "not_counted": _not_counted(service),
        "clock_offset_ms": observed.clock_offsets_ms.get(service.me, 0),
        "clocks_off": {
            address(member): offset
            for member in by_number(observed.clock_offsets_ms, seats)
            if abs(offset := observed.clock_offsets_ms[member]) > CLOCK_OFF_MS
        },
        "conflict": plain_conflict(conflict),
        "gathers": node.gathers(),
        "catching_up_to": node.catching_up_to(),
        "peers": [address(peer) for peer in by_number(service.peers, seats)],
        "links": {} if links is None else _links(service, links),
        "training": activity.training,
        "failing": activity.failure if activity.is_failing else "",
        "method_fails": service.method_failure(),
        "mining": activity.mining_since_s is not None,
        "slow_write_s": round(activity.slow_write_s(), 1),
        "accuracy": activity.accuracy,
        "epsilon": activity.epsilon,
        "waiting_for": waiting_for(service, missing),
        "refused": dict(activity.refused),
        "open": open_height(node),
    }


def plain_conflict(conflict: HeadConflicts | None) -> dict[str, Any] | None:
    """Two certified blocks of one height in plain values, with the members that signed both; None if there are none."""
    if conflict is None:
        return None
    hashes, signers = [item.hex() for item in conflict.hashes], [*map(address, conflict.signers)]
    return {"height": conflict.height, "hashes": hashes, "signers": signers}


def _not_counted(service: Reported) -> str:
    """Why the last block for which we owed a post lacks it; empty if it has one."""
    lost, failure = service.node.observations.not_counted, service.activity.failure
    if lost is None:
        return ""
    here = f"round {lost.round}: "
    return failure if failure.startswith(here) else f"{here}{lost.reason}"


def open_height(node: Node) -> dict[str, Any]:
    """The open height so far: posts, candidates, and the votes of the current attempt."""
    agreement = node.voting.agreement
    votes = {
        kind.name.lower(): {
            address(voter): vote.block_hash.hex()
            for voter, vote in sorted(agreement.ballots.ballot(agreement.attempt, kind).first.items())
        }
        for kind in VoteKind
    }
    return {
        "posts": {address(post.sender): post.payload_size for post in node.open_posts()},
        "candidates": [
            {
                "hash": entry.hash.hex(),
                "miner": address(entry.block.header.miner),
                "posts": entry.posts,
                "knowledge_root": entry.block.header.knowledge_root.hex(),
                "checked": entry.is_valid or entry.is_refuted,
                "recomputed": entry.recomputed.hex(),
            }
            for entry in node.ledger.entries.values()
        ],
        "votes": votes,
    }


def waiting_for(service: Reported, missing: list[str]) -> str:
    """The thing that the federation, or this peer, waits for; one line."""
    node, activity = service.node, service.activity
    head = node.head
    if head.finished:
        return FINISHED
    if (conflict := node.conflict()) is not None:
        return f"its operator: two blocks of height {conflict.height} are certified, and it joins neither chain"
    if node.is_contradicted():
        return "its operator: a quorum disagrees with what it computes, and it votes no more"
    if lasts_s := activity.slow_write_s():
        return f"its disk: a write has not ended for {lasts_s:.0f} s, and nothing is sent until it has"
    if text := _own_standing(service):
        return text
    if wanted := node.gathers():
        return f"members: {len(service.peers) + 1} of {wanted} are here"
    if target := node.catching_up_to():
        return f"the blocks up to height {target}"
    if node.is_silent():
        if (head_ahead := node.unconfirmed()) is not None:
            members, required = head_ahead.members, head_ahead.required
            return f"members: {members} of {required} say that the chain is at height {head_ahead.height}"
        return "the others, before it speaks"
    if opens_in_ms := node.opens_in_ms():
        return f"the next round, which begins in {opens_in_ms / 1000:.0f} s"
    if activity.training:
        return "its own training"
    if activity.failure:
        return f"the next phase: {activity.failure}"
    if votes := _lacking_votes(node):
        return votes
    if activity.mining_since_s is not None:
        return "a nonce"
    if coming := node.arriving():
        arrived, size = sum(part for _, part in coming), sum(post.payload_size for post, _ in coming)
        return f"{counted(len(coming), 'post')}: {arrived / 1e6:,.0f} of {size / 1e6:,.0f} MB are here"
    if missing:
        return f"{counted(len(missing), 'post')}, or the phase's deadline"
    return "a block"


def _lacking_votes(node: Node) -> str:
    """How many votes the block with the most has in the step of the attempt that lasts; empty before the first vote."""
    ballots, attempt = node.voting.agreement.ballots, node.voting.agreement.attempt
    prevotes = ballots.ballot(attempt, VoteKind.PREVOTE)
    if not prevotes.first or ballots.decision is not None:
        return ""
    lasting = prevotes if ballots.polka(attempt) is None else ballots.ballot(attempt, VoteKind.PRECOMMIT)
    return f"votes: {lasting.most()} of {node.votes_required()} in attempt {attempt + 1}"


def _own_standing(service: Reported) -> str:
    """Why this peer does not count, and what has to happen; empty if it counts, or never will again."""
    node = service.node
    if service.me in node.head.roster.culprits:
        return "nothing: this member was convicted, and counts no more"
    record = node.own_record()
    if record is None:
        return service.asks()
    if record.standing not in (Standing.COMING, Standing.AWAY):
        return ""
    if not record.is_changing:
        return "its operator: this member is away until `fedchain node back`"
    follows = "it counts" if record.next is Standing.ACTIVE else "it is gone"
    return f"round {record.round}, from which on {follows}"


def log_notice(notice: Notice, seats: Mapping[PublicKey, int]) -> None:
    """Log a notice to the operator as one line. Values in the form NAME=VALUE are fields of their own in JSON.

    Args:
        notice: the notice.
        seats: numbers of the members.
    """
    match notice:
        case NotBelieved(what, reason):
            log.error("what is stored is not believed: %s: %s; going on without it", what, reason)
        case NotCounted(height, round_number, reason):
            named: dict[str, Any] = {"height": height, "round": round_number, "reason": reason}
            log.warning("our post was not counted height=%(height)d round=%(round)d: %(reason)s", named)
        case Convicted(height, evidence):
            named = {"height": height, "crime": evidence.crime} | _member(evidence.culprit, seats)
            log.warning("convicted height=%(height)d member=%(member)s (peer %(member_number)s): %(crime)s", named)
        case ClockOff(member, offset_ms):
            named = {"by": offset_ms / 1000} | _member(member, seats)
            log.warning("clock off member=%(member)s (peer %(member_number)s) by=%(by)+.1f s against the others", named)
        case Listening(level, required, unheard, ahead):
            log.warning(
                "silent: %d of the %d members needed say that the chain is no further than here; not heard: %s; "
                "further: %s",
                level,
                required,
                _named(unheard),
                _named(ahead),
            )
        case TwinHeard(statement, until):
            log.error("our own key speaks elsewhere: %s; silent until height %d", statement, until)
        case SessionHeard(number):
            log.error("our own key is in use elsewhere: process %s answered this one; both stop", number.hex())
        case SilenceOver(height):
            log.warning("nothing more was heard in our name; speaking again from height %d on", height)
        case Contradicted(height, ours, theirs):
            log.error(
                "a quorum disagrees height=%(height)d: knowledge %(ours)s computed here, %(final)s final; this node "
                "votes and mines no more until it is started again. Compare the program's version and the machine with "
                "those of the others",
                {"height": height, "ours": ours.hex()[:16], "final": theirs.hex()[:16]},
            )
        case HeadUnconfirmed(height, members, required):
            log.warning(
                "a far head is not confirmed height=%(height)d: %(members)d of %(required)d members say so; following "
                "block by block until then",
                {"height": height, "members": members, "required": required},
            )
        case HeadConflicts(height, hashes, signers):
            log.error(
                "two blocks are certified height=%(height)d: %(one)s and %(other)s, both signed by %(signers)s; more "
                "members lie than the federation bears, and this node joins neither chain. Ask the others",
                {
                    "height": height,
                    "one": hashes[0].hex(),
                    "other": hashes[1].hex(),
                    "signers": ", ".join(map(address, signers)) or "nobody",
                },
            )
        case TrainingFailed(round_number, _, reason):
            log.error("nothing is contributed to round %d: %s", round_number, reason)
        case Skipped(round_number, member, reason):
            named = {"round": round_number, "reason": reason} | _member(member, seats)
            log.warning(
                "a contribution was skipped round=%(round)d member=%(member)s (peer %(member_number)s): %(reason)s",
                named,
            )
        case _:
            assert_never(notice)


def _member(member: PublicKey, seats: Mapping[PublicKey, int]) -> dict[str, Any]:
    """The fields by which a message names a member.

    One event may bring many blocks, and its notices are told with the members behind the last of them: the key of a
    notice may have been replaced and forgotten by then.
    """
    return {"member": address(member), "member_number": seats.get(member, "?")}


def _named(members: Sequence[PublicKey]) -> str:
    """Addresses of some members, for a line."""
    return some_of([address(member) for member in members]) or "nobody"


def _links(service: Reported, links: Links) -> dict[str, dict[str, Any]]:
    """For each connected peer, the time since it was last heard, its version, and what the connection carried."""
    found = {}
    for peer in sorted(service.peers):
        silent_s, flow = links.silence_s(peer), links.flow_of(peer)
        found[address(peer)] = {
            "heard_s_ago": None if silent_s is None else round(silent_s, 1),
            "version": links.version_of(peer),
            **({} if flow is None else asdict(flow)),
        }
    return found


def _age_s(moved_ms: int | None) -> float | None:
    return None if moved_ms is None else round(time.monotonic() - moved_ms / 1000, 1)
