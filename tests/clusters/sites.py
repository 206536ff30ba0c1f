"""Two places to run the same cases on: the cluster in memory, and a real broker."""

from __future__ import annotations

import time
import uuid
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import ClusterProtocol, TopicDescription
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.record_batch import BatchBuffer
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition as Partition
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import ProducedPartition, ProducePartition, Wire


class Site(Protocol):
    """What a case may do to a cluster beyond asking it."""

    admin: ClusterProtocol

    def wire(self) -> Wire: ...

    def transaction(self, topic: str, batches: list[list[bytes]], *, commit: bool) -> None:
        """One transaction on partition 0, as a real producer leaves it."""

    def delete_records(self, topic: str, before: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def join(self, group: str, topic: str) -> None:
        """One live consumer, until the case ends."""


class FakeSite:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.admin = self.cluster

    def wire(self) -> Wire:
        return self.cluster.wire()

    def transaction(self, topic: str, batches: list[list[bytes]], *, commit: bool) -> None:
        self.cluster.produce_transaction(topic, 0, batches, end="commit" if commit else "abort")

    def delete_records(self, topic: str, before: int) -> None:
        self.cluster.delete_records(topic, 0, before)

    def delete_topic(self, topic: str) -> None:
        self.cluster.delete_topic(topic)

    def join(self, group: str, topic: str) -> None:
        self.cluster.groups.join(group)

    def end(self) -> None:
        self.cluster.close()


class RealSite:
    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.admin = Admin(settings)
        self._client = AdminClient(settings.librdkafka())
        self._consumers: list[Consumer] = []

    def wire(self) -> Wire:
        return open_connection(self.settings)

    def transaction(self, topic: str, batches: list[list[bytes]], *, commit: bool) -> None:
        producer = Producer(self.settings.librdkafka({"transactional.id": f"case-{uuid.uuid4()}", "linger.ms": 200}))
        producer.init_transactions(60)
        producer.begin_transaction()
        for values in batches:
            for value in values:
                producer.produce(topic, value, partition=0)
            producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
        key = [Partition(topic, 0)]  # the marker is written after the coordinator has answered
        while self.admin.offsets(key) != self.admin.offsets(key, "read_uncommitted"):
            time.sleep(0.02)

    def delete_records(self, topic: str, before: int) -> None:
        for future in self._client.delete_records([TopicPartition(topic, 0, before)]).values():
            future.result(60)

    def delete_topic(self, topic: str) -> None:
        self._client.delete_topics([topic])[topic].result(60)
        while self.admin.topic(topic) is not None:
            time.sleep(0.05)

    def join(self, group: str, topic: str) -> None:
        consumer = Consumer(self.settings.librdkafka({"group.id": group, "auto.offset.reset": "earliest"}))
        consumer.subscribe([topic])
        deadline = time.monotonic() + 180
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline, "the consumer got no partitions"
        self._consumers.append(consumer)

    def end(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        self._consumers.clear()


def send(wire: Wire, topic: TopicDescription, batch: BatchBuffer, partition: int = 0) -> ProducedPartition:
    """One batch in one request; its answer."""
    wire.send_produce((ProducePartition(topic.topic_id, partition, (batch,)),))
    (answer,) = wire.receive_produce()
    return answer
