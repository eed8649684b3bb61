"""fedchain: peers that learn together without a server.

The names that ``import fedchain`` offers are imported when they are first used; docs/python.md shows each at work:

* ``simulate``, ``simulate_async``: run a federation on this machine; the result is a ``Run``
* ``open_run``: open the folder of a finished run
* ``open_chain``: look into a stored chain; the result is a ``Chain``
* ``Scenario``: all settings of a simulation
* ``Method``, ``Phase``, ``Client``, ``Round``: the parts of a learning method of one's own
* ``testing``: checks for a method or a task of one's own, and a federation in memory

Map of the package, from the bottom up; each layer imports only what lies below it:

* ``fedchain.crypto``: hashes, Ed25519 keys, addresses, threshold encryption
* ``fedchain.chain``: posts, blocks, votes, proof of work, validation, store, explorer
* ``fedchain.learning``: methods, models, datasets, partitions, payload codec, metrics
* ``fedchain.network``: messages and their transport
* ``fedchain.node``: one peer, a pure state machine
* ``fedchain.simulator``: many peers in virtual time
* ``fedchain.runs``, ``fedchain.chains``, ``fedchain.testing``: the interface for Python programs
"""

__version__ = "0.1.0"

_PLACES = {
    "Chain": "fedchain.chains",
    "Client": "fedchain.learning.client",
    "Method": "fedchain.learning.method",
    "Phase": "fedchain.learning.method",
    "Round": "fedchain.learning.round",
    "RoundRecord": "fedchain.runs",
    "Run": "fedchain.runs",
    "Scenario": "fedchain.simulator.scenario",
    "open_chain": "fedchain.chains",
    "open_run": "fedchain.runs",
    "simulate": "fedchain.runs",
    "simulate_async": "fedchain.runs",
    "testing": "",
}
"""Module of each name; empty for a name that is itself a module. ``__init__.pyi`` says the same to type checkers."""

__all__ = ["__version__", *_PLACES]  # noqa: PLE0604 - names, by the table above


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'fedchain' has no attribute {name!r}")
    import importlib

    from fedchain.collector import importing

    if not _PLACES[name]:
        return importlib.import_module(f"fedchain.{name}")
    with importing():
        found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
