"""How a proof reads chunks: first by batches, then by records where batches differ; a difference is read twice.

A partition's window without what an earlier proof has proven falls into *pieces*; a piece is cut into chunks. Within a
piece every record is compared in exactly one chunk, on both sides, whatever is judged by batches and what by records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from watershed.spark.fingerprint import ChunkSum
from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders, require_range_sums
from watershed.spark.judging.proof_window import PartitionPair, cut_chunks
from watershed.spark.judging.verdict import ChunkRow, ComparisonMeans, compare_sums
from watershed.spark.reading.batch_matching import MatchedBatches, match_batches
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_requests import RangeRequest, SumKind
from watershed.spark.reading.range_sums import RangeSum

_LISTS = 256  # chunks whose batches are listed at once
_LITTLE = 100_000  # source offsets of all partitions: a second of one core by records, on both sides
_FEW = 4  # chunks of a partition that are read at once; beyond, the first is read before the others


class _WindowPiece(NamedTuple):
    """A contiguous part of a window. again: the chunk of an earlier proof that this one reads again."""

    partition: ProofPartition
    source: OffsetRange
    target: OffsetRange
    again: ChunkRow | None = None


class _ChunkPair(NamedTuple):
    """A chunk on both sides. reads: how often its records were compared; low: its head expired while it was read.
    known: matched batches, which are not opened.
    """

    piece: _WindowPiece
    source: OffsetRange
    target: OffsetRange
    reads: int = 0
    low: bool = False
    known: MatchedBatches = MatchedBatches()


class _ComparedChunks(NamedTuple):
    """rows: one for every chunk. not_again: chunks of an earlier proof that expired before they were read again."""

    rows: list[ChunkRow]
    not_again: list[ChunkRow]


def compare_chunks(
    partitions: Sequence[ProofPartition], readers: ProofReaders, *, hasty: bool = False
) -> _ComparedChunks:
    """Reads every chunk once, and those that differ twice. Raises ReadFailed.

    hasty: producers are fenced and wait. With few offsets left, reading records at once is faster than comparing
    batches first and falling back.
    """
    pieces = [[(piece, _chunks(piece)) for piece in split_window(s)] for s in partitions]
    by_records = hasty and sum(p.source.end - p.source.start for some in pieces for p, _ in some) <= _LITTLE
    equal = {} if by_records else _equal_batches(pieces, readers)
    rows: list[ChunkRow] = []
    doubtful: list[_ChunkPair] = []
    for of_partition in pieces:
        for _, chunks in of_partition:
            found, left = _settle(chunks, [equal.get(_key(c)) for c in chunks])
            rows += found
            doubtful += left
    begun = {id(piece.again) for of_partition in pieces for piece, _ in of_partition}
    not_again = [row for s in partitions for row in s.again if id(row) not in begun]
    if not by_records:
        doubtful = _with_known(doubtful, readers)
    while doubtful:
        found, doubtful, gone = _by_records(doubtful, readers)
        rows += found
        not_again += gone
    return _ComparedChunks(rows, not_again)


def split_window(partition: ProofPartition) -> list[_WindowPiece]:
    """The window without the chunks of an earlier proof, in log order; those to be read again are pieces, too."""
    window, again = partition.window, {row.source: row for row in partition.again}
    pieces = []
    here, there = window.source.start, window.target.start
    for row in partition.earlier:
        if row.source.end <= here and row.target.end <= there:
            continue
        if row.source.start > here or row.target.start > there:
            pieces.append(
                _WindowPiece(partition, OffsetRange(here, row.source.start), OffsetRange(there, row.target.start))
            )
        if row.source in again and row.source.start >= here and row.target.start >= there:
            pieces.append(_WindowPiece(partition, row.source, row.target, again[row.source]))
        here, there = row.source.end, row.target.end
    if window.source.end > here or window.target.end > there:
        pieces.append(
            _WindowPiece(partition, OffsetRange(here, window.source.end), OffsetRange(there, window.target.end))
        )
    return pieces


def _chunks(piece: _WindowPiece) -> list[_ChunkPair]:
    if piece.again is not None:
        return [_ChunkPair(piece, piece.source, piece.target)]
    spans = cut_chunks(piece.source, piece.target, piece.partition.map, piece.partition.chunk)
    return [_ChunkPair(piece, *each) for each in spans]


_Key = tuple[object, ...]
_Pieces = Sequence[Sequence[tuple[_WindowPiece, Sequence[_ChunkPair]]]]


def _key(chunk: _ChunkPair) -> _Key:
    return chunk.piece.partition.window.place, chunk.source, chunk.target


def _equal_batches(pieces: _Pieces, readers: ProofReaders) -> dict[_Key, tuple[RangeSum, RangeSum]]:
    """Chunks that are equal batch by batch. Of a partition with many chunks the first tells whether its copy holds the
    source's batches: the others need not be read twice when it does not."""
    first: list[_ChunkPair] = []
    others: list[list[_ChunkPair]] = []
    for of_partition in pieces:
        chunks = [c for piece, some in of_partition if piece.partition.can_compare_batches for c in some]
        if len(chunks) > _FEW:
            others.append(chunks[1:])
            chunks = chunks[:1]
        first += chunks
    equal: dict[_Key, tuple[RangeSum, RangeSum]] = {}
    packed_otherwise = _read_batches(first, readers, equal)
    rest = [c for chunks in others for c in chunks if c.piece.partition.window.place not in packed_otherwise]
    _read_batches(rest, readers, equal)
    return equal


