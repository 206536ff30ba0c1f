"""Partitions of compacted topics whose logs differ, judged by the state of their keys (`spark.judging.key_state`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watershed.spark.judging.key_state import KeyStateDifference
from watershed.spark.judging.key_state_reading import KeyStateJob, KeyStateResult
from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders, RangeComparison
from watershed.spark.judging.proof_window import cut_chunks
from watershed.spark.judging.record_difference import RecordDifference
from watershed.spark.judging.verdict import ChunkRow, ConfirmedDifference
from watershed.spark.reading.offset_range import OffsetRange

_AGAIN = 3  # how often a log may expire under the reading before what differs is given up


def judge_compacted_partitions(
    partitions: Sequence[ProofPartition], rows: Sequence[ChunkRow], readers: ProofReaders, named: int
) -> tuple[list[ConfirmedDifference], list[str]]:
    """(difference of every compacted partition with a chunk that is not equal, findings). Raises SparkError."""
    unequal = {row.place for row in rows if row.status in ("different", "unverifiable")}
    # Where records are changed on their way, keys have other states there; what differs is told as not comparable.
    wanted = [s for s in partitions if s.compacted and s.transform is None and s.window.place in unequal]
    if readers.states is None or not wanted:
        return [], []
    jobs = [_job(s, rows, named) for s in wanted]
    found = readers.states(jobs)
    for _ in range(_AGAIN - 1):
        moved = [n for n, (s, job) in enumerate(zip(wanted, jobs, strict=True)) if _low(s, job, found[n]) != job.low]
        if not moved:
            break
        for n in moved:
            jobs[n] = jobs[n]._replace(low=_low(wanted[n], jobs[n], found[n]))
        for n, again in zip(moved, readers.states([jobs[n] for n in moved]), strict=True):
            found[n] = again
    confirmed, findings = [], []
    for s, job, each in zip(wanted, jobs, found, strict=True):
        compared = each.compared
        if _low(s, job, each) != job.low:
            compared = _given_up(compared)
        difference = compared.difference
        where = s.window.place.name
        kept = _keyless_kept(s, readers) if compared.keyless[0] else 0
        difference = replace(difference, quarantined=difference.quarantined + kept)
        ours, theirs = compared.keyless[0] - kept, compared.keyless[1]
        if ours > 0 or theirs > 0:
            findings.append(
                f"{where}: {ours} records without a key on the source and {theirs} on the target; a compacted topic "
                "takes none, and no state tells them, so they are not compared"
            )
            difference = replace(difference, unverifiable=difference.unverifiable + max(ours, theirs))
        if s.only_copy_compacts:
            findings.append(
                f"{where}: {s.clusters[1]} compacts it and {s.clusters[0]} does not: of records with equal keys only "
                "the last stays there, and no more than that was compared. Give both sides one "
                "cleanup.policy, or declare the target's in `sync.configs.set`"
            )
        confirmed.append(ConfirmedDifference(s.window.place, s.window.source, s.window.target, difference, by="state"))
    return confirmed, findings


def _keyless_kept(s: ProofPartition, readers: ProofReaders) -> int:
    """How many records without a key are in quarantine; a compacted target refuses them."""
    kept = [each for each in s.kept_in(s.window.source) if each.keyless]
    nowhere = s.build_request(1, OffsetRange(s.window.target.end, s.window.target.end), 1)
    jobs = [
        RangeComparison(s.build_request(0, OffsetRange(each.offset, each.offset + 1), 0), nowhere, kept=(each,))
        for each in kept
    ]
    return sum(each.quarantined for each in readers.differences(jobs)) if jobs else 0


def _job(s: ProofPartition, rows: Sequence[ChunkRow], named: int) -> KeyStateJob:
    spans = list(cut_chunks(s.window.source, s.window.target, s.map, s.chunk))
    counts = [max(row.source_sum.n, row.target_sum.n) for row in rows if row.place == s.window.place]
    requests = [[s.build_request(side, both[side], number) for number, both in enumerate(spans)] for side in (0, 1)]
    return KeyStateJob(
        tuple(requests[0]), tuple(requests[1]), sum(counts), limit=named, kept=s.kept_in(s.window.source)
    )


def _low(s: ProofPartition, job: KeyStateJob, found: KeyStateResult) -> tuple[int, int]:
    """Source and target offsets below which the other side has expired."""
    window, (source_start, target_start) = s.window, found.expired
    low = job.low
    if target_start >= 0:
        at = window.source.end if target_start >= window.target.end else s.map.to_source(target_start)
        low = max(low[0], at), low[1]
    if source_start >= 0:
        at = window.target.end
        if source_start < window.source.end:
            at = s.map.to_target(source_start, window.target.end)
        low = low[0], max(low[1], at)
    return low


def _given_up(compared: KeyStateDifference) -> KeyStateDifference:
    """The log expires faster than it is read, so all differences count as unverifiable."""
    d = compared.difference
    lost = d.unverifiable + d.missing + d.altered + d.foreign
    difference = RecordDifference(d.proven, pending=d.pending, unverifiable=lost, exact=False)
    return compared._replace(difference=difference)
