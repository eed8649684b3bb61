"""Contents that many simulated peers hold, in one copy: thirty latecomers fetch the same ten payloads."""

from collections import OrderedDict

from fedchain.crypto.hashing import Hash

CONTENTS_SIZE_MAX = 256 * 2**20
"""Bytes of payloads and knowledges that are remembered, so that their next holder gets the same copy."""


class ContentPool:
    """The newest payloads and knowledges of all peers, so that what many of them hold is held once."""

    def __init__(self) -> None:
        self._newest: OrderedDict[Hash, bytes] = OrderedDict()
        self._size = 0

    def intern(self, content_hash: Hash, data: bytes) -> bytes:
        """The copy of ``data`` that was seen first; peers that fetch it much later hold one of their own."""
        known = self._newest.get(content_hash)
        if known is not None:
            self._newest.move_to_end(content_hash)
            return known
        self._newest[content_hash] = data
        self._size += len(data)
        while self._size > CONTENTS_SIZE_MAX:
            self._size -= len(self._newest.popitem(last=False)[1])
        return data
