"""How far a copy has come, by the log ends of its target: the same yardstick for every contender."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from watershed.bench.process_usage import list_descendants, read_cpu_seconds
from watershed.bench.workload import COPY_BENCH_PARTITIONS
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import LATEST

_EVERY_S = 0.02
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class CopyMeasurement:
    """start_s: until the first record; then `records` in `seconds`, with what the processes used meanwhile."""

    start_s: float
    seconds: float
    records: int
    cpu_s: float
    brokers_cpu_s: float
    whole: bool  # the whole topic; else the watch ended after its time


@dataclass(frozen=True, slots=True)
class CopyWatch:
    """Watches the copy of a topic of `records`; `pid` does it, `brokers` serve it. Ends after `at_most` seconds."""

    target: ConnectionSettings
    topic: str
    records: int
    pid: int
    brokers: tuple[int, ...]
    at_most: float

    def until_done(self, alive: Callable[[], bool]) -> CopyMeasurement:
        """Raises TimeoutError when nothing comes, RuntimeError when the process ends."""
        began = time.monotonic()
        with closing(open_connection(self.target)) as connection:

            def end() -> int:
                asked = tuple((self.topic, number) for number in range(COPY_BENCH_PARTITIONS))
                return sum(max(answer.offset, 0) for answer in connection.list_offsets(asked, LATEST))

            first = self._spent()
            while True:
                before = (time.monotonic(), *self._spent())
                done = self._end_of(end)
                if done:
                    break
                if not alive():
                    raise RuntimeError(f"the copy into {self.topic} ended before its first record")
                if time.monotonic() - began > _PATIENCE_S:
                    raise TimeoutError(f"nothing came into {self.topic} within {_PATIENCE_S:.0f} s")
                first = before[1:]
                time.sleep(_EVERY_S)
            start, cpu, brokers = before[0], *first
            while done < self.records and time.monotonic() - start < self.at_most:
                if not alive():
                    raise RuntimeError(f"the copy into {self.topic} ended after {done} of {self.records} records")
                time.sleep(_EVERY_S)
                done = end()
            seconds = time.monotonic() - start
            spent, brokers_spent = self._spent()
        return CopyMeasurement(
            start_s=start - began,
            seconds=seconds,
            records=done,
            cpu_s=spent - cpu,
            brokers_cpu_s=brokers_spent - brokers,
            whole=done >= self.records,
        )

    def _spent(self) -> tuple[float, float]:
        return read_cpu_seconds(list_descendants(self.pid)), read_cpu_seconds(self.brokers)

    def _end_of(self, end: Callable[[], int]) -> int:
        try:
            return end()
        except ClusterError:  # the topic is being created
            return 0
