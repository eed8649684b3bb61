"""The chains that are shown: each with the folders that hold it, read while their nodes write.

Reads are short, so no node's log grows because of them. A task that takes long opens a store of its own.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedchain.chain.exceptions import ChainError, NotFound
from fedchain.chain.explorer.columns import Columns
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.knowledge_views import KnowledgeRules
from fedchain.chain.explorer.lives import Lives
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.bisection import Gap
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.state import State, genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import DATABASE
from fedchain.files.places import scenario_file
from fedchain.node.config import NodeConfigError
from fedchain.node.core.deadlines import forgiven_after_ms
from fedchain.node.operating.status import ask, look_for_node
from fedchain.simulator.scenario import ScenarioError
from fedchain.web.course.scenario import ScenarioView, read_scenario
from fedchain.web.measured import MeasuredFile
from fedchain.web.places import NoChainYet, Place, distinct_titles, slugs
from fedchain.web.seen import SeenFile

RulesOf = Callable[[Genesis], KnowledgeRules]
"""Builds the rules of the learning method that a genesis document names."""

READ_AT_ONCE = 1_000
"""Posts in the blocks that a page waits for, or that are read in the background before a page gets its turn.

Blocks are counted as if all members had posted. A thousand posts and the votes beside them take about 20 ms.
"""

LIGHTS_KEPT = 64
"""Light blocks that are kept; the oldest goes first."""

TROUBLES_MAX = 8
"""Most faults met by pages that the overview names."""

VOLATILE = frozenset({"head_age_s", "links", "refused", "clock_offset_ms", "clocks_off"})
"""Fields of a node's status that change all the time: no page is new because of them."""


class Holder:
    """One folder with the chain. Use it under the chain's lock.

    Args:
        place: the folder.
        genesis: the chain's. A folder may be made anew for another one, which is not shown under this one's name.
    """

    def __init__(self, place: Place, genesis: Genesis) -> None:
        self.place, self._genesis = place, genesis
        self.seen = SeenFile(place.folder, len(genesis.members))
        self.measured = MeasuredFile(place.folder, self.seen)
        self.status: dict[str, Any] | None = None
        """Status of its node; None if none runs, or it does not answer."""
        self.silence = ""
        """Why a node that is there does not answer; empty if it does, or none is there."""
        self.requests: dict[str, Any] | None = None
        """Proposed changes of the members, as its node tells them; None if none runs, or members never change."""
        self.trouble = ""
        """Why it cannot be read now; empty while it can."""
        self._store: Store | None = None
        self._opened: tuple[int, int] | None = None
        self._openings = 0
        self._seen: tuple[int, int, int] | None = None
        self._explorer: Explorer | None = None
        self._owner: PublicKey | None = None
        self._pair: tuple[int | None, int] | None = None
        self._pair_since_s = 0.0

    def look(self) -> tuple[Store, Explorer]:
        """The store and its answers as they are now.

        Raises:
            ChainError: it is gone, damaged, or locked by a process that writes it, or another chain is there.
        """
        path = self.place.chain / DATABASE
        try:
            stat = path.stat()
        except OSError:
            self.close()
            raise NotFound(f"{self.place.folder} is gone, or holds no chain any more") from None
        is_another = self._opened != (stat.st_dev, stat.st_ino)  # also where what was opened could not be read
        if is_another or (self._store is not None and self._store.is_outdated):
            self.close()
        if self._store is None:
            self._store = Store.open(self.place.chain, self._genesis, read_only=True)
            self._opened = stat.st_dev, stat.st_ino
            self._openings += 1
        seen = stat.st_ino, self._openings, self._store.changes()
        if self._explorer is None or seen != self._seen:
            self._explorer = Explorer(self._store)
            self.seen.members = len(self._explorer.state.roster)
            self._owner = _key_now(self._explorer.state, self._store.owner())
            self._seen = seen
        return self._store, self._explorer

    @property
    def state(self) -> State | None:
        """The state behind the head as it was last seen; None before the first look."""
        return None if self._explorer is None else self._explorer.state

    @property
    def height(self) -> int | None:
        """Height of the head as it was last seen; None before the first look."""
        return None if self.state is None else self.state.height

    @property
    def address(self) -> str | None:
        """Address of the member whose node keeps the folder; None if it is no member's."""
        return None if self._owner is None else address(self._owner)

    @property
    def version(self) -> object:
        """A value that changes when the store has changed."""
        return self._seen, self.trouble

    def ask(self) -> None:
        """Ask the node that may run in the folder for its status. It may take seconds: do not hold the lock."""
        self.status, self.silence = look_for_node(self.place.folder)
        changes = self.status is not None and self.state is not None and bool(self.state.records)
        try:
            self.requests = ask(self.place.folder, {"ask": "changes"}) if changes else None
        except NodeConfigError:  # it is about to end, or of an earlier version
            self.requests = None

    def look_for_lag(self, highest: int, now_s: float) -> float:
        """How long neither the folder's height nor the largest one has changed while they differ; 0 if they do not.

        Args:
            highest: the largest height of the chain's folders.
            now_s: the time, by any clock.
        """
        pair = self.height, highest
        if self._pair != pair:
            self._pair, self._pair_since_s = pair, now_s
        return 0.0 if self.height == highest else now_s - self._pair_since_s

    def close(self) -> None:
        """Close the file."""
        store, self._store, self._explorer, self._opened, self._seen = self._store, None, None, None, None
        if store is not None:
            store.close()


