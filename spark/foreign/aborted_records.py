"""Whether strange records of a foreign copy are those of aborted transactions: a copier that reads uncommitted records
(MirrorMaker 2 as it comes) copies them, too, and to whoever reads the copy they are as good as any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import resolve_connection_settings
from watershed.spark.errors import SparkError
from watershed.spark.fingerprint import fingerprint_slices
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.verdict import ConfirmedDifference
from watershed.spark.reading.batch_decoding import BatchView, locate_records
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_record_batches
from watershed.topology.plan import Plan

_MOST = 2_000_000  # source offsets of a range that are read for this; no more is said of larger ones


def find_copied_aborted_records(
    plan: Plan, partitions: Sequence[ProofPartition], confirmed: Sequence[ConfirmedDifference]
) -> list[str]:
    """A sentence for every partition where that is so, of the foreign records that are named one by one."""
    by_place = {partition.window.place: partition for partition in partitions}
    found: dict[str, int] = {}
    for each in confirmed:
        strange = {e.target_fp for e in each.difference.examples if e.kind == "foreign"}
        partition = by_place[each.place]
        # a little before the range as well: what was aborted in front of its first record is copied behind the cut
        span = OffsetRange(max(partition.window.source.start, each.source.start - 10_000), each.source.end + 10_000)
        if strange and span.end - span.start <= _MOST:
            span = OffsetRange(span.start, min(span.end, partition.window.tail.end))
            count = len(strange & _aborted(plan, partition, span))
            where = each.place.name
            found[where] = found.get(where, 0) + count
    return [
        f"{where}: {count} of the foreign records are records of aborted transactions on the source. Whoever made this "
        "copy reads uncommitted records (MirrorMaker 2 does, without `consumer.isolation.level: read_committed`)"
        for where, count in found.items()
        if count
    ]


def _aborted(plan: Plan, partition: ProofPartition, span: OffsetRange) -> set[int | None]:
    """Fingerprints of the aborted records of the source."""
    request = partition.build_request(0, span, 0)
    settings = resolve_connection_settings(plan.cluster(request.cluster))
    address = PartitionAddress(settings, request.topic, UUID(request.topic_id), request.partition, request.timestamps)
    prints: set[int | None] = set()
    try:
        count = {batch.base_offset for batch in read_record_batches(address, span)}
        for batch in _others(address, span, count):
            prints |= set(fingerprint_slices(locate_records([batch]), timestamps=request.timestamps).fp.tolist())
    except (OffsetsExpired, ClusterError, SparkError):
        return set()  # it was only to be said
    return prints


def _others(address: PartitionAddress, span: OffsetRange, count: set[int]) -> Iterator[BatchView]:
    for batch in read_record_batches(address, span, committed=False):
        if batch.count and not batch.control and batch.base_offset not in count:
            yield batch
