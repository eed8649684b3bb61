"""Running a node: key, genesis document, store, network, workers and service put together."""

import json
import logging
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream

from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis, NotFound
from fedchain.chain.genesis import Genesis
from fedchain.chain.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeConfig, NodeConfigError
from fedchain.node.service import Service
from fedchain.node.task import rules_of
from fedchain.node.verification import Verification
from fedchain.node.workers import TrainingWorker

log = logging.getLogger("fedchain.node")

CHAIN_FOLDER, STATUS_SOCKET = "chain", "status.sock"

Watch = Callable[[Service], Coroutine[Any, Any, None]]


def run_node(config: NodeConfig, key: PrivateKey, watch: Watch | None = None) -> None:
    """Run a node until it is interrupted.

    Args:
        config: the operator's settings.
        key: this peer's key.
        watch: a task that runs beside the service, such as a display.

    Raises:
        NodeConfigError: the genesis document does not fit the key, or the address cannot be listened on.
        ChainError: the genesis document or the data folder cannot be used.
    """
    genesis = read_genesis(Path(config.genesis))
    if key.public_key not in genesis.index:
        raise NodeConfigError(f"{config.key} is the key of {address(key.public_key)}, who is no member of the genesis")
    verification = Verification(genesis, rules_of(genesis))
    folder = Path(config.data)
    with open_store(folder / CHAIN_FOLDER, genesis) as store:
        anyio.run(partial(_serve, config, genesis, key, verification, store, folder, watch), backend="trio")


def read_genesis(path: Path) -> Genesis:
    """Read a genesis document; raises NodeConfigError or InvalidGenesis."""
    try:
        return Genesis.decode(path.read_bytes())
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be read: {error.strerror}") from None
    except InvalidEncoding as error:
        raise InvalidGenesis(f"{path} is no genesis document: {error}") from None


def open_store(folder: Path, genesis: Genesis) -> Store:
    """Open the chain in ``folder``, or begin it; raises StoreError."""
    try:
        return Store.open(folder, genesis)
    except NotFound:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Store.create(folder, genesis)


async def _serve(
    config: NodeConfig,
    genesis: Genesis,
    key: PrivateKey,
    verification: Verification,
    store: Store,
    folder: Path,
    watch: Watch | None,
) -> None:
    from fedchain.network.libp2p import ListenError, open_network  # trio and libp2p, only where they are needed
    from fedchain.network.libp2p_addresses import InvalidBootstrap

    training = TrainingWorker(Path(config.genesis).absolute(), folder, genesis.index[key.public_key], config.data_dir)
    try:
        async with (
            open_network(
                key,
                genesis.chain_id,
                genesis.members,
                listen=config.listen,
                bootstrap=config.bootstrap,
                announce=config.announce,
                folder=folder,
            ) as network,
            anyio.create_task_group() as tasks,
        ):
            service = Service(genesis, key, verification, store, network, training)
            log.info("listening on %s", ", ".join(network.listen_addresses()))
            network.watch(service.on_peer)
            tasks.start_soon(_stop_on_signal, tasks.cancel_scope)
            tasks.start_soon(_answer_status, folder / STATUS_SOCKET, service)
            if watch is not None:
                tasks.start_soon(watch, service)
            await service.run()
    except* (ListenError, InvalidBootstrap) as group:
        raise NodeConfigError(str(group.exceptions[0])) from None
    finally:
        training.close()


async def _stop_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            log.info("stopping")
            scope.cancel()


async def _answer_status(path: Path, service: Service) -> None:
    """Answer every connection to a local socket with the node's status, as one JSON object."""
    path.unlink(missing_ok=True)
    listener = await anyio.create_unix_listener(path, mode=0o600)

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.send(json.dumps(service.status()).encode())

    try:
        async with listener:
            await listener.serve(answer)
    finally:
        path.unlink(missing_ok=True)
