"""Member numbers beside addresses in a node's log, since people know members by their place in the genesis document.

The node's own messages contain the number of a member; the network's contain only its address, and get the number here.
"""

import logging
from collections.abc import Mapping


class MemberNumbers(logging.Filter):
    """Lets every line pass, and appends the member's number to each argument that is a member's address.

    Args:
        numbers: places, from 0, by address.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        super().__init__()
        self._numbers = numbers

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._numbered(item) for item in record.args)
        return True

    def _numbered(self, item: object) -> object:
        if isinstance(item, int | float):
            return item
        number = self._numbers.get(str(item))
        return item if number is None else f"{item} (peer {number})"


def number_members(numbers: Mapping[str, int]) -> None:
    """Have the process's log name members with their numbers from now on."""
    for handler in logging.getLogger().handlers:
        for known in [item for item in handler.filters if isinstance(item, MemberNumbers)]:
            handler.removeFilter(known)
        handler.addFilter(MemberNumbers(numbers))
