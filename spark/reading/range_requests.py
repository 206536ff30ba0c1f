"""Ranges to read: what a task of the proof is told, and how ranges are shared out among tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clusters.claim_rules import PartitionClaims
from spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs

SumKind = Literal["batches", "lists", "records"]


class QuarantinedOffset(NamedTuple):
    """A source record that is kept in quarantine: its offset, and the fingerprints that it may have; none where it is
    not whole."""

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
    other offsets differ. around_known: `left_out` is what is known to be the same on both sides, so it counts, too,
    between how many of those spans a record stands.
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


def group_into_tasks(units: Sequence[RangeRequest], tasks: int) -> list[list[RangeRequest]]:
    """Units in log order, grouped into about `tasks` stretches of like length, each of one cluster."""
    share = max(1, -(-sum(unit.end - unit.start for unit in units) // max(1, tasks)))
    stretches: list[list[RangeRequest]] = []
    length = 0
    for unit in sorted(units, key=lambda unit: (*_log(unit)[:-2], unit.start, unit.end)):
        if not stretches or stretches[-1][-1].cluster != unit.cluster or length >= share:
            stretches.append([])
            length = 0
        stretches[-1].append(unit)
        length += unit.end - unit.start
    return sorted(stretches, key=lambda units: -sum(unit.end - unit.start for unit in units))


def split_into_streams(units: Sequence[RangeRequest]) -> Iterator[list[RangeRequest]]:
    """Units that follow one another in one log, so that they can be read as one stream."""
    run: list[RangeRequest] = []
    for unit in units:
        if run and (_log(run[-1]) != _log(unit) or run[-1].end != unit.start):
            yield run
            run = []
        run.append(unit)
    if run:
        yield run


def _log(
    unit: RangeRequest,
) -> tuple[str, str, int, SumKind, bool, tuple[int, ...], tuple[int, ...], PartitionClaims | None, KeyValueIdPairs]:
    """What units must share to be read as one stream; the last two are not in order."""
    whose = unit.skip, unit.only, unit.claims
    return unit.cluster, unit.topic_id, unit.partition, unit.by, unit.timestamps, *whose, unit.ids
