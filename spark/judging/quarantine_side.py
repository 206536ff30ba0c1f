"""The quarantine as a third side of a proof: records that the target did not take and that are kept beside it.

A record counts as quarantined only if its bytes in quarantine have the fingerprint of the source's record at that
offset. A record that is too large to be stored whole is stored with the fingerprint that the worker computed; the proof
compares that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from watershed.clusters.errors import Unauthorised
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.record_fingerprint import encode_headers_bin
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.quarantine import QuarantinedRecord, read_quarantine
from watershed.spark.fingerprint import RecordFingerprints, RecordSlices, fingerprint_slices
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.record_difference import DifferenceExample, RecordDifference, build_example
from watershed.spark.judging.verdict import ConfirmedDifference
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.provenance_rewrite import add_provenance_headers
from watershed.spark.reading.range_requests import QuarantinedOffset
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs
from watershed.spark.reading.schema_id_rewrite import rewrite_schema_ids
from watershed.topology.plan import PlanFlow


@dataclass(frozen=True, slots=True)
class _SourceSetAside:
    """The source without what is kept for it; how many records that are; offsets of kept ones that are others than the
    source's; the records themselves, told one by one."""

    source: RecordFingerprints
    count: int
    others: tuple[int, ...] = ()
    examples: tuple[DifferenceExample, ...] = ()


def read_quarantined_records(
    settings: ConnectionSettings, flow: PlanFlow
) -> dict[tuple[str, int], tuple[QuarantinedRecord, ...]]:
    """What is in quarantine for a flow, by source topic and partition, in order of offsets; also what an earlier policy
    of the flow has left there, if it may be read. Raises ClusterError."""
    found: dict[tuple[str, int], list[QuarantinedRecord]] = {}
    try:
        records = read_quarantine(settings, flow.id)
    except Unauthorised:
        if flow.rejected == "quarantine":
            raise
        records = []
    for each in records:
        found.setdefault((each.topic, each.partition), []).append(each)
    return {key: tuple(records) for key, records in found.items()}


def build_quarantined_offsets(
    records: Iterable[QuarantinedRecord],
    *,
    timestamps: bool,
    ids: KeyValueIdPairs,
    header: ProvenanceHeader | None = None,
) -> tuple[QuarantinedOffset, ...]:
    """Entries as tasks of the proof get them. A quarantined record has the schema ids of the source, the proof compares
    with those of the target; so a rewritten record may have either fingerprint. header: what the flow adds to records
    that it copies, and the quarantine does not have."""
    return tuple(_kept(each, timestamps, ids, header) for each in records)


def set_aside_quarantined(
    source: RecordFingerprints, target: RecordFingerprints, kept: Sequence[QuarantinedOffset], limit: int
) -> _SourceSetAside:
    """The source's run without the records that stand in quarantine only, and those records as examples."""
    if not kept or not len(source):
        return _SourceSetAside(source, 0)
    at = {offset: index for index, offset in enumerate(source.offset.tolist())}
    mine: list[int] = []
    others: list[int] = []
    for each in kept:
        index = at.get(each.offset)
        if index is None:
            continue
        if not each.matches(int(source.fp[index])):
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
    examples = tuple(build_example("quarantined", source, index) for index in gone[:limit])
    return _SourceSetAside(source.without(spans), len(gone), tuple(others), examples)


def add_quarantined(difference: RecordDifference, aside: _SourceSetAside) -> RecordDifference:
    """The difference with the records that `set_aside_quarantined` took out before the comparison."""
    examples = (*aside.examples, *difference.examples)
    return replace(difference, quarantined=aside.count, kept_otherwise=aside.others, examples=examples)


def build_quarantine_facts(
    partitions: Sequence[ProofPartition], confirmed: Sequence[ConfirmedDifference]
) -> dict[str, Any]:
    """What the summary says of the quarantine: how many entries the windows hold (`entries`), how many are the only
    copy of their record (`alone`), how many stand on the target as well (`copied_too`), and which have another content
    than the source's record (`others`)."""
    entries = sum(len(s.kept_in(OffsetRange(s.window.source.start, s.window.tail.end))) for s in partitions)
    alone = sum(each.difference.quarantined for each in confirmed)
    others = [
        {**each.place._asdict(), "source_offset": offset}
        for each in confirmed
        for offset in each.difference.kept_otherwise
    ]
    return {"entries": entries, "alone": alone, "others": others, "copied_too": max(0, entries - alone - len(others))}


def _kept(
    each: QuarantinedRecord, timestamps: bool, ids: KeyValueIdPairs, header: ProvenanceHeader | None
) -> QuarantinedOffset:
    is_rewritten = ids != NO_ID_REWRITE or header is not None
    if not each.whole:
        if each.fingerprint is None or not timestamps or is_rewritten:
            return QuarantinedOffset(each.offset)
        return QuarantinedOffset(each.offset, (each.fingerprint,))
    slices = _slices(each)
    rewritten = add_provenance_headers(rewrite_schema_ids(slices, ids), header)
    both = (rewritten, slices) if is_rewritten else (slices,)
    prints = {int(fingerprint_slices(one, timestamps=timestamps).fp[0]) for one in both}
    return QuarantinedOffset(each.offset, tuple(sorted(prints)), each.key is None)


def _slices(each: QuarantinedRecord) -> RecordSlices:
    """One record as a batch of one would have it."""
    key, value, headers = each.key or b"", each.value or b"", encode_headers_bin(each.headers)
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
    return RecordSlices(np.frombuffer(key + value + headers + bytes(16), dtype=np.uint8), *columns)
