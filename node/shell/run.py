"""Running a node: key, genesis document, store, network, workers and service put together."""

import logging
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus

from fedchain.allocator import return_large_blocks
from fedchain.chain.exceptions import (
    ChainError,
    DiskRefused,
    NotFound,
    StoreCorrupt,
    StoreError,
)
from fedchain.chain.explorer.plain import numbers_of
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.files.layout import CHAIN_FOLDER, TIMELINE_FILE
from fedchain.learning.payload.part_folder import PARTS, PartFolder
from fedchain.learning.task.choice import validate_choice
from fedchain.network.limits import BLAME_REJECTED, Limits
from fedchain.node.config import NodeConfig, NodeConfigError, NodeFailed
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.part_lists import lists_parts
from fedchain.node.core.parts import Conduct
from fedchain.node.custody.dealing import ShareMissing, read_share
from fedchain.node.custody.journal_file import JournalError, JournalFile, journal_path
from fedchain.node.custody.secrets_file import secrets_path
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis, rules_of
from fedchain.node.membership.desk import Desk
from fedchain.node.operating.member_numbers import number_members
from fedchain.node.operating.metrics import answer_metrics
from fedchain.node.operating.preflight import raise_file_limit, secure_folder
from fedchain.node.operating.service_manager import ServiceManager
from fedchain.node.operating.status import answer_status
from fedchain.node.shell.ending import Departure, Ending
from fedchain.node.shell.failures import LoggedFailures
from fedchain.node.shell.service import Contact, Disk, Service
from fedchain.node.shell.timeline import TimelineFile
from fedchain.node.workers.local import Local
from fedchain.node.workers.supervisor import TrainingWorker, WorkerFailed

log = logging.getLogger("fedchain.node")

Watch = Callable[[Service], Coroutine[Any, Any, None]]


def run_node(config: NodeConfig, key: PrivateKey, watch: Watch | None = None, *, passphrase: str | None = None) -> None:
    """Run a node until it is interrupted, or ends by itself as its settings say.

    Args:
        config: the operator's settings.
        key: this peer's key.
        watch: a task that runs beside the service, such as a display.
        passphrase: passphrase of the key file, and of a dealt share beside it; None if neither is encrypted.

    Raises:
        NodeConfigError: the genesis document does not fit the key, the address cannot be listened on, the journal
            is in use, or the key is in use elsewhere.
        ShareFileError: the share cannot be used.
        ChainError: the genesis document or the data folder cannot be used.
        ConfigurationError: the federation learns from own data and no task is named, or the other way round.
    """
    return_large_blocks()
    genesis = read_genesis(Path(config.genesis))
    number_members(numbers_of(genesis))
    if key.public_key not in genesis.index:
        raise NodeConfigError(f"{config.key} is the key of {address(key.public_key)}, who is no member of the genesis")
    validate_choice(learning_from_genesis(genesis), config.task)
    raise_file_limit(len(genesis.members))
    if config.wait_for > len(genesis.members):
        raise NodeConfigError(f"wait_for is {config.wait_for}, the federation has {len(genesis.members)} members")
    checks = Checks(genesis, rules_of(genesis), failures=LoggedFailures())
    secrets = _dealt_secrets(config, genesis, key.public_key, passphrase)
    folder = Path(config.data)
    secure_folder(folder)
    path = journal_path(Path(config.key), genesis.chain_id)
    with (
        JournalFile.open(path, genesis.chain_id, key.public_key, len(genesis.members)) as journal,
        open_store(folder / CHAIN_FOLDER, genesis) as store,
    ):
        disk = Disk(store, journal, PartFolder(folder / PARTS), TimelineFile(folder / TIMELINE_FILE))
        anyio.run(partial(_serve, config, genesis, key, checks, disk, secrets, watch), backend="trio")


def _dealt_secrets(config: NodeConfig, genesis: Genesis, member: PublicKey, passphrase: str | None) -> dict[str, bytes]:
    """The secrets that this member was dealt. A member that lost its share still takes part: others open the sums."""
    try:
        return read_share(Path(config.key), genesis, member, passphrase)
    except ShareMissing as error:
        log.warning("%s; until then this member posts, but helps to open nothing", error)
        return {}


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


