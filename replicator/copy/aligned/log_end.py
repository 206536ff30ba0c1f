"""Moving the end of a target log on by exactly so many offsets, whatever is lost, late, or done by others meanwhile.

There are two ways to take offsets. In *bulk*, many a request, whose outcome nobody knows when the connection is lost
and which may be carried out much later: bare transaction markers (`gap_filler`), batches of empty records
(`empty_log_filler`). And by an empty *transaction*, one offset each, for which the coordinator vouches. A coordinator
that takes over from one that died writes the marker of a transaction once more if it does not know that it was written.
Both together do not overshoot, because of this (docs/research/aligned-mode.md, section C, "Lost answer";
docs/decisions/0022-aligned.md):

- All who advance a partition's log share one transactional id, and thus one producer id. InitProducerId ends what was
  open, so that behind it no transaction is under way, and whoever was here before can begin none.
- Bulk is only sent when the end is *final*: nothing that was sent in bulk before can still be appended. Where it is
  not, one empty transaction makes it so: its marker is fenced by no one and fences all earlier epochs in the log.
- Behind a transaction InitProducerId comes before anything else: it waits until the transaction is complete, and then
  no coordinator writes its marker again. What was written twice is counted with what is left.
- At most K-1 of K offsets are written in bulk, at (producer, epoch e). An empty transaction writes the last one in
  three cases: bare markers are not allowed; the lease expired several times; the log has refused our coordinator epoch,
  because another broker became coordinator or because we have not read it from a marker yet. If that coordinator dies
  between the marker and the end of the transaction, the log is one offset too long; the next worker reports
  `Misaligned`.
- If bare markers are allowed, one bare marker takes the last offset. No coordinator repeats a bare marker. It is sent
  after all other requests are answered and after a second InitProducerId, which proves that no other worker asked for
  the id; and within `_LEASE_S` of that request. A worker that finds exactly one offset left, and for which such a
  marker may be under way, waits `RIVAL_MARKER_WAIT_S` after its own InitProducerId, then until followers have caught
  up, and asks for an epoch again; only then it reads the end of the log. Two such markers cannot meet, unless a
  process freezes between reading the clock and sending.
- Whether anything is left is read behind InitProducerId: a transaction that was open has had its marker then, and one
  that somebody begins later fences ours.
- So whenever a new worker finds that more than one offset is left, one empty transaction is right, and that is what it
  begins with.
- A worker that has closed knows its end to be final as long as nobody else asked for the id: the coordinator gives
  epochs one by one, so the next one it gets is the next one.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.errors import ClusterError, RequestRefused, Unreachable
from watershed.clusters.required_role_acls import FILL_ID_PREFIX
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.alignment_requests import MAX_MARKERS_PER_REQUEST
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.records import decode_record_fields, decode_records
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.transactional_producer import NO_PRODUCER, TransactionalProducer
from watershed.replicator.errors import Misaligned
from watershed.replicator.partition_states import Reinspect

# Takes at most so many offsets (the third) from an end (the second), and may stop early. What it has taken is there
# when it returns, and nothing else comes. Raises what `to` gets over.
_SendBulk = Callable[[ProducerIdAndEpoch, int, int], None]


_MARKER: Final = struct.Struct(">hi")
# Epochs end at 32,767, and then the coordinator gives another producer id, which fences nothing of the one before.
_LAST_EPOCH: Final = 32_000
_AT_ONCE: Final = 500  # transactions, a second or two, before somebody may say stop
_STUCK_S: Final = 60.0  # without a single offset
_PAUSE_S: Final = 0.1
_BUSY_S: Final = 0.001  # for a coordinator that still writes the marker of the transaction before: 1 ms or so
_MARKER_S: Final = 30.0  # for the marker of a transaction that was ended to be in the log
_FETCH_MS: Final = 500
_LEASE_S: Final = 0.5  # from asking for an epoch to sending the last offset with it
RIVAL_MARKER_WAIT_S: Final = 2 * _LEASE_S  # as much again for the request to arrive
_LATE: Final = 3  # leases in a row that may end before a request could be sent, on a machine that stands still


def build_filling_id(flow: str, topic: str, partition: int) -> str:
    """`topic` is the target's. Nothing else may ever use this id."""
    return f"{FILL_ID_PREFIX}{flow}|{topic}|{partition}"


