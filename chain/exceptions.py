"""Errors of the chain. The class says whose fault it is and whether waiting can help.

::

    ChainError
    ├── Refused                   something received was not taken; nothing changed
    │   ├── Invalid               the sender's fault, for ever                      -> REJECT
    │   │   ├── InvalidEncoding       bytes that are not the canonical form of anything
    │   │   ├── InvalidTransaction
    │   │   ├── InvalidPayload
    │   │   ├── InvalidVote
    │   │   └── InvalidBlock
    │   └── Unready               may heal by waiting or asking                     -> IGNORE
    │       ├── UnknownParent         a block whose parent we have not seen
    │       ├── UnknownBlock          a vote for a block we have not seen
    │       ├── MissingPayload        a block whose payloads we do not hold yet
    │       ├── FutureTimestamp       a clock ahead of ours
    │       ├── OutOfWindow           a round we have left or are far from
    │       ├── Equivocation          a second post for one phase: its signer's fault, not who passed it on
    │       └── LimitReached          a bounded pool is full
    ├── InvalidGenesis            the document that founds a chain contradicts itself
    ├── NotFound                  the chain holds nothing under that height, hash or address
    └── StoreError                the data folder cannot be used
        ├── StoreMismatch             it holds another chain or another version
        └── StoreCorrupt              it is truncated or was tampered with
"""


class ChainError(Exception):
    """Something is wrong with the chain or with what was said about it."""


class Refused(ChainError):
    """A received thing was not taken. The message names the rule and both values."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Invalid(Refused):
    """It breaks a rule and always will: the sender is at fault."""


class InvalidEncoding(Invalid):
    """The bytes are not the one canonical form of a value."""


class InvalidTransaction(Invalid):
    """A post that no honest member would have signed or sent."""


class InvalidPayload(Invalid):
    """A payload that does not match its transaction, or that the method cannot read."""


class InvalidVote(Invalid):
    """A vote by a stranger or with a bad signature."""


class InvalidBlock(Invalid):
    """A block that breaks a rule of :mod:`fedchain.chain.validation`."""


class Unready(Refused):
    """It cannot be judged, or not now; asking or waiting may help."""


class UnknownParent(Unready):
    """The block's parent is not known here: fetch it."""


class UnknownBlock(Unready):
    """The vote's block is not known here: fetch it."""


class MissingPayload(Unready):
    """A payload of the block is not held here: fetch it."""


class FutureTimestamp(Unready):
    """The timestamp is further ahead of the local clock than the chain allows."""


class OutOfWindow(Unready):
    """The round or phase is closed, or too far ahead to be kept."""


class Equivocation(Unready):
    """A member signed two different posts for one phase. The first one seen counts.

    Whoever passes on the second is not to blame, so it is ignored and not held against a neighbour.
    """


class LimitReached(Unready):
    """A bounded pool is full; the thing may be asked for again later."""


class InvalidGenesis(ChainError):
    """The genesis document contradicts itself; the message names the field and both values."""


class NotFound(ChainError):
    """The chain holds nothing under the given height, hash or address."""


class StoreError(ChainError):
    """The data folder cannot be used."""


class StoreMismatch(StoreError):
    """The data folder was written for another chain or by another version."""


class StoreCorrupt(StoreError):
    """The data folder is truncated or was tampered with; the message names the part."""
