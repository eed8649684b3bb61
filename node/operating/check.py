"""The check before a node starts: every preparation is tried one by one, and its outcome is reported.

A failure does not stop the others, nothing is written, and nothing is signed. If the node runs already, as before an
upgrade, the resources that it holds are left out: its journal, its port and its address for metrics.
"""

import ctypes
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedchain.chain.exceptions import ChainError, NotFound
from fedchain.chain.explorer.founding import view_rules
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.member import Standing
from fedchain.chain.membership.succession import successor_of
from fedchain.chain.state import State, genesis_state
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import CryptoError
from fedchain.files.layout import CHAIN_FOLDER, INVITATION_FILE, TRAINING_FILE
from fedchain.learning.exceptions import OWN_CODE_ERRORS, LearningError
from fedchain.node.config import NodeConfig, NodeConfigError, validate_wait
from fedchain.node.membership.invitation import invitation_in
from fedchain.node.membership.next_key import NextKey
from fedchain.node.operating.preflight import (
    LIBP2P_VERSION,
    check_announced,
    check_bootstrap,
    check_chain,
    check_folder,
    check_libp2p,
    check_listen,
    check_metrics,
    check_signatures,
    raise_file_limit,
)
from fedchain.node.operating.status import ask_status
from fedchain.wording import counted

if TYPE_CHECKING:
    from fedchain.crypto.keys import PrivateKey

Unlock = Callable[[], "tuple[PrivateKey, str | None]"]
"""Opens the key file; returns the key and the passphrase, or None for that if the file is not encrypted."""

GREETING = b"\x13/multistream/1.0.0\n"
"""The first bytes of both ends of a libp2p connection. (multistream-select 1.0)"""

SPACE_MIN, SPACE_WANTED = 64 * 2**20, 2**30
"""Free bytes on the disk: below the first the check fails, below the second it warns."""

BATCH = 16
"""Most examples that are put through the model."""

MENDABLE = (NodeConfigError, ChainError, CryptoError, LearningError)
"""Errors whose message is one line about a fault that an operator can mend."""