async def _serve(
    config: NodeConfig,
    genesis: Genesis,
    key: PrivateKey,
    checks: Checks,
    disk: Disk,
    secrets: Mapping[str, bytes],
    watch: Watch | None,
) -> None:
    # trio and libp2p are imported only here, where they are needed
    from fedchain.network.libp2p.addresses import InvalidBootstrap
    from fedchain.network.libp2p.network import ListenError, open_network

    folder, manager = Path(config.data), ServiceManager.from_environment()
    departure = Departure(
        Ending(config.stop_accuracy, config.stop_patience), exits_when_finished=config.exit_when_finished
    )
    training = TrainingWorker(
        Path(config.genesis).absolute(),
        folder,
        genesis.index[key.public_key],
        Local(config.data_dir, config.task, config.device, config.weights),
        secrets_path(Path(config.key), genesis.chain_id),
        secrets,
    )
    try:
        async with anyio.create_task_group() as starting:
            scopes = [starting.cancel_scope]
            await starting.start(_stop_on_signal, scopes, manager)
            async with (
                open_network(
                    key,
                    genesis.chain_id,
                    genesis.members,
                    listen=config.listen,
                    bootstrap=config.bootstrap,
                    announce=config.announce,
                    folder=folder,
                    limits=limits_of(genesis, checks.rules),
                ) as network,
                anyio.create_task_group() as tasks,
            ):
                scopes.append(tasks.cancel_scope)

                def blame(member: PublicKey, reason: str) -> None:
                    network.blame(member, BLAME_REJECTED, reason)

                conduct = Conduct(
                    replays=config.replay,
                    recent_size_max=config.recent_mib * 2**20,
                    wait_for=config.wait_for,
                    foresees=config.train_ahead,
                )
                contact = Contact(network, network, blame)
                service = Service(genesis, key, checks, disk, contact, training, conduct)
                log.info("listening on %s", ", ".join(network.listen_addresses()))
                network.watch(service.on_peer)
                tasks.start_soon(_inform, manager, training, service)
                tasks.start_soon(departure.wait, service, tasks.cancel_scope.cancel)
                tasks.start_soon(answer_status, folder, service, network, Desk(service, key))
                if config.metrics:
                    tasks.start_soon(answer_metrics, config.metrics, service, network)
                if watch is not None:
                    tasks.start_soon(watch, service)
                await service.run()
            starting.cancel_scope.cancel()
    except* (ListenError, InvalidBootstrap, WorkerFailed) as group:
        raise NodeConfigError(str(_first(group))) from None
    except* (NodeConfigError, ChainError) as group:
        raise ended_by(_first(group)) from None
    finally:
        manager.tell(STOPPING=1)
        await training.close()


def ended_by(error: Exception) -> Exception:
    """The error that ended a running node; NodeFailed if the disk refused, since starting it again may help."""
    is_refusal = isinstance(error, StoreError | JournalError) and not isinstance(error, StoreCorrupt)
    return NodeFailed(str(error)) if is_refusal else error


async def _inform(manager: ServiceManager, training: TrainingWorker, service: Service) -> None:
    """Have the data read, and from then on report the node's state to the service manager."""
    await training.prepare()
    await manager.follow(service.status)


def limits_of(genesis: Genesis, rules: Rules) -> Limits:
    """Limits of the network.

    A node signs once f + 1 members have announced their heads; 2 f + 1 connected members are as many without the f that
    may lie. If posts list parts, every node dials all members, since only a part's author and its readers have it, and
    nobody passes it on. There is room for a connection with each member, whichever are up and whoever dials.
    """
    usual, others = Limits(), len(genesis.members) - 1
    wanted = min(others, 2 * genesis.fault_model.faulty(len(genesis.members)) + 1)
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


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    """The first error in a group; errors are shown one at a time."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