@dataclass(frozen=True, slots=True)
class Reading:
    """A chain at one moment."""

    explorer: Explorer
    store: Store
    columns: Columns
    lives: Lives
    holder: Holder
    """The folder that is read: the one with the highest head."""
    is_complete: bool
    """Whether all blocks are among the ``columns``, and the ``lives`` follow them."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """Number of each member by its address, newcomers and former keys included."""
        return self.explorer.numbers_by(self.columns)

    def rule(self, name: str, height: int) -> Any:
        """A parameter that may be amended, as it held at a height; as it holds now where nothing is known of then."""
        if self.lives.height < height - 1:
            return getattr(self.explorer.state.rules, name)
        amended = self.lives.amended(name, height)
        return getattr(self.store.genesis, name) if amended is None else amended


@dataclass(slots=True)
class Chain:
    """A chain and the folders that hold it."""

    key: str
    """Its name in the addresses of pages."""
    title: str
    """Name of the given folder, a run's or a test network's; with its path if others have this name."""
    genesis: Genesis
    holders: tuple[Holder, ...]
    rules_of: RulesOf
    is_simulated: bool = False
    """Whether a simulation made it: its times are virtual, and its measurements are of all members."""
    scenario: ScenarioView | None = None
    """The simulation's scenario; None if there is none, or if it cannot be read."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    compared: int = 0
    """How often knowledge that pages lacked was read in the background."""
    troubles: tuple[str, ...] = ()
    """Errors of pages that could not read something: at most ``TROUBLES_MAX``, the newest last."""
    recomputed: int = 0
    """How often one of its blocks was recomputed on request."""
    behind: tuple[str, ...] = ()
    """Folders that are more than a block behind the others, or one block for longer than a round: name and height."""
    _columns: Columns = field(init=False)
    _lives: Lives = field(init=False)
    _rules: KnowledgeRules | None = None
    _lights: dict[tuple[int, Gap | None], LightBlock] = field(default_factory=dict)
    _lighting: threading.Lock = field(default_factory=threading.Lock)
    _light_holder: Holder | None = None
    """The folder that light blocks are read from, by a store of its own. Use it under ``_lighting``."""

    def __post_init__(self) -> None:
        self._columns = Columns(self.genesis)
        self._lives = Lives(self.genesis)

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """The chain as the folder with the highest head has it.

        Raises ChainError if no folder can be read.
        """
        with self.lock:
            holder, store, explorer = self._best()
            is_complete = self._read(store, explorer.held)
            yield Reading(explorer, store, self._columns, self._lives, holder, is_complete)

    def read_on(self) -> bool:
        """Read more of a long chain; return whether all of it was read. Raises ChainError if no folder can be read."""
        with self.lock:
            _, store, explorer = self._best()
            return self._read(store, explorer.held)

    def _read(self, store: Store, held: range) -> bool:
        head, count = held.stop - 1, self._read_at_once
        is_read = self._columns.read(store, held.start, head, count)
        return self._lives.read(store, head, count) and is_read

    @property
    def _read_at_once(self) -> int:
        """Blocks that a page waits for."""
        return max(1, READ_AT_ONCE // len(self.head.roster))

    @property
    def head(self) -> State:
        """The state behind the highest head as it was last seen: members and rules now, and not as founded."""
        states = (holder.state for holder in self.holders)
        known = (state for state in states if state is not None)
        return max(known, key=lambda state: state.height, default=genesis_state(self.genesis))

    @contextmanager
    def apart(self) -> Iterator[Store]:
        """A separate store, for tasks that take long; others read on meanwhile."""
        with self.lock:
            holder, _, _ = self._best()
        with Store.open(holder.place.chain, read_only=True) as store:
            yield store

    def light_block(self, height: int, gap: Gap | None = None) -> LightBlock:
        """A final block as a light client skips to it, by a separate store: the state below may take long to compute.

        Another one in a gap will do where that is not held, see :meth:`LightBlocks.light_block`.

        The last ones are kept, for the browsers that look at the same page. Raises NotFound.
        """
        with self._lighting:
            if (height, gap) not in self._lights:
                _, explorer = self._apart_for_lights().look()
                found = explorer.light.light_block(height, gap=gap)
                while len(self._lights) >= LIGHTS_KEPT:
                    del self._lights[next(iter(self._lights))]
                self._lights[height, gap] = found
            return self._lights[height, gap]

    def _apart_for_lights(self) -> Holder:
        """The folder with the highest head, whose store stays open: a way of many light blocks asks one by one."""
        with self.lock:
            best, _, _ = self._best()
        if self._light_holder is None or self._light_holder.place != best.place:
            self._close_light_holder()
            self._light_holder = Holder(best.place, self.genesis)
        return self._light_holder

    def _close_light_holder(self) -> None:
        holder, self._light_holder = self._light_holder, None
        if holder is not None:
            holder.close()

    def rules(self) -> KnowledgeRules:
        """The rules of its learning method. Raises the errors of building them."""
        with self.lock:
            if self._rules is None:
                self._rules = self.rules_of(self.genesis)
            return self._rules

    def ask(self) -> None:
        """Ask the nodes that may run in the folders for their status. Each may take seconds."""
        for holder in self.holders:
            holder.ask()

    @property
    def written(self) -> object:
        """A value that changes when a node has written into its folder, as of the last look."""
        return tuple(holder.version for holder in self.holders)

    @property
    def has_candidate(self) -> bool:
        """Whether a node reported a block that may become the next final one."""
        told = [holder.status for holder in self.holders if holder.status is not None]
        return any((status.get("open") or {}).get("candidates") for status in told)

    def note_trouble(self, text: str) -> None:
        """Keep a page's error for the overview."""
        if text not in self.troubles:
            self.troubles = (*self.troubles, text)[-TROUBLES_MAX:]

    def look(self) -> str:
        """Look at all folders; return a text that changes when a page would change."""
        with self.lock:
            for holder in self.holders:
                try:
                    holder.look()
                    holder.trouble = ""
                except ChainError as error:
                    holder.trouble = str(error)
                holder.seen.look()  # after the chain, which says how many members there are
                holder.measured.look()
            self.behind = self._find_behind(time.monotonic())
            versions = [holder.version for holder in self.holders]
            # A page reads few blocks itself. Only one that lacks more changes when they have been read.
            lacks_more = self.head.height - self._columns.height > self._read_at_once
            read = self._columns.height if lacks_more else None
        told = [(_steady(holder.status), holder.silence, holder.requests) for holder in self.holders]
        files = [(holder.measured.version, holder.seen.version) for holder in self.holders]
        text = json.dumps([versions, told, files, self.behind, read, self.compared, self.troubles], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _find_behind(self, now_s: float) -> tuple[str, ...]:
        highest, patience_ms = self.head.height, round_ms(self.head.rules)
        found = list[str]()
        for holder in self.holders:
            lag_s = holder.look_for_lag(highest, now_s)
            if holder.height is not None and (highest - holder.height > 1 or 1000 * lag_s > patience_ms):
                found.append(f"{holder.place.label} at height {holder.height}")
        return tuple(found)

    def close(self) -> None:
        """Close all files."""
        with self._lighting:
            self._close_light_holder()
        with self.lock:
            for holder in self.holders:
                holder.close()

    def _best(self) -> tuple[Holder, Store, Explorer]:
        found, troubles = [], list[ChainError]()
        for holder in self.holders:
            try:
                store, explorer = holder.look()
                holder.trouble = ""
            except ChainError as error:
                holder.trouble = str(error)
                troubles.append(error)
            else:
                found.append((explorer.held.stop, -explorer.held.start, holder, store, explorer))
        if not found:
            raise troubles[0]
        _, _, holder, store, explorer = max(found, key=lambda item: item[:2])
        return holder, store, explorer


def open_chains(places: Sequence[Place], rules_of: RulesOf) -> tuple[Chain, ...]:
    """The chains in ``places``; folders of one group that hold the same chain are combined.

    Raises:
        NoChainYet: one of them is gone since it was found.
        ChainError: one of them cannot be read.
    """
    groups = dict[tuple[str, Path, bytes], tuple[Genesis, list[Holder]]]()
    for place in places:
        try:
            with Store.open(place.chain, read_only=True) as store:
                genesis = store.genesis
        except NotFound as error:
            raise NoChainYet(str(error)) from None
        parent = place.folder.resolve().parent if place.group != place.label else place.folder.resolve()
        groups.setdefault((place.group, parent, genesis.chain_id), (genesis, []))[1].append(Holder(place, genesis))
    # The folder of a chain gets the name of the run's folder above it.
    titles = distinct_titles([folder if folder.name == group else folder.parent for group, folder, _ in groups])
    return tuple(
        _with_scenario(Chain(key, title, genesis, tuple(holders), rules_of))
        for key, title, (genesis, holders) in zip(slugs(titles), titles, groups.values(), strict=True)
    )


def round_ms(rules: Genesis) -> int:
    """Milliseconds that a round takes at most while all goes well: its interval, a timeout, and time to mine."""
    return rules.round_interval_ms + forgiven_after_ms(rules)


def _with_scenario(chain: Chain) -> Chain:
    """Read the scenario of a simulation; one that cannot be read is a trouble that the overview names."""
    for folder in [holder.place.folder for holder in chain.holders if scenario_file(holder.place.folder)]:
        chain.is_simulated = True
        try:
            chain.scenario = read_scenario(folder)
        except ScenarioError as error:
            chain.note_trouble(str(error))
    return chain


def _key_now(state: State, key: PublicKey | None) -> PublicKey | None:
    """The key that a member has now, given one that it has, or the last or the first one that it had."""
    if key is None or key in state.roster.members:
        return key
    key = state.roster.current(key)
    return next((item.key for item in state.records if item.came_with == key), key)


def _steady(status: dict[str, Any] | None) -> dict[str, Any] | None:
    if status is None:
        return None
    return {name: value for name, value in status.items() if name not in VOLATILE}
