"""Settings of ``fedchain attack inversion``, beside those of the scenario. Nothing heavy is imported."""

from dataclasses import dataclass

from fedchain.simulator.scenario import ScenarioError


@dataclass(frozen=True, slots=True, kw_only=True)
class Inversion:
    """The target of an attack, and the effort spent on it."""

    round: int = 1
    """For a stored chain: round of the post."""
    sender: str = ""
    """For a stored chain: the member that posted, by its address or the end of it."""
    attacker: str = ""
    """For a stored chain: the member that reads the post; empty: the first of the others."""
    images: int = 4
    """Clients that are attacked; for fededs, images of one client."""
    victim_batch: int = 1
    """Examples of the local step that is attacked."""
    rounds_before: int = 0
    """Rounds of training before the post."""
    noise: float = 1.0
    """Multiplier of the noise on prototypes: deviation over sensitivity."""
    informed: bool = False
    """Whether the attacker reckons with what FedReg, as the method, adds to a step."""
    known_pairs: int = 0
    """For fededs: images of the victim that the attacker has beside its own."""
    passes: int = 20
    """For fededs: passes of the decoder's training."""
    iterations: int = 300
    """Steps of the search for images."""
    search_rate: float = 0.1
    """First step of the search, in normalised pixels."""
    total_variation: float = 1e-3
    """Weight of the total variation."""

    def validate(self) -> None:
        """Raise ScenarioError for the first value out of range."""
        for name, (low, high) in _RANGES.items():
            if not low <= (value := getattr(self, name)) <= high:
                raise ScenarioError(f"{name} is {value}, it must be between {low:g} and {high:g}")


_RANGES: dict[str, tuple[float, float]] = {
    "round": (1, 1e9),
    "images": (1, 1000),
    "victim_batch": (1, 64),
    "rounds_before": (0, 1e6),
    "noise": (0, 1e6),
    "known_pairs": (0, 1e6),
    "passes": (1, 1e6),
    "iterations": (1, 1e6),
    "search_rate": (1e-6, 1e6),
    "total_variation": (0, 1e6),
}
