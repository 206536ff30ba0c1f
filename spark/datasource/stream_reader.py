"""Streams: the same rows, micro-batch by micro-batch.

An offset is everything that the next micro-batch depends on, so that Spark's checkpoint alone says how to go on:
``{topic: {"id": topic id, "next": {partition: offset}, "found": {partition: offset}}}``. `found` names the partitions
that were not in the offset before, and where each of them begins.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from watershed.clusters.settings import resolve_connection_settings
from watershed.spark.datasource.batch_reader import ReadTask
from watershed.spark.datasource.columns import require_known_columns
from watershed.spark.datasource.log_offsets import LogIdentity, LogOffsetReader
from watershed.spark.datasource.log_slices import LogSlice, plan_task_slices, read_selected_logs, resolve_offsets
from watershed.spark.datasource.options import EARLIEST, LATEST, ReadOptions
from watershed.spark.errors import NotReadable, WrongUse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_Offset = dict[str, Any]
_DISCOVERY_S: Final = 2.0  # until new topics and partitions are noticed
_NEXT: Final = "next"
_FOUND: Final = "found"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a stream. Offsets are JSON: by topic its id, the next offset of each partition, and where
    partitions begin that are new."""

    def __init__(self, reading: ReadOptions, schema: StructType) -> None:
        require_known_columns(reading.rows, schema)
        if reading.ending != LATEST or reading.ending_time is not None:
            raise WrongUse("a stream has no end: leave out endingOffsets and endingTimestamp (or read it as a batch)")
        self.reading, self.schema = reading, schema
        self._logs: LogOffsetReader | None = None
        self._until: dict[LogIdentity, int] | None = None
        self._seen: tuple[float, list[LogIdentity]] = (0.0, [])

    def initialOffset(self) -> _Offset:
        """Where a stream without checkpoint begins. Raises WrongUse, ClusterError."""
        reading, wanted = self.reading, self._wanted()
        bottom, top = self._edges(wanted)
        starts = resolve_offsets(
            self._asking(), wanted, reading, bottom, top, reading.starting, reading.starting_time, default=LATEST
        )
        return encode_stream_offset(starts, {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Offsets, which is what this source can count before it reads."""
        return ReadAllAvailable() if self.reading.limit is None else ReadMaxRows(self.reading.limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of a run that processes what is there and stops."""
        self._until = self._edges(self._wanted())[1]

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """Raises NotReadable where the log no longer continues what was read before."""
        wanted = self._wanted()
        bottom, top = self._edges(wanted)
        known, ids = decode_stream_offset(start)
        self._still_there(known, ids, wanted, bottom, top)
        begin = {log: known.get((log.topic, log.partition), bottom[log]) for log in wanted}
        ends = top if self._until is None else {log: self._until.get(log, begin[log]) for log in wanted}
        if self._until is not None:
            begin = {log: at for log, at in begin.items() if log in self._until or (log.topic, log.partition) in known}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        reached = limit_offsets(begin, {log: ends[log] for log in begin}, most)
        found = {log: begin[log] for log in begin if (log.topic, log.partition) not in known}
        return encode_stream_offset(reached, found)

    def reportLatestOffset(self) -> _Offset | None:
        """The logs' ends, for Spark's progress report."""
        return encode_stream_offset(self._edges(self._wanted())[1], {})

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """One task for each part of the logs between two offsets."""
        known, _ = decode_stream_offset(start)
        ranges = []
        for topic, here in sorted(end.items()):
            for number, stop in sorted((int(number), stop) for number, stop in here[_NEXT].items()):
                begin = known.get((topic, number), here[_FOUND].get(str(number), stop))
                if begin < stop:
                    ranges.append(LogSlice(LogIdentity(topic, uuid.UUID(here["id"]), number), begin, stop))
        return [
            ReadTask(some) for some in plan_task_slices(ranges, self.reading.min_partitions, self.reading.max_offsets)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one task, on an executor. Raises NotReadable, ClusterError."""
        from watershed.spark.datasource.arrow_rows import read_row_batches

        if isinstance(partition, ReadTask):
            yield from read_row_batches(self.reading, partition.ranges, self.schema)

    def commit(self, end: _Offset) -> None:
        """The checkpoint holds all there is to remember."""

    def stop(self) -> None:
        """Closes the connections of the driver."""
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_logs": None, "_until": None, "_seen": (0.0, [])}

    def _asking(self) -> LogOffsetReader:
        if self._logs is None:
            self._logs = LogOffsetReader(resolve_connection_settings(self.reading.cluster))
        return self._logs

    def _wanted(self) -> list[LogIdentity]:
        """An idle stream asks a hundred times a second."""
        since, wanted = self._seen
        if time.monotonic() > since + _DISCOVERY_S or not wanted:
            wanted = read_selected_logs(self._asking(), self.reading)
            self._seen = (time.monotonic(), wanted)
        return wanted

    def _edges(self, wanted: Sequence[LogIdentity]) -> tuple[dict[LogIdentity, int], dict[LogIdentity, int]]:
        logs, isolation = self._asking(), self.reading.isolation
        return logs.offsets(wanted, EARLIEST, isolation), logs.offsets(wanted, LATEST, isolation)

    def _still_there(
        self,
        known: Mapping[tuple[str, int], int],
        ids: Mapping[str, uuid.UUID],
        wanted: Sequence[LogIdentity],
        bottom: Mapping[LogIdentity, int],
        top: Mapping[LogIdentity, int],
    ) -> None:
        by_name = {(log.topic, log.partition): log for log in wanted}
        remedy = "Begin anew with a new checkpoint, and startingOffsets that say from where"
        for (topic, number), at in known.items():
            where = f"{topic}-{number} on {self.reading.cluster.alias}"
            log = by_name.get((topic, number))
            if log is None:
                raise NotReadable(f"{where} is not there any more, or not selected. {remedy}")
            if log.topic_id != ids[topic]:
                raise NotReadable(f"{where} was deleted and made anew since the checkpoint. {remedy}")
            if at < bottom[log]:
                raise NotReadable(f"{where}: offsets {at} to {bottom[log] - 1} expired before they were read. {remedy}")
            if at > top[log]:
                raise NotReadable(f"{where} ends at {top[log]}, and {at} was read before: it was truncated. {remedy}")


def limit_offsets(
    begin: Mapping[LogIdentity, int], ends: Mapping[LogIdentity, int], most: int | None
) -> dict[LogIdentity, int]:
    """How far to go: to the ends, or so far that about `most` offsets are taken, by each log in proportion to what
    waits in it. A log in which something waits goes on by one at least, so that nothing starves."""
    waiting = {log: max(0, ends[log] - begin[log]) for log in begin}
    total = sum(waiting.values())
    if most is None or total <= most:
        return {log: begin[log] + waiting[log] for log in begin}
    return {log: begin[log] + min(n, max(1, most * n // total)) if n else begin[log] for log, n in waiting.items()}


def encode_stream_offset(offsets: Mapping[LogIdentity, int], found: Mapping[LogIdentity, int]) -> _Offset:
    """As JSON that Spark keeps; the same offsets give the same text."""
    result: _Offset = {}
    for log, offset in sorted(offsets.items()):
        topic = result.setdefault(log.topic, {"id": str(log.topic_id), _NEXT: {}, _FOUND: {}})
        topic[_NEXT][str(log.partition)] = offset
        if log in found:
            topic[_FOUND][str(log.partition)] = found[log]
    return result


def decode_stream_offset(offset: _Offset) -> tuple[dict[tuple[str, int], int], dict[str, uuid.UUID]]:
    """((topic, partition) → next offset, topic → id) of what `written` gave."""
    places = {(topic, int(number)): int(at) for topic, here in offset.items() for number, at in here[_NEXT].items()}
    return places, {topic: uuid.UUID(here["id"]) for topic, here in offset.items()}
