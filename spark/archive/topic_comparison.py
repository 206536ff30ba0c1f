"""An archive against a topic, record by record: what only one of both holds, and what differs.

Both sides become fingerprints (`clusters.record_fingerprint`), object by object. Offsets count: a record belongs to the
one at the same offset, or at the offset that the map of a restore with other offsets says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.archive.archive_reader import open_object
from watershed.spark.archive.manifest import ArchivedObject
from watershed.spark.archive.object_format import OpenedObject
from watershed.spark.archive.storage import ArchiveStorage
from watershed.spark.errors import ArchiveDamaged, NotReadable
from watershed.spark.fingerprint import (
    ChunkSum,
    RecordFingerprints,
    fingerprint_slices,
    join_fingerprints,
    sum_fingerprints,
)
from watershed.spark.reading.batch_decoding import CorruptBatch, locate_records
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_all_fingerprints

_OPENED_BATCHES: Final = 512  # that are opened together
_FAR: Final = 1 << 62  # behind every offset
_NO_SUM: Final = ChunkSum()


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """What a comparison of one partition found; offsets are those of the topic.

    archived, found: records on either side, as far as both were compared. equal: at the same offset and the same.
    missing: in the archive only; extra: in the topic only; altered: at the same offset and different.
    first_difference: the lowest offset of those; -1 where there is none. gone: archived records below the log's start,
    which nobody can compare. archive_sum, topic_sum: over all compared records, by their offsets.
    """

    topic: str
    partition: int
    archived: int = 0
    found: int = 0
    equal: int = 0
    missing: int = 0
    extra: int = 0
    altered: int = 0
    first_difference: int = -1
    gone: int = 0
    archive_sum: ChunkSum = _NO_SUM
    topic_sum: ChunkSum = _NO_SUM

    @property
    def is_equal(self) -> bool:
        """True if every compared record stands on both sides."""
        return self.first_difference < 0 and self.archive_sum.equals(self.topic_sum)


def compare_partition(
    storage: ArchiveStorage,
    objects: Sequence[ArchivedObject],
    address: PartitionAddress,
    log: LogRange,
    offsets: OffsetMap | None = None,
    *,
    begin: int = 0,
    is_whole: bool = True,
) -> PartitionComparison:
    """Compares from `begin` (an offset of the topic) on.

    log: where committed records of the topic begin and end. offsets: where archived records stand in the topic; None:
    at their own offsets. is_whole: what the topic lacks behind its end is missing; else the comparison ends there.
    Raises ArchiveDamaged, NotReadable, ClusterError.
    """
    result = PartitionComparison(address.topic, address.partition)
    for at, entry in enumerate(objects):
        edges = (entry.first, entry.end)
        first, end = edges if offsets is None else (offsets.to_target(edge, _FAR) for edge in edges)
        if at == 0 and not begin:
            first = min(first, log.start)  # what stands in front of the archive is in the topic only
        low, high = max(first, begin, log.start), min(end, log.end)
        if end <= begin or (not is_whole and first >= log.end):
            continue
        archived = _translate(_print_object(storage, entry), offsets)
        gone = len(archived.between(max(first, begin), low))
        here = archived.between(low, end if is_whole else high)
        result = _add(result, here, _read_topic(address, low, high), gone)
    return result


def locate_object_records(opened: OpenedObject) -> RecordFingerprints:
    """Fingerprints of the records of an object that lie in its offsets."""
    batches = opened.batches
    parts = [batches[at : at + _OPENED_BATCHES] for at in range(0, len(batches), _OPENED_BATCHES)]
    found = join_fingerprints([fingerprint_slices(locate_records(list(part))) for part in parts])
    return found.between(opened.place.first, opened.place.end)


def _print_object(storage: ArchiveStorage, entry: ArchivedObject) -> RecordFingerprints:
    try:
        return locate_object_records(open_object(storage, entry))
    except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
        raise ArchiveDamaged([f"{storage.locate(entry.path)}: {error}"]) from None


def _translate(prints: RecordFingerprints, offsets: OffsetMap | None) -> RecordFingerprints:
    if offsets is None or not len(prints):
        return prints
    targets, sources = (np.array(column, dtype=np.int64) for column in zip(*offsets.runs, strict=True))
    at = np.searchsorted(sources, prints.offset, side="right") - 1
    return replace(prints, offset=targets[at] + prints.offset - sources[at])


def _read_topic(address: PartitionAddress, low: int, high: int) -> RecordFingerprints:
    if low >= high:
        return join_fingerprints([])
    try:
        return read_all_fingerprints(address, OffsetRange(low, high))
    except OffsetsExpired as gone:
        raise NotReadable(
            f"{address}: offsets below {gone.log_start} were deleted (retention) while they were compared; run it again"
        ) from None


def _add(
    before: PartitionComparison, here: RecordFingerprints, there: RecordFingerprints, gone: int
) -> PartitionComparison:
    common, mine, theirs = np.intersect1d(here.offset, there.offset, assume_unique=True, return_indices=True)
    differs = here.fp[mine] != there.fp[theirs]
    missing, extra, altered = len(here) - len(common), len(there) - len(common), int(differs.sum())
    firsts = [*common[differs][:1].tolist()]
    if missing or extra:
        firsts += np.setxor1d(here.offset, there.offset, assume_unique=True)[:1].tolist()
    first = min(firsts, default=-1)
    return PartitionComparison(
        before.topic,
        before.partition,
        before.archived + len(here),
        before.found + len(there),
        before.equal + len(common) - altered,
        before.missing + missing,
        before.extra + extra,
        before.altered + altered,
        first if before.first_difference < 0 else before.first_difference,
        before.gone + gone,
        before.archive_sum.add_in_place(sum_fingerprints(here, base=0)),
        before.topic_sum.add_in_place(sum_fingerprints(there, base=0)),
    )
