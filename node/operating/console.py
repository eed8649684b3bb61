"""The console of a running node: log lines, or a live panel on a terminal."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedchain.chain.vote import NIL
from fedchain.node.operating.json_log import JsonFormatter
from fedchain.node.operating.log_handler import StderrHandler
from fedchain.node.operating.standing import standstill_text
from fedchain.terminal import Console
from fedchain.wording import shown_epsilon

if TYPE_CHECKING:
    from fedchain.node.shell.service import Service

REFRESH_S = 0.5

LINES_OF_THEIR_OWN = frozenset(
    {"stands", "conflict", "gathers", "peers", "links", "convicted", "clocks_off", "refused", "numbers", "open"}
)
"""Values of a status that other lines tell."""

LINE = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"


def set_up_logging(verbose: bool, log_format: str) -> None:
    """Log to standard error, one line an event: time, level, logger, message; or the same as JSON objects."""
    handler = StderrHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter(LINE, "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("fedchain").setLevel(logging.DEBUG if verbose else logging.INFO)


async def show_service(service: "Service") -> None:
    """Show a node's status until cancelled, or until its terminal is gone, which does not end the node by itself."""
    with (
        suppress(OSError),
        Live(console=Console(), auto_refresh=False, redirect_stderr=sys.stderr.isatty()) as live,
    ):
        while True:
            live.update(_panel(service), refresh=True)
            await anyio.sleep(REFRESH_S)


def _panel(service: "Service") -> Panel:
    now = service.status()
    facts = Table.grid(padding=(0, 2))
    facts.add_row("head", f"{now['head'][:16]} at height {now['height']}")
    facts.add_row("round", f"{now['round']}, phase {now['phase']}")
    facts.add_row("peers", f"{len(now['peers'])} of {now['members'] - 1}")
    reachable = "reachable" if now["quorum_reachable"] else f"not reachable: {len(now['electors_missing'])} missing"
    facts.add_row("quorum", f"{now['quorum']} of {now['electors']} electors, {reachable}")
    if now["conflict"]:
        facts.add_row("conflict", Text(conflict_line(now), style="bold red"))
    if now["stands"]:
        facts.add_row("stands still", Text(standstill_line(now), style="bold red"))
    facts.add_row("accuracy", Text(percent(now["accuracy"]), style="bold green"))
    if now["epsilon"] is not None:
        facts.add_row("epsilon", f"{shown_epsilon(now['epsilon'])} in all rounds so far")
    facts.add_row("waiting for", now["waiting_for"])
    if now["not_counted"]:
        facts.add_row("not counted", Text(now["not_counted"], style="yellow"))
    if now["method_fails"]:
        facts.add_row("method fails", Text(now["method_fails"], style="yellow"))
    numbers = now["numbers"]  # of those that are members now: a newcomer has none yet
    for member, offset_ms in now["clocks_off"].items():
        name = f"{numbers.get(member, 'this peer')} …{member[-8:]}"
        facts.add_row("clock off", Text(f"{name} by {offset_ms / 1000:+.0f} s", style="yellow"))
    place = f"peer {numbers[now['address']]}" if now["address"] in numbers else "no place yet"
    return Panel(facts, title=f"{now['address']} ({place})", border_style="blue", width=78)


def status_lines(answer: dict[str, Any]) -> Iterator[str]:
    """A status as lines for people: one for each plain value, and one for each peer."""

    def named(member: str) -> str:
        """The address of a member with its number; anything else as it is."""
        number = answer.get("numbers", {}).get(member)
        return member if number is None else f"{member} (peer {number})"

    if answer.get("stands"):
        yield f"{'stands still':18}{standstill_line(answer)}"
    if answer.get("conflict"):
        yield f"{'conflict':18}{conflict_line(answer)}"
    for name, value in answer.items():
        if name in LINES_OF_THEIR_OWN:
            continue
        label, _, unit = name.rpartition("_") if name.endswith(("_s", "_ms")) else (name, "", "")
        for place, text in enumerate(_texts(name, value, unit)):
            yield f"{'' if place else label.replace('_', ' '):18}{named(text)}"
    yield from _open_lines(answer.get("open", {}), named)
    for member, crime in answer["convicted"]:
        yield f"{'convicted':18}{named(member)}: {crime}"
    for member, offset_ms in answer["clocks_off"].items():
        yield f"{'clock off':18}{named(member)}: {offset_ms / 1000:+.1f} s against the others"
    for reason, count in answer["refused"].items():
        yield f"{'refused':18}{reason}: {count}"
    for peer in answer["peers"]:
        link = answer["links"].get(peer, {})
        heard, version = link.get("heard_s_ago"), link.get("version") or "an unknown version"
        ago = "not heard yet" if heard is None else f"heard {heard} s ago"
        yield f"{'peer':18}{named(peer)}: {ago}, {version}"


