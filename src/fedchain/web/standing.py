"""Whether the federation goes on: it may stand still, as its nodes say, or no node may run in the folders shown."""

from dataclasses import dataclass

from fedchain.web.chains import Chain, Reading


@dataclass(frozen=True, slots=True)
class Standing:
    """Why nothing happens."""

    mark: str
    """The state in two or three words."""
    since_ms: int | None
    """When it began, in milliseconds since 1970; None if that is not known."""
    lacks: str = ""
    """The thing that too few members can give; empty if no node runs that could say."""
    needed: int = 0
    """Members that have to give it."""
    here: int = 0
    """Members that can."""
    missing: tuple[str, ...] = ()
    """Addresses of the others."""


def standing(chain: Chain, reading: Reading) -> Standing | None:
    """Why nothing happens; None if the federation goes on or is finished, or if a simulation made the chain.

    The nodes at the largest height count: one that lags behind, or lost its own connections, knows less.
    """
    if chain.is_simulated or reading.explorer.state.finished:
        return None
    told = [holder.status for holder in chain.holders if holder.status is not None]
    if not told:
        is_there = any(holder.silence for holder in chain.holders)
        return Standing("no node answers here" if is_there else "no node runs here", None)
    highest = max(status.get("height", 0) for status in told)
    found = [status.get("stands") for status in told if status.get("height", 0) == highest]  # older nodes do not say
    if None in found:
        return None
    first = min(filter(None, found), key=lambda item: (-item["here"], item["since_ms"]))
    return Standing(
        "stands still", first["since_ms"], first["lacks"], first["needed"], first["here"], tuple(first["missing"])
    )
