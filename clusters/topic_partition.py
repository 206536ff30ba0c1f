"""Names of things in a cluster, as types, so that a topic cannot be passed where a group is meant."""

from __future__ import annotations

import uuid
from typing import NamedTuple, NewType

ClusterAlias = NewType("ClusterAlias", str)
ClusterId = NewType("ClusterId", str)
TopicName = NewType("TopicName", str)
GroupId = NewType("GroupId", str)
FlowId = NewType("FlowId", str)
TopicId = NewType("TopicId", uuid.UUID)


class TopicPartition(NamedTuple):
    """One partition of a topic, by name. Prints as `orders-3`, as Kafka's own tools do."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
