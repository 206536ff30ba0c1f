"""The requests of transactions (KIP-98, KIP-360, KIP-890), over `Connection.ask`.

Two protocols are in use. With `transaction.version` 2 (TV2, the default of Kafka 4) a transactional Produce adds its
partitions itself, every EndTxn answers with the producer's next epoch, and sequence numbers begin at 0 in every
transaction. With 0 or 1 (TV1) partitions are added by a request of their own, the epoch stays from one transaction to
the next, and so do the sequence numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import Wire
from watershed.clusters.wire.metadata_requests import build_producer_id_values
from watershed.clusters.wire.versions import ANY_VERSION, Api

REPLICATED_S: Final = 40.0  # for an answer that waits for replicas or coordinators
_TRANSACTION = 1  # key type of FindCoordinator


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

    def add_group(self, transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> int:
        """TV1 only: positions of the group become part of the transaction."""
        ...

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> tuple[int, ProducerIdAndEpoch]:
        """(error, who writes the next transaction). bump: TV2, where every transaction has an epoch of its own."""
        ...


class TransactionRequests(ABC):
    """What a connection gets to be a `TransactionWire`."""

    @abstractmethod
    def ask(
        self,
        api_key: int,
        *,
        lowest: int = 0,
        highest: int = ANY_VERSION,
        patience_s: float | None = None,
        **values: Any,
    ) -> Any:
        """Send a question and read the answer."""

    @abstractmethod
    def ask_encoded(self, api: Api, encode: Callable[[int], bytes], patience_s: float | None = None) -> Any:
        """As `ask`, with a body that is encoded already."""

    def find_coordinator(self, transactional_id: str) -> tuple[int, tuple[str, int]]:
        """See `TransactionWire`. Any broker may be asked."""
        answer = self.ask(
            Api.FIND_COORDINATOR,
            lowest=1,  # 0 finds groups only
            patience_s=REPLICATED_S,
            key_type=_TRANSACTION,
            key=transactional_id,
            coordinator_keys=(transactional_id,),
        )
        (found,) = getattr(answer, "coordinators", None) or (answer,)  # below 4 it answers for one key
        return int(found.error_code), (str(found.host), int(found.port))

    def init_producer(self, transactional_id: str, timeout_ms: int) -> tuple[int, ProducerIdAndEpoch]:
        """See `TransactionWire`. Ask the coordinator. From version 5 on it may answer TRANSACTION_ABORTABLE."""
        values = build_producer_id_values(transactional_id, timeout_ms)
        answer = self.ask(Api.INIT_PRODUCER_ID, patience_s=REPLICATED_S, **values)
        return int(answer.error_code), ProducerIdAndEpoch(int(answer.producer_id), int(answer.producer_epoch))

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], int]:
        """See `TransactionWire`. Ask the coordinator."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        answer = self.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            patience_s=REPLICATED_S,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=tuple(
                {"name": topic, "partitions": tuple(numbers)} for topic, numbers in by_topic.items()
            ),
        )
        return {
            (str(topic.name), int(part.partition_index)): int(part.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }

    def add_group(self, transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> int:
        """See `TransactionWire`. Ask the coordinator of the transaction."""
        answer = self.ask(
            Api.ADD_OFFSETS_TO_TXN,
            patience_s=REPLICATED_S,
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        )
        return int(answer.error_code)

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> tuple[int, ProducerIdAndEpoch]:
        """See `TransactionWire`. Ask the coordinator. The version says which protocol is meant: from 5 on the broker
        bumps the epoch and names it in the answer."""
        answer = self.ask(
            Api.END_TXN,
            lowest=5 if bump else 0,
            highest=ANY_VERSION if bump else 4,
            patience_s=REPLICATED_S,
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        error = int(answer.error_code)
        if error == error_codes.NONE and bump:
            return error, ProducerIdAndEpoch(int(answer.producer_id), int(answer.producer_epoch))
        return error, producer
