"""What becomes of a partition's part of a Fetch answer: trouble, or batches that its copy takes.

Whatever is wrong with it is that partition's trouble: nothing here raises because of what a source has sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from watershed.clusters.errors import ClusterError
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import FetchedPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.overlapping_answer import cut_answer
from watershed.replicator.batch.untransformed_selection import select_untransformed
from watershed.replicator.copy.transactions.transformed_copy import TransformedCopy
from watershed.replicator.errors import BadBatch
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.transport.active_copy import ActiveCopy

log = logging.getLogger("watershed.links")


def deliver_answer(active: ActiveCopy, answer: FetchedPartition) -> None:
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
    copy.source.note_log_end(answer.last_stable, answer.high_watermark)
    copy.source.seen_at = time.monotonic()
    records = answer.records
    size = len(records)
    if size == 0:
        active.fetched(0)
        return
    if 2 * size < memoryview(records.obj).nbytes:  # a small part must not hold a large answer in memory
        records = memoryview(bytes(records))
    if active.transforms is not None:
        _hold(active, records, answer.aborted, active.transforms)
        return
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


def _hold(
    active: ActiveCopy, records: memoryview, aborted: tuple[tuple[int, int], ...], tell: Callable[[], None]
) -> None:
    """Leave what was fetched to whoever transforms it."""
    copy = active.copy
    assert isinstance(copy, TransformedCopy)
    found = select_untransformed(records, copy.source.position, aborted, active.leave_out, copy.path_of, active.terms)
    copy.hold(found.parts, found.last_batch, found.refused)
    active.rate.spend(len(records), time.monotonic())
    tell()
    active.wake()  # the position of a part without records is told as well
    active.fetched(len(records))


def cut_overlap(active: ActiveCopy, answer: FetchedPartition) -> FetchedPartition:
    """What of the answer no other one has brought. Its ends of the log may be older than those that we know."""
    source = active.copy.source
    if answer.error or answer.diverging_epoch is not None:
        return answer
    try:
        part = cut_answer(answer.records, answer.aborted, source.position, source.last_batch)
    except BadBatch:
        return answer  # whoever delivers it says what is wrong with it
    if part.records is answer.records:
        return answer
    last_stable = max(answer.last_stable, source.end)
    return replace(answer, records=part.records, aborted=part.aborted, last_stable=last_stable)


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
