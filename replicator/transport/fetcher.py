"""The threads that fetch: all partitions of a thread in one Fetch, as far as buffers, quotas and memory have room.

A thread has a session with its broker (KIP-227): a partition of which there is nothing new costs neither bytes nor the
decoding of an answer.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from clusters.errors import ClusterError
from clusters.settings import ConnectionSettings
from clusters.wire import error_codes
from clusters.wire.connection import Connection
from clusters.wire.fetch_session import FetchSession
from clusters.wire.messages import FetchedPartition, FetchPartition
from replicator.batch.batch_selection import select_batches
from replicator.errors import BadBatch
from replicator.partition_states import Halt, OffsetSpan, Reinspect
from replicator.recovery.log_inspection import BrokerAddress
from replicator.transport.active_copy import ActiveCopy
from replicator.transport.broker_connection import LONGEST_SLEEP_S, BrokerConnectionThread, TrafficClass
from replicator.transport.confirmation import confirm_sources, needs_confirmation
from replicator.transport.rate_limit import MIN_ALLOWANCE_BYTES

log = logging.getLogger("watershed.links")

_FETCH_BYTES: Final[dict[TrafficClass, int]] = {"live": 512 << 10, "bulk": 4 << 20}  # a partition and Fetch
_ANSWER_BYTES: Final[dict[TrafficClass, int]] = {"live": 2 << 20, "bulk": 16 << 20}
_LEAST_ANSWER: Final = 1 << 20  # a single batch may be larger; the broker sends it all the same (KIP-74)
# A broker with a quota for us answers with nothing where an answer would exceed what is left of the quota's window, and
# cuts answers only to the whole of it (KafkaApis, KIP-219). A fetcher that keeps asking for more than what is left
# never gets data while others of the same client id read. After an empty answer it therefore asks, for 60 s, for one
# eighth of its largest earlier answer, at least _SMALLEST_ANSWER. A window has ten seconds; small answers fill it as
# well.
_SMALLEST_ANSWER: Final = 128 << 10
_CAREFUL_S: Final = 60.0
_PARTITION_BUFFER: Final = 8 << 20
# What the live thread may hold beyond the memory that there is for all: backlogs fill that, and are no reason to wait.
RESERVED_BYTES: Final[dict[TrafficClass, int]] = {"live": 4 << 20, "bulk": 0}
_LONG_POLL_S: Final = 0.1
_COMING_S: Final = 0.02  # a live thread's, while partitions may come to it: what is new in one would wait out the poll
# A Fetch that brings something is answered at once, however long it may wait. So one that brings nothing may wait for
# so many times the processor time that it took to go through the partitions: thousands of quiet ones cost little.
_REST: Final = 20
_LONGEST_REST_S: Final = 0.5


class Fetcher(BrokerConnectionThread):
    """`active_copies` gives the partitions of this source broker, `memory` the bytes that the worker may still hold."""

    def __init__(
        self,
        kind: TrafficClass,
        settings: ConnectionSettings,
        address: BrokerAddress,
        active_copies: Callable[[], tuple[ActiveCopy, ...]],
        memory: Callable[[], int],
    ) -> None:
        super().__init__("fetch", kind, settings, address)
        self._active_copies, self._memory = active_copies, memory
        self._session = FetchSession()
        self._walk_s = 0.0  # processor time of the last walk over the partitions
        self._first = 0
        self._fits = _ANSWER_BYTES[kind]  # what an answer may have, as the broker's quota for us goes
        self._largest = 0  # bytes of an answer
        self._no_room = 0.0  # when the quota last left no room for one, on the monotonic clock

    def _round(self) -> None:
        self._asleep = True
        now, began = time.monotonic(), time.thread_time()
        everybody = self._active_copies()
        active_copies = [active for active in everybody if active.kind == self.kind and _can_fetch(active)]
        memory = self._memory() + RESERVED_BYTES[self.kind]
        asked, early = _within_quotas(active_copies, now)
        pause = max(self._not_before - now, early if not asked else 0.0, 0.0)
        if not asked or memory <= 0 or pause > 0:
            self._sleep(min(pause, LONGEST_SLEEP_S) if pause else LONGEST_SLEEP_S)
            return
        self._asleep = False
        if self.kind == "live" and any(active.kind != "live" for active in everybody):
            early = min(early, _COMING_S)
        wait_s = max(min(_LONG_POLL_S, early), min(self._walk_s * _REST, _LONGEST_REST_S))
        max_bytes = max(min(_ANSWER_BYTES[self.kind], memory), _LEAST_ANSWER)
        self._walk_s = self._fetch(asked, max_bytes, wait_s, began)

    def _fetch(self, asked: list[tuple[ActiveCopy, int]], max_bytes: int, wait_s: float, began: float) -> float:
        """Returns the processor time that the walk over the partitions took. began: it, on the thread's clock."""
        self._first = (self._first + 1) % len(asked)  # the broker fills the answer in this order
        asked = asked[self._first :] + asked[: self._first]
        by_partition = {(active.copy.source_id, active.copy.key.partition): active for active, _ in asked}
        most = _FETCH_BYTES[self.kind]
        heaviest = max(active.weight for active, _ in asked)
        partitions = tuple(_ask(active, min(share, most * active.weight // heaviest)) for active, share in asked)
        self._check_connection()
        connection = self._connected()
        walk_s = time.thread_time() - began
        sent = time.monotonic()
        answers = connection.fetch(
            partitions,
            max_wait_ms=int(wait_s * 1000),
            max_bytes=min(max_bytes, self._fits),
            session=self._session,
        )
        leaves_out = self._session.is_incremental and connection.throttle_ms == 0
        if not answers and not leaves_out:
            self._no_room = time.monotonic()
            self._fits = min(self._fits, max(self._largest // 8, _SMALLEST_ANSWER))
        elif time.monotonic() - self._no_room > _CAREFUL_S:
            self._fits = _ANSWER_BYTES[self.kind]
        self._largest = max(self._largest, sum(len(answer.records) for answer in answers))
        held_back = self._find_held_back(connection, by_partition, answers)
        for answer in answers:
            place = answer.topic_id, answer.partition
            if place not in held_back:
                by_partition[place].copy.source.asked_at = sent
                _deliver_or_stop(by_partition[place], answer)
        if leaves_out:
            began = time.thread_time()
            told = {(answer.topic_id, answer.partition) for answer in answers}
            _pass_over(active for place, active in by_partition.items() if place not in told)
            walk_s += time.thread_time() - began
        self._apply_throttle(connection.throttle_ms)
        return walk_s

    def _find_held_back(
        self,
        connection: Connection,
        by_partition: Mapping[tuple[uuid.UUID, int], ActiveCopy],
        answers: list[FetchedPartition],
    ) -> set[tuple[uuid.UUID, int]]:
        """Whose answer must not be used: the topic has no id, and may be another one by now."""
        arrived = time.monotonic()
        copies = {(each.topic_id, each.partition): by_partition[each.topic_id, each.partition].copy for each in answers}
        doubted = {
            (each.topic_id, each.partition): copies[each.topic_id, each.partition]
            for each in answers
            if needs_confirmation(copies[each.topic_id, each.partition], each, arrived)
        }
        return doubted.keys() - confirm_sources(connection, doubted) if doubted else set()

    def _dropped(self, reason: str, closed: bool) -> None:
        self._session.begin_anew()
        for active in self._active_copies():
            if active.kind == self.kind:
                active.copy.stop(Reinspect(reason))


def _ask(active: ActiveCopy, max_bytes: int) -> FetchPartition:
    """The same object as before where nothing has changed: it is compared at once, and made seldom."""
    copy, before = active.copy, active.asked
    position, epoch = copy.source.position, copy.source.leader_epoch
    if before is None or (before.offset, before.last_epoch, before.max_bytes) != (position, epoch, max_bytes):
        active.asked = before = FetchPartition(copy.source_id, copy.key.partition, position, epoch, max_bytes)
    return before


def _can_fetch(active: ActiveCopy) -> bool:
    copy = active.copy
    return (
        copy.trouble is None
        and copy.refusals.batch is None
        and copy.queue.buffered < _PARTITION_BUFFER
        and not copy.is_crowded
    )


def _within_quotas(active_copies: list[ActiveCopy], now: float) -> tuple[list[tuple[ActiveCopy, int]], float]:
    """What may be asked of each now, and the seconds until a flow that may not be asked now may be again."""
    limited = Counter(active.flow for active in active_copies if active.rate.quota is not None)
    if not limited:
        return [(active, _FETCH_BYTES["bulk"]) for active in active_copies], _LONG_POLL_S
    asked: list[tuple[ActiveCopy, int]] = []
    early = _LONG_POLL_S
    for active in active_copies:
        allowance = active.rate.allowance(now)
        if allowance is None:
            asked.append((active, _FETCH_BYTES["bulk"]))
        elif allowance:
            asked.append((active, max(allowance // limited[active.flow], min(MIN_ALLOWANCE_BYTES, allowance))))
        else:
            early = min(early, max(active.rate.wait(now), 0.001))
    return asked, early


def _pass_over(quiet: Iterable[ActiveCopy]) -> None:
    """Of these the broker had nothing new to say: they end where they did."""
    now = time.monotonic()
    for active in quiet:
        active.copy.source.seen_at = now
        active.fetched(0)


def _deliver_or_stop(active: ActiveCopy, answer: FetchedPartition) -> None:
    """Whatever goes wrong with one partition's answer is that partition's trouble, and not the thread's."""
    try:
        _deliver(active, answer)
    except BadBatch as error:
        active.copy.stop(Reinspect(str(error), error.state))
    except ClusterError as error:  # of the registry
        active.copy.stop(Reinspect(str(error)))
    except Exception as error:
        key = active.copy.key
        log.exception("answer failed", extra={"flow": key.flow, "topic": key.topic, "partition": key.partition})
        reason = f"what the source sent from offset {active.copy.source.position} on could not be worked on"
        active.copy.stop(Reinspect(f"{reason}: {type(error).__name__}: {error}", "rejected"))


def _deliver(active: ActiveCopy, answer: FetchedPartition) -> None:
    copy = active.copy
    trouble = _find_trouble(active, answer)
    if trouble is not None:
        active.copy.stop(trouble)
        return
    copy.source.end, copy.source.high_watermark = answer.last_stable, answer.high_watermark
    copy.source.seen_at = time.monotonic()
    records = answer.records
    size = len(records)
    if size == 0:
        active.fetched(0)
        return
    if 2 * size < memoryview(records.obj).nbytes:  # a small part must not hold a large answer in memory
        records = memoryview(bytes(records))
    selected = select_batches(
        records, copy.source.position, answer.aborted, leave_out=active.leave_out, terms=active.terms
    )
    if selected.rejected and active.quarantine is not None:
        try:
            active.quarantine.keep(copy.key, selected.rejected)
        except ClusterError as error:
            active.copy.stop(Reinspect(f"{len(selected.rejected)} records could not be quarantined: {error}"))
            return
    runs = copy.accept(selected)
    if runs and active.ledger is not None:
        active.ledger.append(runs)
    active.rate.spend(size, time.monotonic())
    if selected.batches or copy.has_unsent:
        active.wake()
    active.fetched(size)  # last: from here on the other thread may fetch, and append what follows


def _find_trouble(active: ActiveCopy, answer: FetchedPartition) -> Halt | Reinspect | None:
    copy, position = active.copy, active.copy.source.position
    if answer.diverging_epoch is not None:
        epoch, end = answer.diverging_epoch
        reason = f"the source's log ends epoch {epoch} at offset {end}, copied was through {position}"
        if active.ledger is not None and not active.ledger.template.epochs:  # an inspection could not know it any more
            return Halt("source_truncated", reason, source=OffsetSpan(min(end, position), position))
        return Reinspect(reason, "source_truncated")  # the inspection finds out how far back
    if answer.error == error_codes.OFFSET_OUT_OF_RANGE:
        return Reinspect(  # expired, as the inspection will find; or the log does not know the epoch that we copied
            f"the source answers OFFSET_OUT_OF_RANGE at offset {position}, leader epoch {copy.source.leader_epoch}",
            "source_truncated",
        )
    if answer.error in (error_codes.UNKNOWN_TOPIC_ID, error_codes.INCONSISTENT_TOPIC_ID):
        return Reinspect("the source topic is not there under its id")
    if answer.error == error_codes.TOPIC_AUTHORIZATION_FAILED:
        return Halt("unauthorised", f"the source refuses READ on topic {copy.key.topic}")
    if answer.error:
        return Reinspect(f"the source answers {error_codes.describe_error_code(answer.error)} at offset {position}")
    return None
