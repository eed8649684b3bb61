"""Running a node: key, genesis document, store, network, workers and service put together."""

import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from fedchain.allocator import return_large_blocks
from fedchain.chain.exceptions import (
    ChainError,
    DiskRefused,
    NotFound,
    StoreCorrupt,
    StoreError,
)
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.plain import numbers_of
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.files.layout import CHAIN_FOLDER, TIMELINE_FILE
from fedchain.learning.payload.part_folder import PARTS, PartFolder
from fedchain.learning.task.choice import validate_choice
from fedchain.network.limits import BLAME_REJECTED, Limits
from fedchain.network.ports import NotFree
from fedchain.node.config import NodeConfig, NodeConfigError, NodeFailed, validate_wait
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.part_lists import lists_parts
from fedchain.node.core.parts import Conduct
from fedchain.node.custody.dealing import WITHOUT_SHARE, ShareMissing, dealt_key, read_share
from fedchain.node.custody.journal_file import JournalError, JournalFile, journal_path
from fedchain.node.custody.secrets_file import secrets_path
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis, rules_of
from fedchain.node.membership.desk import Desk
from fedchain.node.membership.invitation import Invitation, invitation_in
from fedchain.node.membership.newcomer import Newcomer
from fedchain.node.membership.next_key import NextKey
from fedchain.node.membership.requests import Requests
from fedchain.node.operating.member_numbers import number_members
from fedchain.node.operating.metrics import answer_metrics
from fedchain.node.operating.preflight import raise_file_limit, secure_folder
from fedchain.node.operating.service_manager import ServiceManager
from fedchain.node.operating.status import answer_status
from fedchain.node.shell.calling import Caller, has_replaced
from fedchain.node.shell.disk import Disk
from fedchain.node.shell.ending import Departure, Ending
from fedchain.node.shell.failures import LoggedFailures
from fedchain.node.shell.service import Contact, NodeStopped, Service
from fedchain.node.shell.threads import NO_THREAD, is_refused
from fedchain.node.shell.timeline import TimelineFile
from fedchain.node.workers.local import Local
from fedchain.node.workers.supervisor import Seat, TrainingWorker, WorkerFailed, WorkerStopped
from fedchain.wording import first_error

if TYPE_CHECKING:  # libp2p and trio are imported where they are needed
    from fedchain.network.libp2p.network import Libp2pNetwork

log = logging.getLogger("fedchain.node")

