"""The requests around Fetch and Produce: values for `Connection.ask`, and what the answers say.

Values are those of all versions that `clusters.wire.versions` lists; a version takes the ones it has fields for.
"""

from __future__ import annotations

import datetime
import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from watershed.clusters.errors import ProtocolError
from watershed.clusters.wire.messages import (
    ClusterMetadata,
    OffsetAnswer,
    PartitionLeader,
    ProducerState,
    TopicMetadata,
)
from watershed.clusters.wire.topic_names import build_stand_in_id, remember_topic

NO_AUTO_CREATION: Final = 4  # the first Metadata that can ask without creating a topic
WITH_TOPIC_IDS: Final = 10  # the first that has them (KIP-516, Kafka 2.8)
LONGEST_TRANSACTION_MS: Final = 2**31 - 1
_DEBUGGING_REPLICA: Final = -2  # no consumer and no follower (ListOffsetsRequest.DEBUGGING_REPLICA_ID)
_NO_ID = uuid.UUID(int=0)


def build_metadata_values(topics: tuple[str, ...] | None) -> dict[str, Any]:
    """Metadata of the named topics; None asks for all, () for none. Never creates a topic."""
    return {
        "topics": None if topics is None else tuple({"topic_id": None, "name": name} for name in topics),
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def build_cluster_metadata(answer: Any) -> ClusterMetadata:
    """Reads the answer; partitions are sorted by number. A topic without an id gets a stand-in id; one that is not
    there has id zero. Remembers the names of topics for requests that need them."""
    cluster_id = str(answer.cluster_id or "")
    ids = [_find_topic_id(cluster_id, topic) for topic in answer.topics]
    for topic, topic_id in zip(answer.topics, ids, strict=True):
        if topic_id.int:
            remember_topic(cluster_id, str(topic.name), topic_id)
    return ClusterMetadata(
        cluster_id=cluster_id,
        brokers={int(broker.node_id): (broker.host, int(broker.port)) for broker in answer.brokers},
        topics=tuple(
            TopicMetadata(
                name=str(topic.name or ""),
                topic_id=topic_id,
                error=int(topic.error_code),
                partitions=tuple(
                    PartitionLeader(
                        int(part.partition_index),
                        int(part.leader_id),
                        int(getattr(part, "leader_epoch", -1)),  # from version 7 on
                        int(part.error_code),
                    )
                    for part in sorted(topic.partitions, key=lambda part: part.partition_index)
                ),
            )
            for topic, topic_id in zip(answer.topics, ids, strict=True)
        ),
    )


def _find_topic_id(cluster_id: str, topic: Any) -> uuid.UUID:
    told: uuid.UUID | None = getattr(topic, "topic_id", None)
    if told is not None and told.int:
        return told
    return build_stand_in_id(cluster_id, str(topic.name)) if topic.name and not int(topic.error_code) else _NO_ID


def build_list_offsets_values(
    partitions: tuple[tuple[str, int], ...], timestamp: int, isolation: int, unreplicated: bool = False
) -> dict[str, Any]:
    """The same timestamp (or EARLIEST, LATEST) for all (topic, partition) pairs. unreplicated:
    also count what the leader alone has, which no consumer is shown yet (it is answered as to a debugging replica)."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return {
        "replica_id": _DEBUGGING_REPLICA if unreplicated else -1,
        "isolation_level": isolation,
        "topics": tuple(
            {
                "name": topic,
                "partitions": tuple({"partition_index": index, "timestamp": timestamp} for index in indexes),
            }
            for topic, indexes in by_topic.items()
        ),
    }


def build_offset_answers(answer: Any, asked: Iterable[tuple[str, int]]) -> list[OffsetAnswer]:
    """One answer a partition, in the broker's order. Raises ProtocolError when one that was asked for is left out."""
    found = [
        OffsetAnswer(
            str(topic.name),
            int(part.partition_index),
            int(part.error_code),
            int(part.offset),
            int(getattr(part, "leader_epoch", -1)),  # from version 4 on
        )
        for topic in answer.topics
        for part in topic.partitions
    ]
    if absent := sorted(set(asked) - {(each.topic, each.partition) for each in found}):
        raise ProtocolError(f"an answer to ListOffsets leaves out {absent[0][0]}-{absent[0][1]}, which was asked for")
    return found


def build_producers_values(partitions: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """DescribeProducers of these (topic, partition) (KIP-664)."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return {"topics": tuple({"name": name, "partition_indexes": tuple(parts)} for name, parts in by_topic.items())}


def build_producer_states(
    answer: Any, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, list[ProducerState]]]:
    """(topic, partition) → (error code, states). Raises ProtocolError for an answer without one of them."""
    found = {
        (str(topic.name), int(part.partition_index)): (int(part.error_code), _build_states(part))
        for topic in answer.topics
        for part in topic.partitions
    }
    for topic, partition in partitions:
        if (topic, partition) not in found:
            raise ProtocolError(f"an answer to DescribeProducers leaves out {topic}-{partition}, which was asked for")
    return found


def _build_states(part: Any) -> list[ProducerState]:
    return [
        ProducerState(
            int(state.producer_id),
            int(state.producer_epoch),
            int(state.last_sequence),
            int(state.last_timestamp),
            int(state.current_txn_start_offset),
        )
        for state in part.active_producers
    ]


def build_producer_id_values(transactional_id: str | None, timeout_ms: int) -> dict[str, Any]:
    """InitProducerId; without a transactional id as an idempotent producer sends it."""
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": datetime.timedelta(milliseconds=timeout_ms),
    }
