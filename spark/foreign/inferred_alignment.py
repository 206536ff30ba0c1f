"""The alignment of a copy that another tool made (MirrorMaker 2, Cluster Linking, Replicator): inferred, and said so.

Nothing is written, no control topic is read. Three ways, each checked by content before it is used:

1. what MirrorMaker 2 noted in its offset-syncs topic, where it can be read (hints: sparse, and sometimes wrong);
2. equal offsets, as Cluster Linking keeps them;
3. content alone (`spark.foreign.anchor_chain`): one more read of both logs.

Whatever says where the copy of a record stands, the proof compares every record of the window afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.settings import resolve_connection_settings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.foreign.anchor_chain import (
    NO_SAMPLES,
    SAMPLES_PER_PARTITION,
    Anchor,
    InferredOffsetMap,
    LogEnds,
    SampledRecords,
    build_inferred_map,
    find_anchors,
    find_rising_chain,
    join_samples,
)
from watershed.spark.judging.flow_observation import FlowFacts, TopicPair, list_partition_pairs
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_fingerprints
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.read_limits import NO_READ_LIMITS, LimitedTask, ReadLimits
from watershed.topology.plan import Plan, PlanCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE = 500_000  # offsets that one task samples
_TOGETHER = 16  # partitions that are sampled at once
_HERE_AND_NOW = 200_000  # offsets that are read without Spark
_TAIL = 2_000  # records at a copy's end among which the source's last one is looked for
_PROBES, _RUN = 12, 16  # places where a guess is tried, and records that have to be equal at each


class SamplingSizes(NamedTuple):
    """samples: records of a partition and side that are held at once, about. close: offsets at both ends that are
    looked at record by record, at least."""

    samples: int = SAMPLES_PER_PARTITION
    close: int = 100_000


_SIZES = SamplingSizes()


class SampleRequest(NamedTuple):
    """A range of which every `every`-th record is wanted (1: all), as its fingerprint says."""

    request: RangeRequest
    every: int = 1


# Answers in the order asked. What has expired is left out. Raises NotReadable, ClusterError, SparkError.
_Look = Callable[[Sequence[SampleRequest]], list[SampledRecords]]
_Logs = tuple[LogRange, LogRange]  # source, target


@dataclass(frozen=True, slots=True)
class OffsetHint:
    """Source offset `upstream` is said to stand at target offset `downstream`."""

    upstream: int
    downstream: int


HintReader = Callable[[], Mapping[tuple[str, int], Sequence[OffsetHint]]]  # by source topic and partition


def observe_foreign_copy(
    facts: FlowFacts,
    look: _Look,
    *,
    wait: float = 0.0,
    earliest: bool = False,
    hints: HintReader = dict,
    sizes: SamplingSizes = _SIZES,
) -> list[ObservedPartition]:
    """As `observe_partitions`, for a copy without a ledger: fix the barrier, wait up to `wait` seconds until the
    source's last record below it is among the copy's last ones, then infer where each copy begins and ends.

    Holds at most _TOGETHER * 2 * SAMPLES_PER_PARTITION samples of 16 bytes at once, and a map of as many anchors for
    each partition. Raises NotReadable, ClusterError, SparkError.
    """
    places = list_partition_pairs(facts)
    at_source = [TopicPartition(place.topic, place.partition) for place, _ in places]
    at_target = [TopicPartition(place.target_topic, place.partition) for place, _ in places]
    if not places:
        return []
    known = _Known(facts, places, look, sizes)
    barriers = facts.source.offsets(at_source)
    deadline = time.monotonic() + wait
    while True:
        targets = facts.target.offsets(at_target)
        if time.monotonic() >= deadline:
            break
        if all(
            known.arrived(index, barriers[here], targets[there])
            for index, (here, there) in enumerate(zip(at_source, at_target, strict=True))
        ):
            break
        time.sleep(0.5)
    sources = facts.source.offsets(at_source)
    said = hints()
    seen: list[ObservedPartition] = []
    for first in range(0, len(places), _TOGETHER):
        logs = {
            index: (sources[at_source[index]], targets[at_target[index]])
            for index in range(first, min(first + _TOGETHER, len(places)))
        }
        for index, (map_, how) in known.told(logs, said, earliest).items():
            place, pair = places[index]
            ids = (pair.source.topic_id, pair.target.topic_id)
            facts.alignments.setdefault(place.topic, []).append(how)
            where = place.name
            facts.notes += [f"{where}: {note}" for note in (map_.notes if isinstance(map_, InferredOffsetMap) else ())]
            source, target = logs[index]
            if not map_.runs and source.end > source.start and target.end > target.start:
                facts.notes.append(f"{where}: {_STRANGERS}")
            seen.append(ObservedPartition(place, source, target, map_, barriers[at_source[index]].end, ids))
    return seen


def choose_window_start(seen: ObservedPartition) -> Literal["earliest", "latest"]:
    """How `fix_window` finds the window's beginning: an inferred map begins where the copy does; where there is none,
    nothing is copied yet."""
    return "latest" if seen.map.runs else "earliest"


_STRANGERS = "no record on the target is one of the source's; is it a copy of this topic, and is the naming right?"


@dataclass(frozen=True, slots=True)
class _Known:
    facts: FlowFacts
    places: list[tuple[PartitionPair, TopicPair]]
    look: _Look
    sizes: SamplingSizes

    def told(
        self, logs: Mapping[int, _Logs], hints: Mapping[tuple[str, int], Sequence[OffsetHint]], earliest: bool
    ) -> dict[int, tuple[OffsetMap, str]]:
        """The map of every partition, by its index, and how it was found."""
        found = {}
        for index, (source, target) in logs.items():
            place = self.places[index][0]
            guessed = self.guessed(index, source, target, hints.get((place.topic, place.partition), []), earliest)
            if guessed is not None:
                found[index] = guessed
        rest = {index: pair for index, pair in logs.items() if index not in found}
        for index, (here, there, every) in self.sampled(rest).items():
            found[index] = self.by_content(index, *rest[index], here, there, every, earliest)
        return dict(sorted(found.items()))

    def _unit(self, index: int, side: int, start: int, end: int) -> RangeRequest:
        place, pair = self.places[index]
        flow, topic = self.facts.flow, (pair.source, pair.target)[side]
        cluster = (flow.source, flow.target)[side]
        return RangeRequest(
            index, cluster, topic.name, str(topic.topic_id), place.partition, start, end, pair.timestamps
        )

    def _all(self, index: int, side: int, start: int, end: int) -> SampledRecords:
        if start >= end:
            return NO_SAMPLES
        [found] = self.look([SampleRequest(self._unit(index, side, start, end))])
        return found

    def arrived(self, index: int, source: LogRange, target: LogRange) -> bool:
        """Whether the last record below the barrier is among the copy's last ones."""
        end, step = source.end, 64
        last = NO_SAMPLES
        while not len(last) and end > source.start:  # markers and aborted records at the end
            begin = max(source.start, end - step)
            last, end, step = self._all(index, 0, begin, end), begin, step * 8
        if not len(last):
            return True
        tail = self._all(index, 1, max(target.start, target.end - _TAIL), target.end)
        return bool((tail.fp == last.fp[-1]).any())

    def guessed(
        self, index: int, source: LogRange, target: LogRange, hints: Sequence[OffsetHint], earliest: bool
    ) -> tuple[OffsetMap, str] | None:
        """A map of one distance between the offsets of both sides, when records are equal wherever it is tried; only
        for logs so long that this is cheaper than sampling them."""
        if max(source.end - source.start, target.end - target.start) <= self.sizes.samples:
            return None
        for distance, whence in _distances(source, target, hints).items():
            low, high = max(source.start - distance, target.start), min(source.end - distance, target.end) - _RUN
            if high - low < _RUN * _PROBES:
                continue
            points = [low + (high - low) * at // (_PROBES - 1) for at in range(_PROBES)]
            tried = [
                SampleRequest(self._unit(index, side, point + shift, point + shift + _RUN))
                for point in points
                for side, shift in ((0, distance), (1, 0))
            ]
            answers = self.look(tried)
            pairs = zip(answers[::2], answers[1::2], strict=True)
            if all(_same(here, there, distance) for here, there in pairs):
                chain = [Anchor(int(there.offset[0]) + distance, int(there.offset[0])) for there in answers[1::2]]
                map_ = self._closed(index, source, target, chain, None, earliest)
                return map_, f"{whence}: the same records at {_PROBES} places, {distance} offsets apart"
        return None

    def sampled(self, logs: Mapping[int, _Logs]) -> dict[int, tuple[SampledRecords, SampledRecords, int]]:
        """(source, target, every how many-th record it is) of each partition."""
        asked: list[tuple[int, int, SampleRequest]] = []
        numbers: dict[int, int] = {}
        for index, (source, target) in logs.items():
            every = numbers[index] = max(
                1, max(source.end - source.start, target.end - target.start) // self.sizes.samples
            )
            for side, log in enumerate((source, target)):
                for start in range(log.start, log.end, _PIECE):
                    request = self._unit(index, side, start, min(start + _PIECE, log.end))
                    asked.append((index, side, SampleRequest(request, every)))
        found: dict[tuple[int, int], list[SampledRecords]] = {}
        for (index, side, _), marks in zip(asked, self.look([each for *_, each in asked]), strict=True):
            found.setdefault((index, side), []).append(marks)
        return {
            index: (join_samples(found.get((index, 0), [])), join_samples(found.get((index, 1), [])), number)
            for index, number in numbers.items()
        }

    def by_content(
        self,
        index: int,
        source: LogRange,
        target: LogRange,
        here: SampledRecords,
        there: SampledRecords,
        every: int,
        earliest: bool,
    ) -> tuple[OffsetMap, str]:
        chain = find_anchors(here, there)
        if not chain:
            return OffsetMap(()), "nothing in common"
        map_ = self._closed(index, source, target, chain, (here, there) if every == 1 else None, earliest, 16 * every)
        sample = "" if every == 1 else f", of one record in {every}"
        return map_, f"content: cut at {map_.anchors} records that both sides hold{sample}"

    def _closed(
        self,
        index: int,
        source: LogRange,
        target: LogRange,
        chain: list[Anchor],
        whole: tuple[SampledRecords, SampledRecords] | None,
        earliest: bool,
        close: int = 0,
    ) -> InferredOffsetMap:
        """The map over a chain, its ends looked at record by record. whole: both logs, where all is known of them."""
        close = max(self.sizes.close, close)

        def near(side: int, start: int, end: int) -> SampledRecords:
            return self._all(index, side, start, end) if whole is None else whole[side].between(start, end)

        first, last = chain[0], chain[-1]
        heads = (
            near(0, max(source.start, first.source - close), first.source + 1),
            near(1, max(target.start, first.target - close), first.target + 1),
        )
        tails = (
            near(0, last.source, min(source.end, last.source + close)),
            near(1, last.target, min(target.end, last.target + close)),
        )
        if whole is None:
            chain = find_rising_chain([*find_anchors(*heads), *chain, *find_anchors(*tails)])
        ends = LogEnds((source.start, source.end), (target.start, target.end))
        return build_inferred_map(chain, (heads[0], tails[0]), (heads[1], tails[1]), ends, earliest=earliest)


def _distances(source: LogRange, target: LogRange, hints: Sequence[OffsetHint]) -> dict[int, str]:
    """Source offset minus target offset, as it may be all along the log, and who says so."""
    found = dict.fromkeys((hint.upstream - hint.downstream for hint in (*hints[-1:], *hints[:1])), _BY_HINTS)
    return found | {d: "equal offsets" if d == 0 else "one distance" for d in (0, source.start - target.start)}


_BY_HINTS = "MirrorMaker 2's offset syncs, tried"


def _same(here: SampledRecords, there: SampledRecords, distance: int) -> bool:
    same = len(here) and len(here) == len(there) and (here.fp == there.fp).all()
    return bool(same and (here.offset - there.offset == distance).all())


def build_local_sampler(plan: Plan, limits: ReadLimits = NO_READ_LIMITS) -> _Look:
    """Reads here and now, one range after the other."""
    politely = LimitedTask(limits.share_for_task(1, 1), _run_sample_task)

    def look(samples: Sequence[SampleRequest]) -> list[SampledRecords]:
        return list(politely((plan.cluster(each.request.cluster), each) for each in samples))

    return look


def build_spark_sampler(plan: Plan, session: Callable[[], SparkSession], limits: ReadLimits = NO_READ_LIMITS) -> _Look:
    """Lets Spark read what is much, no faster than read limits allow."""
    near = build_local_sampler(plan, limits)

    def look(samples: Sequence[SampleRequest]) -> list[SampledRecords]:
        from watershed.spark.failure_text import raise_as_spark_error

        if sum(each.request.end - each.request.start for each in samples) <= _HERE_AND_NOW:
            return near(samples)
        tasks = [(plan.cluster(each.request.cluster), each) for each in samples]
        with raise_as_spark_error(
            "the Spark job that aligns both logs failed", "Nothing was proven; run the proof again"
        ):
            context, slices = session().sparkContext, limits.tasks(len(tasks))
            polite = LimitedTask(limits.share_for_task(slices, context.defaultParallelism), _run_sample_task)
            return context.parallelize(tasks, slices).mapPartitions(polite).collect()

    return look


def _run_sample_task(tasks: Iterable[tuple[PlanCluster, SampleRequest]]) -> Iterator[SampledRecords]:
    """A task of the alignment."""
    for cluster, each in tasks:
        yield sample_range(cluster, each)


def sample_range(cluster: PlanCluster, wanted: SampleRequest) -> SampledRecords:
    """Block by block: a task holds its marks and one block. What has expired is left out."""
    request = wanted.request
    settings = resolve_connection_settings(cluster)
    address = PartitionAddress(settings, request.topic, UUID(request.topic_id), request.partition, request.timestamps)
    start = request.start
    while start < request.end:
        parts = []
        try:
            for block in read_fingerprints(address, OffsetRange(start, request.end)):
                parts.append(SampledRecords(block.offset, block.fp).every(wanted.every))
            return join_samples(parts)
        except OffsetsExpired as expired:
            start = expired.log_start
    return NO_SAMPLES
