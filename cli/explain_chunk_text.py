"""An explanation of a chunk as text and as JSON. Without `reveal` no key, value or header value is in either."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from watershed.spark.evidence.difference_explanation import ChunkExplanation, ExplainedDifference
from watershed.spark.reading.whole_records import WholeRecord

_MOST: Final = 200  # bytes of a value
_SIDES: Final = ("source", "target")
_BEFORE: Final = 40  # bytes shown in front of the first that differs
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def render_chunk_explanation(chunk: Mapping[str, Any], found: ChunkExplanation, *, reveal: bool) -> str:
    """For people. reveal: show keys, values and headers, too."""
    lines = _head(chunk, found)
    for number, each in enumerate(found.explained, 1):
        lines += ["", *_one(number, each, found, reveal=reveal)]
    if found.total > len(found.explained):
        lines += ["", f"and {found.total - len(found.explained)} more: see diffs.parquet"]
    if found.explained and not reveal:
        lines += ["", "keys, values and headers are shown with --reveal"]
    return "\n".join(lines)


def encode_chunk_explanation(chunk: Mapping[str, Any], found: ChunkExplanation, *, reveal: bool) -> dict[str, Any]:
    """The same as JSON. reveal: with keys, values and headers."""

    def side(each: ExplainedDifference, at: int) -> dict[str, Any]:
        record = each.records[at]
        return {
            "offset": each.offsets[at],
            "then": each.then[at],
            "record": None if record is None else _json(record, reveal=reveal),
            "near": [_json(near, reveal=reveal) for near in each.near[at]],
        }

    def one(each: ExplainedDifference) -> dict[str, Any]:
        kind = {"kind": each.kind, "components": list(each.components)}
        if not found.is_transformed:
            return {**kind, "source": side(each, 0), "target": side(each, 1)}
        origin = None if each.origin is None else _json(each.origin, reveal=reveal)
        return {**kind, "origin": origin, "expected": side(each, 0), "target": side(each, 1)}

    return {
        "chunk": dict(chunk),
        "total": found.total,
        "anew": found.anew,
        "equal_now": found.equal_now,
        "expired": {"source": found.expired[0], "target": found.expired[1]},
        "differences": [one(each) for each in found.explained],
    }


def _head(chunk: Mapping[str, Any], found: ChunkExplanation) -> list[str]:
    target = "" if chunk["topic"] == chunk["target_topic"] else f", {chunk['target_topic']} on the target"
    ranges = [_range(chunk[f"{side}_start"], chunk[f"{side}_end"]) for side in ("source", "target")]
    lines = [
        f"chunk {chunk['chunk']} of flow {chunk['flow']}{target}: {chunk['status']}",
        f"source offsets {ranges[0]} ({chunk['source_records']:,} records), target {ranges[1]} "
        f"({chunk['target_records']:,}); compared by {chunk['by']}",
    ]
    if chunk["why"]:
        lines.append(str(chunk["why"]))
    if chunk["status"] == "state":
        lines.append("its partition is compacted, so its keys were compared by their last values")
    if chunk["status"] != "different" and not found.explained:
        lines.append("there is no difference to explain")
    if found.anew:
        lines.append("the proof named no difference of this chunk one by one: it was compared again just now")
    for side, gone in zip(("source", "target"), found.expired, strict=True):
        if gone:
            start = chunk[f"{side}_start"]
            lines.append(f"{side} offsets {_range(start, start + gone)} expired since the proof")
    if chunk["status"] == "different" and found.equal_now:
        lines.append("both sides hold the same records here now: it was repaired, or what differed expired")
    return lines


def _one(number: int, each: ExplainedDifference, found: ChunkExplanation, *, reveal: bool) -> list[str]:
    title = f"{each.kind} ({', '.join(each.components)})" if each.components else each.kind
    lines = [click.style(f"{number}. {title}", bold=True)]
    names = ("expected", "target  ") if found.is_transformed else ("source", "target")
    if found.is_transformed:
        lines += _origin(each, reveal=reveal)
    for side in (0, 1):
        name, record = names[side], each.records[side]
        if each.offsets[side] is None:
            why = ", `where` leaves it out" if each.is_left_out and side == 0 else ""
            lines.append(f"  {name}  no such record{why}")
        elif record is None:
            lines.append(f"  {name}  {each.offsets[side]}  {each.then[side]}")
        else:
            now = "" if each.then[side] == "as it was" else f"  ({each.then[side]})"
            lines.append(f"  {name}  {_line(record)}{now}")
            lines += _values(record, each.records[1 - side], each.components) if reveal else []
    for side in (0, 1):
        if each.near[side]:
            where = "as expected from the source" if found.is_transformed and side == 0 else f"on the {_SIDES[side]}"
            lines.append(f"  near it {where}")
            lines += [f"    {_line(record)}" for record in each.near[side]]
    return lines


def _origin(each: ExplainedDifference, *, reveal: bool) -> list[str]:
    """The source's record as it is, before the flow changes it."""
    if each.origin is None:
        return ["  source    not known: it expired, or no record of the source leads there"]
    values = _values(each.origin, None, ()) if reveal else []
    return [f"  source    {_line(each.origin)}", *values]