def check_line(answer: Mapping[str, Any] | None) -> tuple[int, str]:
    """An exit code for monitoring, and the reason: 0 if the federation goes on, 1 if it stands still or this node
    joins no chain of two, 2 if no node answers.

    Args:
        answer: the status of a node; None if none answers.
    """
    if answer is None:
        return 2, "no answer: no node runs in this folder"
    if answer.get("conflict"):
        return 1, f"joins no chain: {conflict_line(answer)}"
    if answer.get("stands"):
        return 1, f"stands still {standstill_line(answer)}"
    age_s = answer["head_age_s"]
    moved = "no block since this node started" if age_s is None else f"last block {age_s:.0f} s ago"
    return 0, f"goes on: height {answer['height']}, {moved}; waits for {answer['waiting_for']}"


def standstill_line(answer: Mapping[str, Any]) -> str:
    """Why and since when the federation stands still, from the status of a node that says so."""
    stands = answer["stands"]
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stands["since_ms"] / 1000))
    return f"since {since}: {standstill_text(stands, answer['numbers'])}"


def conflict_line(answer: Mapping[str, Any]) -> str:
    """Which two blocks are certified and who signed both, from the status of a node that says so."""
    conflict, numbers = answer["conflict"], answer["numbers"]
    named = (f"{signer} (peer {numbers[signer]})" if signer in numbers else signer for signer in conflict["signers"])
    one, other = conflict["hashes"]
    return f"height {conflict['height']} has {one} and {other}, both signed by {', '.join(named) or 'nobody'}"


def _texts(name: str, value: Any, unit: str) -> list[str]:
    """Texts of a value for people, one for each item of a list; a dash if there is nothing to say."""
    match value:
        case bool():
            return ["yes" if value else "no"]
        case list():
            return [str(item) for item in value] or ["-"]
        case None | "":
            return ["-"]
        case 0 if name == "catching_up_to":
            return ["-"]
        case int() if name == "attempt":  # people count from 1, as the pages do; --json from 0, as the protocol does
            return [str(value + 1)]
        case float() if name == "accuracy":
            return [percent(value)]
        case float() if name == "epsilon":
            return [shown_epsilon(value)]
        case _:
            return [f"{value} {unit}".rstrip()]


def _open_lines(opened: Mapping[str, Any], named: Callable[[str], str]) -> Iterator[str]:
    """Lines about the next block: each post and candidate so far, and the number of votes for each block."""
    for sender, size in opened.get("posts", {}).items():
        yield f"{'post':18}{named(sender)}: {size:,} bytes"
    for block in opened.get("candidates", ()):
        said, ours = block.get("knowledge_root", ""), block.get("recomputed", "")
        differs = f"; no vote: {ours[:8]}… is computed here, not its knowledge {said[:8]}…"
        why = differs if ours not in ("", said) else ""
        yield f"{'candidate':18}{block['hash'][:8]}… of {named(block['miner'])}, posts: {block['posts']}{why}"
    for kind, votes in opened.get("votes", {}).items():
        for block_hash, count in Counter(votes.values()).items():
            voted = "no block" if bytes.fromhex(block_hash) == NIL else f"{block_hash[:8]}…"
            yield f"{f'{kind}s':18}{count} for {voted}"


def percent(fraction: float | None) -> str:
    """A fraction for people; a dash if there is none yet."""
    return "-" if fraction is None else f"{100 * fraction:.1f} %"
