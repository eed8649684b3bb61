"""Methods that encrypt with keys of 320 bits, which protect nothing and are dealt in no time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.threshold import Dealing
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING, deal_for_testing
from fedchain.crypto.threshold.sealing import seal_shares
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.methods.fedproto import FedProto
from fedchain.learning.sums.scheme import SumScheme
from fedchain.learning.sums.threshold import ThresholdSums


class SmallSums(ThresholdSums):
    """Stand-in for a dealer of proper keys."""

    def _deal(self, members: Sequence[bytes], random_bytes: RandomBytes) -> Dealing:
        key, shares = deal_for_testing(len(members), self.threshold, random_bytes)
        return Dealing(key, seal_shares(key, shares, members))


class SmallKeys:
    """Methods whose keys are small. It is no method: its defaults would take the place of theirs."""

    key_bits_allowed: ClassVar[tuple[int, ...]] = (KEY_BITS_MIN_TESTING,)

    @cached_property
    def sums(self) -> SumScheme:
        usual: SumScheme = super().sums  # type: ignore[misc]
        return SmallSums(**vars(usual)) if isinstance(usual, ThresholdSums) else usual


@dataclass(frozen=True, kw_only=True)
class SmallKeyDfpl(SmallKeys, Dfpl):
    """DFPL."""

    key_bits: int = KEY_BITS_MIN_TESTING


@dataclass(frozen=True, kw_only=True)
class SmallKeyFedProto(SmallKeys, FedProto):
    """FedProto."""

    key_bits: int = KEY_BITS_MIN_TESTING


@dataclass(frozen=True, kw_only=True)
class SmallKeyFedPh(SmallKeys, FedPh):
    """FedPH."""

    key_bits: int = KEY_BITS_MIN_TESTING
