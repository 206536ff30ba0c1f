"""A target partition in memory that is filled by workers to whose requests things happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from watershed.clusters.errors import Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.record_batch import BatchRecord
from watershed.replicator.copy.aligned import log_end
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.recovery.log_inspection import BrokerAddress

NOW = 1_790_000_000_000
TOPIC, FLOW = "orders", "onprem-to-cloud"
# What a worker may lose the answer to; `close` is none.
REQUESTS = frozenset(
    {
        "metadata",
        "fetch",
        "list_offsets",
        "describe_producers",
        "find_coordinator",
        "init_producer",
        "add_partitions",
        "end_transaction",
        "send_produce",
        "receive_produce",
        "delete_records",
        "write_markers",
        "end_of_epoch",
    }
)

Event = Callable[[Callable[[], Any]], Any]  # what happens around one request: gets a way to execute it


class Killed(BaseException):
    """kill -9: nothing in the worker gets to see it."""


class Clock:
    """In place of `time`: stands still, and what somebody waits for, he need not."""

    def __init__(self, waits: Callable[[], Any] = lambda: None) -> None:
        self.now, self._waits = 0.0, waits

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        if seconds == log_end.RIVAL_MARKER_WAIT_S:
            self._waits()


class Requests:
    """The requests of one worker, counted; `event` happens to number `at`."""

    def __init__(self, cluster: FakeCluster, at: int = -1, event: Event | None = None) -> None:
        self.cluster, self.at, self.event = cluster, at, event
        self.count = 0
        self.names: list[str] = []

    def connect(self, _address: BrokerAddress | None) -> Any:
        return _Wire(self)

    def log(self) -> TargetLog:
        topic = self.cluster.topic(TOPIC)
        assert topic is not None
        return TargetLog(self.connect, self.cluster.settings.alias, TOPIC, topic.topic_id, 0)

    def made(self, execute: Callable[[], Any]) -> Any:
        number, self.count = self.count, self.count + 1
        if number == self.at and self.event is not None:
            return self.event(execute)
        return execute()


class _Wire:
    def __init__(self, requests: Requests) -> None:
        self._requests, self._wire = requests, requests.cluster.wire()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wire, name)
        if name not in REQUESTS:
            return found

        def request(*args: Any, **kwargs: Any) -> Any:
            self._requests.names.append(name)

            def execute() -> Any:
                return found(*args, **kwargs)

            try:
                return self._requests.made(execute)
            except Unreachable:
                self._wire.cut()
                raise

        return request


def cluster(version: int = 2, configs: Mapping[str, str] | None = None) -> FakeCluster:
    made = FakeCluster("cloud", clock=lambda: NOW)
    made.coordinator.version = version
    made.create_topic(TOPIC, 1, configs=configs)
    return made


def end_of(target: FakeCluster) -> int:
    return target.log(TOPIC, 0).end


def lost(target: FakeCluster, *, executed: bool) -> Event:
    """The connection goes, before or after the broker has done what was asked."""

    def event(execute: Callable[[], Any]) -> Any:
        if executed:
            execute()
        raise target.settings.unreachable("the connection was lost")

    return event


def killed(*, executed: bool) -> Event:
    def event(execute: Callable[[], Any]) -> Any:
        if executed:
            execute()
        raise Killed

    return event


def dying(late: list[Callable[[], Any]]) -> Event:
    """Killed with a request on its way, which arrives when somebody calls what is in `late`."""

    def event(execute: Callable[[], Any]) -> Any:
        late.append(execute)
        raise Killed

    return event


def seen(target: FakeCluster) -> tuple[list[BatchRecord], list[BatchRecord]]:
    """What consumers read: read_committed, read_uncommitted."""
    return target.records(TOPIC, 0), target.records(TOPIC, 0, committed=False)