@dataclass(slots=True)
class LogEnd:
    """The end of one partition's log. bump: the cluster's transaction.version is 2 or more. bare: bare markers may be
    written. bulk: None for bare markers or, where they may not be written, a transaction for every offset.

    Not thread-safe; two of them for one partition, in two workers, disturb each other and never overshoot.
    """

    log: TargetLog
    flow: str
    bump: bool
    bulk: _SendBulk | None = None
    bare: bool = False
    _producer: TransactionalProducer = field(init=False)
    _final: ProducerIdAndEpoch = NO_PRODUCER  # whoever closed last, and left nothing under way
    _open: bool = True  # a transaction, at first somebody else's, may not be complete yet at its coordinator
    _asked: float = 0.0  # when the epoch was asked for
    _others: bool = True  # a bare marker that takes the last offset may be under way: somebody else's, or ours
    _furthest: int = -1  # end of the log
    _coordinator_epoch: int = 0  # of the newest marker of ours that was seen
    _fenced: bool = False  # there is a newer one
    _late: int = 0  # leases in a row that have ended before their request could be sent

    def __post_init__(self) -> None:
        name = build_filling_id(self.flow, self.log.topic, self.log.partition)
        self._producer = TransactionalProducer(name, self.log.connect, self.bump, pause_s=_BUSY_S)
        if self.bare and self.bulk is None:
            self.bulk = self._markers

    def to(self, until: int, stop: threading.Event | None = None) -> int:
        """Bring the log's end to exactly `until`; the end reached, which is less only when `stop` was set.

        Lost connections and moving leaders are got over for a minute. May be called again whatever happened.

        Raises Misaligned when the log is longer already (somebody else writes), Unauthorised without the rights,
        SessionLost when the coordinator refuses (another worker advances the same log), ClusterError.
        """
        best, moved = self._furthest, time.monotonic()
        while True:
            trouble: ClusterError | SessionLost
            try:
                end = self._round(until)
                stopped = stop is not None and stop.is_set()
                if stopped and self._open:
                    self._begin()
                    end = until - self._left(until)
                if not self._open and (end == until or stopped):
                    return end
                continue
            except (Unreachable, SessionLost) as lost:
                trouble = lost
            except RequestRefused as refused:
                if refused.code not in error_codes.REINSPECT_CODES:
                    raise
                trouble = refused
            self._over()
            if self._furthest > best:
                best, moved = self._furthest, time.monotonic()
            if time.monotonic() - moved > _STUCK_S or not _passing(trouble) or (stop is not None and stop.is_set()):
                raise trouble
            # Two who come at the same time, and wait for each other, must not do so in step.
            fenced = self.bare and isinstance(trouble, SessionLost) and not self._fenced
            time.sleep(random.uniform(0, 3 * RIVAL_MARKER_WAIT_S) if fenced else _PAUSE_S)  # noqa: S311

    def close(self) -> None:
        """Its connection to the coordinator; the log's is its owner's."""
        self._producer.close()

    def _over(self) -> None:
        self._producer.close()
        self.log.lost()

    def _round(self, until: int) -> int:
        """Where the log ends afterwards. Every exception leaves it to the next round to find out."""
        if self._left(until) == 0 and not self._open:
            return until
        self.log.confirm()  # what follows goes by the topic's name
        closed, self._final = self._final == self._producer.identity, NO_PRODUCER
        final = self._begin(closed=closed) and closed
        left = self._left(until)  # a transaction that was open may have been ended
        if left > 1 and final and self.bulk is not None:
            self.bulk(self._producer.identity, until - left, left - 1)
            final, left = self._begin(closed=True), self._left(until)
            if left > 1:  # it was stopped
                return until - left
        if left == 1 and self.bare and self._others:
            time.sleep(RIVAL_MARKER_WAIT_S)
            self._seen_by_all()
            self._others = False
            if not self._begin():
                raise SessionLost(Reinspect(f"another worker advances {self.log}, too"))
            left = self._left(until)
        if left == 0:  # what comes behind it may not be final
            self._final = self._producer.identity if final else NO_PRODUCER
            return until
        if left == 1 and self.bare and not self._fenced and self._late < _LATE:
            if time.monotonic() - self._asked >= _LEASE_S:
                self._late += 1
                return until - left  # and ask again
            self._others = True
            self._markers(self._producer.identity, until - 1, 1)
            self._others, self._final, self._late = False, self._producer.identity, 0
            return until - self._left(until)
        single = self.bulk is not None or not final
        end = self._transactions(1 if single else min(max(left - 1, 1), _AT_ONCE))
        self._check(end, until)
        return end

    def _begin(self, *, closed: bool = False) -> bool:
        """InitProducerId; whether nobody else asked for the id since we did.

        closed: our own marker is the last one. Only behind that is another producer id taken, as it has fenced all of
        the id before in the log.
        """
        before = self._producer.identity.producer_id
        alone = self._ask()
        while (
            alone
            and closed
            and self._producer.identity.producer_id == before
            and self._producer.identity.epoch > _LAST_EPOCH
        ):
            alone = self._ask()
        return alone

    def _ask(self) -> bool:
        known = self._producer.identity
        self._asked = time.monotonic()
        self._producer.begin()
        self._open = False
        alone = self._producer.identity == ProducerIdAndEpoch(known.producer_id, known.epoch + 1)
        self._others |= not alone
        return alone

    def _seen_by_all(self) -> None:
        """Waits until what the leader has appended counts: a marker may be there that its followers lack so far."""
        deadline = time.monotonic() + _MARKER_S
        while (appended := self.log.appended()) > self.log.range().end:
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"for {_MARKER_S:g} s the followers of {self.log} lack what its leader has up to offset {appended}",
                    alias=self.log.alias,
                    topic=self.log.topic,
                    partition=self.log.partition,
                )
            time.sleep(_PAUSE_S)

    def _markers(self, identity: ProducerIdAndEpoch, _end: int, count: int) -> None:
        while count:
            some = min(count, MAX_MARKERS_PER_REQUEST)
            error = self.log.leader().write_markers(
                self.log.topic, self.log.partition, identity, some, self._coordinator_epoch
            )
            if error == error_codes.INVALID_PRODUCER_EPOCH:
                text = (
                    f"{error_codes.describe_error_code(error)} to WriteTxnMarkers: another worker advances {self.log}"
                )
                raise SessionLost(Reinspect(text))
            if error == error_codes.TRANSACTION_COORDINATOR_FENCED:
                self._fenced, self._others = True, False  # until its next marker tells the epoch; nothing was written
                text = (
                    f"{error_codes.describe_error_code(error)} to WriteTxnMarkers: another broker "
                    f"coordinates for {self.log}"
                )
                raise SessionLost(Reinspect(text))
            if error:
                raise self.log.refused("WriteTxnMarkers", error)
            count -= some

    def _transactions(self, count: int) -> int:
        """Empty transactions, one after the other; where the log ends behind the last one."""
        position, self._open = self.log.range().end, True
        for _ in range(count):
            began = self._producer.identity
            self._producer.add(((self.log.topic, self.log.partition),))
            self._producer.end(commit=True)
        end = self._behind_marker(began, position, position + count - 1)
        # Whoever was here before is fenced in the log.
        self._others, self._final, self._late = False, self._producer.identity, 0
        return end

    def _behind_marker(self, identity: ProducerIdAndEpoch, position: int, least: int) -> int:
        """Wait until the marker of the transaction that `identity` ended is in the log; return the log's end then.

        The marker is at offset `least` or behind it. EndTxn answers before the marker is in the log; the high
        watermark, which ListOffsets gives, comes later still."""
        deadline = time.monotonic() + _MARKER_S
        while time.monotonic() < deadline:
            for batch in self.log.batches(position, 1 << 62, max_wait_ms=_FETCH_MS):
                position = batch.end
                ours = batch.producer_id == identity.producer_id and batch.producer_epoch >= identity.epoch
                if ours and batch.control and batch.base >= least:
                    self._fenced = False
                    self._coordinator_epoch = decode_coordinator_epoch(batch)
                    return max(position, self.log.range().end)
            there = self.log.range()
            if there.start > least:  # whoever came after us has deleted it already
                return there.end
        raise Unreachable(
            f"the marker of a transaction of {self._producer.transactional_id} did not appear in {self.log} "
            f"within {_MARKER_S:g} s",
            alias=self.log.alias,
            topic=self.log.topic,
            partition=self.log.partition,
        )

    def _left(self, until: int) -> int:
        end = self.log.range().end
        self._furthest = max(self._furthest, end)
        self._check(end, until)
        return until - end

    def _check(self, end: int, until: int) -> None:
        if end > until:
            raise Misaligned(str(self.log), until, end, f"it ends at {end} already, so somebody else writes to it")


def decode_coordinator_epoch(marker: RawBatch) -> int:
    """Of the coordinator that wrote this control batch (KIP-98: version, then epoch, in the value)."""
    value = decode_record_fields(decode_records(marker)[0].rest).value or b""
    _version, epoch = _MARKER.unpack_from(value)
    return int(epoch)


def _passing(trouble: ClusterError | SessionLost) -> bool:
    """Whether trying again may help. A halt of a session is a missing right, and so may be a refusal."""
    if not isinstance(trouble, SessionLost):
        return True
    return isinstance(trouble.trouble, Reinspect) and trouble.code not in error_codes.AUTHORIZATION_CODES
