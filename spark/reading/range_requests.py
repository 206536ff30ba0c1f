"""Ranges to read, and how they are shared out among tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from watershed.clusters.claim_rules import PartitionClaims
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.spark.reading.external_marks import NO_MARKS, ExternalMarks
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs
from watershed.topology.record_transform import RecordTransform

SumKind = Literal["batches", "lists", "records"]


class QuarantinedOffset(NamedTuple):
    """A source record that stands in quarantine. prints: the fingerprints that it may have; none where the quarantine
    has no whole record. keyless: it has no key."""

    offset: int
    prints: tuple[int, ...] = ()
    keyless: bool = False

    def matches(self, fingerprint: int) -> bool:
        """Whether the source's record at this offset can be the one in quarantine."""
        return not self.prints or fingerprint in self.prints


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """One range to read and sum up; `id` finds its row again. left_out: offsets (first, end) that do not count.
    skip: producer ids that do not count, only: those that alone do. claims: what the flows under these ids claim as
    their own writes, batches under them elsewhere count; None: all are believed.

    by: what is summed up, digests of whole batches (`spark.reading.batch_digests`), the same and a list of them, or
    fingerprints of records. in_place: each counts by its offset instead of by its ordinal, so that the same records at
    other offsets differ. around_known: `left_out` holds batches that are equal on both sides; the sum then also depends
    on how many of them stand before each record. transform: what the flow does to the records of this range; they count
    as they should stand at the target. marks: of batches that other tools brought; they do not count.
    header: what the flow adds to each record.
    """

    id: int
    cluster: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    timestamps: bool = True
    skip: tuple[int, ...] = ()
    ids: KeyValueIdPairs = NO_ID_REWRITE
    left_out: tuple[tuple[int, int], ...] = ()
    by: SumKind = "records"
    in_place: bool = False
    only: tuple[int, ...] = ()
    around_known: bool = False
    claims: PartitionClaims | None = None
    transform: RecordTransform | None = None
    marks: ExternalMarks = NO_MARKS
    header: ProvenanceHeader | None = None


def group_into_tasks(requests: Sequence[RangeRequest], tasks: int) -> list[list[RangeRequest]]:
    """Ranges in log order, grouped into about `tasks` stretches of similar length, each of one cluster."""
    share = max(1, -(-sum(request.end - request.start for request in requests) // max(1, tasks)))
    stretches: list[list[RangeRequest]] = []
    length = 0
    for request in sorted(requests, key=lambda request: (*_log(request)[:-3], request.start, request.end)):
        if not stretches or stretches[-1][-1].cluster != request.cluster or length >= share:
            stretches.append([])
            length = 0
        stretches[-1].append(request)
        length += request.end - request.start
    return sorted(stretches, key=lambda requests: -sum(request.end - request.start for request in requests))


def split_into_streams(requests: Sequence[RangeRequest]) -> Iterator[list[RangeRequest]]:
    """Groups of ranges that follow one another in one log, so that they are read as one stream."""
    run: list[RangeRequest] = []
    for request in requests:
        if run and (_log(run[-1]) != _log(request) or run[-1].end != request.start):
            yield run
            run = []
        run.append(request)
    if run:
        yield run


def _log(
    request: RangeRequest,
) -> tuple[
    str,
    str,
    int,
    SumKind,
    bool,
    tuple[tuple[int, ...], tuple[int, ...], ExternalMarks],
    PartitionClaims | None,
    KeyValueIdPairs,
    ProvenanceHeader | None,
]:
    """What ranges must share to be read as one stream; the last three are not in order."""
    whose = request.skip, request.only, request.marks
    place = request.cluster, request.topic_id, request.partition
    return *place, request.by, request.timestamps, whose, request.claims, request.ids, request.header
