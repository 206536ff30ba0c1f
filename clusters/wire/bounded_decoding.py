"""Checks the lengths in an answer before kio decodes it: no array may have more elements than bytes are left.

kio's reader takes memory for as many elements as an array announces before it looks at the first. Where the system does
not give that much, the process aborts, with nothing to catch: 12 bytes are enough (docs/upstream/kio-arrays.md). So
every answer is walked once, and an array that cannot stand in what is left of the bytes is refused.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from kio.serial import entity_reader

from watershed.clusters.varints import decode_uvarint

_Step = Callable[[memoryview, int], int]  # the position behind what stands there

_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "datetime_i64": 8,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
}
_SHORT, _LONG = struct.Struct(">h"), struct.Struct(">i")


def decode_bounded(kind: Any, body: memoryview) -> Any:
    """The answer of this class that stands there. Raises whatever the bytes are not: struct.error, ValueError,
    IndexError, SerialError."""
    build_length_check(kind)(body, 0)
    answer, _size = entity_reader(kind)(body.toreadonly(), 0)
    return answer


def build_length_check(kind: Any) -> _Step:
    """How to walk over an answer of this class."""
    return _walked(kind)[0]


@functools.lru_cache(maxsize=512)
def _walked(kind: Any) -> tuple[_Step, int, int | None]:
    """How to walk over an entity, the fewest bytes that one has, and how many it has always (None: that differs)."""
    compact = bool(kind.__flexible__)
    hints = get_type_hints(kind)
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    least, run = 0, 0
    always = not compact
    for each in fields(kind):
        step, size, fixed = _of_field(hints[each.name], each.metadata.get("kafka_type"), compact)
        if "tag" in each.metadata:
            tagged[int(each.metadata["tag"])] = step
            continue
        least += size
        if fixed is not None:  # what has always the same length is passed over at once
            run += fixed
            continue
        always = False
        steps += [_passing(run)] if run else []
        steps.append(step)
        run = 0
    steps += [_passing(run)] if run else []
    if compact:
        steps.append(_tags(tagged))
        least += 1

    def walk(body: memoryview, at: int) -> int:
        for step in steps:
            at = step(body, at)
        return at

    return walk, least, least if always else None


def _of_field(hint: Any, kafka_type: str | None, compact: bool) -> tuple[_Step, int, int | None]:
    """Of a field as `_walked` of an entity."""
    null = NoneType in get_args(hint)
    (inner,) = [each for each in get_args(hint) if each is not NoneType] if null else [hint]
    if get_origin(inner) is tuple:
        item = get_args(inner)[0]
        item_is_null = NoneType in get_args(item)
        step, least, always = _of_field(item, kafka_type, compact)
        if is_dataclass(item) and item_is_null:
            raise TypeError(f"an array of nullable {item} is not known here")
        return _array(step, max(least, 1), always, compact, null), 1 if compact else _LONG.size, None
    entity: Any = inner
    if is_dataclass(entity):
        walk, least, always = _walked(inner)
        return (_nullable(walk), 1, None) if null else (walk, least, always)
    if kafka_type == "string":
        return (_compact, 1, None) if compact else (_text, _SHORT.size, None)
    if kafka_type in ("bytes", "records"):
        return (_compact, 1, None) if compact else (_bytes, _LONG.size, None)
    size = _SIZES[str(kafka_type)]
    return _passing(size), size, size


def _passing(size: int) -> _Step:
    def step(body: memoryview, at: int) -> int:
        return _within(body, at + size)

    return step


def _array(step: _Step, least: int, always: int | None, compact: bool, null: bool) -> _Step:
    def walk(body: memoryview, at: int) -> int:
        if compact:
            count, at = decode_uvarint(body, at)
            count -= 1
        else:
            (count,) = _LONG.unpack_from(body, at)
            at += _LONG.size
        if count < 0 and not null:  # kio makes None of it, whatever its schema says
            raise ValueError("an array is null that never is")
        if count * least > len(body) - at:
            raise ValueError(f"an array announces {count} elements, and {len(body) - at} bytes are left")
        if always is not None:
            return at + max(count, 0) * always
        for _ in range(count):
            at = step(body, at)
        return at

    return walk


def _nullable(walk: _Step) -> _Step:
    def step(body: memoryview, at: int) -> int:
        return walk(body, at + 1) if body[at] == 1 else _within(body, at + 1)

    return step


def _tags(known: dict[int, _Step]) -> _Step:
    def step(body: memoryview, at: int) -> int:
        if body[at] == 0:
            return at + 1
        count, at = decode_uvarint(body, at)
        if count * 2 > len(body) - at:
            raise ValueError(f"{count} tagged fields are announced, and {len(body) - at} bytes are left")
        for _ in range(count):
            tag, at = decode_uvarint(body, at)
            size, at = decode_uvarint(body, at)
            end = _within(body, at + size)
            if tag in known:
                known[tag](body[:end], at)
            at = end
        return at

    return step


def _compact(body: memoryview, at: int) -> int:
    length, at = decode_uvarint(body, at)
    return _within(body, at + max(length - 1, 0))


def _text(body: memoryview, at: int) -> int:
    (length,) = _SHORT.unpack_from(body, at)
    return _within(body, at + _SHORT.size + max(length, 0))


def _bytes(body: memoryview, at: int) -> int:
    (length,) = _LONG.unpack_from(body, at)
    return _within(body, at + _LONG.size + max(length, 0))


def _within(body: memoryview, at: int) -> int:
    if at > len(body):
        raise ValueError(f"{at - len(body)} bytes are missing")
    return at
