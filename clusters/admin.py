"""Administration of one real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from watershed.clusters import librdkafka
from watershed.clusters.admin_requests import AdminRequests
from watershed.clusters.cluster_protocol import GroupState, LogRange, ReadIsolation, TopicDescription, TopicShape
from watershed.clusters.errors import RequestRefused, TopicExists, TopicMissing
from watershed.clusters.settings import ConnectionSettings, build_wrong_cluster_error
from watershed.clusters.topic_partition import TopicPartition

# librdkafka names states as Python enums do; Watershed uses Kafka's own spelling.
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}


class Admin:
    """See `clusters.cluster_protocol.ClusterProtocol` for what each method promises.

    `timeout` bounds every request, in seconds. May be shared by threads. Connects at the first request.
    """

    def __init__(self, settings: ConnectionSettings, *, timeout: float = 15.0) -> None:
        self.settings = settings
        self._ask = AdminRequests(settings, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the librdkafka client; requests under way are given up."""
        self._ask.close()

    def cluster_id(self) -> str:
        """Returns the id that the brokers report. Raises Unreachable."""
        return str(self._ask.cluster().cluster_id)

    def check_identity(self) -> None:
        """Raises `WrongCluster` when the settings pin another cluster id than the brokers report."""
        pinned = self.settings.cluster_id
        if pinned is None:
            return
        actual = self.cluster_id()
        if actual != pinned:
            raise build_wrong_cluster_error(self.settings, actual)

    def brokers(self) -> int:
        """Returns how many brokers are up, as one of them knows it."""
        return len(self._ask.cluster().nodes)

    def topics(self) -> dict[str, TopicDescription]:
        """Returns every topic that this user may see, by name."""
        return self._ask.topics(self._ask.topic_names())

    def topic(self, name: str) -> TopicDescription | None:
        """Returns the topic, or None when it does not exist or is hidden from this user."""
        return self._ask.topics([name]).get(name)

    def shapes(self) -> dict[str, TopicShape]:
        """Returns partition count and replication factor of every topic, by one Metadata request."""
        return self._ask.shapes()

    def effective_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns all settings in force for each topic, inherited ones too. Raises `TopicMissing`."""
        return self._ask.effective_configs(names)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the settings that each topic has of its own. Raises `TopicMissing`."""
        return self._ask.topic_configs(names)

    def broker_config(self, key: str) -> str | None:
        """Returns the value in force on one broker (the first that is named); None for an unknown or hidden key."""
        return self._ask.broker_configs(self._ask.cluster().nodes[0].id).get(key)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Creates the topic and waits until every partition has a leader. Raises `TopicExists` for another count."""
        self._ask.create_topic(name, partitions, replication_factor, configs or {})
        topic = self._settled(name, 1)
        if topic.partitions != partitions:
            raise build_partition_count_error(self.settings.alias, topic, partitions)
        return topic

    def alter_topic_configs(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Sets these settings and leaves all others; None removes the topic's own value."""
        if configs:
            self._ask.alter_topic_configs(name, configs)

    def create_partitions(self, name: str, total: int) -> TopicDescription:
        """Raises the partition count to `total` and waits for the leaders; never lowers it."""
        self._ask.create_partitions(name, total)
        return self._settled(name, total)

    def offsets(
        self, partitions: Iterable[TopicPartition], isolation: ReadIsolation = "read_committed"
    ) -> dict[TopicPartition, LogRange]:
        """Returns log start and log end; with read_committed the end is the last stable offset."""
        asked = sorted(set(partitions))
        starts = self._ask.offsets(asked, latest=False, isolation="read_uncommitted")
        ends = self._ask.offsets(asked, latest=True, isolation=isolation)
        return {key: LogRange(starts[key], ends[key]) for key in asked}

    def group(self, group_id: str) -> GroupState:
        """Returns the group's state and committed offsets; an unknown group is Dead."""
        found = self._ask.group(group_id)
        if found is None or found[0] == "DEAD":
            return GroupState(group_id, "Dead", "", 0)
        state, simple, members = found
        offsets = self._ask.group_offsets(group_id)
        return GroupState(group_id, _STATES.get(state) or state.title(), "" if simple else "consumer", members, offsets)

    def group_assignment(self, group_id: str) -> dict[str, list[TopicPartition]] | None:
        """Returns client id → assigned partitions; empty for an unknown group, None while the group rebalances."""
        return self._ask.group_assignment(group_id)

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits for an empty group, then reads back and compares. Raises `GroupNotEmpty`."""
        if not offsets:
            return
        if self.group(group_id).members:
            raise librdkafka.build_group_not_empty_error(self.settings.alias, group_id)
        self._ask.commit(group_id, offsets)
        stored = self._ask.group_offsets(group_id)
        for key, offset in sorted(offsets.items()):
            if stored.get(key) != offset:
                raise RequestRefused(
                    f"group {group_id} on cluster {self.settings.alias}: {offset} was committed for {key}, but "
                    f"{stored.get(key)} is stored. Something else commits for this group: find and stop it.",
                    alias=self.settings.alias,
                    topic=key.topic,
                    partition=key.partition,
                    group=group_id,
                )

    def _settled(self, name: str, partitions: int) -> TopicDescription:
        """Wait until the topic is described with so many partitions and each one's leader answers for its log."""
        deadline = time.monotonic() + self._ask.timeout
        while True:
            try:
                topic = self.topic(name)
                if topic is not None and topic.partitions >= partitions:
                    self.offsets(TopicPartition(name, number) for number in range(topic.partitions))
                    return topic
            except TopicMissing:
                pass  # described by one broker, not yet known to the leader itself
            if time.monotonic() > deadline:
                raise self.settings.unreachable(
                    f"topic {name} has partitions without a leader after {self._ask.timeout:g} s"
                )
            time.sleep(0.05)


def build_partition_count_error(alias: str, topic: TopicDescription, wanted: int) -> TopicExists:
    """The error for a topic that exists with another partition count than the `wanted` one."""
    return TopicExists(
        f"topic {topic.name} exists on cluster {alias} with {topic.partitions} partitions, {wanted} were asked "
        "for. Nothing was changed: choose another name, or the same partition count.",
        alias=alias,
        topic=topic.name,
    )
