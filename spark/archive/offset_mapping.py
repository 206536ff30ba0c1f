"""Where archived records stand in a topic that was restored with other offsets: the map, and the file that keeps it.

Without equal offsets records stand one behind the other, from where the empty log began. So the map follows from the
archive and that one offset.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from watershed.clusters.private_files import replace_file
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.spark.archive.object_format import OpenedObject, find_batch_offsets
from watershed.spark.errors import Unwritable, WrongUse
from watershed.topology.bounded_json import parse_json_object

MAP_SCHEMA: Final = 1
_LARGEST: Final = 1 << 30  # bytes of a file


@dataclass(frozen=True, slots=True)
class RestoredOffsets:
    """The map of one partition. topic: its name in the archive; target, target_id: the restored topic. end: the topic's
    offset behind the last archived record."""

    topic: str
    partition: int
    target: str
    target_id: uuid.UUID
    end: int
    offsets: OffsetMap


def build_restored_map(objects: Iterable[OpenedObject], base: int, end: int) -> tuple[OffsetMap, int]:
    """(the map, the topic's offset behind the last record). base: the topic's offset of the first record; end: the
    source offset behind the archive."""
    runs: list[OffsetRun] = []
    target, expected = base, -1
    for first, records in list_archived_spans(objects):
        if first != expected:
            runs.append(OffsetRun(target, first))
        target, expected = target + records, first + records
    if expected != end:
        runs.append(OffsetRun(target, end))
    return OffsetMap(runs), target


def list_archived_spans(objects: Iterable[OpenedObject]) -> Iterator[tuple[int, int]]:
    """(first offset, records) of consecutive offsets that the archive holds, in log order; neighbours may touch."""
    for opened in objects:
        for batch in opened.batches:
            yield from _list_starts(find_batch_offsets(batch), opened.place.first)


def encode_restored_offsets(cluster_id: str, found: Iterable[RestoredOffsets]) -> str:
    """JSON; `runs` are pairs [offset in the topic, offset in the archive]."""
    document = {
        "schema": MAP_SCHEMA,
        "cluster_id": cluster_id,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "target": each.target,
                "target_id": str(each.target_id),
                "end": each.end,
                "runs": [list(run) for run in each.offsets.runs],
            }
            for each in found
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def decode_restored_offsets(content: bytes, where: str) -> dict[tuple[str, int], RestoredOffsets]:
    """By topic of the archive and partition. Raises WrongUse."""
    try:
        document = parse_json_object(content, largest=_LARGEST)
        if document.get("schema") != MAP_SCHEMA:
            raise ValueError(f"schema {document.get('schema')!r}, this version reads {MAP_SCHEMA}")
        found = [_read_partition(each) for each in document["partitions"]]
    except (KeyError, TypeError, ValueError, AttributeError, ReplicatorError) as error:
        raise WrongUse(f"{where} is no map of a restore: {error}") from None
    return {(each.topic, each.partition): each for each in found}


def read_restored_offsets(path: Path) -> dict[tuple[str, int], RestoredOffsets]:
    """Empty where there is no such file. Raises WrongUse."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror or error}") from None
    return decode_restored_offsets(content, str(path))


def write_restored_offsets(path: Path, cluster_id: str, found: Iterable[RestoredOffsets]) -> None:
    """Replaces the file whole. Raises Unwritable."""
    try:
        replace_file(path, encode_restored_offsets(cluster_id, found).encode())
    except OSError as error:
        raise Unwritable(
            f"cannot write the map of offsets to {path}: {error.strerror or error}. Name another file (--map) and run "
            "it again: what is restored is not written twice"
        ) from None


def _list_starts(offsets: Iterable[int], least: int) -> list[tuple[int, int]]:
    """(first, records) of consecutive offsets from `least` on."""
    if isinstance(offsets, range):
        first = max(offsets.start, least)
        return [(first, offsets.stop - first)] if first < offsets.stop else []
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if offset < least:
            continue
        if found and sum(found[-1]) == offset:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((offset, 1))
    return found


def _read_partition(value: Mapping[str, Any]) -> RestoredOffsets:
    runs = [OffsetRun(int(target), int(source)) for target, source in value["runs"]]
    return RestoredOffsets(
        str(value["topic"]),
        int(value["partition"]),
        str(value["target"]),
        uuid.UUID(value["target_id"]),
        int(value["end"]),
        OffsetMap(runs),
    )
