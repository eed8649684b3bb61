"""Settings that a node's operator chooses, by flags or a TOML file. The genesis document has those that peers share."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.files.tables import build, read_toml
from fedchain.wording import counted

RECENT_MIB_MAX = 2**20
"""Most mebibytes that are accepted; a larger value probably counts bytes."""

NEEDED = ("genesis", "key", "data")
"""Settings that every node needs."""

LOG_FORMATS = ("text", "json")
"""Forms of log lines."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk without room."""

MAY_PASS = FULL | {errno.EIO}
"""Errors of a disk that has no room, or does not answer: with a later start it may."""


class NodeConfigError(ValueError):
    """A setting cannot be used; the message names the setting and the fault, in one line."""


class NodeFailed(NodeConfigError):
    """The node could not go on, for example because of a full disk; starting it again may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of one node."""

    genesis: str
    """Genesis document of the federation."""
    key: str
    """Key file of this peer."""
    data: str
    """Folder for the chain and everything else the node keeps; made if it does not exist."""
    passphrase_file: str = ""
    """File whose first line is the key's passphrase, for machines without an operator; its owner alone may read it."""
    data_dir: str = ""
    """Folder of the data set's files; default: the environment variable FEDCHAIN_DATA."""
    task: str = ""
    """If the members' data are their own: the function that loads this peer's data, as FILE.py:function or
    module:function."""
    weights: str = ""
    """This peer's copy of the file of weights that models begin with, where members agreed on one."""
    device: str = "cpu"
    """Where this peer trains: cpu, cuda, cuda:1 (a graphics card by its number) or auto (a card, if there is one)."""
    train_ahead: bool = True
    """Train on the knowledge of the candidate that this peer votes for while votes travel; if another block is decided,
    that was in vain."""
    listen: str = "/ip4/0.0.0.0/tcp/4001"
    """Address to listen on, as a multiaddr."""
    bootstrap: tuple[str, ...] = ()
    """Members to connect to first, as multiaddrs that end with /p2p/ and an address."""
    announce: tuple[str, ...] = ()
    """Addresses to tell others instead of the one listened on."""
    replay: bool = False
    """Recompute every aggregate that was missed, instead of joining at the newest final block."""
    recent_mib: int = 64
    """Mebibytes of payloads and knowledge of the last blocks that stay in memory, in addition to those of the open
    round; others are read from the data folder."""
    metrics: str = ""
    """HOST:PORT to serve Prometheus metrics on; empty: none."""
    log_format: str = "text"
    """Form of log lines on standard error: text, or json (one object a line)."""
    wait_for: int = 0
    """Members, this one counted, that have to be connected before this peer posts or mines for the first time."""
    stop_accuracy: float = 0.0
    """Leave after a round in which this peer's model got at least this fraction of its own test set right; 0: never."""
    stop_patience: int = 0
    """Leave after so many rounds in a row without a new best accuracy; 0: never."""
    exit_when_finished: bool = False
    """End once the last round is closed, instead of serving the chain to others until Ctrl-C."""


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> NodeConfig:
    """Read a settings file, if any, and apply ``overrides``; raises NodeConfigError."""
    values: dict[str, Any] = {} if path is None else read_toml(path, NodeConfigError)
    values |= overrides
    config = build(NodeConfig, dict.fromkeys(NEEDED, "") | values, str(path or "node"), NodeConfigError)
    for name in NEEDED:
        if not getattr(config, name):
            raise NodeConfigError(f"{name} is missing; give --{name} or write it into the settings file")
    _validate(config)
    return config


def validate_wait(config: NodeConfig, founders: int, height: int) -> None:
    """Check that a node can begin; raises NodeConfigError if it would wait for ever.

    It waits for others before the first block alone, and until then nobody but founders is a member.
    """
    if height == 0 and config.wait_for > founders:
        raise NodeConfigError(f"wait_for is {config.wait_for}, the federation has {counted(founders, 'founder')}")


def _validate(config: NodeConfig) -> None:
    """Raise NodeConfigError for the first value out of range."""
    if not 1 <= config.recent_mib <= RECENT_MIB_MAX:
        raise NodeConfigError(f"recent_mib is {config.recent_mib}, it must be between 1 and {RECENT_MIB_MAX}")
    if config.log_format not in LOG_FORMATS:
        raise NodeConfigError(f"log_format is {config.log_format!r}, it must be one of {', '.join(LOG_FORMATS)}")
    if not 0 <= config.stop_accuracy <= 1:  # rejects NaN, too
        raise NodeConfigError(f"stop_accuracy is {config.stop_accuracy}, it must be a fraction between 0 and 1")
    for name in ("wait_for", "stop_patience"):
        if getattr(config, name) < 0:
            raise NodeConfigError(f"{name} is {getattr(config, name)}, it must be at least 0")
