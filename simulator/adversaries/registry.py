"""Behaviours by the names that scenario files use. Nothing is imported before one is built."""

import importlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedchain.simulator.adversaries.adversary import Adversary, Coalition

BEHAVIOURS: Mapping[str, str] = {
    "backfill-spoiler": "providers.BackfillSpoiler",
    "capture-attacker": "miners.CaptureAttacker",
    "catch-up-hog": "flooders.CatchUpHog",
    "censor": "miners.Censor",
    "change-liar": "changers.ChangeLiar",
    "change-withholder": "changers.ChangeWithholder",
    "clock-liar": "voters.ClockLiar",
    "content-forger": "providers.ContentForger",
    "count-inflater": "poisoners.CountInflater",
    "crash-loop": "silence.CrashLoop",
    "difficulty-liar": "miners.DifficultyLiar",
    "double-voter": "voters.DoubleVoter",
    "false-aggregator": "miners.FalseAggregator",
    "falls-silent": "silence.FallsSilent",
    "final-flooder": "providers.FinalFlooder",
    "follower": "adversary.Adversary",
    "grinder": "pace.Grinder",
    "hash-censor": "pace.HashCensor",
    "hash-leaver": "pace.HashLeaver",
    "head-start": "pace.HeadStart",
    "inner-product": "poisoners.InnerProductManipulator",
    "invalid-poster": "posters.InvalidPoster",
    "junk-flooder": "flooders.JunkFlooder",
    "label-flipper": "poisoners.LabelFlipper",
    "late-better": "pace.LateBetter",
    "little-is-enough": "poisoners.LittleIsEnough",
    "low-claimer": "providers.LowClaimer",
    "noise-poster": "poisoners.NoisePoster",
    "part-claimer": "part_liars.PartClaimer",
    "part-thief": "part_liars.PartThief",
    "payload-withholder": "posters.PayloadWithholder",
    "poison-poster": "posters.PoisonPoster",
    "post-equivocator": "posters.PostEquivocator",
    "random-voter": "voters.RandomVoter",
    "recombiner": "recombiners.Recombiner",
    "replay-flooder": "flooders.ReplayFlooder",
    "sibling-miner": "miners.SiblingMiner",
    "sign-flipper": "poisoners.SignFlipper",
    "silent": "silence.Silent",
    "slow-blocks": "providers.SlowBlocks",
    "slow-provider": "posters.SlowProvider",
    "slow-walk": "pace.SlowWalk",
    "stale-lock-voter": "voters.StaleLockVoter",
    "vote-withholder": "voters.VoteWithholder",
    "yes-voter": "voters.YesVoter",
}
"""Module and class by name. A follower follows the protocol: the effect of attackers is measured against it."""


def find_behaviour(name: str) -> "type[Adversary]":
    """The class of a known behaviour."""
    module, kind = BEHAVIOURS[name].split(".")
    found: type[Adversary] = getattr(importlib.import_module(f"fedchain.simulator.adversaries.{module}"), kind)
    return found


def build_adversary(
    name: str, coalition: "Coalition", draw: random.Random, parameters: Mapping[str, float]
) -> "Adversary":
    """An adversary of a known behaviour, with valid parameters."""
    return find_behaviour(name)(coalition, draw, parameters)


def validate_parameters(name: str, parameters: Mapping[str, float]) -> None:
    """Raise ValueError for parameters that a known behaviour does not have, or cannot take."""
    known = find_behaviour(name).PARAMETERS
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ValueError(f"{name} has no parameter {parameter!r}; known are: {', '.join(known) or 'none'}")
        low, high = known[parameter].low, known[parameter].high
        if not low <= value <= high:
            raise ValueError(f"{parameter} of {name} is {value}, it must be between {low:g} and {high:g}")