class Outcome(Enum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"
    """A node would start, but the operator should look at the finding."""
    FAIL = "fail"
    """A node would not start, or could not take part."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer."""

    outcome: Outcome
    name: str
    """Name of the check; one word."""
    text: str
    """The finding, for people."""


def check_node(config: NodeConfig, unlock: Unlock, *, timeout_s: float) -> Iterator[Finding]:
    """Try everything that a node with these settings needs, the slowest last.

    Args:
        config: the operator's settings.
        unlock: opens the key file.
        timeout_s: how long one other peer may take to answer.
    """
    folder = Path(config.data)
    status = ask_status(folder)
    is_running = status is not None
    if status is not None:
        held = "its journal, port and metrics are not tried; `fedchain node status` asks it"
        yield Finding(Outcome.WARN, "running", f"a node runs in {folder} already, at height {status['height']}: {held}")
    genesis, finding = _read_genesis(Path(config.genesis))
    yield _try("libraries", partial(_check_libraries, 0 if genesis is None else len(genesis.members)))
    yield _try("clock", _check_clock)
    yield finding
    head = None if genesis is None else _head_of(folder, genesis)
    if genesis is not None and head is not None and (found := view_rules(genesis, head)).amended:
        amended = ", ".join(f"{item.name} {item.value} in place of {item.founded}" for item in found.amended)
        yield Finding(Outcome.OK, "rules", f"at height {found.height}: {amended}")
    keys: list[PrivateKey] = []
    yield from _check_key(config, unlock, genesis, head, keys, is_running)
    seats = {} if genesis is None else genesis.index if head is None else head.roster.seats
    member = seats.get(keys[0].public_key) if keys else None
    yield _try("folder", partial(_check_folder, folder, Path(config.genesis), genesis, is_running))
    if not is_running and (folder / TRAINING_FILE).exists():
        yield _try("training", partial(_check_training, folder / TRAINING_FILE, genesis, member))
    yield _try("disk", partial(_check_space, folder, genesis if head is None else head.rules))
    if not is_running:
        yield _try("port", partial(_check_port, config.listen))
    if config.metrics and not is_running:
        yield _try("metrics", partial(_check_metrics, config.metrics, config.listen))
    if config.announce:
        yield _try("announce", partial(_check_announced, config.announce))
    yield from _check_bootstrap(config, genesis, keys, timeout_s)
    if genesis is not None and member is not None:
        yield _try("data", partial(_check_data, config, member, genesis))
    else:
        why = "without genesis document and key the member is not known"
        if genesis is not None and keys:
            why = "neither the founding document nor a chain here gives this key a place, and so a part of the data"
        yield Finding(Outcome.WARN, "data", f"not checked: {why}")


def _try(name: str, look: Callable[[], Finding | str]) -> Finding:
    """Make a finding of the result of a check: a line, a finding, or an error."""
    try:
        found = look()
    except MENDABLE as error:
        return Finding(Outcome.FAIL, name, " ".join(str(error).split()))
    except OSError as error:
        return Finding(Outcome.FAIL, name, f"{error.filename or 'input or output'}: {error.strerror or error}")
    except (ImportError, MemoryError) as error:  # torch does not load where a process may have too little memory
        return Finding(Outcome.FAIL, name, " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":"))
    return Finding(Outcome.OK, name, found) if isinstance(found, str) else found


def _check_libraries(members: int) -> str:
    check_libp2p()
    check_signatures()
    raise_file_limit(members)
    return f"libp2p {LIBP2P_VERSION}, libsodium and the limit of open files are as they have to be"


def _check_clock() -> Finding | str:
    """Ask the system whether its clock is synchronized; if it does not know, show only the date."""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if is_clock_synchronized() is False:
        return Finding(Outcome.WARN, "clock", f"it is {now}, and nobody sets this clock; switch on NTP")
    return f"it is {now}" + (", and the clock is synchronized" if is_clock_synchronized() else "")


def is_clock_synchronized() -> bool | None:
    """Whether the kernel's clock is synchronized (adjtimex(2)); None if the kernel does not answer."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = adjtimex(ctypes.byref(ctypes.create_string_buffer(512)))  # modes is 0: nothing is set
    return None if state < 0 else state != CLOCK_UNSYNCHRONIZED


CLOCK_UNSYNCHRONIZED = 5
"""TIME_ERROR of ``sys/timex.h``."""


def _read_genesis(path: Path) -> tuple[Genesis | None, Finding]:
    from fedchain.node.founding.genesis_file import read_genesis
    from fedchain.node.founding.task import learning_from_genesis

    found: list[Genesis] = []

    def look() -> Finding | str:
        genesis = read_genesis(path, again=True)
        task = learning_from_genesis(genesis)
        found.append(genesis)
        members = f"{counted(len(genesis.members), 'member')}, {task.method} on {task.dataset}"
        named = f"{genesis.name}, chain {genesis.chain_id.hex()[:16]}…: {members}; compare the id with the others'"
        ahead_s = genesis.created_ms / 1000 - time.time()
        if ahead_s > 0:  # a node starts and takes part all the same
            early = f"it was founded {ahead_s:.0f} s after now: one of the two clocks is wrong"
            return Finding(Outcome.WARN, "genesis", f"{named}; {early}")
        return named

    finding = _try("genesis", look)
    return (found[0] if found else None), finding


def _check_key(
    config: NodeConfig,
    unlock: Unlock,
    genesis: Genesis | None,
    head: State | None,
    keys: "list[PrivateKey]",
    is_running: bool,
) -> Iterator[Finding]:
    """Check key, membership, journal and a dealt share. A key that opens is added to ``keys``."""
    passphrases: list[str | None] = []

    def look() -> Finding | str:
        key, passphrase = unlock()
        keys.append(key)
        passphrases.append(passphrase)
        if genesis is not None:  # a node looks at the next key once it runs, and ends where it cannot be read
            NextKey(Path(config.key), genesis.chain_id, passphrase).read()
        if passphrase is None:
            return Finding(Outcome.WARN, "key", f"{address(key.public_key)}; {config.key} is not encrypted")
        return f"{address(key.public_key)} opens with its passphrase"

    yield _try("key", look)
    if keys and genesis is not None:
        yield _try("member", partial(_check_membership, config, keys[0], genesis, head))
        if not is_running:
            yield _try("journal", partial(_check_journal, config, keys[0], genesis))
        yield from _check_share(config, keys[0], passphrases[0], genesis)


def _check_membership(config: NodeConfig, key: "PrivateKey", genesis: Genesis, head: State | None) -> str:
    place = genesis.index.get(key.public_key)
    validate_wait(config, len(genesis.members), 0 if head is None else head.height)
    invitation = invitation_in(Path(config.data), genesis, config.genesis)
    if head is not None:
        _expect_membership(config, key, head)
    if head is not None and (number := head.roster.seats.get(key.public_key)) is not None and place is None:
        standing = head.records[number].standing.name.lower()
        return f"peer {number} of {len(head.roster)}, counted from 0, {standing} at height {head.height}"
    if place is None and invitation is not None:
        return f"{address(key.public_key)} is no founder; it comes, or came, on the invitation in {config.data}"
    files = NextKey(Path(config.key), genesis.chain_id, None)
    if place is None and genesis.version >= CHANGES_VERSION and files.is_known_here(key.public_key):
        return f"{address(key.public_key)} is no founder; its files are those of a member that came, or changed its key"
    if place is None:
        member = address(key.public_key)
        raise NodeConfigError(f"{config.key} is the key of {member}, which is no member of the genesis")
    return f"peer {place} of {len(genesis.members)}, counted from 0; {_part_text(genesis, head, place)}"


def _expect_membership(config: NodeConfig, key: "PrivateKey", head: State) -> None:
    """Raise NodeConfigError if a key takes no part any more, by the chain that is here."""
    following = successor_of(head.roster, head.records, key.public_key)
    if following is not None:
        raise NodeConfigError(
            f"the key in {config.key} was replaced by {address(following)}, as of height {head.height}; name that key"
        )
    number = head.roster.seats.get(key.public_key)
    if number is None:
        return
    record = head.records[number]
    if record.standing.is_for_good:
        how = "left" if record.standing is Standing.LEFT else "was removed by the others"
        raise NodeConfigError(f"peer {number} {how}, from round {record.round} on; a key never comes back")
    if record.key in head.roster.culprits:
        raise NodeConfigError(f"peer {number} was convicted of a crime; it takes no part any more")


def _part_text(genesis: Genesis, head: State | None, place: int) -> str:
    """The work of a founder at a head."""
    roster = (head or genesis_state(genesis)).roster
    aggregates = roster.dataless is not None and roster.members[place] == roster.holder
    if place < len(genesis.participants):
        then = ", but aggregates now instead" if aggregates else ""
        return f"it trains on share {place}{then}"
    return "the aggregator, which needs no data" if aggregates else "it has no data, and another one aggregates now"


def _check_journal(config: NodeConfig, key: "PrivateKey", genesis: Genesis) -> Finding | str:
    from fedchain.node.custody.journal_file import JournalFile, importing_path, journal_path

    path = journal_path(Path(config.key), genesis.chain_id)
    if not os.path.lexists(path) and not importing_path(path).exists():  # what is no file there ends a start
        if not os.access(path.parent, os.W_OK | os.X_OK):
            remedy = "put the key file into a folder that the node may write to"
            raise NodeConfigError(f"{path} cannot be made: {path.parent} cannot be written to; {remedy}")
        if spoken := _spoken(Path(config.data), key, genesis):
            return Finding(
                Outcome.WARN,
                "journal",
                f"{path.name} is not there, but {spoken}: import it, or see in the guide what to do where it is lost; "
                "to sign again what was signed already convicts this member for ever",
            )
        return "this key has signed nothing here; if it ran on another machine, import its journal first"
    with JournalFile.open(path, genesis.chain_id, key.public_key, len(genesis.members)) as journal:
        return f"{path.name} was written {counted(journal.sequence, 'time')}"


def _spoken(folder: Path, key: "PrivateKey", genesis: Genesis) -> str:
    """Statements of this key on the chain in ``folder``, in words; empty if there are none, or it cannot be read."""
    from fedchain.chain.explorer.explorer import Explorer
    from fedchain.chain.storage.sqlite import Store

    try:
        with Store.open(folder / CHAIN_FOLDER, genesis, read_only=True) as store:
            found = Explorer(store).peer(address(key.public_key))
    except ChainError:  # the check of the folder reports it
        return ""
    words = {"post": found.posts, "block": found.blocks_mined, "vote": found.votes}
    said = ", ".join(counted(count, name) for name, count in words.items() if count)
    return f"the chain in {folder} has {said} of this key" if said else ""


def _check_share(config: NodeConfig, key: "PrivateKey", passphrase: str | None, genesis: Genesis) -> Iterator[Finding]:
    from fedchain.node.custody.dealing import WITHOUT_SHARE, ShareMissing, dealt_key, read_share
    from fedchain.node.founding.task import learning_from_genesis

    if dealt_key(learning_from_genesis(genesis)) is None:
        return

    def look() -> Finding | str:
        if key.public_key not in genesis.index:
            return "founding keys alone were dealt one: this member posts, and others open the sums"
        try:
            read_share(Path(config.key), genesis, key.public_key, passphrase)
        except ShareMissing as error:
            return Finding(Outcome.WARN, "share", f"{error}; {WITHOUT_SHARE}")
        return "this member's share of the decryption key is here and opens"

    yield _try("share", look)


def _check_folder(folder: Path, genesis_path: Path, genesis: Genesis | None, is_running: bool) -> Finding | str:
    from fedchain.chain.storage.sqlite import Store

    check_folder(folder)
    if genesis is None:
        return Finding(Outcome.WARN, "folder", f"{folder}; without the genesis document its chain cannot be judged")
    if not is_running:  # a node that runs writes to its chain
        check_chain(folder / CHAIN_FOLDER, genesis_path)
    try:
        with Store.open(folder / CHAIN_FOLDER, genesis, read_only=True) as store:
            head = store.head()
            height = 0 if head is None else head.block.header.height
            proof = store.path_certificates(height)
    except NotFound:
        return f"{folder} is free for a new chain"
    proven = f", which {counted(proof, 'certificate')} from the founding document on prove" if proof else ""
    return f"{folder} has this federation's chain, height {height}{proven}"


def _check_training(path: Path, genesis: Genesis | None, member: int | None) -> str:
    from fedchain.node.workers.frames import PipeBroken
    from fedchain.node.workers.training_file import read_training, require_own

    try:
        kept = read_training(path)
        if genesis is not None and member is not None:
            require_own(path, kept, genesis.chain_id, member)
    except PipeBroken as error:
        raise NodeConfigError(str(error)) from None
    return f"{path.name} has the model after round {kept.round}"


def _head_of(folder: Path, genesis: Genesis) -> State | None:
    """The newest state of a chain whose members may change; None if none is held here."""
    from fedchain.chain.explorer.explorer import Explorer
    from fedchain.chain.storage.sqlite import Store

    if genesis.version < CHANGES_VERSION:
        return None
    try:
        with Store.open(folder / CHAIN_FOLDER, genesis, read_only=True) as store:
            return Explorer(store).state
    except ChainError:  # the check of the folder says it
        return None


def _check_space(folder: Path, genesis: Genesis | None) -> Finding | str:
    """Compare the free space with the size to which the chain may grow."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    wanted = SPACE_WANTED if genesis is None else max(SPACE_WANTED, expected_size_bytes(genesis))
    text = f"{_mib(free)} are free at {place}, the chain may take {_mib(wanted)}"
    if free < SPACE_MIN:
        raise NodeConfigError(text)
    return Finding(Outcome.WARN, "disk", text) if free < wanted else text


def expected_size_bytes(genesis: Genesis) -> int:
    """Most bytes of a chain's kept payloads on disk, if every member posts in every phase."""
    from fedchain.node.founding.task import rules_of

    rules, members = rules_of(genesis), len(genesis.members)
    of_round = sum(members * rules.payload_size_max(phase.name) for phase in genesis.phases)
    kept = -(-genesis.retention_blocks // len(genesis.phases)) if genesis.retention_blocks else genesis.rounds
    rounds = min(kept, genesis.rounds) if genesis.rounds else kept
    return rounds * of_round


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _check_port(listen: str) -> str:
    check_listen(listen)
    return f"{listen} is free; the others must reach it through firewall and router"


def _check_metrics(place: str, listen: str) -> str:
    check_metrics(place, listen)
    return f"{place} is free"


def _check_announced(places: Sequence[str]) -> str:
    check_announced(places)
    return f"the others are told {', '.join(places)}"


def _check_bootstrap(
    config: NodeConfig, genesis: Genesis | None, keys: "Sequence[PrivateKey]", timeout_s: float
) -> Iterator[Finding]:
    """Check whether the members to connect to first answer. If none does, they may just not run yet.

    A list that is the same for all members names this one, too, which does not dial itself.
    """
    own = {place for key in keys for place in config.bootstrap if place.endswith(f"/p2p/{address(key.public_key)}")}
    if own.issuperset(config.bootstrap):
        if (Path(config.data) / INVITATION_FILE).exists():
            text = "none is named: this node dials those that its invitation names, and those that it met before"
            yield Finding(Outcome.OK, "bootstrap", text)
        else:
            text = "none is named: this node waits until a member dials it, or dials those that it met before"
            yield Finding(Outcome.WARN, "bootstrap", text)
    for place in config.bootstrap:
        yield _try("bootstrap", partial(_check_peer, place, genesis, timeout_s, is_own=place in own))


def _check_peer(place: str, genesis: Genesis | None, timeout_s: float, *, is_own: bool) -> Finding | str:
    is_fixed = genesis is not None and genesis.version < CHANGES_VERSION
    reached = check_bootstrap(place, genesis.members if genesis is not None and is_fixed else None)
    if is_own:
        return f"{place} is this member's own, which its node leaves out"
    _, _, host, _, port = reached.split("/")
    try:
        with socket.create_connection((host, int(port)), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(GREETING)
            answer = connection.recv(len(GREETING))
    except OSError as error:
        reason = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else error
        return Finding(Outcome.WARN, "bootstrap", f"{place}: {getattr(reason, 'strerror', None) or reason}")
    if answer[:1] != GREETING[:1]:
        return Finding(Outcome.WARN, "bootstrap", f"{place}: something answers that does not speak libp2p")
    return f"{place} answers; whether it is of this federation shows when the node runs"


def _check_data(config: NodeConfig, member: int, genesis: Genesis) -> str:
    """Read this member's data, build its model, and put a batch through it, without a training step."""
    from fedchain.learning.registry import use_current_folder
    from fedchain.learning.task.choice import validate_choice
    from fedchain.node.founding.task import learning_from_genesis, require_weights

    task = learning_from_genesis(genesis, config.data_dir, config.task, config.weights)
    require_weights(task)
    validate_choice(task, config.task)
    use_current_folder()

    from fedchain.learning.training.evaluation import evaluate
    from fedchain.learning.worker.learner import Learner

    learner = Learner(task, members=genesis.members, chain_id=genesis.chain_id)
    learner.train_on(config.device, vectorize_clients=False)
    learner.prepare(member)
    with learner.lend(member, 1) as client:
        count = len(client.train_labels)
        if count == 0:
            return "the model is built; this member has no data, and needs none"
        try:
            _, loss = evaluate(client.model, client.train_images[:BATCH], client.train_labels[:BATCH])
        except OWN_CODE_ERRORS as error:
            raise NodeConfigError(f"a batch does not go through the model: {type(error).__name__}: {error}") from None
        return f"{count:,} examples of {len(client.classes)} classes; a batch went through the model, loss {loss:.3f}"
