"""Carries `slo.on_breach` out: sees that a partition of this worker has been over `slo.lag.max`, and says so once.

Each worker decides for its own partitions, by its own monotonic clock: nobody else's report or clock is needed, so it
does not matter how many workers there are. Whoever comes first writes the record that all obey; two that decide at
once write the same number, which is one breach. A worker that dies before it wrote leaves nothing behind; the next one
begins anew (docs/decisions/0131-budgets-that-act.md).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from watershed.clusters.budget_breaches import BudgetBreach, describe_breach
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.flow_state_order import build_breach_line
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.settled_log_ends import FROZEN_S
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.breach_policy import ACTING_BUDGET, BREACH_HOLD_S, BreachPolicy

log = logging.getLogger("watershed.worker")

_AGAIN_S: Final = 5.0  # a record that was lost on its way is written again
OUTAGE_S: Final = 30.0  # without an answer; what follows begins anew. Leaders that move are away for less


@dataclass(frozen=True, slots=True)
class ObservedLag:
    """What a partition that is being copied shows. position: next source offset to copy. end: of the source's log.
    lag_ms: how long the oldest uncopied record has been waiting. Only partitions whose brokers answer are told."""

    position: int
    end: int
    lag_ms: int


@dataclass(frozen=True, slots=True)
class BudgetProgress:
    """Of one partition since its copying began, or began again. goal: where the source's log ended then; None before
    it was seen. is_armed: everything in front of the goal was copied, within the budget. over_since: since when it has
    been over the budget (monotonic seconds); None: it is not. seen_at: the newest look at which its brokers answered
    (monotonic seconds); None before the first."""

    goal: int | None = None
    is_armed: bool = False
    over_since: float | None = None
    seen_at: float | None = None

    def is_breach(self, now: float) -> bool:
        """Whether the budget has been exceeded for long enough to act."""
        return self.over_since is not None and now - self.over_since >= BREACH_HOLD_S


def follow_budget(progress: BudgetProgress, seen: ObservedLag | None, limit_ms: int, now: float) -> BudgetProgress:
    """The progress after one more look. seen: None while brokers do not answer: that is no reason to stop a flow.

    A partition has to be within its budget first: what was there when its copying began is caught up with, however
    long that takes. So a flow that was let go on is not stopped again by what it was stopped for, and the end of an
    outage of more than OUTAGE_S is no breach by what piled up in it.
    """
    if seen is None:
        return replace(progress, over_since=None)
    if progress.seen_at is not None and now - progress.seen_at > OUTAGE_S:
        progress = BudgetProgress()
    goal = seen.end if progress.goal is None else progress.goal
    is_within = seen.lag_ms <= limit_ms
    is_armed = progress.is_armed or (is_within and seen.position >= goal)
    if is_within or not is_armed:
        return BudgetProgress(goal, is_armed, None, now)
    return BudgetProgress(goal, is_armed, now if progress.over_since is None else progress.over_since, now)


class BreachWatch:
    """`step` never waits. worker: the name under which breaches are told."""

    def __init__(self, writer: ControlWriter, worker: str) -> None:
        self._writer, self._worker = writer, worker
        # By the flow's newest breach, too: behind an answer everything begins anew, also where the pause was not seen.
        self._progress: dict[tuple[PartitionKey, int], BudgetProgress] = {}
        self._written: dict[str, tuple[int, float]] = {}  # flow → number, and when it was written (monotonic)
        self._began_at = self._looked_at = -math.inf  # when it began to look without a pause; its last look

    def step(
        self, tasks: Iterable[PartitionTask], flows: Mapping[str, FlowRecord], breaches: Mapping[str, BudgetBreach]
    ) -> None:
        """One look at the partitions that this worker serves. flows: as they are to run now, so that one which stands
        still by a breach is paused. breaches: the newest of each flow, by flow.

        A worker that was frozen begins anew: its partitions may have been another worker's, and what it knows of the
        sources is as old as the pause.
        """
        now, before, self._progress = time.monotonic(), self._progress, {}
        if now - self._looked_at > FROZEN_S:
            self._began_at, before = now, {}
        self._looked_at = now
        for task in tasks:
            record = flows.get(task.key.flow)
            if record is None or (policy := record.flow.breach) is None or not _is_to_copy(task, record):
                continue
            last = breaches.get(task.key.flow)
            known = max(record.answered_breaches, 0 if last is None else last.number)
            seen, key = observe_lag(task, self._began_at), (task.key, known)
            progress = self._progress[key] = follow_budget(
                before.get(key, BudgetProgress()), seen, policy.lag_max_ms, now
            )
            is_open = last is not None and last.is_open(record)
            if seen is not None and not is_open and progress.is_breach(now):
                self._tell(task.key, seen, record, policy, known + 1, now)

    def _tell(
        self, key: PartitionKey, seen: ObservedLag, record: FlowRecord, policy: BreachPolicy, number: int, now: float
    ) -> None:
        flow = key.flow
        if self._has_just_written(flow, number, now):
            return
        breach = BudgetBreach(
            flow, number, policy.action, ACTING_BUDGET, policy.lag_max_ms, seen.lag_ms,
            key.topic, key.partition, self._worker, int(time.time() * 1000),
        )  # fmt: skip
        # The record has the effect, so it comes first. Both have one key a breach, whoever writes them.
        self._write(breach, now, (breach.key, breach.to_json()), build_breach_line(breach, record))
        log.error(
            "budget exceeded",
            extra={"flow": flow, "topic": key.topic, "partition": key.partition,
                   "action": policy.action, "seen": describe_breach(breach)},
        )  # fmt: skip

    def restore(self, breaches: Iterable[BudgetBreach]) -> None:
        """Write these again. A worker that woke up has written an earlier number over them, and whoever reads the topic
        from its start would take that one, which is answered, for the newest."""
        now = time.monotonic()
        for breach in breaches:
            if not self._has_just_written(breach.flow, breach.number, now):
                self._write(breach, now, (breach.key, breach.to_json()))
                log.warning("breach restored", extra={"flow": breach.flow, "number": breach.number})

    def _has_just_written(self, flow: str, number: int, now: float) -> bool:
        written, at = self._written.get(flow, (0, 0.0))
        return written == number and now - at < _AGAIN_S

    def _write(self, breach: BudgetBreach, now: float, *records: tuple[str, ControlValue]) -> None:
        """Keys and values, the breach's own first."""
        self._written[breach.flow] = breach.number, now
        for key, value in records:
            self._writer.put_nowait(FLOWS_TOPIC, key, value, 0, on_done=partial(_note_written, breach.flow))


def _is_to_copy(task: PartitionTask, record: FlowRecord) -> bool:
    """A halted or paused partition stands still already, and the others of its flow go on."""
    runs = record.state == "running" and task.wanted and task.is_ordered_to_run
    return runs and task.held is None and task.stopped is None


def observe_lag(task: PartitionTask, since: float) -> ObservedLag | None:
    """What the partition shows; None while nothing of it is being copied, its log is being filled, or its source has
    not told since `since` (monotonic seconds) where its log ends."""
    report, active = task.latest, task.active
    if report is None or active is None or active.copy.trouble is not None or report.aligning is not None:
        return None
    end = active.copy.source.end  # a report from before the first answer says that nothing is waiting
    if end < 0 or active.source_seen_at <= since or report.lag_ms is None or report.source_position < 0:
        return None
    return ObservedLag(report.source_position, max(end, report.source_end), report.lag_ms)


def _note_written(flow: str, error: ClusterError | None, _offset: int) -> None:
    """A lost record is written again while the budget stays exceeded."""
    if error is not None:
        log.warning("breach not written", extra={"flow": flow, "reason": str(error)})