def _line(record: WholeRecord) -> str:
    names = ", ".join(_shown(name) for name, _ in record.headers) or "none"
    return (
        f"{record.offset}  {_time(record.timestamp)}  key {_size(record.key)} #{record.key_hash:016x}  "
        f"value {_size(record.value)}  headers {names}"
    )


def _values(record: WholeRecord, other: WholeRecord | None, components: tuple[str, ...]) -> list[str]:
    pairs = [
        ("key", record.key, None if other is None else other.key),
        ("value", record.value, None if other is None else other.value),
    ]
    lines = [_value(name, mine, theirs if name in components else None) for name, mine, theirs in pairs]
    return [*lines, *(f"    header {_shown(name)}: {_shown(content)}" for name, content in record.headers)]


def _value(name: str, content: bytes | None, other: bytes | None) -> str:
    """A long one from a little before the first byte that differs from `other`."""
    at = find_first_difference(content, other)
    if at is None or content is None:
        return f"    {name:<6} {_shown(content)}"
    start = at - _BEFORE if at >= _MOST - _BEFORE else 0
    while 0 < start < at and content[start] & 0xC0 == 0x80:
        start += 1  # not within a character
    return f"    {name:<6} {'… ' if start else ''}{_shown(content[start:])}   ← differs from byte {at} on"


def find_first_difference(one: bytes | None, other: bytes | None) -> int | None:
    """The first byte that only one of them has, or has otherwise; None where there is none, or one is null."""
    if one is None or other is None or one == other:
        return None
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _shown(content: bytes | None) -> str:
    """Text where it is UTF-8 without control characters (beyond tab and line ends, escaped), else hex; cut at MOST."""
    if content is None:
        return "null"
    cut, more = content[:_MOST], f" … {len(content):,} B in all" if len(content) > _MOST else ""
    for shorter in range(min(4, len(cut) + 1) if more else 1):  # a character may be cut in two
        try:
            text = cut[: len(cut) - shorter].decode()
        except UnicodeDecodeError:
            continue
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        if text.isprintable():
            return f'"{text}"{more}'
    return f"0x{cut.hex()}{more}"


def _json(record: WholeRecord, *, reveal: bool) -> dict[str, Any]:
    line: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_bytes": None if record.key is None else len(record.key),
        "value_bytes": None if record.value is None else len(record.value),
        "key_hash": f"{record.key_hash:016x}",
        "fp": f"{record.fp:016x}",
        "headers": [name.decode(errors="replace") for name, _ in record.headers],
    }
    if reveal:
        line |= {"key": _shown(record.key), "value": _shown(record.value)}
        line["header_values"] = [_shown(content) for _, content in record.headers]
    return line


def _time(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ms} ms"


def _size(content: bytes | None) -> str:
    return "null" if content is None else f"{len(content):,} B"


def _range(start: int, end: int) -> str:
    return f"{start} to {end - 1}" if end > start else f"none at {start}"
