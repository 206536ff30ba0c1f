"""From what was read to a verdict: pure functions over chunk rows.

Every source record of the window is proven, missing, altered, reordered, unverifiable or pending; every further
target record is a duplicate or foreign. `unproven`, the headline, is everything that is not as it should be; it must
be 0. Pending is no difference and no proof: three words, never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal

from watershed.spark.fingerprint import ChunkSum
from watershed.spark.judging.merkle_tree import compute_merkle_root, encode_leaf
from watershed.spark.judging.proof_window import PartitionPair
from watershed.spark.judging.record_difference import RecordDifference
from watershed.spark.reading.offset_range import OffsetRange

Verdict = Literal["proven", "repeated", "different", "incomplete", "error"]
ComparisonMeans = Literal["batches", "records", "both"]
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "repeated": 0, "different": 1, "error": 2, "incomplete": 3}
# Every record is there, in order, as the file asks for it.
PASSED_VERDICTS: Final[tuple[Verdict, ...]] = ("proven", "repeated")


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records. quarantined: missing on the target, and kept in its quarantine as the source has them.
    repeated: further records of the target, which its flow may have (`spark.judging.repeated_records`)."""

    proven: int = 0
    missing: int = 0
    altered: int = 0
    reordered: int = 0
    duplicates: int = 0
    foreign: int = 0
    unverifiable: int = 0
    pending: int = 0
    proven_earlier: int = 0
    quarantined: int = 0
    repeated: int = 0

    @property
    def difference_count(self) -> int:
        """Most flows write each record once, so a duplicate is as unexplained as a foreign record."""
        return self.missing + self.altered + self.reordered + self.duplicates + self.foreign

    @property
    def unproven(self) -> int:
        """The headline of a proof, 0 when all is proven: differences and what cannot be verified."""
        return self.difference_count + self.unverifiable

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def to_json(self) -> dict[str, int]:
        """As in `summary.json`."""
        return {"unproven": self.unproven, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One compared chunk. status: equal, different (confirmed by a second read), unverifiable, or earlier: an earlier
    proof has found it equal, and it was not read again. state: it differs, and its partition was judged by the state of
    its keys (`spark.judging.key_state`), so its records do not count. repeated: it differs by nothing but repeats.

    `source_sum`, `target_sum` are those of the read that decided; `reads` says how many it took; `by`, whether digests
    of batches or fingerprints of records were compared, or both: batches that are the same were not opened.
    """

    place: PartitionPair
    source: OffsetRange
    target: OffsetRange
    source_sum: ChunkSum
    target_sum: ChunkSum
    status: Literal["equal", "different", "unverifiable", "earlier", "state", "repeated"]
    reads: int = 1
    unverifiable: int = 0
    why: str = ""
    by: ComparisonMeans = "records"


@dataclass(frozen=True, slots=True)
class ConfirmedDifference:
    """The record-level difference of neighbouring chunks that differ; by `state`, of all keys of a partition."""

    place: PartitionPair
    source: OffsetRange
    target: OffsetRange
    difference: RecordDifference
    by: Literal["records", "state"] = "records"


@dataclass(frozen=True, slots=True)
class ProofJudgement:
    """The result of a proof, by partition. `blocks` are findings that forbid the word proven. groups_differ: positions
    of groups that would leave records out at the target. allow_quarantined: what is kept in quarantine does not forbid
    it (decision 0029)."""

    partitions: dict[PartitionPair, Counts]
    blocks: tuple[str, ...] = ()
    exact: bool = True
    errors: tuple[str, ...] = field(default=())
    groups_differ: int = 0
    by_state: frozenset[PartitionPair] = frozenset()  # partitions whose counts are of keys, not of records
    allow_quarantined: bool = False

    @property
    def total(self) -> Counts:
        """Counts of all partitions together."""
        return sum(self.partitions.values(), Counts())

    @property
    def verdict(self) -> Verdict:
        """`different` goes before `incomplete`; what is pending or in quarantine makes a proof incomplete. `repeated`
        is `proven` of a flow that may repeat records, and has."""
        if self.errors:
            return "error"
        if self.total.difference_count or self.groups_differ:
            return "different"
        kept = self.total.quarantined and not self.allow_quarantined
        if self.total.unverifiable or self.total.pending or kept or self.blocks:
            return "incomplete"
        return "repeated" if self.total.repeated else "proven"


def select_different_chunks(rows: Iterable[ChunkRow]) -> list[ChunkRow]:
    """Rows to be read a second time."""
    return [row for row in rows if row.status == "different"]


def compare_sums(source: ChunkSum, target: ChunkSum) -> Literal["equal", "different"]:
    """Whether both sides of a chunk hold the same records in the same order."""
    return "equal" if source.equals(target) else "different"


def join_different_chunks(rows: Sequence[ChunkRow], limit: int) -> list[tuple[PartitionPair, OffsetRange, OffsetRange]]:
    """Differing chunks that follow one another, joined: a record lost in one shifts all behind it.

    No longer than `limit` offsets, because both sides are held in memory.
    """
    joined: list[tuple[PartitionPair, OffsetRange, OffsetRange]] = []
    for row in sorted(rows, key=lambda row: (row.place, row.target, row.source)):
        if row.status != "different":
            continue
        if joined:
            place, source, target = joined[-1]
            follows = place == row.place and source.end == row.source.start and target.end == row.target.start
            if follows and max(row.source.end - source.start, row.target.end - target.start) <= limit:
                joined[-1] = (
                    place,
                    OffsetRange(source.start, row.source.end),
                    OffsetRange(target.start, row.target.end),
                )
                continue
        joined.append((row.place, row.source, row.target))
    return joined


def judge_proof(
    rows: Iterable[ChunkRow],
    confirmed: Iterable[ConfirmedDifference],
    outside: dict[PartitionPair, Counts],
    *,
    blocks: Sequence[str] = (),
    errors: Sequence[str] = (),
) -> ProofJudgement:
    """Counts by partition. `outside` holds what the window left out: unverifiable, pending, proven earlier."""
    counts, confirmed = dict(outside), list(confirmed)
    exact = True
    by_state = frozenset(each.place for each in confirmed if each.by == "state")
    for row in (row for row in rows if row.place not in by_state):
        if row.status == "equal":
            found = Counts(proven=row.source_sum.n)
        elif row.status == "earlier":
            found = Counts(proven_earlier=row.source_sum.n)
        elif row.status == "unverifiable":
            found = Counts(unverifiable=row.unverifiable)
        else:
            continue  # counted record by record below
        counts[row.place] = counts.get(row.place, Counts()) + found
    for each in confirmed:
        d = each.difference
        exact = exact and d.exact
        found = Counts(
            d.proven,
            d.missing,
            d.altered,
            d.reordered,
            d.duplicates,
            d.foreign,
            d.unverifiable,
            d.pending,
            quarantined=d.quarantined,
            repeated=d.repeated,
        )
        counts[each.place] = counts.get(each.place, Counts()) + found
    return ProofJudgement(counts, tuple(blocks), exact, tuple(errors), by_state=by_state)


def mark_unverifiable(row: ChunkRow, why: str) -> ChunkRow:
    """A chunk whose difference proves nothing, e.g. because the cleaner works on each side for itself."""
    return replace(row, status="unverifiable", unverifiable=max(row.source_sum.n, row.target_sum.n), why=why)


def encode_chunk_row(row: ChunkRow) -> dict[str, Any]:
    """A row as it is stored and hashed: numbers as integers, 64 bit sums as hex."""
    line: dict[str, Any] = {**row.place._asdict(), "status": row.status, "by": row.by, "reads": row.reads}
    line["why"] = row.why
    for side, span, sums in (("source", row.source, row.source_sum), ("target", row.target, row.target_sum)):
        line |= {
            f"{side}_start": span.start,
            f"{side}_end": span.end,
            f"{side}_records": sums.n,
            f"{side}_bytes": sums.size,
            f"{side}_m": f"{sums.m_lo + (sums.m_hi << 32):x}",
            f"{side}_order": f"{sums.order:016x}",
            f"{side}_key": f"{sums.kh:016x}",
            f"{side}_value": f"{sums.vh:016x}",
            f"{side}_headers": f"{sums.hh:016x}",
            f"{side}_timestamp": f"{sums.ts:x}",
            f"{side}_since": sums.since,
            f"{side}_until": sums.until,
        }
    return line


def decode_chunk_row(line: Mapping[str, Any]) -> ChunkRow:
    """A row again from what `encode_chunk_row` made of it. Raises KeyError, ValueError, TypeError."""
    spans, sums = [], []
    for side in ("source", "target"):
        m = int(line[f"{side}_m"], 16)  # only the sum of both halves is kept
        spans.append(OffsetRange(line[f"{side}_start"], line[f"{side}_end"]))
        sums.append(
            ChunkSum(
                n=line[f"{side}_records"],
                m_lo=m & 0xFFFFFFFF,
                m_hi=m >> 32,
                order=int(line[f"{side}_order"], 16),
                kh=int(line[f"{side}_key"], 16),
                vh=int(line[f"{side}_value"], 16),
                hh=int(line[f"{side}_headers"], 16),
                ts=int(line[f"{side}_timestamp"], 16),
                size=line[f"{side}_bytes"],
                since=line.get(f"{side}_since", -1),
                until=line.get(f"{side}_until", -1),
            )
        )
    place = PartitionPair(line["flow"], line["topic"], line["target_topic"], line["partition"])
    (source, target), (source_sum, target_sum) = spans, sums
    return ChunkRow(
        place, source, target, source_sum, target_sum, line["status"], line["reads"], 0, line["why"], line["by"]
    )


def compute_proof_root(rows: Iterable[ChunkRow]) -> str:
    """Merkle root over the chunk rows, for a change ticket."""
    return compute_merkle_root(encode_leaf(encode_chunk_row(row)) for row in rows)
