"""What the operator of a node chooses, from flags or a TOML file. What peers agree on is in the genesis document."""

import ast
import difflib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

CHAIN_FOLDER = "chain"
"""Where the chain is, in the data folder."""

RECENT_MIB_MAX = 2**20
"""More mebibytes than this are taken for bytes."""


class NodeConfigError(ValueError):
    """A setting cannot be used; the message names it and what is wrong, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of one node."""

    genesis: str
    """Genesis document of the federation."""
    key: str
    """Key file of this peer."""
    data: str
    """Folder for the chain and everything else the node keeps; made if it does not exist."""
    data_dir: str = ""
    """Folder of the data set's files; default: the environment variable FEDCHAIN_DATA."""
    task: str = ""
    """Where the members' data are their own: the function that loads this peer's, as module:function."""
    listen: str = "/ip4/0.0.0.0/tcp/4001"
    """Address to listen on, as a multiaddr."""
    bootstrap: tuple[str, ...] = ()
    """Members to connect to first, as multiaddrs that end with /p2p/ and an address."""
    announce: tuple[str, ...] = ()
    """Addresses to tell others instead of the one listened on."""
    replay: bool = False
    """Recompute every aggregate that was missed, instead of joining at the newest final block."""
    recent_mib: int = 64
    """Mebibytes of payloads and knowledge of the last blocks that stay in memory, beside what the open round needs;
    others are read from the data folder."""
    metrics: str = ""
    """host:port for Prometheus metrics; empty: none."""


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> NodeConfig:
    """Read a settings file (none: nothing) and put ``overrides`` over it; raises NodeConfigError."""
    values: dict[str, Any] = {} if path is None else read_toml(path, NodeConfigError)
    values |= overrides
    known = {item.name: item for item in fields(NodeConfig)}
    for name, value in values.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise NodeConfigError(f"there is no setting {name!r}; {hint}")
        if known[name].type in (bool, int) and type(value) is known[name].type:
            continue
        if (
            known[name].type not in (str, bool, int)
            and isinstance(value, list | tuple)
            and all(type(v) is str for v in value)
        ):
            values[name] = tuple(value)
        elif known[name].type is not str or type(value) is not str:
            raise NodeConfigError(f"{name} is {value!r}, which is of the wrong type")
    for name in ("genesis", "key", "data"):
        if not values.get(name):
            raise NodeConfigError(f"{name} is missing; give --{name} or write it into the settings file")
    config = NodeConfig(**values)
    if not 1 <= config.recent_mib <= RECENT_MIB_MAX:
        raise NodeConfigError(f"recent_mib is {config.recent_mib}, it must be between 1 and {RECENT_MIB_MAX}")
    return config


def read_toml(path: Path, refuse: Callable[[str], Exception]) -> dict[str, Any]:
    """Read a TOML file; raises what ``refuse`` makes of one clear line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # beside TOML's own: no UTF-8, endless digits, endless brackets
        raise refuse(f"{path} is not TOML: {error}") from None


def field_texts(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass that has one."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
