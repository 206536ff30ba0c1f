"""One partition as a worker sees it: what is wanted of it, what it does, what is reported."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from watershed.clusters.control_topics import compute_slot
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import PartitionEnd
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.replicator import partition_states
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.topic_mapping import HoldReason
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.worker.partition_lag import PartitionLag

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0
_TIMES_THE_SAME, SAME_FOR_S = 3, 5.0  # repeats and seconds, until a suspicious answer becomes a halt
# A partition that does nothing is reported again so often, or at most _SPREAD_S later, not all at once. That somebody
# is there says the worker's heartbeat (clusters.worker_heartbeats).
UNCHANGED_S = 300.0
_SPREAD_S = 300.0
_NEAR = 5_000  # a copy that is at most this many offsets behind the source's end counts as running


@dataclass(frozen=True, slots=True)
class Repeated:
    """What came back in a row: `what`, how often, and since when (monotonic seconds)."""

    what: str = ""
    times: int = 0
    since: float = 0.0

    def note(self, what: str, now: float) -> Repeated:
        """With what came at `now`. Something else begins a new row."""
        return Repeated(what, self.times + 1, self.since) if what == self.what else Repeated(what, 1, now)

    def is_lasting(self, now: float) -> bool:
        """Whether it came often enough, and for long enough, to be taken for true."""
        return self.times >= _TIMES_THE_SAME and now - self.since >= SAME_FOR_S


@dataclass(slots=True)
class PartitionTask:
    """One partition that this worker serves.

    active: its copy, while it is copied. wanted: it still belongs to this worker. record: the desired state of the
    flow. serving: the slot through which the partition belongs to this worker.
    """

    key: PartitionKey
    record: FlowRecord
    wanted: bool = True
    active: ActiveCopy | None = None
    inspecting: bool = False
    stopped: Halt | None = None
    waiting_for: str = ""  # why it is inspected again
    pending: Halt | None = None  # what it halts as when that wait is over and nothing has changed
    not_before: float = 0.0  # monotonic
    delay: float = _FIRST_DELAY_S
    decision: OperatorDecision | None = None  # the newest one
    judged_decision: str = ""  # id of the decision that an inspection applied or refused
    inspected_with: str = ""  # id of the decision that the running inspection applies
    note: str = ""  # what was given up, and by whose decision
    retry: float = partition_states.RETRY_FIRST_S  # seconds to the next try, in a halt state that may end by itself
    serving: int = -1  # its own slot, or the one that the placement chose
    held: HoldReason | None = None  # why it cannot be copied
    is_paused: bool = False  # it alone, by a person (`clusters.partition_orders.PartitionPause`)
    gap_method: GapMethod | None = None  # how gaps are filled in an aligned partition; None: it is mapped
    hint: str = ""  # a warning for people; the partition is copied all the same
    published: PartitionStatus | None = None  # None also where the last one was lost
    latest: PartitionStatus | None = None  # the newest report; written only where it says something new
    limit: CopyLimit | None = None  # how far it is copied, as the last inspection found; None: it has no end
    completion: PartitionEnd | None = None  # its end, once it is reached
    alone: bool = False  # inspect it alone: an inspection of several partitions failed
    _reasons: Repeated = Repeated()  # why it is inspected again, also across copies that did not get far
    _foreseen: Repeated = Repeated()  # the state of a pending halt, since nothing was copied
    _source_position: int = -1
    _source_end: int = -1
    _target_end: int = -1
    _source_seen: float = 0.0  # monotonic
    _bytes: int = 0
    _from: int = 0  # source offset at the last report
    _lag: PartitionLag = field(default_factory=PartitionLag)
    _at: float = field(default_factory=time.monotonic)
    _reported_from: tuple[object, ...] = ()  # of its copy, at the newest report
    _report_due: float = 0.0  # monotonic

    @property
    def slot(self) -> int:
        """The slot that holds its ledger records and status records. It never changes."""
        return compute_slot(self.key.flow, self.key.topic, self.key.partition)

    def is_ready_to_inspect(self, now: float) -> bool:
        """True if an inspection may begin at `now` (monotonic seconds)."""
        return (
            self.wanted
            and self.held is None
            and self.active is None
            and not self.inspecting
            and (self.completion is None or self.has_new_decision)
            and (
                self.stopped is None
                or self.stopped.state in partition_states.SELF_HEALING_STATES
                or self.has_new_decision
            )
            and self.is_ordered_to_run
            and now >= self.not_before
        )

    @property
    def is_ordered_to_run(self) -> bool:
        """Whether neither its flow nor the partition alone is paused or stopped."""
        return self.record.state == "running" and not self.is_paused

    def has_work_before(self, soon: float) -> bool:
        """Whether the worker's loop has something to do for it before `soon`."""
        if self.inspecting or not self.wanted:
            return True
        return self.is_ready_to_inspect(soon) if self.active is None else self.active.copy.trouble is not None

    @property
    def is_waiting_paused(self) -> bool:
        """Whether a person has paused it alone, and how far it was copied is known here."""
        still = self.active is None and not self.inspecting and self.completion is None
        return self.is_paused and self.record.state == "running" and still and self._source_position >= 0

    @property
    def is_at_rest(self) -> bool:
        """Whether everything in front of its end is copied, and nobody wants anything of it."""
        return self.completion is not None and self.wanted and not self.inspecting and not self.has_new_decision

    @property
    def has_new_decision(self) -> bool:
        """Whether there is an operator decision that no inspection has judged."""
        return self.decision is not None and self.decision.id != self.judged_decision

    def take_decision(self, decision: OperatorDecision) -> None:
        """Takes the newest operator decision. A new decision starts an inspection at once, even if copying goes on.

        Without traffic, a copy does not notice that its target topic was replaced.
        """
        if decision == self.decision:
            return
        self.decision, self.not_before = decision, 0.0
        if self.completion is not None and decision.id == self.completion.order:  # it was judged on the way
            self.judged_decision = decision.id
        if self.active is not None:
            self.active.copy.halt(f"{decision.kind} is ordered")

    def complete(self, end: PartitionEnd) -> None:
        """Its end is reached: nothing is inspected any more, and nothing is behind."""
        self.completion, self.stopped, self.waiting_for = end, None, ""
        self.forget_pending()
        self._source_position = self._source_end = end.position
        self._target_end = end.target_end
        self._lag = PartitionLag()
        self._lag.observe_end(end.position, time.monotonic())

    def begin_inspection(self) -> None:
        """An inspection of the logs begins."""
        self.inspecting, self.inspected_with = True, "" if self.decision is None else self.decision.id

    def end_inspection(self, *, decision_judged: bool) -> None:
        """The inspection ended. decision_judged: it obeyed or refused the operator decision."""
        self.inspecting = False
        if decision_judged:
            self.judged_decision = self.inspected_with

    def attach_copy(self, active: ActiveCopy, note: str = "") -> None:
        """Copying begins: forget why the partition waited or was halted. note: what was given up for it."""
        self.active, self.waiting_for, self.stopped, self.note = active, "", None, note
        self.forget_pending()
        self.alone, self.completion, self._reported_from = False, None, ()
        self._bytes, self._at, self._from = 0, time.monotonic(), active.copy.progress.copied_through

    def forget_pending(self) -> None:
        """It is copied, is halted, or stands still by an order: what inspections saw says nothing about later."""
        self.pending, self._foreseen = None, Repeated()

    def detach_copy(self) -> None:
        """Copying ended. The last positions are kept for the reports."""
        assert self.active is not None
        self._remember_position(self.active)
        self.active = None

    def _remember_position(self, active: ActiveCopy) -> None:
        copy = active.copy
        self._source_position, self._target_end = copy.progress.copied_through, copy.progress.acked
        self._source_end = max(copy.source.end, copy.progress.copied_through)
        self._source_seen = max(active.source_seen_at, self._source_seen)

    def observe_source_end(self, end: int, now: float) -> None:
        """The source's log ended at `end` at time `now` (monotonic), while nothing was copied."""
        self._source_end, self._source_seen = max(end, self._source_position), now
        self._lag.observe_end(self._source_end, now)

    def record_trouble(self, trouble: Halt | Reinspect, now: float) -> None:
        """An inspection or a copy ended with `trouble`."""
        if isinstance(trouble, Halt):
            self.stopped, self.waiting_for, self.not_before = trouble, "", now + self.retry
            self.forget_pending()
            self.retry = min(self.retry * 2, partition_states.RETRY_LONGEST_S)
            self._observe_lost_offsets(trouble, now)
            return
        self._reasons = self._reasons.note(trouble.reason, now)
        if trouble.halts_as is not None and self._reasons.is_lasting(now):
            self.record_trouble(Halt(trouble.halts_as, f"{trouble.reason}, {self._reasons.times} times in a row"), now)
            return
        self._foreseen = self._foreseen.note(trouble.pending.state if trouble.pending is not None else "", now)
        self.waiting_for, self.pending = trouble.reason, trouble.pending if self._foreseen.is_lasting(now) else None
        if self.pending is not None:
            self._observe_lost_offsets(self.pending, now)
        self.not_before = now + self.delay
        self.delay = min(self.delay * 2, _LONGEST_DELAY_S)

    def _observe_lost_offsets(self, halt: Halt, now: float) -> None:
        """Keeps the lag right while the partition is halted."""
        if halt.state == "source_expired" and halt.source is not None:
            self._source_end = max(self._source_end, halt.source.end)
            self._lag.observe_end(self._source_end, now)

    def is_quiet(self, now: float) -> bool:
        """Whether a report at `now` (monotonic) would say what the newest one says, and is not yet due: a look at a
        few numbers, where a report takes twenty times as long."""
        last, active = self.latest, self.active
        if last is None or self.published is None or now >= self._report_due:
            return False
        if active is None:
            return self.is_at_rest and last.state == self._state()
        if last.rate_bytes or last.lag_records != 0 or last.lag_ms != 0 or _describe(active) != self._reported_from:
            return False
        self._at = now  # a rate is that since the last look
        return True

    def report(self, worker: str, pid: int) -> PartitionStatus:
        """The status to publish. While nothing is copied, it holds the last known positions."""
        self._reported_from = _describe(self.active) if self.active is not None else ()
        self._report_due = time.monotonic() + UNCHANGED_S + hash(self.key) % 256 / 256 * _SPREAD_S
        self.latest = self._build_report(worker, pid)
        return self.latest

    def _build_report(self, worker: str, pid: int) -> PartitionStatus:
        now, rate, age_ms, open_records, copied_bytes, saved_bytes = time.monotonic(), 0.0, None, 0, 0, 0
        if self.active is not None:
            copy = self.active.copy
            self._remember_position(self.active)
            rate = max(copy.progress.copied_bytes - self._bytes, 0) / max(now - self._at, 1e-3)
            self._lag.fetched(copy.progress.copied_through - self._from, copy.progress.copied_bytes - self._bytes)
            self._bytes, self._at, self._from = copy.progress.copied_bytes, now, copy.progress.copied_through
            copied_bytes, saved_bytes = copy.progress.copied_bytes, copy.progress.saved_bytes
            open_records = max(copy.source.high_watermark - self._source_end, 0)
            if copy.source.end >= 0:
                self._lag.observe_end(self._source_end, now)
            if copy.progress.copied_bytes:
                self.delay, self.retry = _FIRST_DELAY_S, partition_states.RETRY_FIRST_S
            if copy.progress.copied_timestamp > 0:
                age_ms = max(int(time.time() * 1000) - copy.progress.copied_timestamp, 0)
        behind = self._lag.behind_s(self._source_position, now)
        halt = self._told_halt
        aligning = self._aligning()  # nothing is copied while the log is filled, so the lag is not known
        known = self._source_position >= 0 and self._source_end >= 0 and aligning is None
        return PartitionStatus(
            flow=self.key.flow,
            topic=self.key.topic,
            target_topic=self.key.target_topic,
            partition=self.key.partition,
            state=self._state(),
            source_position=self._source_position,
            source_end=self._source_end,
            target_end=self._target_end,
            lag_records=max(self._source_end - self._source_position, 0) if known else None,
            lag_ms=None if behind is None else round(behind * 1000),
            lag_bytes=self._lag.bytes_behind(self._source_position),
            event_age_ms=age_ms,
            open_records=open_records,
            aligning=aligning,
            rate_bytes=round(rate, 1),
            copied_bytes=copied_bytes,
            saved_bytes=saved_bytes,
            error=self._error(),
            remedy=self._remedy(),
            seen=halt.to_json() if halt is not None else None,
            note="; ".join(text for text in (self.note, self.hint, *self._describe_copy()) if text) or None,
            young=self.active is not None and self.active.copy.is_young,
            source_seen_ms=int((time.time() - now + self._source_seen) * 1000) if self._source_seen else None,
            worker=worker,
            pid=pid,
            serving=self.serving,
            at_ms=int(time.time() * 1000),
        )

    def _aligning(self) -> dict[str, float | None] | None:
        copy = self.active.copy if self.active is not None else None
        at = None if copy is None else copy.fill_progress
        if at is None:
            return None
        return {"done": at.done, "of": at.of, "rate": round(at.rate, 1), "seconds_left": at.seconds_left}

    def _describe_copy(self) -> tuple[str, ...]:
        active = self.active
        return () if active is None else (str(active.counted), active.hindrance, str(active.replica))

    def _remedy(self) -> str | None:
        if self.held is not None and self.stopped is None:  # a halt comes first, in the state too
            return self.held.remedy
        halt = self._told_halt
        return halt.remedy_for(self.key.flow, self.key.topic, self.key.partition) if halt is not None else None

    @property
    def _told_halt(self) -> Halt | None:
        """The halt that people are told of: its own, or the one that it waits to be sure of."""
        if self.stopped is not None:
            return self.stopped
        is_waiting = self.active is None and self.is_ordered_to_run and self.held is None and self.completion is None
        return self.pending if is_waiting else None

    def _error(self) -> str | None:
        if self.held is not None and self.stopped is None:
            return self.held.error
        halt = self._told_halt
        if halt is not None and halt is self.pending:
            return f"{halt.error}; not certain yet: {self.waiting_for}"
        texts = [halt.error if halt is not None else "", self.waiting_for]
        return "; ".join(text for text in texts if text) or None

    def _state(self) -> str:
        halt = self._told_halt
        if halt is not None:
            return halt.state
        if self.record.state != "running":
            return partition_states.PAUSED if self.record.state == "paused" else partition_states.STOPPED
        if self.held is not None:
            return self.held.state
        if self.completion is not None and self.active is None:
            return partition_states.COMPLETE
        if self.is_paused:
            return partition_states.PAUSED
        if self.active is None:
            return partition_states.RETRYING if self.waiting_for else partition_states.STARTING
        if self.active.copy.is_filling:
            return partition_states.ALIGNING
        if self.active.copy.source.end < 0 or self._source_end - self._source_position > _NEAR:
            return partition_states.CATCHING_UP
        return partition_states.RUNNING


def _describe(active: ActiveCopy) -> tuple[object, ...]:
    """What reports are made of, as far as it may change without another copy."""
    copy = active.copy
    source, progress = copy.source, copy.progress
    return (
        source.end,
        source.high_watermark,
        progress.acked,
        progress.copied_through,
        copy.is_young,
        active.hindrance,
    )
