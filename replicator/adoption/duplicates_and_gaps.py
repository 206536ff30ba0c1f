"""What is not an exact copy, by kind and with offsets; and from where copying would go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from watershed.replicator.adoption.log_alignment import LogAlignment, RecordSpan, subtract_spans
from watershed.replicator.ledger.explicit_runs import join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.partition_states import OffsetSpan

_DUPLICATES: Final = "duplicates"
_ABORTED: Final = "aborted"
_MISSING: Final = "missing"
_COMPACTED: Final = "compacted"
_TIMESTAMPS: Final = "timestamps"
_UNVERIFIABLE: Final = "unverifiable"
_CHANGED: Final = "changed"
_FOREIGN: Final = "foreign"
_REORDERED: Final = "reordered"
_SHIFTED: Final = "shifted"
_UNREAD: Final = "unread"
_EXPIRED: Final = "expired"

FINDING_MEANINGS: Final = {
    _DUPLICATES: "copied more than once; the copier began again at an older position",
    _ABORTED: "of aborted transactions; a copier that reads uncommitted data takes them along",
    _MISSING: "on the source, not on the target, although later ones are",
    _COMPACTED: "on one side only, where the cleaner may have been",
    _TIMESTAMPS: "with another timestamp than on the source",
    _UNVERIFIABLE: "not among what the source still has: older, or none of its own; nothing could be compared",
    _CHANGED: "at the place of a source record, with another content",
    _FOREIGN: "not on the source at all",
    _REORDERED: "behind records that follow them on the source",
    _SHIFTED: "at another offset than on the source",
    _UNREAD: "not looked at: the logs differ in too many places before them",
    _EXPIRED: "gone on one side by retention, so that they cannot be compared",
}
# What a person may take along by name. The rest is content that the source never had there: copy the topic anew.
ACCEPTABLE_FINDINGS: Final = frozenset({_DUPLICATES, _ABORTED, _MISSING, _COMPACTED, _TIMESTAMPS, _UNVERIFIABLE})
# Of these, what stands on the target is no copy that counts: a proof of the flow leaves it out.
_BESIDE: Final = frozenset({_DUPLICATES, _ABORTED, _COMPACTED})
# Said, and in nobody's way: retention removes the beginnings of both logs, each at its own time.
TOLERATED_FINDINGS: Final = frozenset({_EXPIRED})


@dataclass(frozen=True, slots=True)
class CopyFinding:
    """`records` records of one kind, with their offsets on the side or sides where they are. Offsets within a span may
    be fewer records (markers take offsets)."""

    kind: str
    records: int
    source: OffsetSpan | None = None
    target: OffsetSpan | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON: kind, count of records, source and target spans."""
        return {
            "kind": self.kind,
            "records": self.records,
            "source": None if self.source is None else list(self.source),
            "target": None if self.target is None else list(self.target),
        }


