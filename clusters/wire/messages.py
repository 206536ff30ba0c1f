"""What travels over a raw connection: plain data, one class a question or answer.

Offsets are record offsets, `records` are raw record batches exactly as stored (magic 2, one after the other,
the last one possibly cut off). Error codes are Kafka's own numbers (0 = none); `clusters.wire.error_codes` names them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """Where a partition is led: `node` is the broker id."""

    partition: int
    node: int
    leader_epoch: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic in an answer of Metadata. error: Kafka's code; without 0 there are no partitions and the id is zero."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionLeader, ...]
    error: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Answer of Metadata: `brokers` maps broker id to (host, port)."""

    cluster_id: str
    brokers: dict[int, tuple[str, int]]
    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """One partition of a Fetch. `last_epoch` is the leader epoch of the last batch copied, -1: unknown (KIP-320)."""

    topic_id: uuid.UUID
    partition: int
    offset: int
    last_epoch: int = -1
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a Fetch answer.

    aborted: (producer id, first offset) of the aborted transactions that touch `records` (read_committed only).
    diverging_epoch: (epoch, end offset) when the source log was truncated below the asked position, else None.
    preferred: the broker to read from instead, when the question told its rack (KIP-392; there are no records then),
    or -1.
    """

    topic_id: uuid.UUID
    partition: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...] = ()
    diverging_epoch: tuple[int, int] | None = None
    preferred: int = -1


@dataclass(frozen=True, slots=True)
class ProducePartition:
    """One batch for one partition. Never name a partition twice in one request: the broker keeps only the last."""

    topic_id: uuid.UUID
    partition: int
    batch: tuple[bytes | bytearray | memoryview, ...] = field(repr=False)  # pieces, sent in order


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """record_errors: (index in the batch, reason) of the records that made the leader refuse it (KIP-467).
    append_time: ms, where the broker stamped the records itself; -1 where it kept their timestamps."""

    topic_id: uuid.UUID
    partition: int
    error: int
    base_offset: int
    log_start: int
    message: str = ""
    record_errors: tuple[tuple[int, str], ...] = ()
    append_time: int = -1


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """Answer of ListOffsets for one partition (`offset` -1: no such record)."""

    topic: str
    partition: int
    error: int
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a leader holds about one producer on a partition (DescribeProducers)."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int  # of the last record it wrote, ms
    transaction_start: int  # -1 when no transaction is open


EARLIEST = -2  # ListOffsets timestamps with a meaning of their own
LATEST = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Wire(Protocol):
    """One connection to one broker. Not thread-safe: one owner a connection.

    Raises `clusters.errors.Unreachable` when the connection is lost (the outcome of what was in flight is then
    unknown) and `clusters.errors.ProtocolError` for an answer that cannot be understood.
    """

    @property
    def alias(self) -> str:
        """The cluster's alias."""
        ...

    @property
    def throttle_ms(self) -> int:
        """How long the last Fetch or Produce answer asks us to be silent (KIP-219)."""
        ...

    def metadata(self, topics: tuple[str, ...] | None = None) -> ClusterMetadata:
        """Metadata of the named topics; None asks for all of them. Never creates a topic."""
        ...

    def fetch(
        self,
        partitions: tuple[FetchPartition, ...],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 32 << 20,
        isolation: int = READ_COMMITTED,
        rack: str = "",
    ) -> list[FetchedPartition]:
        """Send one Fetch and wait for its answer. isolation: READ_COMMITTED stops at the last stable offset. rack:
        where the reader stands; the leader may then name another replica (KIP-392).

        Over a quota the answer names no partition, which says nothing of them (`clusters.wire.answered_fetch`).
        """
        ...

    def send_produce(
        self,
        partitions: tuple[ProducePartition, ...],
        *,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> None:
        """Send one Produce (acks=all) without waiting. Answers come in the order of the requests.

        transactional_id: that of the batches, which then all belong to one transaction.
        """
        ...

    def receive_produce(self) -> list[ProducedPartition]:
        """Block for the answer to the oldest unanswered Produce of this connection."""
        ...

    def list_offsets(
        self, partitions: tuple[tuple[str, int], ...], timestamp: int, *, isolation: int = READ_UNCOMMITTED
    ) -> list[OffsetAnswer]:
        """The first offset at or after `timestamp` (ms), or EARLIEST, LATEST. Ask the partitions' leader."""
        ...

    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[ProducerState]]:
        """(error code, states) of one partition. Ask the leader: followers answer too, with older data."""
        ...

    def describe_producers_of(
        self, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], tuple[int, list[ProducerState]]]:
        """(topic, partition) → (error code, states), by one request."""
        ...

    def issue_producer_id(self) -> int:
        """A fresh producer id without a transactional id. Raises ProtocolError rather than return -1."""
        ...

    def close(self) -> None:
        """Close the connection; answers under way are lost."""
        ...
