"""Bringing the end of an empty log to an offset, with records that nobody ever sees.

The broker counts every record, so there is no free jump; but a batch of 100,000 empty records is 59 KB with zstd, is
compressed once, and only its header differs from one to the next. Everything is deleted again (DeleteRecords) before
the first record is copied. Source of the way, the limits and the figures: docs/research/aligned-mode.md, sections A, B.

The log's end is the whole state. The batches are what `advance` calls bulk: each worker writes them at an epoch of its
own, with sequence numbers from 0, and the last offset is a transaction marker's, which has the time of the broker,
so the leader remembers for a day at least (transactional.id.expiration, producer.id.expiration) that all filler before
it is fenced; the filler itself is of 1970, and would be forgotten at the next sweep.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from watershed.clusters.errors import Unreachable
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducePartition
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator.batch.filler_batch import build_filler_batch, count_fitting_records, is_filler_batch
from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE
from watershed.replicator.copy.aligned.log_end import LogEnd
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.errors import Misaligned
from watershed.replicator.partition_states import Reinspect

_DELETE_EVERY: Final = 50_000_000  # offsets
_IN_FLIGHT: Final = 5  # batches
_PROGRESS_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class FillProgress:
    """How far one partition is. rate: offsets a second since this worker began; 0 before the first batch."""

    topic: str
    partition: int
    done: int
    of: int
    rate: float

    @property
    def seconds_left(self) -> float | None:
        """None: not known yet."""
        return (self.of - self.done) / self.rate if self.rate > 0 else None


def fill_log(
    log: TargetLog,
    until: int,
    flow: str,
    bump: bool = True,
    *,
    bare: bool = False,
    max_batch: int = 1 << 20,
    progress: Callable[[FillProgress], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> int:
    """Bring the end of a log that is empty, or holds nothing but filler, to `until` and delete the filler: log start
    and end are then both `until`. The end reached, which is less only when `stop` was set.

    May be called again at any time, by anybody, after whatever happened, also with a higher `until` (the source's log
    start has moved). bump: the cluster's transaction.version is 2 or more. bare: as of `LogEnd`. max_batch:
    bytes that the topic takes in a batch. progress is called about twice a second.

    The topic has to take it: `replicator.copy.aligned.filling_configs`. Raises Misaligned when the log holds anything
    else or is longer already, RequestRefused when the broker does not take the batches, and what `LogEnd.to` raises.
    """
    return _Filler(log, until, max_batch, progress, stop or threading.Event()).run(flow, bump, bare=bare)


@dataclass(slots=True)
class _Filler:
    log: TargetLog
    until: int
    max_batch: int
    progress: Callable[[FillProgress], None]
    stop: threading.Event
    _verified: int = 0  # below it the log holds filler only, or nothing
    _start: int = 0  # of the log, as far as known
    _began: tuple[float, int] | None = None
    _told: float = 0.0

    def run(self, flow: str, bump: bool, *, bare: bool) -> int:
        advance = LogEnd(self.log, flow, bump, self._bulk, bare)
        try:
            self._tell(self._verify())
            end = advance.to(self.until, self.stop)
        finally:
            advance.close()
        self._tell(self._verify(), always=True)
        if end == self.until > self._start:
            self.log.delete_below(end)
        return end

    def _verify(self) -> int:
        """Where the log ends, and that everything in it is ours: what we delete must not be anybody else's."""
        there = self.log.range()
        self._start = there.start
        if there.end > self.until:
            raise Misaligned(str(self.log), self.until, there.end, f"it ends at {there.end} already")
        while (before := max(there.start, self._verified)) < there.end:
            self._verified = before
            for batch in self.log.batches(before, there.end):
                if not is_filler_batch(batch):
                    first = max(batch.base, there.start)
                    raise Misaligned(str(self.log), self.until, first, f"it holds something else at offset {first}")
                self._verified = batch.end
            if self._verified == before and (there := self.log.range()).start <= before:
                raise Unreachable(f"the leader of {self.log} does not give offset {before}", alias=self.log.alias)
        self._verified = there.end
        return there.end

    def _bulk(self, identity: ProducerIdAndEpoch, end: int, count: int) -> None:
        """See `LogEnd`. A batch that does not stand where it was meant to ends it: what is there is looked at anew."""
        if self._verify() != end:
            raise SessionLost(Reinspect(f"somebody else writes to {self.log}"))
        leader, sent = self.log.leader(), deque[tuple[int, int]]()
        position, goal, first = end, end + count, end
        most = count_fitting_records(self.max_batch)
        while sent or (position < goal and not self.stop.is_set()):
            deleting = self._start + _DELETE_EVERY
            while len(sent) < _IN_FLIGHT and position < min(goal, deleting) and not self.stop.is_set():
                records = min(most, goal - position)
                pieces = build_filler_batch(
                    records, identity.producer_id, identity.epoch, (position - first) % SEQUENCE_SPACE
                )
                leader.send_produce((ProducePartition(self.log.topic_id, self.log.partition, pieces),))
                sent.append((position, position + records))
                position += records
            if sent:
                self._verified = self._answered(*sent.popleft())
                self._tell(self._verified)
            elif position >= deleting:
                self.log.delete_below(position)
                self._start = position

    def _answered(self, base: int, behind: int) -> int:
        (answer,) = self.log.leader().receive_produce()
        if answer.error in _DISTURBED or (not answer.error and answer.base_offset != base):
            answered = error_codes.describe_error_code(answer.error) if answer.error else f"offset {answer.base_offset}"
            raise SessionLost(
                Reinspect(f"{answered} to filler for offset {base} of {self.log}: somebody else fills it")
            )
        if answer.error:
            self.log.lost()  # others are unanswered
            raise self.log.refused(f"filler up to offset {self.until}", answer.error)
        return behind

    def _tell(self, done: int, *, always: bool = False) -> None:
        now = time.monotonic()
        always = always or self._began is None
        since, first = self._began = self._began or (now, done)
        if not always and now - self._told < _PROGRESS_S:
            return
        self._told = now
        rate = (done - first) / (now - since) if now > since else 0.0
        self.progress(FillProgress(self.log.topic, self.log.partition, done, self.until, rate))


# Another worker has a newer epoch, or the broker's count is not ours: everything is looked at anew.
_DISTURBED: Final = frozenset(
    {
        error_codes.INVALID_PRODUCER_EPOCH,
        error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        error_codes.DUPLICATE_SEQUENCE_NUMBER,
        error_codes.UNKNOWN_PRODUCER_ID,
    }
)