def _read_batches(
    chunks: Sequence[_ChunkPair], readers: ProofReaders, equal: dict[_Key, tuple[RangeSum, RangeSum]]
) -> set[PartitionPair]:
    """Adds to `equal`; returns the partitions whose target has other batches than the source."""
    read = require_range_sums(
        [request for at, c in enumerate(chunks) for request in _units(c, 2 * at, "batches")], readers
    )
    others: set[PartitionPair] = set()
    for at, c in enumerate(chunks):
        both = read[2 * at], read[2 * at + 1]
        if not _whole_batches(c, both):
            continue
        if both[0].sums.equals(both[1].sums):
            equal[_key(c)] = both
        else:
            others.add(c.piece.partition.window.place)
    return others


def _whole_batches(c: _ChunkPair, read: tuple[RangeSum, RangeSum]) -> bool:
    """Whether batch sums decide: all batches lie wholly in the piece, on both sides. A chunk in which no batch begins
    may stand in the middle of one, which counts in another chunk: its records decide.
    """
    for seen, span, whole in zip(read, (c.source, c.target), (c.piece.source, c.piece.target), strict=True):
        cut_off = seen.straddled and span.start == whole.start
        if seen.state != "read" or seen.first < 0 or cut_off or seen.behind > whole.end:
            return False
    return True


def _settle(
    chunks: Sequence[_ChunkPair], equal: Sequence[tuple[RangeSum, RangeSum] | None]
) -> tuple[list[ChunkRow], list[_ChunkPair]]:
    """(rows of what is equal batch by batch, what has to be judged by its records), of the chunks of a piece in order.

    A batch belongs to the chunk in which it begins. The border between a chunk compared by batches and one compared by
    records therefore moves to the next batch border, and every record is compared exactly once.
    """
    rows: list[ChunkRow] = []
    doubtful: list[_ChunkPair] = []
    ends = [0, 0]  # where the chunk before ends on both sides
    for at, c in enumerate(chunks):
        own, right = equal[at], equal[at + 1] if at + 1 < len(chunks) else None
        spans = []
        for side, span in enumerate((c.source, c.target)):
            start = max(span.start, ends[side])
            if own is not None:
                end = max(span.end, own[side].behind)
            else:
                end = span.end if right is None else right[side].first
            spans.append(OffsetRange(start, max(start, end)))
        ends = [span.end for span in spans]
        if own is None:
            doubtful.append(c._replace(source=spans[0], target=spans[1]))
        else:
            place = c.piece.partition.window.place
            rows.append(ChunkRow(place, spans[0], spans[1], own[0].sums, own[1].sums, "equal", by="batches"))
    return rows, doubtful


def _with_known(chunks: Sequence[_ChunkPair], readers: ProofReaders) -> list[_ChunkPair]:
    """The chunks with their matched batches. The first chunk of a partition shows whether matching pays. Batches of a
    few chunks are listed at a time, some 60 bytes each.
    """
    places: dict[object, list[int]] = {}
    for at, c in enumerate(chunks):
        if c.piece.partition.can_compare_batches:
            places.setdefault(c.piece.partition.window.place, []).append(at)
    found = list(chunks)
    first = [numbers[0] for numbers in places.values()]
    for some in _some(first):
        _match(found, some, readers)
    rest = [at for numbers in places.values() if _worth(found[numbers[0]]) for at in numbers[1:]]
    for some in _some(rest):
        _match(found, some, readers)
    return found


