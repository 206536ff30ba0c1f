"""The requests that move a log's ends without records: DeleteRecords (KIP-107) and WriteTxnMarkers (KIP-98); and
OffsetForLeaderEpoch, by which the leader says where its own log ends (KIP-320).

A marker that no transaction ends takes one offset, and no consumer sees it at either isolation level. Coordinators send
such requests to brokers, and `kafka-transactions abort` does; it needs ALTER (or CLUSTER_ACTION) on the cluster.
Source: docs/research/aligned-mode.md, sections B and C.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Protocol

from watershed.clusters.errors import ProtocolError
from watershed.clusters.varints import encode_uvarint
from watershed.clusters.wire.request_codec import build_request, encode_entity, load_message_class
from watershed.clusters.wire.transaction_requests import (
    REPLICATED_S,
    ProducerIdAndEpoch,
    TransactionRequests,
    TransactionWire,
)
from watershed.clusters.wire.versions import Api

MAX_MARKERS_PER_REQUEST: Final = 10_000  # of one request


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
        answer = self.ask(
            Api.DELETE_RECORDS,
            patience_s=REPLICATED_S,
            topics=({"name": topic, "partitions": ({"partition_index": partition, "offset": before},)},),
            timeout=datetime.timedelta(milliseconds=timeout_ms),
        )
        for answered in answer.topics:
            for found in answered.partitions:
                return int(found.error_code), int(found.low_watermark)
        raise ProtocolError(f"an answer to DeleteRecords leaves out {topic}-{partition}", topic=topic)

    def write_markers(
        self, topic: str, partition: int, producer: ProducerIdAndEpoch, count: int, coordinator_epoch: int = 0
    ) -> int:
        """See `AlignmentWire`. Raises ValueError for none or too many markers."""
        if not 0 < count <= MAX_MARKERS_PER_REQUEST:
            raise ValueError(f"{count} markers: a request takes 1 to {MAX_MARKERS_PER_REQUEST}")
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": ({"name": topic, "partition_indexes": (partition,)},),
            "coordinator_epoch": coordinator_epoch,
        }
        # One entry a producer id, however many markers (KafkaApis.handleWriteTxnMarkersRequest).
        answer = self.ask_encoded(
            Api.WRITE_TXN_MARKERS, lambda version: _encode_markers(version, marker, count), REPLICATED_S
        )
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
        found = self.find_epoch_ends({(topic, partition): leader_epoch}).get((topic, partition))
        if found is None:
            raise ProtocolError(f"an answer to OffsetForLeaderEpoch leaves out {topic}-{partition}", topic=topic)
        error, _, end = found
        return error, end

    def find_epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int, int]]:
        """(topic, partition) → (error, epoch, offset): the newest epoch of the leader's log that is not newer than the
        one asked for, and where it ends there (KIP-320); -1, -1 where there is none. Below version 3 (Kafka 2.3) it
        needs CLUSTER_ACTION."""
        by_topic: dict[str, list[dict[str, int]]] = defaultdict(list)
        for (topic, partition), leader_epoch in asked.items():
            by_topic[topic].append({"partition": partition, "leader_epoch": leader_epoch})
        answer = self.ask(
            Api.OFFSET_FOR_LEADER_EPOCH,
            patience_s=REPLICATED_S,
            replica_id=-1,
            topics=tuple({"topic": topic, "partitions": tuple(parts)} for topic, parts in by_topic.items()),
        )
        return {
            (str(topic.topic), int(part.partition)): (
                int(part.error_code),
                int(part.leader_epoch),
                int(part.end_offset),
            )
            for topic in answer.topics
            for part in topic.partitions
        }


def _encode_markers(version: int, marker: dict[str, Any], count: int) -> bytes:
    """A request of the same marker so many times, encoded once: kio takes 50 µs for each, as long as the broker."""
    request = build_request(load_message_class("write_txn_markers", version, "request"), {"markers": (marker,)})
    one = encode_entity(request.markers[0])
    return encode_uvarint(count + 1) + one * count + b"\x00"  # a compact array, then no tagged fields
