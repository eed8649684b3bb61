"""Errors of the chain. The class says who is at fault and whether waiting can help.

::

    ChainError
    ├── Refused                   something received was not taken; nothing changed
    │   ├── Invalid               a fault, for ever                                 -> REJECT
    │   │   ├── InvalidEncoding       bytes that are not the canonical form of anything
    │   │   ├── InvalidSignature      nobody signed this; an honest relay would not have passed it on
    │   │   ├── InvalidPost           ┐
    │   │   ├── InvalidPayload        │
    │   │   ├── InvalidVote           │ its author signed what breaks a rule: the author is blamed,
    │   │   ├── InvalidBlock          ┘ a relay may not have been able to know
    │   │   ├── InvalidChange         a change of the membership that can never be counted
    │   │   ├── InvalidCertificate    ┐ nobody signs these as a whole: by itself, its sender's fault;
    │   │   └── InvalidEvidence       ┘ in a block, its miner's
    │   └── Unready               may heal by waiting or asking                     -> IGNORE
    │       ├── AlreadyKnown          it is held, and was passed on before
    │       ├── UnknownParent         it stands on a block that is not known, or not proven, here
    │       ├── MissingPayload        contents that are not held yet
    │       ├── OutOfWindow           a round, height, key or version that does not count here, or not yet
    │       ├── Equivocation          a second, different statement: its signer's crime, not the relay's
    │       ├── LimitReached          a bounded pool is full
    │       └── MethodFailed          the method's own code failed on it: nobody's fault but its author's
    ├── InvalidGenesis            the document that founds a chain contradicts itself
    ├── NotFound                  the chain holds nothing under that height, hash or address
    └── StoreError                the data folder cannot be used
        ├── DiskRefused               the disk or the system refuses; a later attempt may succeed
        ├── StoreMismatch             it holds another chain or another version
        └── StoreCorrupt              it is truncated or was tampered with
"""

from collections.abc import Iterable
from itertools import pairwise


class ChainError(Exception):
    """Something is wrong with the chain or with a message about it."""


class Refused(ChainError):
    """Something received was not taken. The message names the rule and both values."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Invalid(Refused):
    """It breaks a rule and always will."""


class InvalidEncoding(Invalid):
    """The bytes are not the one canonical form of a value."""


class InvalidSignature(Invalid):
    """The signature is not the author's; the peer that passed it on could have known."""


class InvalidPost(Invalid):
    """A post that no honest member would have signed."""


class InvalidPayload(Invalid):
    """A payload that does not match its post, or that the method cannot read."""


class InvalidVote(Invalid):
    """A vote that no honest member would have signed."""


class InvalidCertificate(Invalid):
    """Votes that do not prove the claim that they were sent for."""


class InvalidChange(Invalid):
    """A change of the membership that no block can count any more."""


class InvalidEvidence(Invalid):
    """Two statements that do not exclude each other."""


class InvalidBlock(Invalid):
    """A block that breaks a rule of :mod:`fedchain.chain.validation`."""


class Unready(Refused):
    """It cannot be judged, or not yet; asking or waiting may help."""


class AlreadyKnown(Unready):
    """It is held already; passing it on once more would help nobody."""


class UnknownParent(Unready):
    """It stands on a block that is not known, or not proven, here: those between, or others' words, come first."""


class MissingPayload(Unready):
    """A payload of the block is not held here: fetch it."""


class OutOfWindow(Unready):
    """The round, phase, height or attempt is closed, or not open yet, or its signer does not count here now.

    Nothing follows from it here.
    """


class Equivocation(Unready):
    """A member signed two different statements where one is allowed. Both together are evidence.

    The peer that passes on the second is not to blame, so it is ignored and not held against a neighbour.
    """


class LimitReached(Unready):
    """A bounded pool is full, or does not reach as far; the thing may be asked for again later."""


class MethodFailed(Unready):
    """The learning method's own code failed while it judged or aggregated. No member is to blame for that."""


class InvalidGenesis(ChainError):
    """The genesis document contradicts itself; the message names the field and both values."""


class NotFound(ChainError):
    """The chain holds nothing under the given height, hash or address."""


class StoreError(ChainError):
    """The data folder cannot be used."""


class DiskRefused(StoreError):
    """The disk or the system refuses to read or to write; trying again may help."""


class StoreMismatch(StoreError):
    """The data folder was written for another chain or by another version."""


class StoreCorrupt(StoreError):
    """The data folder is truncated or was tampered with; the message names the part."""


def check_ascending(error: type[Refused], rule: str, values: Iterable[bytes]) -> None:
    """For what has one order: sorted and unique, a set has one form."""
    for before, after in pairwise(values):
        if before >= after:
            raise error(rule, f"{after.hex()} follows {before.hex()}")


def check(condition: bool, error: type[Refused], rule: str, message: str) -> None:
    """For rules that run once a block: building the message for each post and vote would cost more than the rule."""
    if not condition:
        raise error(rule, message)
