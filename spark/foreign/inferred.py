"""The alignment of a copy that another tool made (MirrorMaker 2, Cluster Linking, Replicator): inferred, and said so.

Nothing is written, no control topic is read. Three ways, each checked by content before it is used:

1. what MirrorMaker 2 noted in its offset-syncs topic, where it can be read (hints: sparse, and sometimes wrong);
2. equal offsets, as Cluster Linking keeps them;
3. content alone (`spark.foreign.anchors`): one more read of both logs.

Whatever says where the copy of a record stands, the proof compares every record of the window afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from clusters.names import TopicPartition
from clusters.settings import connection_settings
from clusters.surface import LogRange
from replicator.offsetmap import OffsetMap
from spark.foreign.anchors import (
    NOTHING,
    SAMPLES,
    Anchor,
    Ends,
    InferredMap,
    Marks,
    anchors,
    inferred_map,
    joined,
    rising,
)
from spark.judging.observe import FlowFacts, Pair, places_of
from spark.judging.window import Observed, Place
from spark.reading.manners import ANY_WAY, Manners, Politely
from spark.reading.ranges import Expired, PartitionAddress, read_prints
from spark.reading.spans import Span
from spark.reading.units import Unit
from topology.plan import Plan, PlanCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE = 500_000  # offsets that one task samples
_TOGETHER = 16  # partitions that are sampled at once
_HERE_AND_NOW = 200_000  # offsets that are read without Spark
_TAIL = 2_000  # records at a copy's end among which the source's last one is looked for
_PROBES, _RUN = 12, 16  # places where a guess is tried, and records that have to be equal at each


class Sizes(NamedTuple):
    """samples: records of a partition and side that are held at once, about. close: offsets at both ends that are
    looked at record by record, at least."""

    samples: int = SAMPLES
    close: int = 100_000


_SIZES = Sizes()


class Sample(NamedTuple):
    """A range of which every `every`-th record is wanted (1: all), as its fingerprint says."""

    unit: Unit
    every: int = 1


# Answers in the order asked. What has expired is left out. Raises NotReadable, ClusterError, SparkError.
_Look = Callable[[Sequence[Sample]], list[Marks]]
_Logs = tuple[LogRange, LogRange]  # source, target


@dataclass(frozen=True, slots=True)
class Hint:
    """Source offset `upstream` is said to stand at target offset `downstream`."""

    upstream: int
    downstream: int


Hints = Callable[[FlowFacts], dict[tuple[str, int], list[Hint]]]


def _no_hints(_facts: FlowFacts) -> dict[tuple[str, int], list[Hint]]:
    return {}


def observe_foreign(
    facts: FlowFacts,
    look: _Look,
    *,
    wait: float = 0.0,
    earliest: bool = False,
    hints: Hints = _no_hints,
    sizes: Sizes = _SIZES,
) -> list[Observed]:
    """As `observe.observe`, for a copy without a ledger: fix the barrier, wait up to `wait` seconds until the source's
    last record below it is among the copy's last ones, then tell where each copy begins and ends.

    Holds at most TOGETHER * 2 * SAMPLES marks of 16 bytes at once, and a map of as many anchors a partition.
    """
    places = places_of(facts)
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
    said = hints(facts)
    seen: list[Observed] = []
    for first in range(0, len(places), _TOGETHER):
        logs = {
            index: (sources[at_source[index]], targets[at_target[index]])
            for index in range(first, min(first + _TOGETHER, len(places)))
        }
        for index, (map_, how) in known.told(logs, said, earliest).items():
            place, pair = places[index]
            ids = (pair.source.topic_id, pair.target.topic_id)
            facts.alignments.setdefault(place.topic, []).append(how)
            where = f"{place.topic}-{place.partition}"
            facts.notes += [f"{where}: {note}" for note in (map_.notes if isinstance(map_, InferredMap) else ())]
            source, target = logs[index]
            if not map_.runs and source.end > source.start and target.end > target.start:
                facts.notes.append(f"{where}: {_STRANGERS}")
            seen.append(Observed(place, source, target, map_, barriers[at_source[index]].end, ids))
    return seen


def start_of(seen: Observed) -> Literal["earliest", "latest"]:
    """How `fix_window` finds the window's beginning: an inferred map begins where the copy does; where there is none,
    nothing is copied yet."""
    return "latest" if seen.map.runs else "earliest"


_STRANGERS = "no record on the target is one of the source's; is it a copy of this topic, and is the naming right?"


@dataclass(frozen=True, slots=True)
class _Known:
    facts: FlowFacts
    places: list[tuple[Place, Pair]]
    look: _Look
    sizes: Sizes

    def told(
        self, logs: Mapping[int, _Logs], hints: Mapping[tuple[str, int], list[Hint]], earliest: bool
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

    def _unit(self, index: int, side: int, start: int, end: int) -> Unit:
        place, pair = self.places[index]
        flow, topic = self.facts.flow, (pair.source, pair.target)[side]
        cluster = (flow.source, flow.target)[side]
        return Unit(index, cluster, topic.name, str(topic.topic_id), place.partition, start, end, pair.timestamps)

    def _all(self, index: int, side: int, start: int, end: int) -> Marks:
        if start >= end:
            return NOTHING
        [found] = self.look([Sample(self._unit(index, side, start, end))])
        return found

    def arrived(self, index: int, source: LogRange, target: LogRange) -> bool:
        """Whether the last record below the barrier is among the copy's last ones."""
        end, step = source.end, 64
        last = NOTHING
        while not len(last) and end > source.start:  # markers and aborted records at the end
            begin = max(source.start, end - step)
            last, end, step = self._all(index, 0, begin, end), begin, step * 8
        if not len(last):
            return True
        tail = self._all(index, 1, max(target.start, target.end - _TAIL), target.end)
        return bool((tail.fp == last.fp[-1]).any())

    def guessed(
        self, index: int, source: LogRange, target: LogRange, hints: Sequence[Hint], earliest: bool
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
                Sample(self._unit(index, side, point + shift, point + shift + _RUN))
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

    def sampled(self, logs: Mapping[int, _Logs]) -> dict[int, tuple[Marks, Marks, int]]:
        """(source, target, every how many-th record it is) of each partition."""
        asked: list[tuple[int, int, Sample]] = []
        numbers: dict[int, int] = {}
        for index, (source, target) in logs.items():
            every = numbers[index] = max(
                1, max(source.end - source.start, target.end - target.start) // self.sizes.samples
            )
            for side, log in enumerate((source, target)):
                for start in range(log.start, log.end, _PIECE):
                    unit = self._unit(index, side, start, min(start + _PIECE, log.end))
                    asked.append((index, side, Sample(unit, every)))
        found: dict[tuple[int, int], list[Marks]] = {}
        for (index, side, _), marks in zip(asked, self.look([each for *_, each in asked]), strict=True):
            found.setdefault((index, side), []).append(marks)
        return {
            index: (joined(found.get((index, 0), [])), joined(found.get((index, 1), [])), number)
            for index, number in numbers.items()
        }

    def by_content(
        self, index: int, source: LogRange, target: LogRange, here: Marks, there: Marks, every: int, earliest: bool
    ) -> tuple[OffsetMap, str]:
        chain = anchors(here, there)
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
        whole: tuple[Marks, Marks] | None,
        earliest: bool,
        close: int = 0,
    ) -> InferredMap:
        """The map over a chain, its ends looked at record by record. whole: both logs, where all is known of them."""
        close = max(self.sizes.close, close)

        def near(side: int, start: int, end: int) -> Marks:
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
            chain = rising([*anchors(*heads), *chain, *anchors(*tails)])
        ends = Ends((source.start, source.end), (target.start, target.end))
        return inferred_map(chain, (heads[0], tails[0]), (heads[1], tails[1]), ends, earliest=earliest)


