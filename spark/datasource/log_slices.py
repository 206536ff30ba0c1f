"""From options to tasks: which ranges of which logs are read, fixed once before anything is read.

A range is half-open, start <= offset < end. A batch belongs to the range that its *last* offset lies in, so that ranges
that follow one another give every batch exactly once, wherever they are cut; at the outer end of what was asked for the
batch that stands over it belongs to it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from watershed.spark.datasource.log_offsets import LogIdentity, LogOffsetReader
from watershed.spark.datasource.options import EARLIEST, LATEST, IsolationOption, OffsetsByTopic, ReadOptions
from watershed.spark.errors import WrongUse

_SMALLEST = 10_000  # offsets: less is no task of its own


class LogSlice(NamedTuple):
    """Part of a log. whole_end: the batch over `end` belongs to it."""

    log: LogIdentity
    start: int
    end: int
    whole_end: bool = False


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """What filters leave: bounds of last offsets, and the oldest `max_timestamp`. `end` may cut a batch."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int | None = None
    since: int | None = None

    def is_selected(self, log: LogIdentity) -> bool:
        """Whether filters on topic and partition leave anything of this log."""
        return (self.topics is None or log.topic in self.topics) and (
            self.partitions is None or log.partition in self.partitions
        )


NO_FILTER_BOUNDS = FilterBounds()


def plan_log_slices(
    logs: LogOffsetReader, reading: ReadOptions, narrowing: FilterBounds = NO_FILTER_BOUNDS
) -> list[LogSlice]:
    """The ranges of a batch read. Raises WrongUse for offsets that do not lie in the log, ClusterError."""
    wanted = [log for log in read_selected_logs(logs, reading) if narrowing.is_selected(log)]
    bottom = logs.offsets(wanted, EARLIEST, reading.isolation)
    top = logs.offsets(wanted, LATEST, reading.isolation)
    starts = resolve_offsets(logs, wanted, reading, bottom, top, reading.starting, reading.starting_time, EARLIEST)
    ends = resolve_offsets(logs, wanted, reading, bottom, top, reading.ending, reading.ending_time, LATEST)
    given = reading.ending_time is not None or reading.ending != LATEST
    found = [LogSlice(log, starts[log], ends[log], given) for log in wanted if starts[log] < ends[log]]
    return _narrowed(logs, found, narrowing, reading.isolation)


def read_selected_logs(logs: LogOffsetReader, reading: ReadOptions) -> list[LogIdentity]:
    """The logs that the options name. Raises WrongUse when a partition is named that no topic has."""
    found = logs.selected(reading.topics)
    if reading.partitions is None:
        return found
    some = [log for log in found if log.partition in reading.partitions]
    if missing := sorted(reading.partitions - {log.partition for log in some}):
        names = ", ".join(sorted({log.topic for log in found})) or "no topic"
        raise WrongUse(f"partitions: {names} has no partition {', '.join(map(str, missing))}")
    return some


def resolve_offsets(
    logs: LogOffsetReader,
    wanted: Sequence[LogIdentity],
    reading: ReadOptions,
    bottom: Mapping[LogIdentity, int],
    top: Mapping[LogIdentity, int],
    places: int | OffsetsByTopic | None,
    time: int | None,
    default: int,
) -> dict[LogIdentity, int]:
    """Offsets for one end of what was asked for. A time that no record has reached is the log's end."""
    if time is not None:
        found = logs.offsets(wanted, time, reading.isolation)
        return {log: min(offset, top[log]) if offset >= 0 else top[log] for log, offset in found.items()}
    if places is None or isinstance(places, int):
        return dict(bottom if (default if places is None else places) == EARLIEST else top)
    _check_names(places, wanted)
    found = {}
    for log in wanted:
        offset = places.get(log.topic, {}).get(log.partition, default)
        found[log] = {EARLIEST: bottom[log], LATEST: top[log]}.get(offset, offset)
        if not bottom[log] <= found[log] <= top[log]:
            why = "the log begins there now, what lay in front has expired" if offset < bottom[log] else "its end"
            edge = bottom[log] if offset < bottom[log] else top[log]
            raise WrongUse(
                f"{log} on {reading.cluster.alias}: offset {offset} was asked for, and the log has {bottom[log]} to "
                f"{top[log]} ({edge}: {why}). Ask for offsets in it, or for earliest or latest"
            )
    return found


def plan_task_slices(ranges: Iterable[LogSlice], tasks: int, most: int) -> list[list[LogSlice]]:
    """Ranges for each task: cut where they are long, put together where they are short; in log order."""
    ranges = list(ranges)
    total = sum(each.end - each.start for each in ranges)
    share = max(1, min(most, max(_SMALLEST, -(-total // max(1, tasks)))))
    found: list[list[LogSlice]] = []
    room = 0
    for each in ranges:
        pieces = -(-(each.end - each.start) // share)
        for piece in range(pieces):
            start = each.start + (each.end - each.start) * piece // pieces
            end = each.start + (each.end - each.start) * (piece + 1) // pieces
            part = _cut_slice(each, start, end)
            if room < end - start:
                found.append([])
                room = share
            found[-1].append(part)
            room -= end - start
    return found


def _cut_slice(each: LogSlice, start: int, end: int) -> LogSlice:
    return LogSlice(each.log, start, end, each.whole_end and end == each.end)


def _narrowed(
    logs: LogOffsetReader, ranges: list[LogSlice], narrowing: FilterBounds, isolation: IsolationOption
) -> list[LogSlice]:
    first: dict[LogIdentity, int] = {}
    if narrowing.since is not None:
        # The first record of at least that time: a batch whose newest record is as young ends there, or behind it.
        found = logs.offsets([each.log for each in ranges], max(0, narrowing.since), isolation)
        first = {each.log: found[each.log] if found[each.log] >= 0 else each.end for each in ranges}
    result = []
    for log, asked_start, asked_end, whole_end in ranges:
        start = max(asked_start, narrowing.start, first.get(log, 0))
        end, whole = asked_end, whole_end
        if narrowing.end is not None and narrowing.end < end:
            end, whole = narrowing.end, True
        if start < end:
            result.append(LogSlice(log, start, end, whole))
    return result


def _check_names(places: OffsetsByTopic, wanted: Sequence[LogIdentity]) -> None:
    known = {(log.topic, log.partition) for log in wanted}
    named = {(topic, number) for topic, each in places.items() for number in each}
    if strange := sorted(named - known):
        topic, number = strange[0]
        raise WrongUse(f"offsets are given for {topic}-{number}, which is not among the partitions to read")
