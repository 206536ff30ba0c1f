"""The quarantine as a third side of a proof: records that the target did not take and that are kept beside it.

The quarantine's own words are not believed: a record counts as kept where its bytes there have the fingerprint of the
record at its offset on the source. Of one that is too large to be kept whole there is the fingerprint that the worker
took before it left the rest out: what it set aside must have been the record that stands there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusters.errors import Unauthorised
from clusters.settings import ConnectionSettings
from replicator.quarantine import Quarantined, read_quarantine
from spark.fingerprint import Prints, Slices, headers_bin, print_slices
from spark.judging.difference import Difference, Example
from spark.reading.ids import AS_THEY_ARE, Ids
from spark.reading.schema_ids import translated
from spark.reading.spans import Span
from spark.reading.units import Kept
from topology.plan import PlanFlow

if TYPE_CHECKING:
    from spark.judging.subjects import Subject
    from spark.judging.verdict import Confirmed


class _SetAside(NamedTuple):
    """The source without what is kept for it; how many records that are; offsets of kept ones that are others than the
    source's; the records themselves, told one by one."""

    source: Prints
    count: int
    others: tuple[int, ...] = ()
    examples: tuple[Example, ...] = ()


def kept_records(settings: ConnectionSettings, flow: PlanFlow) -> dict[tuple[str, int], tuple[Quarantined, ...]]:
    """What is in quarantine for a flow, by source topic and partition, in order of offsets; also what an earlier policy
    of the flow has left there, if it may be read. Raises ClusterError."""
    found: dict[tuple[str, int], list[Quarantined]] = {}
    try:
        records = read_quarantine(settings, flow.id)
    except Unauthorised:
        if flow.rejected == "quarantine":
            raise
        records = []
    for each in records:
        found.setdefault((each.topic, each.partition), []).append(each)
    return {key: tuple(records) for key, records in found.items()}


def as_kept(records: Iterable[Quarantined], *, timestamps: bool, ids: Ids) -> tuple[Kept, ...]:
    """As a task of the proof is told of them. A kept record has the schema ids of the source: the proof compares with
    those of the target, as everywhere."""
    return tuple(_kept(each, timestamps, ids) for each in records)


def set_aside(source: Prints, target: Prints, kept: Sequence[Kept], limit: int) -> _SetAside:
    """Takes from a run of the source what is kept for it and does not stand on the target as well."""
    if not kept or not len(source):
        return _SetAside(source, 0)
    at = {offset: index for index, offset in enumerate(source.offset.tolist())}
    mine: list[int] = []
    others: list[int] = []
    for each in kept:
        index = at.get(each.offset)
        if index is None:
            continue
        if each.prints and int(source.fp[index]) not in each.prints:
            others.append(each.offset)
        else:
            mine.append(index)
    stay = np.ones(len(source), dtype=np.bool_)
    stay[mine] = False
    wanted = {int(source.fp[index]) for index in mine}
    there = Counter(fp for fp in target.fp.tolist() if fp in wanted)
    there.subtract(fp for fp in source.fp[stay].tolist() if fp in wanted)
    gone: list[int] = []
    for index in mine:
        fp = int(source.fp[index])
        if there[fp] > 0:  # it stands on the target as well
            there[fp] -= 1
        else:
            gone.append(index)
    spans = [(int(source.offset[index]), int(source.offset[index]) + 1) for index in gone]
    examples = tuple(
        Example(
            "quarantined",
            int(source.offset[index]),
            None,
            (),
            int(source.fp[index]),
            None,
            int(source.ts[index]),
            None,
            int(source.kh[index]),
        )
        for index in gone[:limit]
    )
    return _SetAside(source.without(spans), len(gone), tuple(others), examples)


def with_kept(difference: Difference, aside: _SetAside) -> Difference:
    """The difference of what was left of the source, and what was set aside before."""
    examples = (*aside.examples, *difference.examples)
    return replace(difference, quarantined=aside.count, kept_otherwise=aside.others, examples=examples)


def quarantine_facts(subjects: Sequence[Subject], confirmed: Sequence[Confirmed]) -> dict[str, Any]:
    """What the quarantine holds of what was looked at. alone: entries that are their record's only copy; copied_too:
    how many are on the target as well; others: those whose content is not the source's, by name."""
    entries = sum(len(s.kept_in(Span(s.window.source.start, s.window.tail.end))) for s in subjects)
    alone = sum(each.difference.quarantined for each in confirmed)
    others = [
        {**each.place._asdict(), "source_offset": offset}
        for each in confirmed
        for offset in each.difference.kept_otherwise
    ]
    return {"entries": entries, "alone": alone, "others": others, "copied_too": max(0, entries - alone - len(others))}


def is_kept(kept: Mapping[int, Kept], offset: int, fp: int) -> bool:
    each = kept.get(offset)
    return each is not None and (not each.prints or fp in each.prints)


def _kept(each: Quarantined, timestamps: bool, ids: Ids) -> Kept:
    if not each.whole:
        if each.fingerprint is None or not timestamps or ids != AS_THEY_ARE:
            return Kept(each.offset)
        return Kept(each.offset, (each.fingerprint,))
    slices = _slices(each)
    both = (slices,) if ids == AS_THEY_ARE else (translated(slices, ids), slices)
    prints = {int(print_slices(one, timestamps=timestamps).fp[0]) for one in both}
    return Kept(each.offset, tuple(sorted(prints)), each.key is None)


def _slices(each: Quarantined) -> Slices:
    """One record as a batch of one would have it."""
    key, value, headers = each.key or b"", each.value or b"", headers_bin(each.headers)
    numbers = (
        each.offset,
        each.timestamp,
        0,
        -1 if each.key is None else len(key),
        len(key),
        -1 if each.value is None else len(value),
        len(key) + len(value),
        len(headers),
    )
    columns = (np.array([number], dtype=np.int64) for number in numbers)
    return Slices(np.frombuffer(key + value + headers + bytes(16), dtype=np.uint8), *columns)