def _distances(source: LogRange, target: LogRange, hints: Sequence[Hint]) -> dict[int, str]:
    """Source offset minus target offset, as it may be all along the log, and who says so."""
    found = dict.fromkeys((hint.upstream - hint.downstream for hint in (*hints[-1:], *hints[:1])), _BY_HINTS)
    return found | {d: "equal offsets" if d == 0 else "one distance" for d in (0, source.start - target.start)}


_BY_HINTS = "MirrorMaker 2's offset syncs, tried"


def _same(here: Marks, there: Marks, distance: int) -> bool:
    same = len(here) and len(here) == len(there) and (here.fp == there.fp).all()
    return bool(same and (here.offset - there.offset == distance).all())


def local_look(plan: Plan, manners: Manners = ANY_WAY) -> _Look:
    """Reads here and now, one range after the other."""
    politely = Politely(manners.of_task(1, 1), _sample_all)

    def look(samples: Sequence[Sample]) -> list[Marks]:
        return list(politely((plan.cluster(each.unit.cluster), each) for each in samples))

    return look


def spark_look(plan: Plan, session: Callable[[], SparkSession], manners: Manners = ANY_WAY) -> _Look:
    """Lets Spark read what is much, no faster than manners allow."""
    near = local_look(plan, manners)

    def look(samples: Sequence[Sample]) -> list[Marks]:
        from spark.failure import told_as_ours

        if sum(each.unit.end - each.unit.start for each in samples) <= _HERE_AND_NOW:
            return near(samples)
        tasks = [(plan.cluster(each.unit.cluster), each) for each in samples]
        with told_as_ours("the Spark job that aligns both logs failed", "Nothing was proven; run the proof again"):
            context, slices = session().sparkContext, manners.tasks(len(tasks))
            polite = Politely(manners.of_task(slices, context.defaultParallelism), _sample_all)
            return context.parallelize(tasks, slices).mapPartitions(polite).collect()

    return look


def _sample_all(tasks: Iterator[tuple[PlanCluster, Sample]]) -> Iterator[Marks]:
    """A task of the alignment."""
    for cluster, each in tasks:
        yield sampled(cluster, each)


def sampled(cluster: PlanCluster, wanted: Sample) -> Marks:
    """Block by block: a task holds its marks and one block. What has expired is left out."""
    unit = wanted.unit
    settings = connection_settings(cluster)
    address = PartitionAddress(settings, unit.topic, UUID(unit.topic_id), unit.partition, unit.timestamps)
    start = unit.start
    while start < unit.end:
        parts = []
        try:
            for block in read_prints(address, Span(start, unit.end)):
                parts.append(Marks(block.offset, block.fp).every(wanted.every))
            return joined(parts)
        except Expired as expired:
            start = expired.log_start
    return NOTHING
