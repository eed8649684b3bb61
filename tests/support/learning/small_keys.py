"""Methods that encrypt with keys of 320 bits, which protect nothing and are dealt in no time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.threshold import Dealing
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING, deal_for_testing
from fedchain.crypto.threshold.sealing import seal_shares
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.methods.fedproto import FedProto


class SmallKeys:
    """Stand-in for a dealer of proper keys."""

    decryption_threshold: int
    key_bits_allowed: ClassVar[tuple[int, ...]] = (KEY_BITS_MIN_TESTING,)

    def _deal(self, members: Sequence[bytes], random_bytes: RandomBytes) -> Dealing:
        key, shares = deal_for_testing(len(members), self.decryption_threshold, random_bytes)
        return Dealing(key, seal_shares(key, shares, members))


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
