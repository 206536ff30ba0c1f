"""What waits for partitions that a person has paused: nobody fetches them, so their sources are asked for the log ends.

Without that the lag of a paused partition would stay what it was at the pause, mostly 0, whatever the source takes.
Partitions of flows that are paused as a whole are not asked for: a way back that waits for its switch would seem to
fall behind, by records that its loop guard leaves out.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.worker.partition_task import PartitionTask

log = logging.getLogger("watershed.worker")

PAUSED_ENDS_S = 10.0  # as often as new topics are looked for by default (`workers.discovery`)

_Ends = dict[TopicPartition, int]


@dataclass(slots=True)
class PausedLogEnds:
    """Asks in `pool`, one question a source at a time, every PAUSED_ENDS_S seconds while a partition is paused."""

    connect: SettingsLookup
    pool: Executor
    administer: Callable[[ConnectionSettings], AbstractContextManager[ClusterProtocol]] = Admin
    _due: float = 0.0  # monotonic
    _asked: dict[str, Future[_Ends]] = field(default_factory=dict)  # by source alias

    def step(self, tasks: Iterable[PartitionTask]) -> None:
        """Take answers, and ask where it is time to; never waits."""
        now = time.monotonic()
        if not self._asked and now < self._due:
            return
        paused: dict[str, list[PartitionTask]] = defaultdict(list)
        for task in tasks:
            if task.is_waiting_paused:
                paused[task.record.flow.source].append(task)
        for source in [source for source, future in self._asked.items() if future.done()]:
            self._take(source, self._asked.pop(source), paused.get(source, ()), now)
        if now < self._due:
            return
        self._due = now + PAUSED_ENDS_S
        for source, waiting in paused.items():
            if source not in self._asked:
                places = [TopicPartition(task.key.topic, task.key.partition) for task in waiting]
                self._asked[source] = self.pool.submit(self._read_ends, source, places)

    def _read_ends(self, source: str, places: Collection[TopicPartition]) -> _Ends:
        """A topic that the source refuses says nothing about the others: then each is asked for alone."""
        with self.administer(self.connect(source)) as admin:
            try:
                return _ask_ends(admin, places)
            except Unreachable:
                raise
            except ClusterError:
                return _ask_ends_by_topic(admin, source, places)

    def _take(self, source: str, future: Future[_Ends], tasks: Iterable[PartitionTask], now: float) -> None:
        try:
            ends = future.result()
        except ClusterError as error:
            _warn_unknown(source, error)
            return
        except Exception:  # a fault of ours: copying goes on
            log.exception("log ends of paused partitions", extra={"source": source})
            return
        for task in tasks:
            end = ends.get(TopicPartition(task.key.topic, task.key.partition))
            if end is not None:
                task.observe_source_end(end, now)


def _ask_ends(admin: ClusterProtocol, places: Collection[TopicPartition]) -> _Ends:
    return {place: found.end for place, found in admin.offsets(places).items()}


def _ask_ends_by_topic(admin: ClusterProtocol, source: str, places: Collection[TopicPartition]) -> _Ends:
    """The ends of all topics that the source knows and shows. Raises Unreachable."""
    ends: _Ends = {}
    for topic in sorted({place.topic for place in places}):
        try:
            ends |= _ask_ends(admin, [place for place in places if place.topic == topic])
        except Unreachable:
            raise
        except ClusterError as error:
            _warn_unknown(source, error, topic=topic)
    return ends


def _warn_unknown(source: str, error: ClusterError, **more: str) -> None:
    """The lag stays what it was, and the time of the last look tells how old it is."""
    log.warning("log ends of paused partitions unknown", extra={"source": source, "reason": str(error)} | more)
