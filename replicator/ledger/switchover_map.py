"""One partition across a switch: below the cut the flow there says where a record stands, above it the flow back.

Pure. The cut is the target's log end at the switch, the barrier the source's: everything below both is one history that
the flow there copied; what applications wrote at the target since is carried to the source behind the barrier by the
flow back. A reader that stands at the cut has read all of the one and nothing of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import NotCopied
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition, OffsetNotCopied, Offsets


@dataclass(frozen=True, slots=True)
class SwitchoverMap:
    """there: source → target. back: target → source; None while the flow back knows nothing of the partition."""

    cut: int
    barrier: int
    there: OffsetMap
    back: CopiedPartition | None

    def to_source(self, at: int) -> int:
        """Where a reader that goes on at `at` on the target goes on at the source. One that has read nothing behind the
        cut that was carried goes on at the barrier itself, so that it meets whatever else stands behind it.

        Raises NotCopied when what it has read was not carried back so far, ReplicatorError for an offset below the
        first copied record or a map that contradicts itself.
        """
        if at < self.cut:
            return min(self.there.to_source(at), self.barrier) if self.there.runs else self.barrier
        landing = self.first_carried
        if at == self.cut:
            return self.barrier
        if self.back is None:
            raise NotCopied(at, self.cut)
        found = self.back.map.to_target(at, self.back.target_end)
        return self.barrier if found == landing else found

    def to_target(self, at: int) -> int:
        """The inverse: where a reader that goes on at `at` at the source goes on at the target."""
        if at < self.barrier:
            return min(self.there.to_target(at, self.cut), self.cut) if self.there.runs else self.cut
        landing = self.first_carried
        if self.back is None or landing is None or at <= landing:
            return self.cut
        return max(self.cut, self.back.map.to_source(min(at, self.back.target_end)))

    @property
    def first_carried(self) -> int | None:
        """Where the first record behind the cut stands at the source, or will; None while that is not known."""
        if self.back is None or not self.back.map.runs:
            return None
        try:
            return self.back.map.to_target(self.cut, self.back.target_end)
        except NotCopied:
            return None

    def build_history(self, source_end: int = 0) -> ExplicitRunMap:
        """Source → target over the whole history: below the barrier as the flow there copied it, above it the inverse
        of what the flow back has carried so far. Of records behind the last carried one it knows nothing: whoever
        translates a position makes sure that none lies between the two. source_end: the source's log end, where the
        caller knows it. A reader may stand there although nothing was carried back: behind records of somebody else.

        Raises ReplicatorError for maps that contradict each other.
        """
        carried = self.back.map.stretches(self.back.target_end) if self.back is not None else ()
        runs = join_switchover_runs(self.there, carried, self.cut, self.barrier)
        begin = OffsetRun(runs[0].target, runs[0].source) if runs else OffsetRun(self.cut, self.barrier)
        ends = (self.barrier, source_end, *(run.source + run.records for run in runs[-1:]))
        position = max(*ends, self.back.target_end if self.back is not None else 0)
        return ExplicitRunMap.over(runs, begin, position)


def join_switchover_runs(there: OffsetMap, back: Iterable[ExplicitRun], cut: int, barrier: int) -> list[ExplicitRun]:
    """Runs source → target, in log order: those of the map `there` below the barrier and the cut, then those of the
    flow back (`target` is an offset of the source there), inverted, from the cut on."""
    begun = [ExplicitRun(run.target, run.source, 0) for run in there.runs[:1]]  # also where nothing was copied by it
    copied = [
        each._replace(records=min(each.records, barrier - each.source))
        for each in there.stretches(cut)
        if each.source < barrier
    ]
    carried = [
        ExplicitRun(each.source + skipped, each.target + skipped, each.records - skipped)
        for each in back
        if (skipped := max(0, cut - each.source)) < each.records
    ]
    return join_explicit_runs([*begun, *copied, *carried])


@dataclass(frozen=True, slots=True)
class ReturningGroup:
    """Where a group goes on at the source, by source partition. ahead: what it has read is not carried back so far.
    silent: partitions for which nobody said where to read."""

    offsets: dict[TopicPartition, int]
    ahead: tuple[OffsetNotCopied, ...] = ()
    silent: tuple[TopicPartition, ...] = ()


def translate_returning_group(
    at_target: Offsets,
    given: Offsets,
    at_source: Offsets,
    crossings: Mapping[TopicPartition, SwitchoverMap],
    wanted: Iterable[tuple[TopicPartition, TopicPartition]],
    uncommitted: str | None,
    starts: Offsets,
) -> ReturningGroup:
    """Where a group that reads at the target goes on at the source.

    at_target: what it has committed there now; given: what the migration had committed there for it; at_source: what it
    had committed at the source before. crossings, starts (of the source's logs) and at_source are by source partition;
    wanted: (source, target) partitions. A partition in which it has not moved returns to exactly its old offset.
    uncommitted: `earliest` | `latest` for partitions without any commit; None refuses them.
    """
    offsets: dict[TopicPartition, int] = {}
    ahead: list[OffsetNotCopied] = []
    silent: list[TopicPartition] = []
    for here, there in wanted:
        crossing, at = crossings[here], at_target.get(there)
        if at is None and here in at_source:
            offsets[here] = at_source[here]
        elif at is None and uncommitted == "earliest":
            offsets[here] = starts[here]
        elif at is None and uncommitted == "latest":
            offsets[here] = crossing.barrier
        elif at is None:
            silent.append(here)
        elif at == given.get(there) and here in at_source:
            offsets[here] = at_source[here]
        else:
            try:
                offsets[here] = crossing.to_source(at)
            except NotCopied as error:
                ahead.append(OffsetNotCopied(there, at, error.copied))
    return ReturningGroup(offsets, tuple(ahead), tuple(silent))
