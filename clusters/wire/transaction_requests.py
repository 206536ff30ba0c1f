"""The requests of transactions (KIP-98, KIP-360, KIP-890), built and read with the generated schemas of kio.

Two protocols are in use. With `transaction.version` 2 (TV2, the default of Kafka 4) a transactional Produce adds its
partitions itself, every EndTxn answers with the producer's next epoch, and sequence numbers begin at 0 in every
transaction. With 0 or 1 (TV1) partitions are added by a request of their own, the epoch stays from one transaction to
the next, and so do the sequence numbers.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any, NamedTuple, Protocol

from kio.schema.add_partitions_to_txn.v3 import request as add_request
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.schema.end_txn.v4.request import EndTxnRequest as EndTxnRequest4
from kio.schema.end_txn.v4.response import EndTxnResponse as EndTxnResponse4
from kio.schema.end_txn.v5.request import EndTxnRequest as EndTxnRequest5
from kio.schema.end_txn.v5.response import EndTxnResponse as EndTxnResponse5
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta

from clusters.wire import error_codes
from clusters.wire.messages import Wire

_TRANSACTION = i8(1)  # key type of FindCoordinator


class ProducerIdAndEpoch(NamedTuple):
    """Who writes in a transaction; the epoch tells its incarnation, older ones are fenced."""

    producer_id: int
    epoch: int


class TransactionWire(Wire, Protocol):
    """A connection that knows transactions. Every method answers with Kafka's error code first."""

    def find_coordinator(self, transactional_id: str) -> tuple[int, tuple[str, int]]:
        """(error, (host, port)) of the transaction coordinator."""
        ...

    def init_producer(self, transactional_id: str, timeout_ms: int) -> tuple[int, ProducerIdAndEpoch]:
        """Fence whoever used the id before and end his transaction; `timeout_ms` is how long one of ours may last."""
        ...

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], int]:
        """TV1 only: error code by (topic, partition)."""
        ...

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> tuple[int, ProducerIdAndEpoch]:
        """(error, who writes the next transaction). bump: TV2, where every transaction has an epoch of its own."""
        ...


class TransactionRequests(ABC):
    """What a connection gets to be a `TransactionWire`."""

    @abstractmethod
    def ask(self, question: Any, answer_type: Any) -> Any:
        """Send a question and read the answer."""

    def find_coordinator(self, transactional_id: str) -> tuple[int, tuple[str, int]]:
        """See `TransactionWire`. Any broker may be asked."""
        question = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=(transactional_id,))
        (found,) = self.ask(question, FindCoordinatorResponse).coordinators
        return int(found.error_code), (str(found.host), int(found.port))

    def init_producer(self, transactional_id: str, timeout_ms: int) -> tuple[int, ProducerIdAndEpoch]:
        """See `TransactionWire`. Ask the coordinator."""
        question = InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=timeout_ms)),
        )
        answer = self.ask(question, InitProducerIdResponse)
        return int(answer.error_code), ProducerIdAndEpoch(int(answer.producer_id), int(answer.producer_epoch))

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], int]:
        """See `TransactionWire`. Ask the coordinator, in version 3: newer ones are between brokers."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        question = add_request.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(transactional_id),
            v3_and_below_producer_id=ProducerId(producer.producer_id),
            v3_and_below_producer_epoch=i16(producer.epoch),
            v3_and_below_topics=tuple(
                add_request.AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(map(i32, numbers)))
                for topic, numbers in by_topic.items()
            ),
        )
        answer = self.ask(question, AddPartitionsToTxnResponse)
        return {
            (str(topic.name), int(part.partition_index)): int(part.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> tuple[int, ProducerIdAndEpoch]:
        """See `TransactionWire`. Ask the coordinator; version 5 with `bump`, else 4."""
        asked = EndTxnRequest5 if bump else EndTxnRequest4
        question = asked(
            transactional_id=TransactionalId(transactional_id),
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=i16(producer.epoch),
            committed=commit,
        )
        answer = self.ask(question, EndTxnResponse5 if bump else EndTxnResponse4)
        error = int(answer.error_code)
        if error == error_codes.NONE and bump:
            return error, ProducerIdAndEpoch(int(answer.producer_id), int(answer.producer_epoch))
        return error, producer
