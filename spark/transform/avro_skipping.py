"""Avro's binary encoding passed over, and its numbers read. Nothing is made of what is passed over.

Bytes are foreign: whatever they are, the time is bounded by their number, and what is wrong is an IndexError (they end
too early) or a ValueError. Source: Apache Avro 1.11, specification, binary encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.varints import decode_zigzag
from watershed.spark.transform.avro_schemas import AvroSchema, AvroType

Skip = Callable[[bytes, int], int]  # (data, where it begins) → where it ends

_FIXED_SIZES: Final = {"boolean": 1, "float": 4, "double": 8}
_LONG_BITS: Final = 64


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A number of 64 bits and where it ends. Raises IndexError, ValueError."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = decode_zigzag(data, at)
    check_bits(number, _LONG_BITS)
    return number, at


def check_bits(number: int, bits: int) -> None:
    """Raises ValueError where so many bits do not hold it."""
    if (number if number >= 0 else ~number).bit_length() >= bits:
        raise ValueError(f"holds a number of more than {bits} bits")


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """How many bytes follow, and where they begin; so many are there. Raises IndexError, ValueError."""
    length, at = read_long(data, at)
    if length < 0:
        raise ValueError("holds a length below zero")
    if at + length > len(data):
        raise IndexError(at)
    return length, at


def read_block(data: bytes, at: int) -> tuple[int, int, int]:
    """The head of a block of an array or a map: (how many items, where they begin, where they end or -1: not said)."""
    count, at = read_long(data, at)
    if count >= 0:
        return count, at, -1
    size, at = read_length(data, at)
    return -count, at, at + size


def check_count(count: int, data: bytes, at: int) -> None:
    """Each item takes a byte at least. Raises IndexError."""
    if count > len(data) - at:
        raise IndexError(at)


@dataclass(slots=True)
class SkipBuilder:
    """Functions that pass over the types of one schema."""

    schema: AvroSchema
    _named: dict[str, Skip] = field(default_factory=dict)

    def build(self, type: AvroType) -> Skip:
        """Raises IndexError and ValueError when it is called."""
        if self.schema.is_without_bytes(type):
            return lambda _data, at: at
        if type.kind == "named":
            return lambda data, at: self._find(type.name)(data, at)  # it may contain itself
        if type.kind in _FIXED_SIZES or type.kind == "fixed":
            size = _FIXED_SIZES.get(type.kind, type.size)
            return lambda _data, at: at + size
        if type.kind in ("int", "long", "enum"):
            return lambda data, at: read_long(data, at)[1]
        if type.kind in ("bytes", "string"):
            return _skip_bytes
        if type.kind == "union":
            return _build_union([self.build(each) for each in type.inner])
        if type.kind == "record":
            return build_record_skip([self.build(each) for _, each in type.fields])
        item = self.build(type.inner[0])
        if type.kind == "map":
            return _build_blocks(lambda data, at: item(data, _skip_bytes(data, at)))
        return _build_blocks(None if self.schema.is_without_bytes(type.inner[0]) else item)

    def _find(self, name: str) -> Skip:
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = self.build(self.schema.names[name])
        return found


def _skip_bytes(data: bytes, at: int) -> int:
    length, at = read_length(data, at)
    return at + length


def _build_union(branches: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = read_long(data, at)
        if not 0 <= branch < len(branches):
            raise ValueError("holds a branch that its union does not have")
        return branches[branch](data, at)

    return skip


def build_record_skip(fields: Sequence[Skip]) -> Skip:
    """Passes over one field after the other."""

    def skip(data: bytes, at: int) -> int:
        for each in fields:
            at = each(data, at)
        return at

    return skip


def _build_blocks(item: Skip | None) -> Skip:
    """item: None where items take no byte."""

    def skip(data: bytes, at: int) -> int:
        while True:
            count, at, end = read_block(data, at)
            if not count:
                return at
            if end >= 0:
                at = end
            elif item is not None:
                check_count(count, data, at)
                for _ in range(count):
                    at = item(data, at)

    return skip
