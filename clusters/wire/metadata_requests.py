"""The requests around Fetch and Produce, built and read with the generated schemas of kio."""

from __future__ import annotations

import datetime
import uuid
from collections import defaultdict

from kio.schema.describe_producers.v0 import request as describe_request
from kio.schema.describe_producers.v0 import response as describe_response
from kio.schema.init_producer_id.v4 import request as producer_id_request
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7 import response as offsets_response
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from clusters.errors import ProtocolError
from clusters.wire.messages import (
    ClusterMetadata,
    OffsetAnswer,
    PartitionLeader,
    ProducerState,
    TopicMetadata,
)

_NO_ID = uuid.UUID(int=0)


def build_metadata_request(topics: tuple[str, ...] | None) -> metadata_request.MetadataRequest:
    """Metadata of the named topics; None asks for all, () for none. Never creates a topic."""
    wanted = None
    if topics is not None:
        wanted = tuple(metadata_request.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
    return metadata_request.MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def build_cluster_metadata(answer: metadata_response.MetadataResponse) -> ClusterMetadata:
    """Reads the answer; partitions are sorted by number, a missing topic id is zero."""
    return ClusterMetadata(
        cluster_id=answer.cluster_id or "",
        brokers={int(broker.node_id): (broker.host, int(broker.port)) for broker in answer.brokers},
        topics=tuple(
            TopicMetadata(
                name=str(topic.name or ""),
                topic_id=topic.topic_id or _NO_ID,
                error=int(topic.error_code),
                partitions=tuple(
                    PartitionLeader(
                        int(part.partition_index),
                        int(part.leader_id),
                        int(part.leader_epoch),
                        int(part.error_code),
                    )
                    for part in sorted(topic.partitions, key=lambda part: part.partition_index)
                ),
            )
            for topic in answer.topics
        ),
    )


def build_list_offsets_request(
    partitions: tuple[tuple[str, int], ...], timestamp: int, isolation: int
) -> offsets_request.ListOffsetsRequest:
    """The same timestamp (or EARLIEST, LATEST) for all (topic, partition) pairs."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return offsets_request.ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=tuple(
            offsets_request.ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    offsets_request.ListOffsetsPartition(partition_index=i32(index), timestamp=i64(timestamp))
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic.items()
        ),
    )


def build_offset_answers(answer: offsets_response.ListOffsetsResponse) -> list[OffsetAnswer]:
    """One answer a partition, in the broker's order."""
    return [
        OffsetAnswer(
            str(topic.name),
            int(part.partition_index),
            int(part.error_code),
            int(part.offset),
            int(part.leader_epoch),
        )
        for topic in answer.topics
        for part in topic.partitions
    ]


def build_producers_request(topic: str, partition: int) -> describe_request.DescribeProducersRequest:
    """DescribeProducers of one partition (KIP-664)."""
    return describe_request.DescribeProducersRequest(
        topics=(describe_request.TopicRequest(name=TopicName(topic), partition_indexes=(i32(partition),)),)
    )


def build_producer_states(answer: describe_response.DescribeProducersResponse) -> tuple[int, list[ProducerState]]:
    """Returns (error code, states). Raises ProtocolError for an answer without a partition."""
    found = [part for topic in answer.topics for part in topic.partitions]
    if not found:
        raise ProtocolError("an answer to DescribeProducers leaves out the partition that was asked for")
    part = found[0]
    return int(part.error_code), [
        ProducerState(
            int(state.producer_id),
            int(state.producer_epoch),
            int(state.last_sequence),
            int(state.last_timestamp),
            int(state.current_txn_start_offset),
        )
        for state in part.active_producers
    ]


def build_producer_id_request() -> producer_id_request.InitProducerIdRequest:
    """InitProducerId without a transactional id, as an idempotent producer sends it."""
    return producer_id_request.InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=2**31 - 1)),
    )