def _some(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _LISTS] for at in range(0, len(numbers), _LISTS))


def _match(chunks: list[_ChunkPair], numbers: Sequence[int], readers: ProofReaders) -> None:
    read = require_range_sums(
        [request for at, n in enumerate(numbers) for request in _units(chunks[n], 2 * at, "lists")], readers
    )
    for at, n in enumerate(numbers):
        c, source, target = chunks[n], read[2 * at], read[2 * at + 1]
        if source.listed is None or target.listed is None or {source.state, target.state} != {"read"}:
            continue
        s = c.piece.partition
        to_target = partial(s.map.to_target, target_end=s.window.target.end)
        known = match_batches(source.listed, target.listed, (c.source, c.target), to_target, in_place=s.in_place)
        chunks[n] = c._replace(known=known)


def _worth(c: _ChunkPair) -> bool:
    """Whether matched batches cover a tenth of the chunk's offsets or more."""
    return 10 * sum(end - first for first, end in c.known.source) >= c.source.end - c.source.start


def _by_records(
    chunks: Sequence[_ChunkPair], readers: ProofReaders
) -> tuple[list[ChunkRow], list[_ChunkPair], list[ChunkRow]]:
    """(rows, chunks to read again, chunks of an earlier proof that expired). Read again: without an expired head, and
    on a first difference.
    """
    read = require_range_sums(
        [request for at, c in enumerate(chunks) for request in _units(c, 2 * at, "records")], readers
    )
    rows: list[ChunkRow] = []
    again: list[_ChunkPair] = []
    gone: list[ChunkRow] = []
    for at, c in enumerate(chunks):
        source, target = read[2 * at], read[2 * at + 1]
        if "expired" in (source.state, target.state):
            if c.piece.again is not None:
                gone.append(c.piece.again)
                continue
            low = _low(c, source, target)
            rows.append(_expired(c, low))
            if low < c.target.end:
                begin = min(max(c.source.start, c.piece.partition.map.to_source(low)), c.source.end)
                spans = OffsetRange(begin, c.source.end), OffsetRange(low, c.target.end)
                again.append(c._replace(source=spans[0], target=spans[1], low=True, known=MatchedBatches()))
            continue
        sums = _whole(c, source, target)
        status = compare_sums(*sums)
        if status == "different" and c.reads == 0 and not c.piece.partition.compacted:
            again.append(c._replace(reads=1))
            continue
        place = c.piece.partition.window.place
        by: ComparisonMeans = "both" if c.known else "records"
        rows.append(ChunkRow(place, c.source, c.target, *sums, status, c.reads + 1, by=by))
    return rows, again, gone


def _whole(c: _ChunkPair, source: RangeSum, target: RangeSum) -> tuple[ChunkSum, ChunkSum]:
    """Sums of a chunk: of its batches that were known to be the same, then of the records that were read."""
    known, target_known = c.known.sums, c.known.target_sums
    if c.piece.partition.in_place:
        return known.add_in_place(source.sums), target_known.add_in_place(target.sums)
    return known + source.sums, target_known + target.sums


def _low(c: _ChunkPair, source: RangeSum, target: RangeSum) -> int:
    """The first target offset that both sides can still read. If a chunk's head expires twice, the chunk's end."""
    if c.low or not c.piece.partition.map.runs:
        return c.target.end
    low = c.target.start
    if source.state == "expired":
        here = source.log_start
        end = c.piece.partition.window.target.end
        low = c.target.end if here >= c.source.end else max(low, c.piece.partition.map.to_target(here, end))
    if target.state == "expired":
        low = max(low, target.log_start)
    return min(low, c.target.end)


def _expired(c: _ChunkPair, low: int) -> ChunkRow:
    """Where no target offset is lost the source's are: a tail whose copy never came."""
    count = (low - c.target.start) or (c.source.end - c.source.start if low == c.target.end else 0)
    empty, place = ChunkSum(), c.piece.partition.window.place
    why = "expired while it was read"
    return ChunkRow(place, c.source, c.target, empty, empty, "unverifiable", c.reads + 1, count, why)


def _units(c: _ChunkPair, first: int, by: SumKind) -> Iterator[RangeRequest]:
    known = (c.known.source, c.known.target) if by == "records" else ((), ())
    yield c.piece.partition.build_request(0, c.source, first, by, known[0])
    yield c.piece.partition.build_request(1, c.target, first + 1, by, known[1])
