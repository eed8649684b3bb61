"""Settings of ``fedchain attack inversion``, beside those of the scenario. Nothing heavy is imported."""

from dataclasses import dataclass
from typing import Annotated

from fedchain.files.tables import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Inversion:
    """The target of an attack, and the effort spent on it."""

    round: Annotated[int, Range(1, 1e9)] = 1
    """For a stored chain: round of the post."""
    sender: str = ""
    """For a stored chain: the member that posted, by its address or the end of it."""
    attacker: str = ""
    """For a stored chain: the member that reads the post; empty: the first of the others."""
    images: Annotated[int, Range(1, 1000)] = 4
    """Clients that are attacked; for fededs, images of one client."""
    victim_batch: Annotated[int, Range(1, 64)] = 1
    """Examples of the local step that is attacked."""
    rounds_before: Annotated[int, Range(0, 1e6)] = 0
    """Rounds of training before the post."""
    noise: Annotated[float, Range(0, 1e6)] = 1.0
    """Multiplier of the noise on prototypes: deviation over sensitivity."""
    informed: bool = False
    """Whether the attacker reckons with what FedReg, as the method, adds to a step."""
    known_pairs: Annotated[int, Range(0, 1e6)] = 0
    """For fededs: images of the victim that the attacker has beside its own."""
    passes: Annotated[int, Range(1, 1e6)] = 20
    """For fededs: passes of the decoder's training."""
    iterations: Annotated[int, Range(1, 1e6)] = 300
    """Steps of the search for images."""
    search_rate: Annotated[float, Range(1e-6, 1e6)] = 0.1
    """First step of the search, in normalised pixels."""
    total_variation: Annotated[float, Range(0, 1e6)] = 1e-3
    """Weight of the total variation."""