Watch = Callable[[Service], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Audience:
    """The readers of a node's state, beside those that ask."""

    watch: Watch | None = None
    """A task that runs beside the service, such as a display."""
    manager: ServiceManager = field(default_factory=ServiceManager)
    """The service manager of this process, which may run one node after the other."""


def run_node(
    config: NodeConfig,
    key: PrivateKey,
    audience: Audience = Audience(),
    *,
    passphrase: str | None = None,
) -> bool:
    """Run a node until it is interrupted, or ends by itself as its settings say.

    Args:
        config: the operator's settings.
        key: this peer's key.
        audience: those that are told of its state.
        passphrase: passphrase of the key file, and of a dealt share beside it; None if neither is encrypted.

    Returns:
        Whether its member has another key now, in the same file, with which the node is to be run again.

    Raises:
        NodeConfigError: the genesis document does not fit the key, the address cannot be listened on, the journal
            is in use, or the key is in use elsewhere.
        KeyFileError: the member's next key, or its share, cannot be used.
        ChainError: the genesis document or the data folder cannot be used.
        ConfigurationError: the federation learns from own data and no task is named, or the other way round.
    """
    return_large_blocks()
    genesis = read_genesis(Path(config.genesis))
    number_members(numbers_of(genesis))
    next_key = NextKey(Path(config.key), genesis.chain_id, passphrase)
    next_key.finish(key.public_key)
    invitation = _invitation_of(config, genesis, key.public_key, next_key)
    joining = Joining(key, next_key, invitation, Caller(key, next_key))
    validate_choice(learning_from_genesis(genesis), config.task)
    raise_file_limit(len(genesis.members), members_max(genesis))
    secrets = _dealt_secrets(config, genesis, key.public_key, passphrase)
    folder = Path(config.data)
    if not (folder / CHAIN_FOLDER).exists():
        validate_wait(config, len(genesis.members), height=0)  # before anything is written
    secure_folder(folder)
    path = journal_path(Path(config.key), genesis.chain_id)
    with (
        JournalFile.open(path, genesis.chain_id, key.public_key, len(genesis.members)) as journal,
        open_store(folder / CHAIN_FOLDER, genesis) as store,
    ):
        validate_wait(config, len(genesis.members), store.height())
        checks = Checks(genesis, rules_of(genesis, store.spools), failures=LoggedFailures())
        disk = Disk(store, journal, PartFolder(folder / PARTS), TimelineFile(folder / TIMELINE_FILE))
        serve = partial(_serve, _Premises(config, genesis, joining, checks, disk, secrets, audience))
        has_next = anyio.run(serve, backend="trio")
        while joining.caller.turn():
            has_next = anyio.run(serve, backend="trio")
    if has_next:
        next_key.take(key.public_key)
    return has_next


@dataclass(frozen=True, slots=True)
class Joining:
    """A peer's key, and how the peer comes in."""

    key: PrivateKey
    """This peer's key."""
    next_key: NextKey
    """The one that its member may have after it."""
    invitation: Invitation | None
    """The invitation on which it comes, or came; None for founders, and for members whose folder is a new one."""
    caller: Caller
    """Chooses the key under which it calls the others."""


def _invitation_of(config: NodeConfig, genesis: Genesis, member: PublicKey, next_key: NextKey) -> Invitation | None:
    """The invitation in a newcomer's folder, or a founder's that comes back on one; None for members that have none.
    Raises NodeConfigError: it is no member's key."""
    folder = Path(config.data)
    if (found := invitation_in(folder, genesis, config.genesis)) is not None or member in genesis.index:
        return found
    changes = genesis.version >= CHANGES_VERSION
    if changes and (next_key.is_known_here(member) or _is_on_chain(folder / CHAIN_FOLDER, genesis, member)):
        return None
    raise NodeConfigError(f"{config.key} is the key of {address(member)}, which is no member of the genesis")


def _is_on_chain(folder: Path, genesis: Genesis, member: PublicKey) -> bool:
    """Whether the chain in ``folder`` gives a key a place, as that of a member which has lost its journal."""
    try:
        with Store.open(folder, genesis, read_only=True) as store:
            return member in Explorer(store).state.roster.seats
    except ChainError:  # there is none yet, or the node says what is wrong with it when it opens it
        return False


def _dealt_secrets(config: NodeConfig, genesis: Genesis, member: PublicKey, passphrase: str | None) -> dict[str, bytes]:
    """The secrets that this member was dealt. A member that lost its share still takes part: others open the sums."""
    if not _was_dealt(genesis, member):
        return {}
    try:
        return read_share(Path(config.key), genesis, member, passphrase)
    except ShareMissing as error:
        log.warning("%s; %s", error, WITHOUT_SHARE)
        return {}


def _was_dealt(genesis: Genesis, member: PublicKey) -> bool:
    """Whether a member was dealt a share of a decryption key, be it here or not: founders alone were."""
    return member in genesis.index and dealt_key(learning_from_genesis(genesis)) is not None


def open_store(folder: Path, genesis: Genesis) -> Store:
    """Open the chain in ``folder``, or begin it; raises StoreError or NodeConfigError."""
    try:
        return Store.open(folder, genesis)
    except NotFound:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NodeConfigError(f"{folder.parent} cannot be made: {error.strerror}") from None
        try:
            return Store.create(folder, genesis)
        except DiskRefused as error:
            raise NodeFailed(str(error)) from None
    except DiskRefused as error:
        raise NodeFailed(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Premises:
    """The things from which a node is put together, the same under whichever key it calls the others."""

    config: NodeConfig
    genesis: Genesis
    joining: Joining
    checks: Checks
    disk: Disk
    secrets: Mapping[str, bytes]
    """Those that its member was dealt."""
    audience: Audience

    @property
    def folder(self) -> Path:
        """The node's folder."""
        return Path(self.config.data)

    @property
    def limits(self) -> Limits:
        """Limits of its network."""
        return limits_of(self.genesis, self.checks.rules)

    def training(self, seat: Seat) -> TrainingWorker:
        """The process that trains for the member in ``seat``."""
        config = self.config
        return TrainingWorker(
            Path(config.genesis).absolute(),
            self.folder,
            seat,
            Local(config.data_dir, config.task, config.device, config.weights),
            secrets_path(Path(config.key), self.genesis.chain_id),
            self.secrets,
        )

    def network(self) -> AbstractAsyncContextManager["Libp2pNetwork"]:
        """The network, not joined yet; raises InvalidBootstrap."""
        from fedchain.network.libp2p.addresses import parse_bootstrap
        from fedchain.network.libp2p.network import open_network

        config, genesis = self.config, self.genesis
        if genesis.version < CHANGES_VERSION:
            for text in config.bootstrap:
                parse_bootstrap(text, genesis.members)
        return open_network(
            self.joining.caller.key,
            genesis.chain_id,
            genesis.members,
            listen=config.listen,
            bootstrap=(*config.bootstrap, *_places_of(self.joining.invitation)),
            announce=config.announce,
            folder=self.folder,
            limits=self.limits,
        )

    def service(self, network: "Libp2pNetwork", training: TrainingWorker) -> Service:
        """The service of the node in a network that it has joined."""
        config, invitation = self.config, self.joining.invitation
        conduct = Conduct(
            replays=config.replay,
            recent_size_max=config.recent_mib * 2**20,
            wait_for=config.wait_for,
            foresees=config.train_ahead,
            waypoint=None if invitation is None or not invitation.height else invitation.waypoint,
        )

        def blame(member: PublicKey, reason: str) -> None:
            network.blame(member, BLAME_REJECTED, reason)

        contact = Contact(network, network, blame)
        return Service(self.genesis, self.joining.key, self.checks, self.disk, contact, training, conduct)

    def attend(self, service: Service, network: "Libp2pNetwork", tasks: TaskGroup) -> None:
        """Start the tasks beside a service: those that end it, answer others, let newcomers in, or are one."""
        config, genesis, joining, key = self.config, self.genesis, self.joining, self.joining.key
        ending = Ending(config.stop_accuracy, config.stop_patience)
        departure = Departure(ending, exits_when_finished=config.exit_when_finished)
        tasks.start_soon(departure.wait, service, tasks.cancel_scope.cancel)
        tasks.start_soon(joining.caller.wait, service, tasks.cancel_scope.cancel, self.limits.peers_wanted)
        make_key = _cannot_change_keys if _was_dealt(genesis, key.public_key) else joining.next_key.make
        requests = Requests(service, key, self.folder, network.known_places, places_max(genesis))
        tasks.start_soon(answer_status, self.folder, service, network, Desk(service, key, requests, make_key))
        if genesis.admission is not Admission.CLOSED:
            network.welcome(requests.take)
            tasks.start_soon(requests.follow)
        if joining.invitation is not None:
            newcomer = Newcomer(service, key, joining.invitation, network.knock)
            service.asks = lambda: newcomer.standing
            tasks.start_soon(newcomer.run)
            tasks.start_soon(newcomer.check_chain)
        if config.metrics:
            tasks.start_soon(answer_metrics, config.metrics, service, network)
        if self.audience.watch is not None:
            tasks.start_soon(self.audience.watch, service)


async def _serve(premises: _Premises) -> bool:
    """Run the node of :func:`run_node` until it ends or has to call the others under another key; returns the same."""
    joining, manager = premises.joining, premises.audience.manager
    seat = Seat(premises.genesis.index.get(joining.key.public_key, -1), ())
    training, running = premises.training(seat), list[Service]()
    try:
        async with anyio.create_task_group() as starting:
            scopes = [starting.cancel_scope]
            await starting.start(_stop_on_signal, scopes, manager)
            async with premises.network() as network, anyio.create_task_group() as tasks:
                scopes.append(tasks.cancel_scope)
                service = premises.service(network, training)
                log.info("listening on %s", ", ".join(network.listen_addresses()))
                network.watch(service.on_peer)
                tasks.start_soon(_inform, manager, training, service, seat)
                premises.attend(service, network, tasks)
                running.append(service)
                await service.run()
            starting.cancel_scope.cancel()
    except ExceptionGroup as group:
        error = _end_of(group)
        if not (isinstance(error, NodeStopped) and running and _goes_on(joining, running[0])):
            raise error from None
        return True
    finally:
        await training.close()
    return False


def _goes_on(joining: Joining, service: Service) -> bool:
    """Whether the member has its next key now, which is here."""
    following = joining.next_key.read()
    if following is None or not has_replaced(following.public_key, joining.key.public_key, service.node.head):
        return False
    log.info("this member has another key now, %s: going on with it", address(following.public_key))
    return True


def _cannot_change_keys() -> PrivateKey:
    """Refuse another key where shares were dealt to the one that there is; raises NodeConfigError."""
    raise NodeConfigError("this member was dealt a share, which is sealed to its key: it cannot take another one")


def _end_of(group: ExceptionGroup[Exception]) -> Exception:
    """The error that ended a running node, in the operator's terms; the group itself if it holds a fault of ours.

    NodeFailed where starting the node again may help, as after a disk that refused or a thread that there was not.
    """
    # Not by `except*`: it would wrap in another group what two of its clauses raise, and Python before 3.11.4 any one.
    from fedchain.network.libp2p.addresses import InvalidBootstrap
    from fedchain.network.libp2p.network import ListenError

    kinds = (ListenError, InvalidBootstrap, WorkerFailed, NodeConfigError, ChainError, KeyFileError)
    mendable, others = group.split(lambda error: isinstance(error, kinds) or is_refused(error))
    if mendable is None or others is not None:
        return group
    error = first_error(mendable)
    if is_refused(error):  # libraries need threads, too
        return NodeFailed(NO_THREAD)
    if isinstance(error, StoreError | JournalError) and not isinstance(error, StoreCorrupt):
        return NodeFailed(str(error))
    if isinstance(error, NotFree | WorkerStopped):
        return NodeFailed(str(error))
    if isinstance(error, ListenError | InvalidBootstrap | WorkerFailed):
        return NodeConfigError(str(error))
    return error


def _places_of(invitation: Invitation | None) -> Iterator[str]:
    """Addresses to start from, as an invitation names them."""
    for member, places in () if invitation is None else invitation.places:
        for place in places:
            yield f"{place}/p2p/{address(member)}"


async def _inform(manager: ServiceManager, training: TrainingWorker, service: Service, seat: Seat) -> None:
    """Have the data read, and from then on report the node's state to the service manager.

    A newcomer knows its place, and so its part of the data, once a block gives it. Others may take days to approve of
    it, and a service manager waits minutes for a report: it reports from the beginning. So does a node that goes on
    with another key, since a manager that was told once wants to hear more all the time.
    """
    reports = service.me not in service.node.head.roster or manager.is_told
    async with anyio.create_task_group() as tasks:
        if reports:
            tasks.start_soon(manager.follow, service.status)
        while service.me not in (roster := service.node.head.roster):
            await service.next_head()
        if seat.number < 0:
            seat.number, seat.members = roster.seats[service.me], roster.members
        await training.prepare()
        if not reports:
            await manager.follow(service.status)


def places_max(genesis: Genesis) -> int:
    """Most members that a federation may ever have: one for each part of the data, and a founder without any."""
    return learning_from_genesis(genesis).clients + len(genesis.members) - len(genesis.participants)


def members_max(genesis: Genesis) -> int:
    """Most members that may ever be connected: the founders, where these are the members for ever."""
    count = len(genesis.members)
    return count if genesis.version < CHANGES_VERSION else max(count, places_max(genesis))


def limits_of(genesis: Genesis, rules: Rules) -> Limits:
    """Limits of the network.

    A node signs once f + 1 members have announced their heads; 2 f + 1 connected members are as many without the f that
    may lie. If posts list parts, every node dials all members, since only a part's author and its readers have it, and
    nobody passes it on. There is room for a connection with each member, whichever are up and whoever dials.
    """
    count = members_max(genesis)
    usual, others = Limits(), count - 1
    wanted = min(others, 2 * genesis.fault_model.faulty(count) + 1)
    if lists_parts(genesis, rules):
        wanted = others
    return replace(
        usual, peers_wanted=max(usual.peers_wanted, wanted), connections_max=max(usual.connections_max, others)
    )


async def _stop_on_signal(
    scopes: Sequence[anyio.CancelScope],
    manager: ServiceManager,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Cancel the innermost scope at the first signal, and the one around it at the next, if that takes too long.

    A terminal that closes ends a node as well, unless the node was started to outlive it (nohup). A service manager has
    no terminal: there SIGHUP asks for settings or logs to be reopened, which a node does not support.
    """
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *hangup) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP and manager.is_there:
                log.warning("SIGHUP is ignored: settings are read when the node starts")
                continue
            log.info("stopping")
            manager.tell(STOPPING=1)
            scope = next((scope for scope in reversed(scopes) if not scope.cancel_called), scopes[0])
            scope.cancel()
