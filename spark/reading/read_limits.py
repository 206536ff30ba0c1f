"""Limits on what a proof reads from a cluster, and the share of one task.

Spark's tasks call plain read functions. The limits hold because those functions borrow their connections
(`borrow_connections`) from the task that runs in their process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeAlias, TypeVar

from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.wire.connection import open_connection
from watershed.spark.reading.broker_connections import PROOF_CLIENT_ID, BrokerConnections
from watershed.spark.reading.lag_pause import LagLimit, LagPause
from watershed.spark.reading.range_requests import RangeRequest, group_into_tasks
from watershed.spark.reading.read_rate import ReadRate
from watershed.topology.plan import Plan, PlanCluster, PlanFlow

TaskRow = TypeVar("TaskRow")
TaskResult = TypeVar("TaskResult")
SparkTask: TypeAlias = Callable[[Iterable[TaskRow]], Iterable[TaskResult]]
MAX_LAG_PAUSE_S = 600.0  # a round of reading waits so long at most for flows that lag


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """rate: bytes a second that are read of one cluster, by all tasks together; fetches: how many tasks read from one
    broker at a time; pauses: the flows that must not lag meanwhile; patience_s: for how long a task waits for them.
    """

    rate: int | None = None
    fetches: int | None = None
    pauses: tuple[LagLimit, ...] = ()
    patience_s: float = MAX_LAG_PAUSE_S

    def tasks(self, wanted: int) -> int:
        """How many tasks may run when nobody knows which brokers they read."""
        return max(1, wanted if self.fetches is None else min(wanted, self.fetches))

    def share_for_task(self, tasks: int, cores: int) -> ReadLimits:
        """The limits of one of `tasks` tasks, of which at most `cores` run at a time; together they keep the whole."""
        if not tasks:
            return self
        at_a_time = max(1, min(tasks, cores))
        rate = None if self.rate is None else max(1, self.rate // at_a_time)
        return replace(self, rate=rate, patience_s=self.patience_s / -(-tasks // at_a_time))


NO_READ_LIMITS: Final = ReadLimits()


def build_read_limits(plan: Plan, flows: Sequence[PlanFlow], max_rate: int | None = None) -> ReadLimits:
    """The strictest limits of flows that are proven together. max_rate, in bytes a second, overrides their rates."""
    rates = [flow.verify.rate for flow in flows if flow.verify.rate is not None]
    fetches = [flow.verify.fetches for flow in flows if flow.verify.fetches is not None]
    pauses = tuple(
        LagLimit(flow.id, plan.cluster(flow.target), flow.verify.pause_at_lag_ms)
        for flow in flows
        if flow.verify.pause_at_lag_ms is not None
    )
    return ReadLimits(
        max_rate if max_rate is not None else min(rates, default=None), min(fetches, default=None), pauses
    )


def plan_read_tasks(
    requests: Sequence[RangeRequest], tasks: int, limits: ReadLimits, cluster: Callable[[str], PlanCluster]
) -> list[list[RangeRequest]]:
    """Ranges grouped into about `tasks` tasks, with at most `fetches` tasks for the partitions of one broker.

    Raises ClusterError, where a bound makes it ask who leads.
    """
    if limits.fetches is None:
        return group_into_tasks(requests, tasks)
    by_broker: dict[tuple[str, int], list[RangeRequest]] = {}
    leaders = {
        alias: _leaders(
            resolve_connection_settings(cluster(alias)),
            sorted({request.topic for request in requests if request.cluster == alias}),
        )
        for alias in sorted({request.cluster for request in requests})
    }
    for request in requests:
        leader = leaders[request.cluster].get((request.topic, request.partition), -1)
        by_broker.setdefault((request.cluster, leader), []).append(request)
    share = max(1, tasks // len(by_broker)) if by_broker else 1
    found = [each for some in by_broker.values() for each in _at_most(some, min(share, limits.fetches))]
    return sorted(found, key=lambda some: -sum(request.end - request.start for request in some))


def _at_most(requests: list[RangeRequest], tasks: int) -> list[list[RangeRequest]]:
    """`group_into_tasks` may give a few more: the shortest are then read by the task that has least to do."""
    found = group_into_tasks(requests, tasks)
    while len(found) > tasks:
        last = found.pop()
        found[-1] = found[-1] + last
    return found


def _leaders(settings: ConnectionSettings, topics: list[str]) -> dict[tuple[str, int], int]:
    connection = open_connection(settings, None, f"{PROOF_CLIENT_ID}-{settings.alias}")
    try:
        answer = connection.metadata(tuple(topics))
    finally:
        connection.close()
    return {(topic.name, each.partition): each.node for topic in answer.topics for each in topic.partitions}


@dataclass(slots=True)
class _RunningTask:
    """A running task: its connections, and one rate for each cluster."""

    limits: ReadLimits
    connections: dict[str, BrokerConnections] = field(default_factory=dict)
    paces: dict[str, ReadRate] = field(default_factory=dict)
    hold: LagPause | None = None

    def pace(self, alias: str) -> ReadRate:
        if self.limits.pauses and self.hold is None:
            self.hold = LagPause(self.limits.pauses, self.limits.patience_s)
        if alias not in self.paces:
            self.paces[alias] = ReadRate(self.limits.rate, self.hold)
        return self.paces[alias]

    def close(self) -> None:
        for connections in self.connections.values():
            connections.close()
        if self.hold is not None:
            self.hold.close()


_visit: ContextVar[_RunningTask | None] = ContextVar("visit", default=None)


class LimitedTask(Generic[TaskRow, TaskResult]):
    """A Spark task that keeps to read limits; it can be pickled, so Spark can send it to executors."""

    def __init__(self, limits: ReadLimits, task: SparkTask[TaskRow, TaskResult]) -> None:
        self._limits, self._task = limits, task

    def __call__(self, rows: Iterable[TaskRow]) -> Iterator[TaskResult]:
        """Runs the task; all connections that it borrows share its limits and are closed at its end."""
        visit = _RunningTask(self._limits)
        before = _visit.set(visit)
        try:
            yield from self._task(rows)
        finally:
            _visit.reset(before)
            visit.close()


@contextmanager
def borrow_connections(settings: ConnectionSettings) -> Iterator[BrokerConnections]:
    """Connections to read one range through: those of the task that runs here, or new ones for this range alone.

    Two ranges of one cluster that are read in turns do not share connections: answers come in the order of requests.
    """
    visit = _visit.get()
    pace = visit.pace(settings.alias) if visit is not None else ReadRate()
    kept = visit.connections.get(settings.alias) if visit is not None else None
    if kept is not None and not kept.busy and kept.settings == settings:
        connections = kept
    else:
        connections = BrokerConnections(settings, pace)
        if visit is not None and kept is None:
            visit.connections[settings.alias] = kept = connections
    connections.busy = True
    try:
        yield connections
    finally:
        connections.busy = False
        if connections is not kept:
            connections.close()