@dataclass(frozen=True, slots=True)
class ComparedRanges:
    """The logs' ranges as they were compared; compacted: whether a cleaner works on one of them."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """findings in the order of the target, those without a place there first. stretches: what is proven, offsets.
    position: the source offset where copying would go on; -1 when nothing says it."""

    findings: tuple[CopyFinding, ...]
    stretches: tuple[ExplicitRun, ...]
    position: int

    @property
    def counts(self) -> Counter[str]:
        """Records by kind of finding."""
        counts: Counter[str] = Counter()
        for each in self.findings:
            counts[each.kind] += each.records
        return counts

    def refused(self, accepted: Iterable[str] = ()) -> list[str]:
        """The kinds that stand in the way of going on, in alphabetical order."""
        return sorted(self.counts.keys() - TOLERATED_FINDINGS - (set(accepted) & ACCEPTABLE_FINDINGS))

    @property
    def exact(self) -> bool:
        """True if nothing in the copy needs to be accepted."""
        return not self.refused()

    def extra(self) -> tuple[OffsetSpan, ...]:
        """The target offsets of what is there beside one copy of each record: in order, none of them twice."""
        there = sorted(each.target for each in self.findings if each.target is not None and each.kind in _BESIDE)
        joined: list[OffsetSpan] = []
        for first, end in there:
            if joined and first <= joined[-1].end:
                joined[-1] = OffsetSpan(joined[-1].first, max(joined[-1].end, end))
            else:
                joined.append(OffsetSpan(first, end))
        return tuple(joined)


def judge_alignment(
    alignment: LogAlignment, ends: ComparedRanges, *, hint: int = -1, equal: bool = False, timestamps: bool = True
) -> CopyVerdict:
    """What an alignment means. hint: where the copier itself says that it would go on, -1 when that is not known; it
    counts only where the target holds nothing to compare. equal: all offsets have to be the source's. timestamps: they
    were compared; otherwise they differ in all of it."""
    findings = [*_expired(alignment, ends), *_missing(alignment, ends), *_extra(alignment, ends)]
    stretches = join_explicit_runs(_stretches(alignment))
    if not timestamps and stretches:
        first, last = stretches[0], stretches[-1]
        both = (
            OffsetSpan(first.source, last.source + last.records),
            OffsetSpan(first.target, last.target + last.records),
        )
        findings.append(CopyFinding(_TIMESTAMPS, sum(each.records for each in stretches), *both))
    if equal:
        findings += [
            CopyFinding(_SHIFTED, records, OffsetSpan(source, source + records), OffsetSpan(target, target + records))
            for target, source, records in stretches
            if target != source
        ]
    position = _position(alignment, ends, hint, equal)
    if equal and alignment.frontier:
        findings += _stepped_over(alignment, ends, position)
    if not stretches and ends.target_end > ends.target_start:
        # Whatever the target holds is older than the source, or none of it: nothing was proven.
        findings = [_as_unverifiable(each) if each.kind == _EXPIRED else each for each in findings]
    elif not stretches and ends.target_end > 0:
        findings.append(CopyFinding(_UNVERIFIABLE, ends.target_end, None, OffsetSpan(0, ends.target_end)))
    findings.sort(key=lambda each: each.target or OffsetSpan(-1, -1))
    return CopyVerdict(tuple(findings), tuple(stretches), position)


def _position(alignment: LogAlignment, ends: ComparedRanges, hint: int, equal: bool) -> int:
    if equal and ends.target_end:
        return ends.target_end
    if alignment.frontier:
        return alignment.source.offset(alignment.frontier - 1) + 1
    if ends.target_end == 0:
        return ends.source_start
    return max(hint, ends.source_start) if hint >= 0 else -1


def _expired(alignment: LogAlignment, ends: ComparedRanges) -> list[CopyFinding]:
    findings = []
    if alignment.before:
        last = alignment.target.offset(alignment.before - 1) + 1
        kind = _COMPACTED if ends.compacted and ends.source_start == 0 else _EXPIRED
        findings.append(CopyFinding(kind, alignment.before, None, OffsetSpan(ends.target_start, last)))
    if alignment.head and ends.target_start > 0:
        parts = subtract_spans([(0, alignment.head)], alignment.source.aborted)
        count = sum(end - first for first, end in parts)
        if count:
            span = OffsetSpan(alignment.source.offset(0), alignment.source.offset(alignment.head - 1) + 1)
            findings.append(CopyFinding(_EXPIRED, count, span))
    return findings


def _missing(alignment: LogAlignment, ends: ComparedRanges) -> list[CopyFinding]:
    changed = {part.first for part, _ in _pairs(alignment, ends)}
    kind = _COMPACTED if ends.compacted else _MISSING
    return [
        CopyFinding(kind, part.records, _span(alignment, "source", part.first, part.records))
        for part in alignment.missing
        if part.first not in changed and not (ends.target_start > 0 and part.first < alignment.head)
    ]


def _stepped_over(alignment: LogAlignment, ends: ComparedRanges, position: int) -> Iterable[CopyFinding]:
    """Records behind the last one that was copied, in front of where equal offsets would go on: there the target has
    offsets without records (markers, say), and they would never be copied."""
    behind = [(alignment.frontier, alignment.source.index(position))]
    for first, end in subtract_spans(behind, alignment.source.aborted):
        kind = _COMPACTED if ends.compacted else _MISSING
        yield CopyFinding(kind, end - first, _span(alignment, "source", first, end - first))


def _extra(alignment: LogAlignment, ends: ComparedRanges) -> list[CopyFinding]:
    """What the target has beside the records that it should have."""
    swapped = {other.first: part for part, other in _pairs(alignment, ends)}
    findings = []
    for kind, pairs in ((_DUPLICATES, alignment.repeated), (_REORDERED, alignment.late), (_ABORTED, alignment.aborted)):
        for target, source, records in pairs:
            spans = _span(alignment, "source", source, records), _span(alignment, "target", target, records)
            findings.append(CopyFinding(kind, records, *spans))
    for part in alignment.repeated_before:
        findings.append(
            CopyFinding(_DUPLICATES, part.records, None, _span(alignment, "target", part.first, part.records))
        )
    for part in alignment.alien:
        there = _span(alignment, "target", part.first, part.records)
        if part.first in swapped:
            here = _span(alignment, "source", swapped[part.first].first, part.records)
            findings.append(CopyFinding(_CHANGED, part.records, here, there))
        else:
            findings.append(CopyFinding(_COMPACTED if ends.compacted else _FOREIGN, part.records, None, there))
    if alignment.unread < len(alignment.target):
        rest = len(alignment.target) - alignment.unread
        findings.append(CopyFinding(_UNREAD, rest, None, _span(alignment, "target", alignment.unread, rest)))
    return findings


def _pairs(alignment: LogAlignment, ends: ComparedRanges) -> list[tuple[RecordSpan, RecordSpan]]:
    """Source records that are missing exactly where as many alien ones stand: (source part, target part). A cleaner
    makes such places, too."""
    if ends.compacted:
        return []
    missing = {part.first: part for part in alignment.missing}
    alien = {part.first: part for part in alignment.alien}
    pairs = []
    corners = [(0, 0), *((pair.target + pair.records, pair.source + pair.records) for pair in alignment.copied)]
    for there, here in corners:
        part, other = missing.get(here), alien.get(there)
        if part is not None and other is not None and part.records == other.records:
            pairs.append((part, other))
    return pairs


def _stretches(alignment: LogAlignment) -> Iterable[ExplicitRun]:
    for target, source, records in alignment.copied:
        for first, there, count in alignment.target.held(target, records):
            for begin, here, same in alignment.source.held(source + first - target, count):
                yield ExplicitRun(there + begin - source - (first - target), here, same)


def _as_unverifiable(finding: CopyFinding) -> CopyFinding:
    return CopyFinding(_UNVERIFIABLE, finding.records, finding.source, finding.target)


def _span(alignment: LogAlignment, side: str, first: int, records: int) -> OffsetSpan:
    log = alignment.source if side == "source" else alignment.target
    return OffsetSpan(log.offset(first), log.offset(first + records - 1) + 1)


def render_findings(spans: Sequence[CopyFinding], most: int = 5) -> str:
    """Offsets of the first few, for people."""
    texts = []
    for each in spans[:most]:
        sides = []
        if each.source is not None:
            sides.append(f"source {each.source}")
        if each.target is not None:
            sides.append(f"target {each.target}")
        texts.append(", ".join(sides))
    more = f"; and {len(spans) - most:,} more places" if len(spans) > most else ""
    return "; ".join(texts) + more
