"""Rows from the raw pages of a damaged SQLite file.

SQLite's own reader needs an intact path from the root of a table to each leaf.
This one looks at every page by itself: a table leaf (type 13) holds cells, a
cell holds a record, and a record says its column types.  See "Database File
Format" of the SQLite documentation, sections 1.5, 1.6 and 2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

LEAF = 13  # a leaf page of a table, in SQLite's file format
MAX_PAYLOAD = 16 * 2**20  # of a row: more than a record may have


def rows_of_pages(path: Path, columns: int) -> Iterator[tuple[object, ...]]:
    """Every row of `columns` columns on any table leaf of the file, whichever table it belongs to."""
    with path.open("rb") as file:
        data = file.read()
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    if size < 512 or size & (size - 1):
        size = 4096
    for number in range(1, -(-len(data) // size) + 1):
        for payload, rowid in _cells(data, number, size):
            row = _row(payload, columns, rowid)
            if row is not None:
                yield row


def _cells(data: bytes, number: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Payload and rowid of each readable cell of page `number` (counted from 1)."""
    start = (number - 1) * size
    header = start + (100 if number == 1 else 0)
    if header + 8 > len(data) or data[header] != LEAF:
        return
    for index in range(min(int.from_bytes(data[header + 3 : header + 5], "big"), size // 4)):
        at = header + 8 + 2 * index
        offset = start + int.from_bytes(data[at : at + 2], "big")
        try:
            length, offset = _varint(data, offset)
            rowid, offset = _varint(data, offset)
            payload = _payload(data, offset, length, size)
        except (IndexError, ValueError):
            continue
        if len(payload) == length:
            yield payload, rowid


def _payload(data: bytes, offset: int, length: int, size: int) -> bytes:
    """The cell's payload, its overflow chain followed; short when the chain is cut."""
    if length > MAX_PAYLOAD:
        raise ValueError("too long")
    usable = size - data[20]
    most, least = usable - 35, (usable - 12) * 32 // 255 - 23
    if length <= most:
        return data[offset : offset + length]
    local = least + (length - least) % (usable - 4)
    local = least if local > most else local
    parts = [data[offset : offset + local]]
    left = length - local
    page = int.from_bytes(data[offset + local : offset + local + 4], "big")
    while left > 0 and page and page * size <= len(data):
        start = (page - 1) * size
        parts.append(data[start + 4 : start + 4 + min(left, usable - 4)])
        left -= usable - 4
        page = int.from_bytes(data[start : start + 4], "big")
    return b"".join(parts)


def _row(payload: bytes, columns: int, rowid: int) -> tuple[object, ...] | None:
    """The values of a record, or None when it has another number of columns or is torn.

    A NULL in the first column stands for the rowid: an INTEGER PRIMARY KEY is
    stored that way.
    """
    try:
        header, at = _varint(payload, 0)
        types = []
        while at < header:
            code, at = _varint(payload, at)
            types.append(code)
        if len(types) != columns or at != header:
            return None
        values: list[object] = []
        for code in types:
            value, at = _value(payload, at, code)
            values.append(value)
    except (IndexError, ValueError, struct.error):
        return None
    if at != len(payload):
        return None
    if values and values[0] is None:
        values[0] = rowid
    return tuple(values)


_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _value(payload: bytes, at: int, code: int) -> tuple[object, int]:
    if code == 0:
        return None, at
    if code in _INTEGERS:
        width = _INTEGERS[code]
        return int.from_bytes(_take(payload, at, width), "big", signed=True), at + width
    if code == 7:
        return struct.unpack(">d", _take(payload, at, 8))[0], at + 8
    if code in (8, 9):
        return code - 8, at
    if code < 12:
        raise ValueError("reserved type")
    width = (code - 12) // 2
    raw = _take(payload, at, width)
    return (raw.decode("utf-8") if code % 2 else raw), at + width


def _take(payload: bytes, at: int, width: int) -> bytes:
    raw = payload[at : at + width]
    if len(raw) != width:
        raise ValueError("torn")
    return raw


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's big-endian variable integer: seven bits a byte, eight in the ninth."""
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9
