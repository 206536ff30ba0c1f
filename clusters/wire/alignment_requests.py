"""The requests that move a log's ends without records: DeleteRecords (KIP-107) and WriteTxnMarkers (KIP-98); and
OffsetForLeaderEpoch, by which the leader says where its own log ends (KIP-320).

A marker that no transaction ends takes one offset, and no consumer sees it at either isolation level. Coordinators send
such requests to brokers, and `kafka-transactions abort` does; it needs ALTER (or CLUSTER_ACTION) on the cluster.
Source: docs/research/aligned-mode.md, sections B and C.
"""

from __future__ import annotations

import datetime
import io
from dataclasses import dataclass
from typing import Final, Protocol

from kio.schema.delete_records.v2 import request as delete_request
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.offset_for_leader_epoch.v4 import request as epoch_request
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.schema.write_txn_markers.v1 import request as markers_request
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i32Timedelta, i64

from clusters.errors import ProtocolError
from clusters.varints import encode_uvarint
from clusters.wire.transaction_requests import ProducerIdAndEpoch, TransactionRequests, TransactionWire

MAX_MARKERS_PER_REQUEST: Final = 10_000  # of one request


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A question whose body is bytes already."""

    __api_key__: int
    __version__: int
    body: bytes


class AlignmentWire(TransactionWire, Protocol):
    """A connection that can move a log's ends. The requests go to the partition's leader."""

    def delete_records(self, topic: str, partition: int, before: int, timeout_ms: int = 30_000) -> tuple[int, int]:
        """(error, log start): delete everything below offset `before`. POLICY_VIOLATION where the topic is compacted
        only, OFFSET_OUT_OF_RANGE beyond the high watermark."""
        ...

    def write_markers(
        self, topic: str, partition: int, producer: ProducerIdAndEpoch, count: int, coordinator_epoch: int = 0
    ) -> int:
        """Append `count` abort markers, each a batch of its own that takes one offset; at most MAX_MARKERS_PER_REQUEST.

        coordinator_epoch: of the producer's newest marker in this log, which the coordinator wrote: a higher one would
        fence the coordinator, a lower one is fenced (it rises whenever another broker becomes coordinator).
        The error code: INVALID_PRODUCER_EPOCH when the log holds a newer epoch of the producer,
        TRANSACTION_COORDINATOR_FENCED when it holds a newer one of the coordinator,
        CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster. With any error some may have been written.
        """
        ...

    def end_of_epoch(self, topic: str, partition: int, leader_epoch: int) -> tuple[int, int]:
        """(error, offset): where the leader's log ends, if that is its present epoch; else where the next one began.
        It may be behind the high watermark. -1: it does not know the epoch."""
        ...


class AlignmentRequests(TransactionRequests):
    """What a connection gets to be an `AlignmentWire`."""

    def delete_records(self, topic: str, partition: int, before: int, timeout_ms: int = 30_000) -> tuple[int, int]:
        """See `AlignmentWire`. Raises ProtocolError for an answer about something else."""
        part = delete_request.DeleteRecordsPartition(partition_index=i32(partition), offset=i64(before))
        question = delete_request.DeleteRecordsRequest(
            topics=(delete_request.DeleteRecordsTopic(name=TopicName(topic), partitions=(part,)),),
            timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=timeout_ms)),
        )
        for answered in self.ask(question, DeleteRecordsResponse).topics:
            for found in answered.partitions:
                return int(found.error_code), int(found.low_watermark)
        raise ProtocolError(f"an answer to DeleteRecords leaves out {topic}-{partition}", topic=topic)

    def write_markers(
        self, topic: str, partition: int, producer: ProducerIdAndEpoch, count: int, coordinator_epoch: int = 0
    ) -> int:
        """See `AlignmentWire`. Raises ValueError for none or too many markers."""
        if not 0 < count <= MAX_MARKERS_PER_REQUEST:
            raise ValueError(f"{count} markers: a request takes 1 to {MAX_MARKERS_PER_REQUEST}")
        marker = markers_request.WritableTxnMarker(
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=i16(producer.epoch),
            transaction_result=False,
            topics=(
                markers_request.WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=(i32(partition),)),
            ),
            coordinator_epoch=i32(coordinator_epoch),
        )
        # One entry a producer id, however many markers (KafkaApis.handleWriteTxnMarkersRequest).
        answer = self.ask(_repeated(marker, count), WriteTxnMarkersResponse)
        codes = [
            int(found.error_code)
            for entry in answer.markers
            for answered in entry.topics
            for found in answered.partitions
        ]
        if not codes:
            raise ProtocolError(f"an answer to WriteTxnMarkers leaves out {topic}-{partition}", topic=topic)
        return next((code for code in codes if code), 0)

    def end_of_epoch(self, topic: str, partition: int, leader_epoch: int) -> tuple[int, int]:
        """See `AlignmentWire`. Raises ProtocolError for an answer about something else."""
        part = epoch_request.OffsetForLeaderPartition(partition=i32(partition), leader_epoch=i32(leader_epoch))
        question = epoch_request.OffsetForLeaderEpochRequest(
            replica_id=BrokerId(-1),
            topics=(epoch_request.OffsetForLeaderTopic(topic=TopicName(topic), partitions=(part,)),),
        )
        for answered in self.ask(question, OffsetForLeaderEpochResponse).topics:
            for found in answered.partitions:
                return int(found.error_code), int(found.end_offset)
        raise ProtocolError(f"an answer to OffsetForLeaderEpoch leaves out {topic}-{partition}", topic=topic)


def _repeated(marker: markers_request.WritableTxnMarker, count: int) -> EncodedRequest:
    """A request of the same marker so many times, encoded once: kio takes 50 µs for each, as long as the broker."""
    one, kind = io.BytesIO(), markers_request.WriteTxnMarkersRequest
    entity_writer(markers_request.WritableTxnMarker)(one, marker)
    body = encode_uvarint(count + 1) + one.getvalue() * count + b"\x00"  # a compact array, then no tagged fields
    return EncodedRequest(int(kind.__api_key__), int(kind.__version__), body)
