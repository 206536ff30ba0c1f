"""Laying the target's log over the source's: which target record is a copy of which source record.

Walk the target log. As long as target and source records are equal, extend the chain. Where they differ, search the
next target record on the source: ahead (records were skipped), behind (the copier restarted at an older position), or
nowhere (not a source record). Every reported match has equal digests; the search order changes only how many pieces are
reported. With records that all differ there is one result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from watershed.clusters.record_fingerprint import DIGEST_BYTES
from watershed.replicator.adoption.log_digests import DigestedLog

_NEAR: Final = (256, 65_536)  # records ahead or behind that are looked at first
_NEEDLES: Final = (16, 4)  # records in a row that make a place certain
_SEARCHES: Final = 1_000  # through a whole log; whoever needs more does not hold a copy


class MatchedRecords(NamedTuple):
    """`records` target records from index `target` on are those of the source from index `source` on."""

    target: int
    source: int
    records: int


class RecordSpan(NamedTuple):
    """`records` records from index `first` on, of one log."""

    first: int
    records: int


@dataclass(frozen=True, slots=True)
class LogAlignment:
    """All target records fall into copied, repeated, late, alien, before and unread; all indexes are those of `source`
    and `target`.

    copied: the main chain. repeated: copied before, and again. late: behind records that followed them on the source.
    alien: not on the source. before: how many at the beginning of the target belong to what the source no longer has;
    repeated_before: copies of those, further on. missing: source records in front of the frontier that the target does
    not have, aborted ones not counted. head: the source index where the main chain begins. aborted: what of it was
    copied although it was aborted. frontier: the source index behind the main chain. unread: from this target index on
    the logs were too different to go on; the target's length when they were not.
    """

    source: DigestedLog
    target: DigestedLog
    copied: tuple[MatchedRecords, ...] = ()
    repeated: tuple[MatchedRecords, ...] = ()
    late: tuple[MatchedRecords, ...] = ()
    alien: tuple[RecordSpan, ...] = ()
    before: int = 0
    repeated_before: tuple[RecordSpan, ...] = ()
    missing: tuple[RecordSpan, ...] = ()
    head: int = 0
    aborted: tuple[MatchedRecords, ...] = ()
    frontier: int = 0
    unread: int = 0

    @property
    def flaws(self) -> tuple[int, int]:
        """How much of it is not an exact copy: (what is wrong, what is merely too much)."""
        wrong = _records(self.late) + _records(self.alien) + _records(self.missing) + len(self.target) - self.unread
        return wrong, _records(self.repeated) + _records(self.repeated_before) + _records(self.aborted)


def _records(parts: Iterable[MatchedRecords] | Iterable[RecordSpan]) -> int:
    return sum(each.records for each in parts)


def align_logs(
    source: DigestedLog,
    target: DigestedLog,
    *,
    expired: bool = False,
    sparse: bool = False,
    hints: Mapping[int, int] | None = None,
) -> LogAlignment:
    """Lay `target` over `source`. expired: the source's log does not begin at 0, so the target may hold older records.
    sparse: one of the logs is compacted, records may be missing everywhere. hints: target index → source index, places
    that are tried first.

    A copier that reads committed records leaves out aborted ones, another copies them. Both are tried where there are
    any, and what explains more counts: an application that repeats the content of an aborted transaction makes the two
    look alike.
    """
    whole = _laid(source, target, expired, sparse, hints or {})
    if not source.aborted:
        return whole
    without = source.committed()
    moved = {there: without.index(source.offset(here)) for there, here in (hints or {}).items() if here < len(source)}
    committed = _laid(without, target, expired, sparse, moved)
    return committed if committed.flaws <= whole.flaws else whole


def _laid(
    source: DigestedLog, target: DigestedLog, expired: bool, sparse: bool, hints: Mapping[int, int]
) -> LogAlignment:
    chain: list[MatchedRecords] = []
    again: list[MatchedRecords] = []
    alien: list[RecordSpan] = []
    old: list[RecordSpan] = []
    t = before = _before(source, target) if expired else 0
    s, end, searches = 0, len(target), _Searches(source, target, sparse, hints)
    while t < end:
        count = count_equal_records(source, s, target, t, min(len(source) - s, end - t))
        if count:
            _add(chain, MatchedRecords(t, s, count))
            s, t = s + count, t + count
            continue
        found = searches.hopped(s, t)
        if found < 0:
            found = searches.place(s, t)
        if searches.made > _SEARCHES:
            break
        if found >= s:
            s = found
        elif found >= 0:
            count = count_equal_records(source, found, target, t, min(s - found, end - t))
            _add(again, MatchedRecords(t, found, count))
            t += count
        else:
            known = before and target.find(target.slice(t, t + 1), 0, before) >= 0
            _extend(old if known else alien, t)
            t += 1
    return _sorted_out(source, target, chain, again, alien, old, before, s, t)


@dataclass(slots=True)
class _Searches:
    source: DigestedLog
    target: DigestedLog
    sparse: bool
    hints: Mapping[int, int]
    made: int = 0  # through the whole source

    def hopped(self, s: int, t: int) -> int:
        """The next committed record behind aborted ones at `s`, where it is the one at `t`; -1 otherwise."""
        at = s
        for first, end in _from(self.source.aborted, s):
            if first > at:
                break
            at = end
        same = s < at < len(self.source) and self.source.slice(at, at + 1) == self.target.slice(t, t + 1)
        return at if same else -1

    def place(self, s: int, t: int) -> int:
        """Where on the source the target record at `t` stands, the main chain being at `s`; -1: nowhere."""
        hinted = self.hints.get(t, -1)
        if 0 <= hinted < len(self.source) and self.source.slice(hinted, hinted + 1) == self.target.slice(t, t + 1):
            return hinted
        steps = [(near, needle) for near in _NEAR for needle in _NEEDLES]
        steps += [(near, 1) for near in _NEAR]
        for near, needle in sorted(steps) if self.sparse else steps:
            found = self._near(s, t, near, needle)
            if found >= 0:
                return found
        self.made += 1
        everything = len(self.source)
        if self.source.find(self.target.slice(t, t + 1), 0, everything) < 0:
            return -1
        for needle in (*_NEEDLES, 1):
            found = self._near(s, t, everything, needle)
            if found >= 0:
                return found
        return -1

    def _near(self, s: int, t: int, near: int, count: int) -> int:
        """The nearest place of `count` target records in a row, at most `near` records ahead or behind."""
        needle = self.target.slice(t, t + count)
        count = len(needle) // DIGEST_BYTES
        ahead = self.source.find(needle, s, min(s + near + count, len(self.source)))
        behind = self.source.rfind(needle, max(0, s - near), min(max(s - 1, 0) + count, len(self.source)))
        if behind >= s:
            behind = -1
        if ahead < 0 or behind < 0:
            return max(ahead, behind)
        return ahead if ahead - s < s - behind else behind


def count_equal_records(source: DigestedLog, s: int, target: DigestedLog, t: int, most: int) -> int:
    """How many records in a row are the same from source index `s` and target index `t` on."""
    same, step = 0, 64
    while same < most:
        step = min(step, most - same)
        here, there = source.slice(s + same, s + same + step), target.slice(t + same, t + same + step)
        if here != there:
            low, high = 0, step  # the first `low` are the same, the first `high` are not
            while high - low > 1:
                middle = (low + high) // 2
                same_half = (
                    here[low * DIGEST_BYTES : middle * DIGEST_BYTES]
                    == there[low * DIGEST_BYTES : middle * DIGEST_BYTES]
                )
                low, high = (middle, high) if same_half else (low, middle)
            return same + low
        same, step = same + step, min(step * 2, 65_536)
    return same


def _before(source: DigestedLog, target: DigestedLog) -> int:
    """How many records at the target's beginning are older than all that the source still has."""
    if not len(target) or source.find(target.slice(0, 1), 0, len(source)) >= 0:
        return 0
    for needle in (_NEEDLES[-1], 1):
        for probe in (0, 16, 256, 4096, 65_536):
            wanted = source.slice(probe, probe + needle)
            found = target.find(wanted, 0, len(target)) if wanted else -1
            if found >= 0:
                return found
    return len(target)


