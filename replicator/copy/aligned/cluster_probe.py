"""Whether a cluster lets us align: tried once, on a topic of our own.

Brokers that are not Apache Kafka may lack DeleteRecords, or answer otherwise; and rights cannot be asked for in
advance everywhere. So filling, DeleteRecords, an empty transaction and a marker are done for real, on the permanent
topic `watershed.probe` (one partition, a few hundred bytes, never deleted), and what the log then holds is compared
with what was meant. Several may probe at once: nobody expects a certain offset.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.errors import ClusterError, RequestRefused, RequestUnsupported, TopicMissing, Unreachable
from watershed.clusters.required_role_acls import PROBE_TOPIC
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducePartition
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator.batch.filler_batch import build_filler_batch, is_filler_batch
from watershed.replicator.copy.aligned.filling_configs import ANY_RECORD_AGE, CLEANUP_POLICY, TIMESTAMP_BEFORE_MAX
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.copy.aligned.log_end import build_filling_id, decode_coordinator_epoch
from watershed.replicator.copy.aligned.target_log import AlignmentConnect, TargetLog
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.transactional_producer import TransactionalProducer
from watershed.replicator.partition_states import Halt, Reinspect

_CONFIGS: Final = {CLEANUP_POLICY: "delete", TIMESTAMP_BEFORE_MAX: ANY_RECORD_AGE, "retention.bytes": str(1 << 20)}
_RECORDS: Final = 10
_ATTEMPTS: Final = 5  # others who probe fence our transaction
_PAUSE_S: Final = 0.2
_APPEARS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class AlignmentSupport:
    """What a cluster allows. fills: "" or why an empty log cannot be brought to an offset (then there is no aligned
    mode here). markers, transactions: "" or why gaps cannot be filled that way. transaction_version: finalized, 0 to 2.
    """

    cluster_id: str
    fills: str = ""
    markers: str = ""
    transactions: str = ""
    transaction_version: int = 2

    @property
    def gap_method(self) -> GapMethod | None:
        """How gaps are filled here; None: not at all."""
        if not self.markers and not self.transactions:
            return "markers"
        return None if self.transactions else "transactions"

    @property
    def bump(self) -> bool:
        """Whether every transaction has an epoch of its own (see `GapFiller`)."""
        return self.transaction_version >= 2


@dataclass(slots=True)
class AlignmentSupportCache:
    """Answers of this process by cluster id. May be shared by threads."""

    _known: dict[str, AlignmentSupport] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(
        self,
        admin: ClusterProtocol,
        alias: str,
        connect: AlignmentConnect,
        flow: str,
        transaction_version: Callable[[], int],
        deleting: AlignmentConnect | None = None,
    ) -> AlignmentSupport:
        """The answer about a cluster, asked for the first time if need be; see `probe`."""
        cluster_id = admin.cluster_id()
        with self._lock:
            if cluster_id not in self._known:
                self._known[cluster_id] = probe_alignment_support(
                    admin, alias, connect, flow, transaction_version(), deleting
                )
            return self._known[cluster_id]


def probe_alignment_support(
    admin: ClusterProtocol,
    alias: str,
    connect: AlignmentConnect,
    flow: str,
    transaction_version: int,
    deleting: AlignmentConnect | None = None,
) -> AlignmentSupport:
    """Try everything once. flow: whose transactional ids are used. transaction_version: finalized, see
    `replicator.copy.transactions.slot_sender.read_transaction_version`. deleting: as of `TargetLog`.

    Raises Unreachable when the cluster does not answer, ClusterError when it has no answer just now; what it refuses is
    part of the answer.
    """
    cluster_id = admin.cluster_id()
    if why := _explain_untold_producers(connect):
        return AlignmentSupport(cluster_id, why, why, why, transaction_version)
    try:
        topic = admin.topic(PROBE_TOPIC) or admin.create_topic(PROBE_TOPIC, 1, min(3, admin.brokers()), _CONFIGS)
    except Unreachable:
        raise
    except ClusterError as error:
        why = f"topic {PROBE_TOPIC}, on which it would be tried, cannot be had: {error}"
        return AlignmentSupport(cluster_id, why, why, why, transaction_version)
    log = TargetLog(connect, alias, PROBE_TOPIC, topic.topic_id, 0, deleting)
    trying = _Trying(log, flow, transaction_version >= 2)
    try:
        fills, transactions = _tried(trying.filling, log.lost), _tried(trying.transaction, log.lost)
        # Markers come behind a transaction: its marker tells which epoch of the coordinator they need.
        return AlignmentSupport(cluster_id, fills, _tried(trying.markers, log.lost), transactions, transaction_version)
    finally:
        log.close()


def _explain_untold_producers(connect: AlignmentConnect) -> str:
    """Why a log that is filled could not be judged here: by what its leader holds of us (decision 0085). Else ""."""
    with closing(connect(None)) as broker:
        try:
            broker.describe_producers(PROBE_TOPIC, 0)
        except RequestUnsupported as error:
            return str(error)
    return ""


def _tried(attempt: Callable[[], str], again: Callable[[], None] = lambda: None) -> str:
    """ "" or why not; the broker's own words where it refuses. again: called before every other attempt.

    The result is stored permanently. Temporary failures (a second probing worker, a moving leader) are therefore raised
    as ClusterError, not returned."""
    for number in range(_ATTEMPTS):
        try:
            return attempt()
        except Unreachable:
            raise
        except (RequestRefused, TopicMissing) as error:
            if isinstance(error, RequestRefused) and error.code not in error_codes.REINSPECT_CODES:
                return str(error)
            if number == _ATTEMPTS - 1:
                raise
        except ClusterError as error:
            return str(error)
        except SessionLost as error:
            if isinstance(error.trouble, Halt):
                return str(error)
            if number == _ATTEMPTS - 1:
                text = f"whether offsets can be equal could not be tried on {PROBE_TOPIC}, {_ATTEMPTS} times: {error}"
                raise ClusterError(text, topic=PROBE_TOPIC) from None
        again()
        time.sleep(_PAUSE_S)
    raise AssertionError("every attempt returns, raises or is followed by another")


@dataclass(slots=True)
class _Trying:
    """bump: transaction.version 2."""

    log: TargetLog
    flow: str
    bump: bool
    coordinator_epoch: int = 0

    def filling(self) -> str:
        """A filler batch of our own producer id, then DeleteRecords behind it."""
        leader = self.log.leader()
        pieces = build_filler_batch(_RECORDS, leader.issue_producer_id(), 0, 0)
        leader.send_produce((ProducePartition(self.log.topic_id, 0, pieces),))
        (answer,) = leader.receive_produce()
        if answer.error:
            raise self.log.refused("a batch of empty records", answer.error)
        base, behind = answer.base_offset, answer.base_offset + _RECORDS
        there = self.log.range()
        if there.end < behind:
            return f"{_RECORDS} empty records were answered offset {base}, but the log ends at {there.end}"
        if not self._deleted(behind) and not any(
            batch.base == base and is_filler_batch(batch) for batch in self.log.batches(base, behind)
        ):
            return f"{_RECORDS} empty records at offset {base} are not stored as they were sent"
        self.log.delete_below(behind)
        if not self._deleted(behind):
            return f"DeleteRecords below {behind} left the log start at {self.log.range().start}"
        return ""

    def transaction(self) -> str:
        """An empty transaction takes one offset."""
        before = self.log.range().end
        producer = self._producer()
        try:
            producer.begin()
            began = producer.identity
            producer.add(((PROBE_TOPIC, 0),))
            producer.end(commit=True)
        finally:
            producer.close()
        return self._appears(before, began, "the marker of an empty transaction")

    def markers(self) -> str:
        """A bare marker takes one offset."""
        before = self.log.range().end
        producer = self._producer()
        try:
            producer.begin()
        finally:
            producer.close()
        error = self.log.leader().write_markers(PROBE_TOPIC, 0, producer.identity, 1, self.coordinator_epoch)
        if error in (error_codes.INVALID_PRODUCER_EPOCH, error_codes.TRANSACTION_COORDINATOR_FENCED):
            raise SessionLost(Reinspect("somebody else probes"))
        if error == error_codes.CLUSTER_AUTHORIZATION_FAILED:
            return f"ALTER on cluster {self.log.alias} is missing, so gaps take an empty transaction for each offset"
        if error:
            raise self.log.refused("WriteTxnMarkers", error)
        return self._appears(before, producer.identity, "a bare transaction marker")

    def _producer(self) -> TransactionalProducer:
        return TransactionalProducer(build_filling_id(self.flow, PROBE_TOPIC, 0), self.log.connect, self.bump)

    def _deleted(self, below: int) -> bool:
        return self.log.range().start >= below

    def _appears(self, before: int, identity: ProducerIdAndEpoch, what: str) -> str:
        """Somebody else who probes may delete it before we see it; then the log start is behind it."""
        deadline = time.monotonic() + _APPEARS_S
        while time.monotonic() < deadline:
            there = self.log.range()
            if there.start > before:
                return ""
            for batch in self.log.batches(before, there.end):
                ours = batch.producer_id == identity.producer_id and batch.producer_epoch >= identity.epoch
                if ours and batch.control and batch.end == batch.base + 1:
                    self.coordinator_epoch = decode_coordinator_epoch(batch)
                    return ""
            time.sleep(_PAUSE_S)
        return f"{what} was accepted, but does not appear in the log of {PROBE_TOPIC}"
