"""Numbers beside addresses in a node's log: who reads it knows members by their place in the genesis document."""

import logging
from collections.abc import Mapping


class Member(str):
    """The address of a member, which says its number, too, where it is written."""

    number: int
    """Place in the genesis document, from 0."""

    __slots__ = ("number",)

    def __new__(cls, address: str, number: int) -> "Member":
        """An address that knows its number."""
        member = super().__new__(cls, address)
        member.number = number
        return member

    def __str__(self) -> str:
        return f"{super().__str__()} (peer {self.number})"


class MemberNumbers(logging.Filter):
    """Lets every line pass, and gives each address of a member that it names its number.

    Args:
        numbers: by address.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        super().__init__()
        self._numbers = numbers

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._named(item) for item in record.args)
        return True

    def _named(self, item: object) -> object:
        if isinstance(item, int | float):
            return item
        number = self._numbers.get(str(item))
        return item if number is None else Member(str(item), number)


def number_members(numbers: Mapping[str, int]) -> None:
    """From now on the process's log names members with their numbers."""
    for handler in logging.getLogger().handlers:
        for known in [item for item in handler.filters if isinstance(item, MemberNumbers)]:
            handler.removeFilter(known)
        handler.addFilter(MemberNumbers(numbers))
