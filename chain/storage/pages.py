"""Table rows in an SQLite file, found page by page without SQLite: what a damaged page leads to is not lost with it.

A row lives in a leaf page of its table, and in a chain of overflow pages if it is long. Which table that is, the page
does not say; a row's own checksum does. Deleted rows that were not yet overwritten are found as well.

Source: https://www.sqlite.org/fileformat2.html
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PAGE_SIZE = 4096
"""Bytes of a page of the databases that are built here; none of them reserves any."""

LEAF = 0x0D
"""First byte of a leaf page of a table."""

CELLS_MAX = PAGE_SIZE // 4
"""More rows than that do not fit on a page."""

COLUMNS_MAX = 32
"""More columns than that has no table here."""

LOG_HEADER_SIZE, FRAME_HEADER_SIZE = 32, 24

INTEGER_SIZES = (0, 1, 2, 3, 4, 6, 8)
"""Bytes of an integer by its serial type."""

Pages = Callable[[int], bytes]
"""The page with this number, from 1; empty where there is none."""


def find_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """The columns of all rows in the database at ``path`` and in its log, as far as their pages are legible.

    A column that is the row's number holds None in the file and the number here. Newer versions of a row come first.
    """
    log = path.with_name(f"{path.name}-wal")
    frames = _read_log(log) if log.exists() else {}
    with path.open("rb") as file:
        count = -(-path.stat().st_size // PAGE_SIZE)

        def stored(number: int) -> bytes:
            if not 0 < number <= count:
                return b""
            file.seek((number - 1) * PAGE_SIZE)
            return file.read(PAGE_SIZE).ljust(PAGE_SIZE, b"\0")

        def newest(number: int) -> bytes:
            return frames.get(number) or stored(number)

        last = max(count, *frames, 0)
        for number in range(2, last + 1):  # the first page holds the schema
            yield from _rows_of_page(number, newest, last)
        for number in frames:
            yield from _rows_of_page(number, stored, last)


def _read_log(path: Path) -> dict[int, bytes]:
    """The newest version of each page in the log, torn frames included: the rows prove themselves."""
    frames: dict[int, bytes] = {}
    with path.open("rb") as file:
        salts = file.read(LOG_HEADER_SIZE)[16:24]
        while len(head := file.read(FRAME_HEADER_SIZE)) == FRAME_HEADER_SIZE:
            page = file.read(PAGE_SIZE)
            if head[8:16] == salts:  # otherwise it is left from an earlier use of the log
                frames[int.from_bytes(head[:4], "big")] = page.ljust(PAGE_SIZE, b"\0")
    return frames


def _rows_of_page(number: int, pages: Pages, last: int) -> Iterator[tuple[Any, ...]]:
    page = pages(number)
    if page[:1] != bytes([LEAF]):
        return
    for place in range(min(int.from_bytes(page[3:5], "big"), CELLS_MAX)):
        start = int.from_bytes(page[8 + 2 * place : 10 + 2 * place], "big")
        try:
            yield _read_cell(page, start, pages, last)
        except (IndexError, ValueError):
            continue


def _read_cell(page: bytes, start: int, pages: Pages, last: int) -> tuple[Any, ...]:
    """One row. Raises IndexError or ValueError where it is not one."""
    size, start = _read_varint(page, start)
    number, start = _read_varint(page, start)
    if size > last * PAGE_SIZE:
        raise ValueError(f"a row of {size} bytes in {last} pages")
    local = _local_size(size)
    payload, end = bytearray(page[start : start + local]), start + local
    following = int.from_bytes(page[end : end + 4], "big")
    while len(payload) < size:
        overflow = pages(following)
        if not overflow:
            raise ValueError(f"a row goes on at page {following} of {last}")
        following = int.from_bytes(overflow[:4], "big")
        payload += overflow[4 : 4 + size - len(payload)]
    return _read_record(bytes(payload), number)


def _local_size(size: int) -> int:
    """How much of a row of ``size`` bytes stands on its leaf page."""
    if size <= PAGE_SIZE - 35:
        return size
    least = (PAGE_SIZE - 12) * 32 // 255 - 23
    most = least + (size - least) % (PAGE_SIZE - 4)
    return most if most <= PAGE_SIZE - 35 else least


def _read_record(payload: bytes, number: int) -> tuple[Any, ...]:
    head_size, place = _read_varint(payload, 0)
    kinds: list[int] = []
    while place < head_size:
        if len(kinds) == COLUMNS_MAX:
            raise ValueError(f"a row with more than {COLUMNS_MAX} columns")
        kind, place = _read_varint(payload, place)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = (kind - 12) // 2 if kind >= 12 else INTEGER_SIZES[kind] if kind < len(INTEGER_SIZES) else 0
        data = payload[place : place + size]
        if len(data) < size:
            raise ValueError(f"{len(data)} bytes left for a column of {size}")
        values.append(_read_value(kind, data))
        place += size
    if values and values[0] is None:
        values[0] = number
    return tuple(values)


def _read_value(kind: int, data: bytes) -> Any:
    if kind >= 12:
        return data
    if kind in (8, 9):  # zero and one take no bytes
        return kind - 8
    return int.from_bytes(data, "big", signed=True) if 0 < kind < len(INTEGER_SIZES) else None


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of up to nine bytes, and where it ends."""
    value = 0
    for count in range(8):
        byte = data[place + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + count + 1
    return value << 8 | data[place + 8], place + 9
