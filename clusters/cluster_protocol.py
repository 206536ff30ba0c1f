"""What the rest of Watershed may ask of a cluster, and the shapes of the answers.

Two implementations: `clusters.admin.Admin` (real brokers) and `clusters.fake_cluster.FakeCluster` (in memory).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from watershed.clusters.topic_partition import TopicPartition

ReadIsolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster has it. A topic deleted and created again has another `topic_id` (KIP-516)."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a listing says of a topic, without asking for it by itself."""

    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets of a partition: records lie in start <= offset < end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group. `state` in Kafka's spelling: Empty, Stable, Dead (an unknown group), ..."""

    id: str
    state: str
    protocol_type: str
    members: int
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class ClusterProtocol(Protocol):
    """Every method raises `ClusterError`s only, and answers within the implementation's timeout."""

    def cluster_id(self) -> str:
        """Returns the id that the brokers report."""
        ...

    def check_identity(self) -> None:
        """Raises `WrongCluster` when the settings pin another cluster id than the brokers report."""
        ...

    def brokers(self) -> int:
        """How many brokers are up."""
        ...

    def topics(self) -> dict[str, TopicDescription]:
        """Returns every topic that this user may see, by name."""
        ...

    def topic(self, name: str) -> TopicDescription | None:
        """Returns the topic, or None when it does not exist or is hidden from this user."""
        ...

    def shapes(self) -> dict[str, TopicShape]:
        """Every topic by one request, as one broker knows it now: it may lag behind the others by a moment."""
        ...

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Only what is set on the topic itself, not what it inherits. Raises `TopicMissing`."""
        ...

    def effective_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """All settings in force for each topic, inherited ones as well (keys a broker hides are left out).

        Raises `TopicMissing`.
        """
        ...

    def broker_config(self, key: str) -> str | None:
        """The value in force on one broker; None when the broker knows no such key (or hides it)."""
        ...

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Create it and wait until every partition has a leader that answers.

        A topic that exists with the same number of partitions is returned as it is (configs are not looked at);
        another number raises `TopicExists`. replication_factor None: the broker's default.
        """
        ...

    def alter_topic_configs(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set these settings of the topic and leave all others; None takes the topic's own value away. `TopicMissing`,
        `Unauthorised`, `RequestRefused` for a value that the broker does not take."""
        ...

    def create_partitions(self, name: str, total: int) -> TopicDescription:
        """Give the topic so many partitions and wait until each has a leader that answers.

        A topic that has as many or more is returned as it is: Kafka never takes partitions away. Raises `TopicMissing`.
        """
        ...

    def offsets(
        self, partitions: Iterable[TopicPartition], isolation: ReadIsolation = "read_committed"
    ) -> dict[TopicPartition, LogRange]:
        """Log start and log end; with read_committed the end is the last stable offset. `TopicMissing`."""
        ...

    def group(self, group_id: str) -> GroupState:
        """An unknown group is answered as Dead, without members and offsets."""
        ...

    def group_assignment(self, group_id: str) -> dict[str, list[TopicPartition]] | None:
        """Client ids of a consumer group's members with what each was given; empty for an unknown group, None while
        the group rebalances."""
        ...

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for an empty group, without a leader epoch, then read back and compare. `GroupNotEmpty`."""
        ...
