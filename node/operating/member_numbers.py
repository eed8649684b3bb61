"""Numbers beside addresses in a node's log: who reads it knows members by their place in the genesis document.

The node's own messages know the number of a member; those of the network know its address alone, and get it here.
"""

import logging
from collections.abc import Mapping


class MemberNumbers(logging.Filter):
    """Lets every line pass, and writes behind each address of a member that is an argument its number.

    Args:
        numbers: places in the genesis document, from 0, by address.
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
    """From now on the process's log names members with their numbers."""
    for handler in logging.getLogger().handlers:
        for known in [item for item in handler.filters if isinstance(item, MemberNumbers)]:
            handler.removeFilter(known)
        handler.addFilter(MemberNumbers(numbers))