def _sorted_out(
    source: DigestedLog,
    target: DigestedLog,
    chain: list[MatchedRecords],
    again: list[MatchedRecords],
    alien: list[RecordSpan],
    old: list[RecordSpan],
    before: int,
    frontier: int,
    unread: int,
) -> LogAlignment:
    """Tell late records from repeated ones, and missing records from those that do not count."""
    left_out: list[tuple[int, int]] = []
    at, head = 0, chain[0].source if chain else 0
    for pair in chain:
        if pair.source > at:
            left_out.append((at, pair.source))
        at = pair.source + pair.records
    late: list[MatchedRecords] = []
    repeated: list[MatchedRecords] = []
    for pair in again:
        here, first = pair.source, pair.source
        for begin, end in _within(left_out, pair.source, pair.source + pair.records):
            if begin > here:
                repeated.append(MatchedRecords(pair.target + here - first, here, begin - here))
            late.append(MatchedRecords(pair.target + begin - first, begin, end - begin))
            here = end
        if here < first + pair.records:
            repeated.append(MatchedRecords(pair.target + here - first, here, first + pair.records - here))
    came = _joined(sorted((pair.source, pair.source + pair.records) for pair in late))
    missing = subtract_spans(subtract_spans(left_out, source.aborted), came)
    return LogAlignment(
        source,
        target,
        tuple(chain),
        tuple(repeated),
        tuple(late),
        tuple(alien),
        before,
        tuple(old),
        tuple(RecordSpan(begin, end - begin) for begin, end in missing),
        head,
        tuple(
            MatchedRecords(pair.target + begin - pair.source, begin, end - begin)
            for pair in chain
            for begin, end in _within(source.aborted, pair.source, pair.source + pair.records)
        ),
        frontier,
        unread,
    )


