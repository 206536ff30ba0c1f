"""Columns of small numbers as short text, for values of ledger records.

Each column stands as little-endian numbers of the smallest width that holds them all; zlib finds what repeats (a topic
of equal transactions is one row again and again), base64 makes it text. Both ways run at C speed: a block of thousands
of rows takes well below a millisecond.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Final

from watershed.clusters.varints import decode_uvarint, encode_uvarint

_WIDTHS: Final = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32), ("Q", 1 << 64))
_BYTES: Final = {"B": 1, "H": 2, "I": 4, "Q": 8}
_MOST_ROWS: Final = 1 << 17  # of one text; a record that claims more is none of ours


def encode_columns(columns: Sequence[Sequence[int]]) -> str:
    """Columns of one length, of numbers ≥ 0 and below 2⁶⁴. Raises ValueError for others, or for too many rows."""
    count = len(columns[0])
    if count > _MOST_ROWS:
        raise ValueError(f"{count} rows are too many for one text, {_MOST_ROWS} fit")
    pieces = [encode_uvarint(count)]
    for column in columns:
        if min(column, default=0) < 0:
            raise ValueError("negative numbers cannot be packed")
        largest = max(column, default=0)
        code = next(code for code, limit in _WIDTHS if largest < limit)
        pieces += [code.encode(), struct.pack(f"<{count}{code}", *column)]
    return b64encode(zlib.compress(b"".join(pieces))).decode()


def decode_columns(text: str, columns: int) -> list[tuple[int, ...]]:
    """The inverse of `packed`. Raises ValueError for what is no such text."""
    try:
        expand = zlib.decompressobj()
        raw = expand.decompress(b64decode(text, validate=True), 16 + 8 * columns * _MOST_ROWS)
        count, at = decode_uvarint(raw, 0)
        if not expand.eof or count > _MOST_ROWS:
            raise ValueError("more rows than one text may hold")
        found = []
        for _ in range(columns):
            code = chr(raw[at])
            found.append(struct.unpack_from(f"<{count}{code}", raw, at + 1))
            at += 1 + count * _BYTES[code]
        if at != len(raw):
            raise ValueError("bytes behind the last column")
    except (zlib.error, struct.error, IndexError, KeyError) as error:
        raise ValueError(f"packed rows cannot be read ({error})") from None
    return found


def encode_deltas(column: array[int]) -> array[int]:
    """What each number adds to the one before it; one shorter than the column."""
    return array("q", map(sub, column[1:], column))


def decode_deltas(first: int, added: Sequence[int]) -> array[int]:
    """The inverse of `gaps`."""
    return array("q", accumulate(added, initial=first))
