"""What a proof compares (`ProofPartition`), and who reads ranges (`ProofReaders`): Spark, in tests a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from watershed.clusters.claim_rules import PartitionClaims
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.replicator.ledger.foreign_part import JoinedOffsetMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap
from watershed.spark.judging.key_state_reading import KeyStateJob, KeyStateResult
from watershed.spark.judging.proof_window import DEFAULT_CHUNK_OFFSETS, ProofWindow
from watershed.spark.judging.record_difference import MAX_DIFFERENCE_EXAMPLES, RecordDifference
from watershed.spark.judging.verdict import ChunkRow
from watershed.spark.reading.external_marks import NO_MARKS, ExternalMarks
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_requests import QuarantinedOffset, RangeRequest, SumKind
from watershed.spark.reading.range_sums import RangeSum
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs
from watershed.topology.record_transform import RecordTransform


@dataclass(frozen=True, slots=True)
class ProofPartition:
    """One partition to prove. `clusters` and `topic_ids`: source, then target. ids: schema ids that are rewritten.

    claims: what the flows into the source have written there; producers to `skip` are believed there only (None:
    everywhere). in_place: the copy has the source's offsets (`offsets: aligned`), so each record is expected at its
    own. chunk: in source offsets. earlier: chunks that an earlier proof has proven, in log order and apart from one
    another; they are not read, but for those `again`. kept: what is in quarantine for it, by rising offsets.
    only_copy_compacts: the target's cleaner takes what the source keeps. transform: what the flow does to records.
    marks: of what another tool brought to the source and the flow leaves out. header: what the flow adds to each
    record.
    """

    window: ProofWindow
    map: OffsetMap
    clusters: tuple[str, str]
    compacted: bool = False
    timestamps: bool = True
    skip: tuple[int, ...] = ()
    only: tuple[int, ...] = ()
    claims: PartitionClaims | None = None
    ids: KeyValueIdPairs = NO_ID_REWRITE
    in_place: bool = False
    chunk: int = DEFAULT_CHUNK_OFFSETS
    earlier: tuple[ChunkRow, ...] = ()
    again: tuple[ChunkRow, ...] = ()
    kept: tuple[QuarantinedOffset, ...] = ()
    only_copy_compacts: bool = False
    transform: RecordTransform | None = None
    marks: ExternalMarks = NO_MARKS
    header: ProvenanceHeader | None = None

    @property
    def can_compare_batches(self) -> bool:
        """Whether its copy can be the source's batches as they are."""
        plain = self.transform is None and self.ids == NO_ID_REWRITE and self.header is None
        return self.timestamps and plain and not self.left_out

    @property
    def left_out(self) -> tuple[tuple[int, int], ...]:
        """Target offsets that `topology flow adopt` accepted as extra (such as duplicates of the earlier copier). They
        are not compared."""
        return self.map.extra if isinstance(self.map, JoinedOffsetMap) else ()

    def kept_in(self, source: OffsetRange) -> tuple[QuarantinedOffset, ...]:
        """Entries of the quarantine whose records stand in this range of the source."""
        return tuple(each for each in self.kept if source.start <= each.offset < source.end)

    def build_request(
        self, side: int, span: OffsetRange, number: int, by: SumKind = "records", known: Sequence[tuple[int, int]] = ()
    ) -> RangeRequest:
        """The request that a task gets. side: 0 is the source, 1 the target. known: offsets that need not be read."""
        place = self.window.place
        left_out = sorted((*known, *(self.left_out if side == 1 else ())))
        return RangeRequest(
            number,
            self.clusters[side],
            (place.topic, place.target_topic)[side],
            str(self.window.ids[side]),
            place.partition,
            span.start,
            span.end,
            self.timestamps,
            self.skip if side == 0 else (),
            self.ids if side == 0 else NO_ID_REWRITE,
            tuple(each for each in left_out if each[0] < span.end and each[1] > span.start),
            by,
            self.in_place,
            self.only if side == 1 else (),
            around_known=bool(known),
            claims=self.claims if side == 0 else None,
            transform=self.transform if side == 0 else None,
            marks=self.marks if side == 0 else NO_MARKS,
            header=self.header if side == 0 else None,
        )


class RangeComparison(NamedTuple):
    """Two ranges to compare record by record; `open_end` and `limit` as in `compare_records`. near: neighbouring ranges
    of the source; a record there that the target's range holds is a duplicate. kept: entries in quarantine.
    has_repeats: the target may hold records once more (`spark.judging.repeated_records`). repeated: those that the
    ledger knows."""

    source: RangeRequest
    target: RangeRequest
    open_end: bool = False
    limit: int = MAX_DIFFERENCE_EXAMPLES
    near: tuple[RangeRequest, ...] = ()
    kept: tuple[QuarantinedOffset, ...] = ()
    has_repeats: bool = False
    repeated: tuple[ExplicitRun, ...] = ()


@dataclass(frozen=True, slots=True)
class ProofReaders:
    """How ranges are read: sums by range id, differences in the order of the jobs, states of compacted partitions."""

    sums: Callable[[Sequence[RangeRequest]], dict[int, RangeSum]]
    differences: Callable[[Sequence[RangeComparison]], list[RecordDifference]]
    states: Callable[[Sequence[KeyStateJob]], list[KeyStateResult]] | None = (
        None  # None: compacted logs that differ are told
    )


class ReadFailed(Exception):
    """Ranges that could not be read."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(*errors)
        self.errors = errors


def require_range_sums(requests: Sequence[RangeRequest], readers: ProofReaders) -> dict[int, RangeSum]:
    """Raises ReadFailed."""
    read = readers.sums(requests) if requests else {}
    errors = [f"{r.detail}." for r in read.values() if r.state == "failed"]
    if errors:
        raise ReadFailed(errors)
    return read
