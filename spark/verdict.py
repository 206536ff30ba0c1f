"""From what was read to a verdict: pure functions over chunk rows.

Every source record of the window is proven, missing, altered, reordered, unverifiable or pending; every further
target record is a duplicate or foreign. `unproven`, the headline, is everything that is not as it should be; it must
be 0. Pending is no difference and no proof: three words, never mixed (research/verification §1.5).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from spark.difference import Difference
from spark.fingerprint import ChunkSum
from spark.window import Place, Span

Verdict = Literal["proven", "different", "incomplete", "error"]
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "different": 1, "error": 2, "incomplete": 3}


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records."""

    proven: int = 0
    missing: int = 0
    altered: int = 0
    reordered: int = 0
    duplicates: int = 0
    foreign: int = 0
    unverifiable: int = 0
    pending: int = 0
    proven_earlier: int = 0

    @property
    def different(self) -> int:
        """Flows write each record once, so a duplicate is as unexplained as a foreign record."""
        return self.missing + self.altered + self.reordered + self.duplicates + self.foreign

    @property
    def unproven(self) -> int:
        return self.different + self.unverifiable

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def to_json(self) -> dict[str, int]:
        return {"unproven": self.unproven, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One compared chunk. status: equal, different (confirmed by a second read) or unverifiable.

    `source_sum`, `target_sum` are those of the read that decided; `reads` says how many it took.
    """

    place: Place
    source: Span
    target: Span
    source_sum: ChunkSum
    target_sum: ChunkSum
    status: Literal["equal", "different", "unverifiable"]
    reads: int = 1
    unverifiable: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The record-level difference of neighbouring chunks that differ."""

    place: Place
    source: Span
    target: Span
    difference: Difference


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a proof, by partition. `blocks` are findings that forbid the word proven."""

    partitions: dict[Place, Counts]
    blocks: tuple[str, ...] = ()
    exact: bool = True
    errors: tuple[str, ...] = field(default=())

    @property
    def total(self) -> Counts:
        return sum(self.partitions.values(), Counts())

    @property
    def verdict(self) -> Verdict:
        if self.errors:
            return "error"
        if self.total.different:
            return "different"
        if self.total.unverifiable or self.total.pending or self.blocks:
            return "incomplete"
        return "proven"


def suspects(rows: Iterable[ChunkRow]) -> list[ChunkRow]:
    """Rows to be read a second time."""
    return [row for row in rows if row.status == "different"]


def status_of(source: ChunkSum, target: ChunkSum) -> Literal["equal", "different"]:
    return "equal" if source.equals(target) else "different"


def spans_to_compare(rows: Sequence[ChunkRow], limit: int) -> list[tuple[Place, Span, Span]]:
    """Differing chunks that follow one another, joined: a record lost in one shifts all behind it.

    No longer than `limit` offsets, because both sides are held in memory.
    """
    joined: list[tuple[Place, Span, Span]] = []
    for row in sorted(rows, key=lambda row: (row.place, row.target, row.source)):
        if row.status != "different":
            continue
        if joined:
            place, source, target = joined[-1]
            follows = place == row.place and source.end == row.source.start and target.end == row.target.start
            if follows and max(row.source.end - source.start, row.target.end - target.start) <= limit:
                joined[-1] = (place, Span(source.start, row.source.end), Span(target.start, row.target.end))
                continue
        joined.append((row.place, row.source, row.target))
    return joined


def judge(
    rows: Iterable[ChunkRow],
    confirmed: Iterable[Confirmed],
    outside: dict[Place, Counts],
    *,
    blocks: Sequence[str] = (),
    errors: Sequence[str] = (),
) -> Judgement:
    """Counts by partition. `outside` holds what the window left out: unverifiable, pending, proven earlier."""
    counts = dict(outside)
    exact = True
    for row in rows:
        if row.status == "equal":
            found = Counts(proven=row.source_sum.n)
        elif row.status == "unverifiable":
            found = Counts(unverifiable=row.unverifiable)
        else:
            continue  # counted record by record below
        counts[row.place] = counts.get(row.place, Counts()) + found
    for each in confirmed:
        d = each.difference
        exact = exact and d.exact
        found = Counts(d.proven, d.missing, d.altered, d.reordered, d.duplicates, d.foreign, pending=d.pending)
        counts[each.place] = counts.get(each.place, Counts()) + found
    return Judgement(counts, tuple(blocks), exact, tuple(errors))


def as_unverifiable(row: ChunkRow, why: str) -> ChunkRow:
    """A chunk whose difference proves nothing, e.g. because the cleaner works on each side for itself."""
    return replace(row, status="unverifiable", unverifiable=max(row.source_sum.n, row.target_sum.n), why=why)


def chunk_json(row: ChunkRow) -> dict[str, Any]:
    """A row as it is stored and hashed: numbers as integers, 64 bit sums as hex."""
    line: dict[str, Any] = {**row.place._asdict(), "status": row.status, "reads": row.reads, "why": row.why}
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
        }
    return line


def proof_root(rows: Iterable[ChunkRow]) -> str:
    """Merkle root over the sorted chunk rows (tree and prefixes of RFC 6962), for a change ticket."""
    lines = sorted(json.dumps(chunk_json(row), sort_keys=True, separators=(",", ":")) for row in rows)
    level = [hashlib.sha256(b"\x00" + line.encode()).digest() for line in lines]
    if not level:
        return "sha256:" + hashlib.sha256(b"").hexdigest()
    while len(level) > 1:
        pairs = [hashlib.sha256(b"\x01" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return "sha256:" + level[0].hex()
