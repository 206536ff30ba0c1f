"""Archives in a folder, made without a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.spark.archive.archive_plan import (
    ArchiveRange,
    SeenPartition,
    SeenTopic,
    build_archived_topic,
    find_tails,
    plan_archive_ranges,
)
from watershed.spark.archive.archive_reader import read_manifest
from watershed.spark.archive.manifest import (
    MANIFEST_FILE,
    ArchivedObject,
    ArchiveManifest,
    advance_manifest,
    encode_manifest,
)
from watershed.spark.archive.object_format import ObjectPlace, describe_object, encode_object
from watershed.spark.archive.storage import FolderStorage
from watershed.spark.reading.batch_decoding import BatchView, decode_batch_view

TOPIC, TOPIC_ID = "orders", uuid.UUID(int=7)
T0 = 1_700_000_000_000


def batch_at(base: int, count: int, *, epoch: int = 0, missing: Sequence[int] = (), codec: str = "none") -> BatchView:
    """A stored batch of `count` offsets from `base` on; missing: deltas that compaction took."""
    records = [
        BatchRecord(at, T0 + base + at, b"key %d" % (base + at), b"value", (("h", b"x"),))
        for at in range(count)
        if at not in missing
    ]
    raw = memoryview(
        assign_batch_offset(build_batch(records, codec=codec, last_offset_delta=count - 1), base, leader_epoch=epoch)
    )
    return decode_batch_view(raw, 0, len(raw))


def seen(*ends: tuple[int, int], topic_id: uuid.UUID = TOPIC_ID, epoch_end: int = -1) -> SeenTopic:
    """The topic with a partition for each (log start, log end)."""
    parts = [SeenPartition(at, start, end, end, epoch_end) for at, (start, end) in enumerate(ends)]
    return SeenTopic(TOPIC, topic_id, 1, {"retention.ms": "1000"}, tuple(parts))


def write_object(
    storage: FolderStorage, partition: int, first: int, end: int, batches: Sequence[BatchView]
) -> ArchivedObject:
    place = ObjectPlace(TOPIC, TOPIC_ID, partition, first, end)
    content = encode_object(place, batches)
    entry = describe_object(place, batches, content)
    storage.write_new(entry.path, content)
    return entry


def write_archive(folder: Path, *ends: int) -> ArchiveManifest:
    """One run: each partition holds batches of ten records up to its end, two batches an object."""
    storage = FolderStorage(folder)
    before = read_manifest(storage)
    topic = seen(*((0, end) for end in ends))
    ranges = plan_archive_ranges(before, find_tails(before), [topic])
    objects = [entry for each in ranges for entry in write_objects(storage, each)]
    manifest = advance_manifest(
        before,
        written_at=T0,
        cluster="a",
        cluster_id="cluster-a",
        topics=[build_archived_topic(topic, ranges)],
        positions=[],
        schemas=[],
        objects=objects,
    )
    storage.replace(MANIFEST_FILE, encode_manifest(manifest))
    return manifest


def write_objects(storage: FolderStorage, span: ArchiveRange) -> list[ArchivedObject]:
    found = []
    for first in range(span.first, span.end, 20):
        end = min(first + 20, span.end)
        batches = [batch_at(base, min(10, end - base)) for base in range(first, end, 10)]
        found.append(write_object(storage, span.partition, first, end, batches))
    return found