def subtract_spans(parts: Sequence[tuple[int, int]], taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """`parts` (first, end) without what `taken` covers; both in order."""
    left: list[tuple[int, int]] = []
    for first, end in parts:
        for begin, stop in _within(taken, first, end):
            if begin > first:
                left.append((first, begin))
            first = max(first, stop)
        if first < end:
            left.append((first, end))
    return left


def _joined(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts in order of their beginning, those that overlap made one."""
    joined: list[tuple[int, int]] = []
    for first, end in parts:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((first, end))
    return joined


def _within(parts: Sequence[tuple[int, int]], first: int, end: int) -> Iterator[tuple[int, int]]:
    """What of `parts` lies between `first` and `end`, cut to that."""
    for begin, stop in _from(parts, first):
        if begin >= end:
            return
        if stop > first:
            yield max(begin, first), min(stop, end)


def _from(parts: Sequence[tuple[int, int]], first: int) -> Iterator[tuple[int, int]]:
    """Those of `parts`, in order, that end behind `first`."""
    low, high = 0, len(parts)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if parts[middle][1] <= first else (low, middle)
    for at in range(low, len(parts)):
        yield parts[at]


def _add(pairs: list[MatchedRecords], pair: MatchedRecords) -> None:
    last = pairs[-1] if pairs else None
    if last and (last.target + last.records, last.source + last.records) == (pair.target, pair.source):
        pairs[-1] = last._replace(records=last.records + pair.records)
    else:
        pairs.append(pair)


def _extend(parts: list[RecordSpan], index: int) -> None:
    if parts and parts[-1].first + parts[-1].records == index:
        parts[-1] = parts[-1]._replace(records=parts[-1].records + 1)
    else:
        parts.append(RecordSpan(index, 1))
